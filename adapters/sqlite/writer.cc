#include "adapters/sqlite/writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/schema.h"

namespace semaphored::sqlite {
namespace {

using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::SessionChange;
using ledger::Transaction;
using ledger::WaiterChange;

// Tokens reserved at a time: two small writes a second at a hundred thousand grants a second.
constexpr uint64_t kTokenBlock = 65'536;

// Whether the rows have the same record; revision and next_order are not in it.
bool SameRecord(const SemaphoreRow& a, const SemaphoreRow& b) {
  return a.limit == b.limit && a.settings == b.settings && a.paused == b.paused &&
         a.destroying == b.destroying && a.made_on_use == b.made_on_use &&
         a.intentions == b.intentions && a.created_at_unix_ms == b.created_at_unix_ms;
}

}  // namespace

absl::Status SqliteStore::Writer::WriteRows(Transaction& transaction) {
  Begin();
  absl::Status status = WriteSessions(transaction.sessions);
  if (status.ok()) status = CheckEpochs(transaction);
  for (SemaphoreDelta& delta : transaction.semaphores) {
    if (!status.ok()) break;
    status = WriteSemaphore(delta);
  }
  if (status.ok()) status = WriteClients(transaction);
  if (status.ok()) status = WriteRequests(transaction);
  if (status.ok()) status = WriteHistory(transaction.history);
  if (status.ok()) status = WriteMeta();
  return status;
}

void SqliteStore::Writer::Begin() {
  counters_.next_semaphore = index_.next_semaphore;
  counters_.next_waiter = index_.next_waiter;
  counters_.next_session = index_.next_session;
  counters_.next_ticket = index_.next_ticket;
  counters_.last_token = index_.last_token;
  counters_.tokens_reserved = index_.tokens_reserved;
  counters_.revision_floor = index_.revision_floor;
  granted_.clear();
  semaphores_added_.clear();
  semaphores_removed_.clear();
  waiters_added_.clear();
  waiters_removed_.clear();
  tickets_added_.clear();
  tickets_removed_.clear();
  sessions_set_.clear();
  sessions_removed_.clear();
  requests_moved_.clear();
  requests_cut_below_ = 0;
  history_cut_below_ = 0;
  stale_.clear();
}

absl::Status SqliteStore::Writer::Run(Statement& statement, absl::string_view doing) {
  const int code = statement.Step();
  return code == SQLITE_DONE ? absl::OkStatus() : database_.Error(code, doing);
}

absl::Status SqliteStore::Writer::RunOnOne(Statement& statement, absl::string_view doing) {
  absl::Status status = Run(statement, doing);
  if (!status.ok() || database_.Changes() == 1) return status;
  return database_.DataLoss(absl::StrCat("cannot ", doing, ": there is no such row"));
}

absl::Status SqliteStore::Writer::Lost(const std::string& semaphore, absl::string_view why) {
  if (!semaphore.empty()) stale_.push_back(semaphore);
  return absl::AbortedError(why);
}

// ---- Semaphores ----

absl::Status SqliteStore::Writer::WriteSemaphore(SemaphoreDelta& delta) {
  const auto known = index_.semaphores.find(delta.name);
  if (delta.before.has_value() != (known != index_.semaphores.end())) {
    return Lost(delta.name, "it was made or destroyed meanwhile");
  }
  uint32_t number = 0;
  if (!delta.before) {
    // Made and destroyed at once leaves no row, but its leases have had tokens.
    if (delta.after) {
      number = counters_.next_semaphore++;
      if (absl::Status status = AddSemaphore(delta, number); !status.ok()) return status;
    }
  } else {
    number = known->second;
    delta.revision = delta.before->revision + 1;
    const SemaphoreRow& now = delta.after ? *delta.after : *delta.before;
    statements_.set_revision.Bind(1, static_cast<int64_t>(delta.revision))
        .Bind(2, static_cast<int64_t>(now.next_order))
        .Bind(3, number)
        .Bind(4, static_cast<int64_t>(delta.before->revision));
    if (absl::Status status = Run(statements_.set_revision, "raise a revision"); !status.ok())
      return status;
    if (database_.Changes() != 1) return Lost(delta.name, "its revision is another");
    if (delta.after && !SameRecord(*delta.before, *delta.after)) {
      bytes_.clear();
      sqlite::WriteSemaphore(number, *delta.after, &bytes_);
      statements_.set_semaphore.BindBlob(1, bytes_).Bind(2, number);
      absl::Status status = RunOnOne(statements_.set_semaphore, "change a semaphore");
      if (!status.ok()) return status;
    }
  }
  if (absl::Status status = WriteLeases(number, delta.leases); !status.ok()) return status;
  if (absl::Status status = WriteWaiters(number, delta.waiters); !status.ok()) return status;
  if (absl::Status status = WriteTickets(number, delta.tickets); !status.ok()) return status;
  return delta.before && !delta.after ? RemoveSemaphore(delta, number) : absl::OkStatus();
}

absl::Status SqliteStore::Writer::AddSemaphore(SemaphoreDelta& delta, uint32_t number) {
  // Above all that a semaphore of this name can have had.
  delta.revision = counters_.revision_floor + 1;
  bytes_.clear();
  sqlite::WriteSemaphore(number, *delta.after, &bytes_);
  statements_.add_semaphore.Bind(1, number).BindText(2, delta.name).BindBlob(3, bytes_);
  if (absl::Status status = Run(statements_.add_semaphore, "add a semaphore"); !status.ok())
    return status;
  statements_.add_revision.Bind(1, number)
      .Bind(2, static_cast<int64_t>(delta.revision))
      .Bind(3, static_cast<int64_t>(delta.after->next_order));
  semaphores_added_.emplace_back(&delta.name, number);
  return Run(statements_.add_revision, "add a revision");
}

absl::Status SqliteStore::Writer::RemoveSemaphore(const SemaphoreDelta& delta, uint32_t number) {
  counters_.revision_floor = std::max(counters_.revision_floor, delta.revision);
  semaphores_removed_.push_back(&delta.name);
  statements_.remove_semaphore.Bind(1, number);
  absl::Status status = RunOnOne(statements_.remove_semaphore, "remove a semaphore");
  if (!status.ok()) return status;
  statements_.remove_revision.Bind(1, number);
  return RunOnOne(statements_.remove_revision, "remove a revision");
}

// ---- Claims ----

// A lease that is granted gets its token, and a row at the end, unless it has ended again by then.
absl::Status SqliteStore::Writer::WriteLeases(uint32_t semaphore,
                                              const std::vector<LeaseChange>& changes) {
  const uint64_t first = counters_.last_token + 1;
  rows_to_add_.clear();
  for (const LeaseChange& change : changes) {
    const Lease* before = change.before.get();
    Lease* after = change.after.get();
    if (after != nullptr && after->token == 0) {
      after->token = before == nullptr ? ++counters_.last_token : before->token;
      granted_.push_back(after);
    }
    if (before == nullptr) {
      rows_to_add_.push_back(after);
    } else if (before->token >= first) {
      rows_to_add_[before->token - first] = after;
    } else if (after == nullptr) {
      statements_.remove_lease.Bind(1, static_cast<int64_t>(before->token));
      absl::Status status = RunOnOne(statements_.remove_lease, "remove a lease");
      if (!status.ok()) return status;
    } else {
      bytes_.clear();
      WriteLease(semaphore, before->token, *after, &bytes_);
      statements_.set_lease.BindBlob(1, bytes_).Bind(2, static_cast<int64_t>(before->token));
      absl::Status status = RunOnOne(statements_.set_lease, "change a lease");
      if (!status.ok()) return status;
    }
  }
  for (const Lease* lease : rows_to_add_) {
    if (lease == nullptr) continue;
    bytes_.clear();
    WriteLease(semaphore, lease->token, *lease, &bytes_);
    statements_.add_lease.Bind(1, static_cast<int64_t>(lease->token)).BindBlob(2, bytes_);
    if (absl::Status status = Run(statements_.add_lease, "add a lease"); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Writer::WriteWaiters(uint32_t semaphore,
                                               const std::vector<WaiterChange>& changes) {
  waiters_to_add_.clear();
  waiters_to_add_at_.clear();
  for (const WaiterChange& change : changes) {
    const Waiter* after = change.after.get();
    if (change.before == nullptr) {
      waiters_to_add_at_[after->id] = waiters_to_add_.size();
      waiters_to_add_.push_back(after);
      continue;
    }
    const Id& id = change.before->id;
    const auto known = index_.waiters.find(id);
    if (known == index_.waiters.end()) {
      const auto added = waiters_to_add_at_.find(id);
      if (added == waiters_to_add_at_.end())
        return Lost("", absl::StrCat("waiter ", id.Hex(), " is not there"));
      waiters_to_add_[added->second] = after;
      continue;
    }
    const int64_t key = known->second;
    absl::Status status;
    if (after == nullptr) {
      statements_.remove_waiter.Bind(1, key);
      waiters_removed_.push_back(id);
      status = RunOnOne(statements_.remove_waiter, "remove a waiter");
    } else {
      bytes_.clear();
      WriteWaiter(static_cast<uint64_t>(key), semaphore, *after, &bytes_);
      statements_.set_waiter.BindBlob(1, bytes_).Bind(2, key);
      status = RunOnOne(statements_.set_waiter, "change a waiter");
    }
    if (!status.ok()) return status;
  }
  return AddWaitersLeft(semaphore);
}

// Those that were queued and have not left again.
absl::Status SqliteStore::Writer::AddWaitersLeft(uint32_t semaphore) {
  for (const Waiter* waiter : waiters_to_add_) {
    if (waiter == nullptr) continue;
    const int64_t key = counters_.next_waiter++;
    bytes_.clear();
    WriteWaiter(static_cast<uint64_t>(key), semaphore, *waiter, &bytes_);
    statements_.add_waiter.Bind(1, key).BindBlob(2, bytes_);
    if (absl::Status status = Run(statements_.add_waiter, "add a waiter"); !status.ok())
      return status;
    waiters_added_.emplace_back(waiter->id, key);
  }
  return absl::OkStatus();
}

// ---- Sessions ----

absl::Status SqliteStore::Writer::WriteSessions(const std::vector<SessionChange>& changes) {
  for (const SessionChange& change : changes) {
    const Session& session = change.after != nullptr ? *change.after : *change.before;
    SessionAtKey at;
    const auto here = sessions_set_.find(session.id);
    const auto known = index_.sessions.find(session.id);
    if (here != sessions_set_.end()) {
      at = here->second;
    } else if (known != index_.sessions.end()) {
      at = known->second;
    }
    const bool as_before =
        change.before == nullptr ? at.key == 0 : at.key != 0 && at.epoch == change.before->epoch;
    if (!as_before) return Lost("", absl::StrCat("session ", session.id.Hex(), " has changed"));
    if (change.after == nullptr) {
      statements_.remove_session.Bind(1, at.key);
      sessions_removed_.push_back(session.id);
      absl::Status status = RunOnOne(statements_.remove_session, "remove a session");
      if (!status.ok()) return status;
      continue;
    }
    const bool is_new = at.key == 0;
    if (is_new) at.key = counters_.next_session++;
    at.epoch = session.epoch;
    bytes_.clear();
    WriteSession(static_cast<uint64_t>(at.key), session, &bytes_);
    Statement& statement = is_new ? statements_.add_session : statements_.set_session;
    statement.BindBlob(1, bytes_).Bind(2, at.key);
    if (absl::Status status = RunOnOne(statement, "write a session"); !status.ok()) return status;
    sessions_set_[session.id] = at;
  }
  return absl::OkStatus();
}

// A detached claim is a session too, but not one of the table: its epoch is in its own row.
absl::Status SqliteStore::Writer::CheckEpochs(const Transaction& transaction) {
  for (const ledger::EpochCondition& condition : transaction.epochs) {
    const auto known = index_.sessions.find(condition.session);
    if (known == index_.sessions.end() || known->second.epoch == condition.epoch) continue;
    const auto here = sessions_set_.find(condition.session);
    if (here != sessions_set_.end() && here->second.epoch == condition.epoch) continue;
    return Lost("", absl::StrCat("session ", condition.session.Hex(), " has another epoch"));
  }
  return absl::OkStatus();
}

// ---- Counters ----

absl::Status SqliteStore::Writer::WriteMeta() {
  if (counters_.last_token > counters_.tokens_reserved) {
    counters_.tokens_reserved = counters_.last_token + kTokenBlock;
    const uint64_t counter = counters_.tokens_reserved & ((uint64_t{1} << kTokenCounterBits) - 1);
    statements_.set_meta.Bind(1, static_cast<int64_t>(counter)).BindText(2, kMetaTokens);
    absl::Status status = RunOnOne(statements_.set_meta, "reserve tokens");
    if (!status.ok()) return status;
  }
  if (counters_.revision_floor == index_.revision_floor) return absl::OkStatus();
  statements_.set_meta.Bind(1, static_cast<int64_t>(counters_.revision_floor))
      .BindText(2, kMetaRevisions);
  return RunOnOne(statements_.set_meta, "raise the floor of revisions");
}

// ---- Afterwards ----

void SqliteStore::Writer::Forget() {
  for (Lease* lease : granted_) lease->token = 0;
  granted_.clear();
}

void SqliteStore::Writer::Learn(Transaction& transaction, Index* index, RequestLog* requests,
                                HistoryLog* history) {
  for (const auto& [name, number] : semaphores_added_) index->semaphores.emplace(*name, number);
  for (const std::string* name : semaphores_removed_) index->semaphores.erase(*name);
  for (const auto& [id, key] : waiters_added_) index->waiters.emplace(id, key);
  for (const Id& id : waiters_removed_) index->waiters.erase(id);
  for (const auto& [id, key] : tickets_added_) index->tickets.emplace(id, key);
  for (const Id& id : tickets_removed_) index->tickets.erase(id);
  for (const auto& [id, at] : sessions_set_) index->sessions[id] = at;
  for (const Id& id : sessions_removed_) index->sessions.erase(id);
  index->next_semaphore = counters_.next_semaphore;
  index->next_waiter = counters_.next_waiter;
  index->next_session = counters_.next_session;
  index->next_ticket = counters_.next_ticket;
  index->last_token = counters_.last_token;
  index->tokens_reserved = counters_.tokens_reserved;
  index->revision_floor = counters_.revision_floor;

  if (!requests_moved_.empty()) {
    requests->BeginRow(requests->next_row());
    for (const RequestKey& request : requests_moved_) requests->Move(request);
  }
  LearnRequests(transaction, requests);
  if (requests_cut_below_ != 0) requests->CutBelow(requests_cut_below_);
  for (const ledger::RequestFloor& floor : transaction.request_floors)
    requests->RaiseFloor(floor.client, floor.below);
  for (const uint32_t client : transaction.forgotten_clients) requests->Forget(client);

  if (transaction.history.empty() || !history->kept()) return;
  uint64_t number = history->next();
  history->Append(number, transaction.history.size());
  for (HistoryRow& row : transaction.history) row.number = number++;
  if (history_cut_below_ != 0) history->CutBelow(history_cut_below_);
}

}  // namespace semaphored::sqlite
