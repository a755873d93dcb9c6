#include "adapters/sqlite/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/sqlite/load.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/schema.h"
#include "adapters/sqlite/writer.h"
#include "adapters/steady_clock.h"

namespace semaphored::sqlite {
namespace {

using ledger::CommitResult;
using ledger::Failed;

// A checkpoint writes each page once, however often it changed, and syncs the file: the longer the
// log, the less there is to write for each commit, and the longer the one commit takes that waits
// for it. While no client sends a command it delays none.
constexpr int kLogPagesMax = 2000;
constexpr int kLogPagesWhenIdle = 100;
constexpr auto kIdle = std::chrono::milliseconds(100);

Guarantees GuaranteesOf(const StoreOptions& options, bool in_memory) {
  Guarantees guarantees;
  guarantees.adapter = "sqlite";
  guarantees.exclusive = true;
  guarantees.durable_tickets = true;
  guarantees.history = options.history_rows != 0;
  guarantees.leases_survive_daemon = !in_memory;
  return guarantees;
}

}  // namespace

SqliteStore::SqliteStore(std::shared_ptr<Database> database, std::shared_ptr<NodeTable> nodes,
                         const StoreOptions& options)
    : database_(std::move(database)),
      nodes_(std::move(nodes)),
      options_(options),
      guarantees_(GuaranteesOf(options, database_->in_memory())),
      history_(options.history_rows),
      spare_pages_(database_.get(), options_.upkeep) {}

SqliteStore::~SqliteStore() {
  std::scoped_lock lock(database_->mutex());
  ReturnTokens();
  writer_.reset();
  statements_.reset();
}

// ---- Loading ----

absl::StatusOr<ledger::Image> SqliteStore::LoadAll() {
  std::scoped_lock lock(database_->mutex());
  if (database_->unsettled()) {
    // What is about to be read must not be overtaken by a commit that was lost.
    if (absl::Status status = WriteSomething(); !status.ok()) return status;
  }
  index_ = Index();
  requests_ = RequestLog();
  history_ = HistoryLog(options_.history_rows);
  absl::StatusOr<ledger::Image> image =
      Loader(database_.get(), &index_, &requests_, &history_).Load();
  if (!image.ok()) return image.status();
  if (absl::Status status = Prepare(); !status.ok()) return status;
  return image;
}

absl::Status SqliteStore::Prepare() {
  statements_ = std::make_unique<Statements>();
  Statements& s = *statements_;
  const std::pair<Statement*, const char*> all[] = {
      {&s.add_semaphore, "INSERT INTO semaphores(number, name, record) VALUES(?, ?, ?)"},
      {&s.set_semaphore, "UPDATE semaphores SET record = ? WHERE number = ?"},
      {&s.remove_semaphore, "DELETE FROM semaphores WHERE number = ?"},
      {&s.add_revision, "INSERT INTO revisions(semaphore, revision, next_order) VALUES(?, ?, ?)"},
      {&s.set_revision,
       "UPDATE revisions SET revision = ?, next_order = ? WHERE semaphore = ? AND revision = ?"},
      {&s.remove_revision, "DELETE FROM revisions WHERE semaphore = ?"},
      {&s.add_lease, "INSERT INTO leases(token, record) VALUES(?, ?)"},
      {&s.set_lease, "UPDATE leases SET record = ? WHERE token = ?"},
      {&s.remove_lease, "DELETE FROM leases WHERE token = ?"},
      {&s.add_waiter, "INSERT INTO waiters(number, record) VALUES(?, ?)"},
      {&s.set_waiter, "UPDATE waiters SET record = ? WHERE number = ?"},
      {&s.remove_waiter, "DELETE FROM waiters WHERE number = ?"},
      {&s.add_ticket, "INSERT INTO tickets(number, record) VALUES(?, ?)"},
      {&s.set_ticket, "UPDATE tickets SET record = ? WHERE number = ?"},
      {&s.remove_ticket, "DELETE FROM tickets WHERE number = ?"},
      {&s.add_payload, "INSERT INTO payloads(number, record) VALUES(?, ?)"},
      {&s.get_payload, "SELECT record FROM payloads WHERE number = ?"},
      {&s.remove_payload, "DELETE FROM payloads WHERE number = ?"},
      {&s.add_session, "INSERT INTO sessions(record, number) VALUES(?, ?)"},
      {&s.set_session, "UPDATE sessions SET record = ? WHERE number = ?"},
      {&s.remove_session, "DELETE FROM sessions WHERE number = ?"},
      {&s.add_client, "INSERT INTO clients(number, client_id, since) VALUES(?, ?, ?)"},
      {&s.remove_client, "DELETE FROM clients WHERE number = ?"},
      {&s.add_requests, "INSERT INTO requests(number, record) VALUES(?, ?)"},
      {&s.get_requests, "SELECT record FROM requests WHERE number = ?"},
      {&s.cut_requests, "DELETE FROM requests WHERE number < ?"},
      {&s.add_history, "INSERT INTO history(first, record) VALUES(?, ?)"},
      {&s.get_history, "SELECT first, record FROM history WHERE first < ? ORDER BY first DESC"},
      {&s.cut_history, "DELETE FROM history WHERE first < ?"},
      {&s.set_meta, "UPDATE meta SET value = ? WHERE key = ?"},
  };
  for (const auto& [statement, sql] : all) {
    absl::StatusOr<Statement> prepared = database_->Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  writer_ =
      std::make_unique<Writer>(database_.get(), statements_.get(), &index_, &requests_, &history_);
  return absl::OkStatus();
}

// ---- Committing ----

CommitResult SqliteStore::Commit(ledger::Transaction& transaction, SteadyTime) {
  std::scoped_lock lock(database_->mutex());
  if (statements_ == nullptr)
    return Failed(absl::FailedPreconditionError("sqlite: nothing has been loaded"));
  if (database_->unsettled()) {
    return Failed(absl::FailedPreconditionError(
        absl::StrCat("sqlite: ", database_->name(),
                     ": a commit's fate is not known, it must be settled first")));
  }
  if (absl::Status status = nodes_->CheckMayWrite(transaction.node); !status.ok())
    return Failed(std::move(status));
  return Write(transaction);
}

// Whatever stops it from being written, the lost commit may still be there: no failure but a win
// ends the doubt.
CommitResult SqliteStore::Settle(ledger::Transaction& transaction, SteadyTime) {
  std::scoped_lock lock(database_->mutex());
  if (!database_->unsettled())
    return Failed(absl::FailedPreconditionError("sqlite: there is nothing to settle"));
  CommitResult result;
  result.status = nodes_->CheckMayWrite(transaction.node);
  if (result.status.ok()) result = Write(transaction);
  if (result.kind != CommitResult::Kind::kWon || !result.status.ok())
    result.kind = CommitResult::Kind::kUnknown;
  return result;
}

CommitResult SqliteStore::Write(ledger::Transaction& transaction) {
  if (absl::Status status = database_->Begin(); !status.ok()) return Failed(std::move(status));
  CommitResult result;
  result.status = writer_->WriteRows(transaction);
  if (!result.status.ok()) {
    database_->Rollback();
    writer_->Forget();
    const bool lost = absl::IsAborted(result.status);
    result.kind = lost ? CommitResult::Kind::kLost : CommitResult::Kind::kFailed;
    result.stale = writer_->stale();
    return result;
  }
  switch (database_->Commit(&result.status)) {
    case CommitFate::kWon:
      writer_->Learn(transaction, &index_, &requests_, &history_);
      if (database_->log_pages() >= kLogPagesMax) Checkpoint();
      spare_pages_.StepBetweenCommits();
      return result;
    case CommitFate::kFailed:
      result.kind = CommitResult::Kind::kFailed;
      break;
    case CommitFate::kUnknown:
      result.kind = CommitResult::Kind::kUnknown;
      break;
  }
  writer_->Forget();
  return result;
}

// A page at least, in the log, where a lost commit may stand. The value must change: SQLite does
// not write what is as it was.
absl::Status SqliteStore::WriteSomething() {
  if (absl::Status status = database_->Begin(); !status.ok()) return status;
  absl::Status status = database_->Execute(
      absl::StrCat("UPDATE meta SET value = value + 1 WHERE key = '", kMetaTokens, "'"));
  if (!status.ok()) {
    database_->Rollback();
    return status;
  }
  database_->Commit(&status);
  return status;
}

// At a clean end: what is reserved and was not given. No grant can get a token after this, so that
// the next start may go on without a gap; a start after a crash goes on above the block.
void SqliteStore::ReturnTokens() {
  if (statements_ == nullptr || database_->unsettled() ||
      index_.last_token == index_.tokens_reserved)
    return;
  const uint64_t counter = index_.last_token & ((uint64_t{1} << kTokenCounterBits) - 1);
  if (!database_->Begin().ok()) return;
  const int code =
      statements_->set_meta.Bind(1, static_cast<int64_t>(counter)).BindText(2, kMetaTokens).Step();
  absl::Status status;
  if (code == SQLITE_DONE) {
    database_->Commit(&status);
  } else {
    database_->Rollback();
  }
}

void SqliteStore::Checkpoint() {
  options_.upkeep->Note(UpkeepWork::kSpace, database_->Checkpoint());
  spare_pages_.Look();
}

// ---- Reading ----

absl::StatusOr<std::vector<SqliteStore::FoundRequest>> SqliteStore::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t window) {
  std::scoped_lock lock(database_->mutex());
  std::vector<FoundRequest> found(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestKey& request = requests[i].request;
    const std::optional<uint64_t> row = requests_.Find(request);
    if (!row) {
      found[i].too_old = request.sequence + window <= requests_.Highest(request.client);
      continue;
    }
    absl::StatusOr<ledger::RequestRow> read = ReadRequest(*row, request);
    if (!read.ok()) return read.status();
    found[i].row = *std::move(read);
  }
  return found;
}

absl::StatusOr<ledger::RequestRow> SqliteStore::ReadRequest(uint64_t row,
                                                            const RequestKey& request) {
  Statement& statement = statements_->get_requests.Bind(1, static_cast<int64_t>(row));
  const int code = statement.Step();
  if (code == SQLITE_DONE)
    return database_->DataLoss(absl::StrCat("requests ", row, " are missing"));
  if (code != SQLITE_ROW) return database_->Error(code, "read a request");
  std::optional<ledger::RequestRow> found;
  absl::Status status = ReadRequests(row, statement.Blob(0), [&](const RequestView& view) {
    if (view.request == request && !view.removed) found = view.Copy();
  });
  statement.Reset();
  if (!status.ok()) return database_->DataLoss(status.message());
  if (!found) return database_->DataLoss(absl::StrCat("a request is missing in ", row));
  return *std::move(found);
}

absl::StatusOr<std::vector<PayloadPtr>> SqliteStore::ReadPayloads(
    absl::Span<const TicketAt> tickets) {
  std::scoped_lock lock(database_->mutex());
  std::vector<PayloadPtr> payloads(tickets.size());
  for (size_t i = 0; i < tickets.size(); ++i) {
    const auto known = index_.tickets.find(tickets[i].ticket);
    if (known == index_.tickets.end()) continue;
    Statement& statement = statements_->get_payload.Bind(1, known->second);
    const int code = statement.Step();
    if (code == SQLITE_DONE)
      return database_->DataLoss(absl::StrCat("payload ", known->second, " is missing"));
    if (code != SQLITE_ROW) return database_->Error(code, "read a payload");
    absl::StatusOr<std::string_view> read =
        ReadPayload(static_cast<uint64_t>(known->second), statement.Blob(0));
    if (read.ok()) payloads[i] = std::make_shared<const std::string>(*read);
    statement.Reset();
    if (!read.ok()) return database_->DataLoss(read.status().message());
  }
  return payloads;
}

absl::StatusOr<std::vector<HistoryRow>> SqliteStore::ReadHistory(const std::string& semaphore,
                                                                 uint64_t before,
                                                                 uint32_t rows_max) {
  if (!history_.kept())
    return absl::UnimplementedError("sqlite: history_rows=0, no history is kept");
  std::scoped_lock lock(database_->mutex());
  const uint64_t below = before == 0 ? history_.next() : std::min(before, history_.next());
  std::vector<HistoryRow> rows;
  Statement& statement = statements_->get_history.Bind(1, static_cast<int64_t>(below));
  std::vector<HistoryRow> of_row;
  int code = SQLITE_DONE;
  while (rows.size() < rows_max && (code = statement.Step()) == SQLITE_ROW) {
    of_row.clear();
    const auto first = static_cast<uint64_t>(statement.Int(0));
    absl::Status status = sqlite::ReadHistory(first, statement.Blob(1), [&](HistoryRow row) {
      const bool wanted = semaphore.empty() || row.semaphore == semaphore;
      if (wanted && row.number < below && row.number >= history_.floor())
        of_row.push_back(std::move(row));
    });
    if (!status.ok()) {
      statement.Reset();
      return database_->DataLoss(status.message());
    }
    while (!of_row.empty() && rows.size() < rows_max) {
      rows.push_back(std::move(of_row.back()));
      of_row.pop_back();
    }
    if (first <= history_.floor()) break;
  }
  if (code != SQLITE_ROW && code != SQLITE_DONE) return database_->Error(code, "read its history");
  statement.Reset();
  return rows;
}

// ---- Waiting ----

absl::StatusOr<std::vector<ledger::ChangeNotice>> SqliteStore::Wait(SteadyTime deadline) {
  std::unique_lock lock(wake_mutex_);
  const auto woken = [this] { return woken_; };
  if (!WaitUntil(wake_, lock, std::min(deadline, SteadyClock::now() + kIdle), woken) &&
      SteadyClock::now() < deadline) {
    bool more = true;
    while (more && !woken_ && SteadyClock::now() < deadline) {
      lock.unlock();
      more = Tidy();
      lock.lock();
    }
    WaitUntil(wake_, lock, deadline, woken);
  }
  woken_ = false;
  return std::vector<ledger::ChangeNotice>();
}

bool SqliteStore::Tidy() {
  std::scoped_lock lock(database_->mutex());
  if (database_->unsettled()) return false;
  if (spare_pages_.too_many()) {
    spare_pages_.Step();
  } else {
    spare_pages_.Look();
  }
  const bool more = spare_pages_.too_many();
  const bool cut = !more && database_->cut_due();
  if (cut || database_->log_pages() >= (more ? kLogPagesMax : kLogPagesWhenIdle)) Checkpoint();
  return more;
}

void SqliteStore::Wake() {
  {
    std::scoped_lock lock(wake_mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

}  // namespace semaphored::sqlite
