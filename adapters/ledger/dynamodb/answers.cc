#include "adapters/ledger/dynamodb/answers.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Answer;
using ledger::AskedRequest;
using Found = ledger::LedgerStore::Found;

constexpr std::chrono::hours kKeptMin{24};
constexpr size_t kClientsRemembered = 50'000;
constexpr uint64_t kNoWindow = uint64_t{1} << 62;

std::optional<Answer> ReadAnswer(const json& item, const RequestKey& request) {
  try {
    Answer answer;
    answer.request = request;
    answer.kind = static_cast<Answer::Kind>(NumberIn(item, "kind"));
    answer.semaphore = TextIn(item, "semaphore");
    if (item.contains("claim")) answer.claim = Id::FromHex(TextIn(item, "claim")).value();
    answer.cause = static_cast<EndCause>(NumberIn(item, "cause"));
    answer.number = static_cast<uint32_t>(NumberIn(item, "number"));
    answer.remaining = static_cast<uint32_t>(NumberIn(item, "remaining"));
    answer.changed = FlagIn(item, "changed");
    return answer;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// 0: it is not understood, and thus old.
int64_t AnsweredAt(const json& item) {
  try {
    return SignedIn(item, "answered_at_s");
  } catch (const std::exception&) {
    return 0;
  }
}

uint64_t Further(uint64_t sequence, uint64_t further) {
  return sequence + std::min(further, std::numeric_limits<uint64_t>::max() - sequence);
}

Range From(const AskedRequest& asked, uint64_t further) {
  Range range;
  range.partition = AnswerPartition(asked.client_id);
  range.from = Sortable(Further(asked.request.sequence, further));
  range.rows_max = 1;
  return range;
}

}  // namespace

AnswerBook::AnswerBook(Options options)
    : options_(std::move(options)),
      kept_(std::max<std::chrono::seconds>(
          std::chrono::ceil<std::chrono::seconds>(2 * options_.retention), kKeptMin)) {}

json AnswerBook::Write(const std::string& client_id, const Answer& answer) const {
  json item = ItemWith(AnswerKey(client_id, answer.request.sequence));
  SetNumber(&item, "kind", static_cast<uint64_t>(answer.kind));
  SetText(&item, "semaphore", answer.semaphore);
  if (!answer.claim.empty()) SetText(&item, "claim", answer.claim.Hex());
  SetNumber(&item, "cause", static_cast<uint64_t>(answer.cause));
  SetNumber(&item, "number", answer.number);
  SetNumber(&item, "remaining", answer.remaining);
  SetFlag(&item, "changed", answer.changed);
  SetSigned(&item, "answered_at_s", NowS());
  SetSigned(&item, kExpiresAt, NowS() + kept_.count());
  return item;
}

absl::StatusOr<std::vector<Found>> AnswerBook::Find(Client* client,
                                                    absl::Span<const AskedRequest> requests,
                                                    uint64_t window, SteadyTime deadline) {
  std::vector<Range> ranges;
  for (const AskedRequest& asked : requests) ranges.push_back(From(asked, 0));
  const auto first = QueryAll(client, options_.table, std::move(ranges), deadline);
  if (!first.ok()) return first.status();
  std::vector<Found> found(requests.size());
  // What makes a request too old if there is anything.
  std::vector<Range> doubts;
  std::vector<size_t> of;
  const int64_t old_s = NowS() - kept_.count() / 2;
  for (size_t i = 0; i < requests.size(); ++i) {
    const AskedRequest& asked = requests[i];
    if ((*first)[i].empty()) continue;
    const json& item = (*first)[i].front();
    if (KeyOf(item) == AnswerKey(asked.client_id, asked.request.sequence)) {
      found[i].answer = ReadAnswer(item, asked.request);
      // What is not understood was an answer all the same.
      found[i].too_old = !found[i].answer.has_value();
      if (window >= kNoWindow) continue;
      doubts.push_back(From(asked, window));
      of.push_back(i);
      continue;
    }
    found[i].too_old = AnsweredAt(item) < old_s;
    if (found[i].too_old) continue;
    doubts.push_back(From(asked, options_.slack));
    Range older = From(asked, 0);
    older.to = Sortable(Further(asked.request.sequence, options_.slack));
    older.rows_max = 0;
    older.older_than = std::to_string(old_s);
    doubts.push_back(std::move(older));
    of.insert(of.end(), 2, i);
  }
  if (doubts.empty()) return found;
  const auto second = QueryAll(client, options_.table, std::move(doubts), deadline);
  if (!second.ok()) return second.status();
  for (size_t i = 0; i < of.size(); ++i) {
    if (!(*second)[i].empty()) found[of[i]].too_old = true;
  }
  return found;
}

absl::Status AnswerBook::Look(Client* client, const std::vector<AskedRequest>& requests,
                              SteadyTime now, SteadyTime deadline) {
  std::set<std::string> unknown;
  for (const AskedRequest& asked : requests) {
    const auto seen = seen_.find(asked.client_id);
    if (seen == seen_.end() || now - seen->second.at > kept_ / 2) unknown.insert(asked.client_id);
  }
  if (unknown.empty()) return absl::OkStatus();
  if (seen_.size() > kClientsRemembered) {
    // Those that are spoken of now are asked for anew, with the others when they come.
    seen_.clear();
    for (const AskedRequest& asked : requests) unknown.insert(asked.client_id);
  }
  std::vector<Range> ranges;
  for (const std::string& client_id : unknown) {
    Range range;
    range.partition = AnswerPartition(client_id);
    range.backward = true;
    range.rows_max = 1;
    ranges.push_back(std::move(range));
  }
  const auto highest = QueryAll(client, options_.table, std::move(ranges), deadline);
  if (!highest.ok()) return highest.status();
  size_t at = 0;
  for (const std::string& client_id : unknown) {
    const std::vector<json>& items = (*highest)[at++];
    try {
      const uint64_t high = items.empty() ? 0 : FromSortable(KeyOf(items.front()).sort);
      seen_[client_id] = {high, now};
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: the key of an answer is not understood");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> AnswerBook::AnyAnswered(Client* client,
                                             const std::vector<AskedRequest>& requests,
                                             SteadyTime now, SteadyTime deadline) {
  if (absl::Status status = Look(client, requests, now, deadline); !status.ok()) return status;
  std::vector<AskedRequest> low;
  for (const AskedRequest& asked : requests) {
    if (asked.request.sequence <= seen_[asked.client_id].sequence_high) low.push_back(asked);
  }
  if (low.empty()) return false;
  const absl::StatusOr<std::vector<Found>> found = Find(client, low, kNoWindow, deadline);
  if (!found.ok()) return found.status();
  return std::ranges::any_of(
      *found, [](const Found& each) { return each.answer.has_value() || each.too_old; });
}

}  // namespace semaphored::dynamodb
