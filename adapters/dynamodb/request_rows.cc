#include "adapters/dynamodb/request_rows.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "adapters/dynamodb/one_shots.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

using ledger::NamedRequest;
using ledger::RequestChange;
using ledger::RequestRow;
using FoundRequest = ledger::LedgerStore::FoundRequest;

constexpr std::chrono::hours kKeptMin{24};
constexpr int kKeptRetentions = 12;
constexpr size_t kClientsRemembered = 50'000;

// Attributes.
constexpr char kGivenUp[] = "given_up";

std::optional<RequestRow> ReadRow(const json& item, const RequestKey& request) {
  try {
    RequestRow row;
    row.request = request;
    if (item.contains("fingerprint")) row.fingerprint = IdIn(item, "fingerprint");
    const uint64_t state = NumberIn(item, "state");
    if (state < static_cast<uint64_t>(RequestRow::State::kWaiting) ||
        state > static_cast<uint64_t>(RequestRow::State::kDone))
      return std::nullopt;
    row.state = static_cast<RequestRow::State>(state);
    row.semaphore = TextIn(item, "semaphore");
    if (item.contains("claim")) row.claim = IdIn(item, "claim");
    row.cause = static_cast<EndCause>(NumberIn(item, "cause"));
    row.number = static_cast<uint32_t>(NumberIn(item, "number"));
    row.remaining = static_cast<uint32_t>(NumberIn(item, "remaining"));
    row.changed = FlagIn(item, "changed");
    return row;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// 0: it is not understood, and thus old.
int64_t AskedAt(const json& item) {
  try {
    return SignedIn(item, kAskedAt);
  } catch (const std::exception&) {
    return 0;
  }
}

uint64_t Further(uint64_t sequence, uint64_t further) {
  return sequence + std::min(further, std::numeric_limits<uint64_t>::max() - sequence);
}

Range From(const NamedRequest& named, uint64_t further) {
  Range range;
  if (!named.request.one_shot.empty()) {
    const Key key = OneShotKey(named.request.one_shot);
    range.partition = key.partition;
    range.from = range.to = key.sort;
    return range;
  }
  range.partition = RequestPartition(named.client_id);
  range.from = Sortable(Further(named.request.sequence, further));
  range.rows_max = 1;
  return range;
}

// Those that are higher by less than `bound`, and older.
Range OlderAbove(const NamedRequest& named, uint64_t bound, int64_t than_s) {
  Range range = From(named, 1);
  range.to = Sortable(Further(named.request.sequence, bound));
  range.rows_max = 0;
  range.older_than = std::to_string(than_s);
  return range;
}

}  // namespace

RequestBook::RequestBook(Options options)
    : options_(std::move(options)),
      kept_(std::max<std::chrono::seconds>(
          std::chrono::ceil<std::chrono::seconds>(kKeptRetentions * options_.retention),
          kKeptMin)) {}

// ---- writing ----

Condition RequestBook::Absent() { return Condition::AbsentOr(kGivenUp); }

Key RequestBook::RowKeyOf(const NamedRequest& named) {
  const Id& one_shot = named.request.one_shot;
  return one_shot.empty() ? RequestRowKey(named.client_id, named.request.sequence)
                          : OneShotKey(one_shot);
}

RequestBook::Write RequestBook::WriteOf(const std::string& client_id,
                                        const RequestChange& change) const {
  const RequestRow& row = change.row;
  const bool is_one_shot = !row.request.one_shot.empty();
  Write write{RowKeyOf({row.request, client_id}), {}, Condition::None()};
  auto& set = write.change.set;
  auto& remove = write.change.remove;
  write.removes = is_one_shot && change.op == RequestChange::Op::kRemove;
  if (write.removes) return write;
  const json expires_at_s = Number(NowS() + kept_.count());
  write.change.set_if_absent.emplace_back(kAskedAt, Number(NowS()));
  if (change.op == RequestChange::Op::kRemove) {
    set.emplace_back(kGivenUp, json{{"BOOL", true}});
    set.emplace_back(kExpiresAt, expires_at_s);
    remove = {"state", "fingerprint", "semaphore", "claim"};
    return write;
  }
  if (change.op == RequestChange::Op::kInsert) {
    write.condition = Absent();
    remove.emplace_back(kGivenUp);
  }
  set.emplace_back("state", Number(static_cast<uint64_t>(row.state)));
  if (!row.fingerprint.empty()) set.emplace_back("fingerprint", Text(row.fingerprint.Hex()));
  if (!row.semaphore.empty()) set.emplace_back("semaphore", Text(row.semaphore));
  if (!row.claim.empty()) set.emplace_back("claim", Text(row.claim.Hex()));
  if (row.cause != EndCause::kNone)
    set.emplace_back("cause", Number(static_cast<uint64_t>(row.cause)));
  if (row.number != 0) set.emplace_back("number", Number(uint64_t{row.number}));
  if (row.remaining != 0) set.emplace_back("remaining", Number(uint64_t{row.remaining}));
  if (row.changed) set.emplace_back("changed", json{{"BOOL", true}});
  if (is_one_shot && !row.pinned()) {
    set.emplace_back(kWrittenBy, Text(options_.written_by));
  } else if (!is_one_shot && row.pinned()) {
    remove.emplace_back(kExpiresAt);
  } else if (!is_one_shot) {
    set.emplace_back(kExpiresAt, expires_at_s);
  }
  return write;
}

// ---- reading ----

absl::StatusOr<std::vector<FoundRequest>> RequestBook::Find(Client* client,
                                                            absl::Span<const NamedRequest> requests,
                                                            uint64_t window, SteadyTime deadline) {
  std::vector<Range> ranges;
  for (const NamedRequest& named : requests) ranges.push_back(From(named, 0));
  const auto first = QueryAll(client, options_.table, std::move(ranges), deadline);
  if (!first.ok()) return first.status();
  std::vector<FoundRequest> found(requests.size());
  // What makes a request too old if there is anything.
  std::vector<Range> doubts;
  std::vector<size_t> of;
  const int64_t late_before_s = LateBeforeS();
  for (size_t i = 0; i < requests.size(); ++i) {
    const NamedRequest& named = requests[i];
    if ((*first)[i].empty()) continue;
    const json& item = (*first)[i].front();
    const bool is_own = KeyOf(item) == RowKeyOf(named);
    if (is_own && !item.contains(kGivenUp)) {
      found[i].row = ReadRow(item, named.request);
      // What is not understood was a row all the same.
      found[i].too_old = !found[i].row.has_value();
      continue;
    }
    found[i].too_old = !is_own && AskedAt(item) < late_before_s;
    if (found[i].too_old) continue;
    doubts.push_back(From(named, window));
    doubts.push_back(OlderAbove(named, window, late_before_s));
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

// ---- before a commit ----

void RequestBook::SetGeneration(const Generation& generation) {
  if (generation.number != generation_.number) highest_.clear();
  generation_ = generation;
}

absl::Status RequestBook::LearnGeneration(Client* client, SteadyTime deadline) {
  const absl::StatusOr<Generation> current =
      CurrentGeneration(client, options_.table, NowS(), GenerationLength(), deadline);
  if (!current.ok()) return current.status();
  SetGeneration(*current);
  return absl::OkStatus();
}

absl::Status RequestBook::LookUpClients(Client* client, const std::vector<NamedRequest>& requests,
                                        SteadyTime deadline) {
  std::set<std::string> unknown;
  for (const NamedRequest& named : requests) {
    if (!highest_.contains(named.client_id)) unknown.insert(named.client_id);
  }
  if (unknown.empty()) return absl::OkStatus();
  if (highest_.size() > kClientsRemembered) {
    // Those of this commit are read again, the others when their next request comes.
    highest_.clear();
    for (const NamedRequest& named : requests) unknown.insert(named.client_id);
  }
  std::vector<Range> ranges;
  for (const std::string& client_id : unknown) {
    Range range;
    range.partition = RequestPartition(client_id);
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
      highest_[client_id] = items.empty() ? 0 : FromSortable(KeyOf(items.front()).sort);
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: the key of a request is not understood");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RequestBook::AnyLost(Client* client, const std::vector<NamedRequest>& requests,
                                          SteadyTime deadline) {
  if (requests.empty()) return false;
  if (!generation_.everywhere || generation_.HasLasted(GenerationLength(), NowS())) {
    if (absl::Status status = LearnGeneration(client, deadline); !status.ok()) return status;
  }
  if (absl::Status status = LookUpClients(client, requests, deadline); !status.ok()) return status;
  std::vector<NamedRequest> low;
  for (const NamedRequest& named : requests) {
    if (named.request.sequence <= highest_[named.client_id]) low.push_back(named);
  }
  if (low.empty()) return false;
  const absl::StatusOr<std::vector<FoundRequest>> found =
      Find(client, low, options_.slack, deadline);
  if (!found.ok()) return found.status();
  return std::ranges::any_of(
      *found, [](const FoundRequest& each) { return each.row.has_value() || each.too_old; });
}

}  // namespace semaphored::dynamodb
