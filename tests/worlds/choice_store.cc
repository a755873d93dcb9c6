#include "tests/worlds/choice_store.h"

#include <algorithm>
#include <utility>

namespace semaphored::worlds {

using ledger::CommitResult;
using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::Transaction;

namespace {

// What the engine has given, into the writer's own rows.
void TakeOver(const Transaction& landed, Transaction* transaction) {
  absl::flat_hash_map<Id, uint64_t> tokens;
  for (size_t i = 0; i < landed.semaphores.size(); ++i) {
    transaction->semaphores[i].revision = landed.semaphores[i].revision;
    for (const LeaseChange& change : landed.semaphores[i].leases) {
      if (!change.before) tokens[change.after->id] = change.after->token;
    }
  }
  ledger::SetTokens(tokens, transaction);
}

CommitResult Lost(const Transaction& transaction) {
  CommitResult lost;
  lost.kind = CommitResult::Kind::kLost;
  for (const SemaphoreDelta& delta : transaction.semaphores) lost.stale.push_back(delta.name);
  return lost;
}

CommitResult Unknown() {
  CommitResult unknown;
  unknown.kind = CommitResult::Kind::kUnknown;
  return unknown;
}

}  // namespace

ChoiceStore::ChoiceStore(size_t lane, bool exclusive, Author* author, StoreFaults faults,
                         std::shared_ptr<simulation::MemoryStore> connection)
    : lane_(lane),
      author_(author),
      faults_(faults),
      connection_(std::move(connection)),
      guarantees_(connection_->guarantees()) {
  guarantees_.exclusive = exclusive;
  guarantees_.durable_tickets = false;
  if (exclusive) guarantees_.lanes_max = 1;
}

void ChoiceStore::Plan(int commit, Fate fate) {
  planned_ = commit;
  fate_ = fate;
  commits_ = 0;
}

void Land(InFlight* write, Author* author) {
  if (write->result) return;
  if (write->fate == Fate::kNever) {
    write->result = Lost(write->transaction);
    return;
  }
  const Author current = std::exchange(*author, {write->lane, write->commands});
  write->result = write->connection->Commit(write->transaction, SteadyTime{});
  *author = current;
}

CommitResult ChoiceStore::Commit(Transaction& transaction, SteadyTime deadline) {
  if (faults_.half_requests) {
    std::erase_if(transaction.requests, [](const ledger::RequestChange& change) {
      return change.op != ledger::RequestChange::Op::kInsert;
    });
  }
  const Fate fate = commits_++ == planned_ ? fate_ : Fate::kLands;
  if (fate == Fate::kLands) return connection_->Commit(transaction, deadline);
  in_flight_ = std::make_shared<InFlight>();
  in_flight_->fate = fate;
  in_flight_->lane = lane_;
  in_flight_->commands = author_->commands;
  in_flight_->transaction = simulation::DeepCopy(transaction);
  in_flight_->connection = connection_;
  if (fate == Fate::kAnswerLost) Land(in_flight_.get(), author_);
  return Unknown();
}

CommitResult ChoiceStore::Settle(Transaction& transaction, SteadyTime) {
  const std::shared_ptr<InFlight> write = std::exchange(in_flight_, nullptr);
  if (faults_.settle_says_lost) return Lost(transaction);
  if (faults_.settle_says_won) return {};
  Land(write.get(), author_);
  if (write->result->kind == CommitResult::Kind::kWon) TakeOver(write->transaction, &transaction);
  return *write->result;
}

absl::StatusOr<std::vector<ledger::ChangeNotice>> ChoiceStore::Wait(SteadyTime) {
  std::vector<ledger::ChangeNotice> notices;
  details_.clear();
  for (Notice& notice : std::exchange(notice_box_, {})) {
    if (notice.details) {
      notice.notice.details =
          notice.notice.semaphore + "@" + std::to_string(notice.notice.revision);
      details_[notice.notice.details] = *std::move(notice.details);
    }
    notices.push_back(std::move(notice.notice));
  }
  return notices;
}

std::optional<ledger::ChangeDetails> ChoiceStore::ReadDetails(const ledger::ChangeNotice& notice) {
  const auto found = details_.find(notice.details);
  if (found == details_.end()) return std::nullopt;
  return found->second;
}

}  // namespace semaphored::worlds
