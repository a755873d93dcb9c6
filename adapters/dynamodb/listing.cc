// What the store reads of sessions and nodes, and what can be listed.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "adapters/common/node_lives.h"
#include "adapters/dynamodb/store.h"

namespace semaphored::dynamodb {

using ledger::SessionPtr;

namespace {

constexpr size_t kSessionsAtOnce = 100;

}  // namespace

absl::StatusOr<ledger::SharedStore::SessionAt> DynamoStore::LoadSession(const Id& session) {
  Range range;
  range.partition = SessionPartition(session);
  const auto items = QueryAll(&client_, table_, {range}, Deadline());
  if (!items.ok()) return items.status();
  SessionAt at;
  memory_.SeeSession(session, nullptr, {});  // Whatever follows: what was known of it may be old.
  for (const json& item : items->front()) {
    try {
      const std::string sort = KeyOf(item).sort;
      if (absl::StartsWith(sort, kAt)) {
        at.semaphores.push_back(sort.substr(sizeof kAt - 1));
      } else {
        at.session = ReadSession(item, ClientNumbers());
      }
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: the row of a session is not understood");
    }
  }
  memory_.SeeSession(session, at.session, at.semaphores);
  return at;
}

absl::StatusOr<ledger::SharedStore::Hosted> DynamoStore::HostedBy(absl::Span<const NodeRef> nodes) {
  const NodeLives lives(nodes);
  std::set<uint32_t> numbers;
  for (const NodeRef& node : nodes) numbers.insert(node.number);
  std::vector<Range> ranges;
  for (const uint32_t number : numbers) ranges.emplace_back().partition = HostPartition(number);
  const auto items = QueryAll(&client_, table_, std::move(ranges), Deadline());
  if (!items.ok()) return items.status();
  std::set<std::string> names;
  std::set<Id> ids;
  for (const std::vector<json>& partition : *items) {
    for (const json& item : partition) {
      const std::string sort = KeyOf(item).sort;
      if (absl::StartsWith(sort, kAt)) {
        const std::string& name = *names.insert(sort.substr(sizeof kAt - 1)).first;
        hosted_.Remember(KeyOf(item).partition, name, item);
      }
      if (!absl::StartsWith(sort, kHostedSession)) continue;
      const std::optional<Id> id = Id::FromHex(sort.substr(sizeof kHostedSession - 1));
      if (id) ids.insert(*id);
    }
  }
  Hosted hosted;
  absl::StatusOr<std::vector<SessionPtr>> rows = ReadRows({ids.begin(), ids.end()});
  if (!rows.ok()) return rows.status();
  ranges.clear();
  for (SessionPtr& session : *rows) {
    if (!lives.Contain(session->host)) continue;
    Range& range = ranges.emplace_back();
    range.partition = SessionPartition(session->id);
    range.from = kAt;
    range.to = kRow;
    hosted.sessions.push_back(std::move(session));
  }
  // Each page has the whole of the time-out: a daemon may have had very many sessions.
  for (size_t at = 0; at < ranges.size(); at += kSessionsAtOnce) {
    const size_t end = std::min(ranges.size(), at + kSessionsAtOnce);
    const auto of_sessions =
        QueryAll(&client_, table_, {ranges.begin() + at, ranges.begin() + end}, Deadline());
    if (!of_sessions.ok()) return of_sessions.status();
    for (const std::vector<json>& partition : *of_sessions) {
      for (const json& item : partition) {
        const std::string sort = KeyOf(item).sort;
        if (absl::StartsWith(sort, kAt)) names.insert(sort.substr(sizeof kAt - 1));
      }
    }
  }
  hosted.semaphores.assign(names.begin(), names.end());
  return hosted;
}

// ---- names and history ----

absl::StatusOr<std::vector<std::string>> DynamoStore::Names(const std::string& prefix,
                                                            const std::string& after,
                                                            uint32_t rows_max) {
  Range range;
  range.partition = kNames;
  // Those with the prefix stand together. `after` itself is left out below.
  range.from = std::max(prefix, after);
  std::vector<std::string> names;
  while (names.size() < rows_max) {
    range.rows_max = rows_max - static_cast<uint32_t>(names.size()) + 1;
    const auto items = QueryAll(&client_, table_, {range}, Deadline());
    if (!items.ok()) return items.status();
    for (const json& item : items->front()) {
      std::string name = KeyOf(item).sort;
      if (!name.starts_with(prefix)) return names;
      if (name != after && names.size() < rows_max) names.push_back(std::move(name));
    }
    if (items->front().size() < range.rows_max) return names;
    range.start = KeyJson(NameKey(KeyOf(items->front().back()).sort));
  }
  return names;
}

absl::StatusOr<std::vector<HistoryRow>> DynamoStore::ReadHistory(const std::string& semaphore,
                                                                 uint64_t before,
                                                                 uint32_t rows_max) {
  std::vector<Range> ranges;
  const auto add = [&](const std::string& name) {
    Range& range = ranges.emplace_back();
    range.partition = HistoryPartition(name);
    range.backward = true;
    range.rows_max = rows_max;
    if (before != 0) range.to = Sortable(before - 1);
  };
  if (semaphore.empty()) {
    Range index;
    index.partition = kNames;
    Range past;
    past.partition = kPast;
    const auto names = QueryAll(&client_, table_, {index, past}, Deadline());
    if (!names.ok()) return names.status();
    std::set<std::string> all;
    for (const std::vector<json>& part : *names) {
      for (const json& item : part) all.insert(KeyOf(item).sort);
    }
    for (const std::string& name : all) add(name);
  } else {
    add(semaphore);
  }
  const auto items = QueryAll(&client_, table_, std::move(ranges), Deadline());
  if (!items.ok()) return items.status();
  std::vector<HistoryRow> rows;
  for (const std::vector<json>& of_one : *items) {
    for (const json& item : of_one) {
      try {
        HistoryRow row;
        const Key key = KeyOf(item);
        row.number = FromSortable(key.sort);
        row.semaphore = key.partition.substr(HistoryPartition("").size());
        row.lease = ReadLease(item, ClientNumbers());
        row.ended_at_unix_ms = SignedIn(item, "ended_at_unix_ms");
        row.cause = static_cast<EndCause>(NumberIn(item, "cause"));
        rows.push_back(std::move(row));
      } catch (const std::exception&) {
        return absl::DataLossError("dynamodb: a row of the history is not understood");
      }
    }
  }
  std::ranges::sort(rows, std::greater<>(), &HistoryRow::number);
  if (rows.size() > rows_max) rows.resize(rows_max);
  return rows;
}

}  // namespace semaphored::dynamodb
