#include "adapters/ledger/permit_store.h"

namespace semaphored::ledger {
namespace {

absl::Status NotAsked() {
  return absl::UnimplementedError("a store that hands out permits is not asked for that");
}

}  // namespace

absl::StatusOr<std::optional<Answer>> PermitStore::FindAnswer(const RequestKey& request,
                                                              const std::string&) {
  const auto client = answers_.find(request.client);
  if (client == answers_.end()) return std::nullopt;
  const auto answer = client->second.find(request.sequence);
  if (answer == client->second.end()) return std::nullopt;
  return answer->second;
}

void PermitStore::KeepAnswers(const Transaction& transaction) {
  for (const Answer& answer : transaction.answers)
    answers_[answer.request.client][answer.request.sequence] = answer;
  for (const AnswerFloor& floor : transaction.answer_floors) {
    auto& answers = answers_[floor.client];
    answers.erase(answers.begin(), answers.lower_bound(floor.below));
  }
  for (const uint32_t client : transaction.forgotten_clients) answers_.erase(client);
}

absl::StatusOr<std::vector<std::string>> PermitStore::Changed(
    absl::Span<const SemaphoreRow* const>) {
  return NotAsked();
}
absl::StatusOr<LedgerStore::SessionAt> PermitStore::LoadSession(const Id&) { return NotAsked(); }
absl::StatusOr<LedgerStore::Hosted> PermitStore::HostedBy(absl::Span<const NodeRef>) {
  return NotAsked();
}
absl::StatusOr<std::vector<std::string>> PermitStore::Names(const std::string&, const std::string&,
                                                            uint32_t) {
  return NotAsked();
}
absl::StatusOr<std::vector<HistoryRow>> PermitStore::ReadHistory(const std::string&, uint64_t,
                                                                 uint32_t) {
  return NotAsked();
}

}  // namespace semaphored::ledger
