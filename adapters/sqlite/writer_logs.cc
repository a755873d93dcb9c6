// What a commit adds to the logs of requests and history, and the clients that they speak of.
#include "absl/strings/str_cat.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/writer.h"

namespace semaphored::sqlite {
namespace {

using ledger::RequestChange;
using ledger::RequestRow;
using ledger::Transaction;

// Old requests moved by a commit, for each that it adds and once.
constexpr uint64_t kMovedPerRequest = 2;
constexpr uint64_t kMovedAtLeast = 64;

// The end of a lease needs no write of its request: the file shows the end by a request that is
// read as granted and has no lease.
bool IsWritten(const RequestChange& change) {
  return change.op != RequestChange::Op::kUpdate || change.row.state != RequestRow::State::kEnded;
}

RequestChange RemovalOf(const Id& one_shot) {
  RequestChange change;
  change.op = RequestChange::Op::kRemove;
  change.row.request.one_shot = one_shot;
  return change;
}

}  // namespace

// ---- Clients and their requests ----

absl::Status SqliteStore::Writer::WriteClients(const Transaction& transaction) {
  for (const uint32_t client : transaction.forgotten_clients) {
    statements_.remove_client.Bind(1, client);
    if (absl::Status status = Run(statements_.remove_client, "remove a client"); !status.ok())
      return status;
  }
  for (const ledger::NewClient& client : transaction.new_clients) {
    statements_.add_client.Bind(1, client.number)
        .BindText(2, client.client_id)
        .Bind(3, static_cast<int64_t>(requests_.next_row()));
    if (absl::Status status = Run(statements_.add_client, "add a client"); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Writer::WriteRequests(const Transaction& transaction) {
  bytes_.clear();
  size_t written = 0;
  for (const RequestChange& change : transaction.requests) {
    if (change.op == RequestChange::Op::kInsert && requests_.Find(change.row.request))
      return Lost(change.row.semaphore, "the request has a row");
    if (!IsWritten(change)) continue;
    AppendRequest(change, &bytes_);
    ++written;
  }
  for (const Id& one_shot : transaction.forgotten_requests) {
    AppendRequest(RemovalOf(one_shot), &bytes_);
    ++written;
  }
  if (written == 0) return absl::OkStatus();
  requests_added_.swap(bytes_);
  uint64_t row = requests_.next_row();
  const RequestLog::Range range = requests_.RowsToMove(kMovedPerRequest * written + kMovedAtLeast);
  if (range.last > range.first) {
    if (absl::Status status = MoveRequests(range); !status.ok()) return status;
    if (!requests_moved_.empty()) ++row;
  } else {
    requests_cut_below_ = requests_.DeadBelow();
  }
  SealRequests(row, &requests_added_);
  statements_.add_requests.Bind(1, static_cast<int64_t>(row)).BindBlob(2, requests_added_);
  if (absl::Status status = Run(statements_.add_requests, "add requests"); !status.ok())
    return status;
  if (requests_cut_below_ == 0) return absl::OkStatus();
  statements_.cut_requests.Bind(1, static_cast<int64_t>(requests_cut_below_));
  return Run(statements_.cut_requests, "remove old requests");
}

void SqliteStore::Writer::LearnRequests(const Transaction& transaction, RequestLog* requests) {
  bool begun = false;
  const auto begin = [&] {
    if (!begun) requests->BeginRow(requests->next_row());
    begun = true;
  };
  for (const RequestChange& change : transaction.requests) {
    if (!IsWritten(change)) {
      requests->Unpin(change.row.request);
      continue;
    }
    begin();
    if (change.op == RequestChange::Op::kRemove) {
      requests->AddRemoval(change.row.request);
    } else {
      requests->Add(change.row.request, change.row.pinned());
    }
  }
  for (const Id& one_shot : transaction.forgotten_requests) {
    begin();
    requests->AddRemoval({0, 0, one_shot});
  }
}

// Into a row of their own, so that rows never become longer than a batch.
absl::Status SqliteStore::Writer::MoveRequests(RequestLog::Range range) {
  bytes_.clear();
  for (uint64_t row = range.first; row < range.last; ++row) {
    statements_.get_requests.Bind(1, static_cast<int64_t>(row));
    const int code = statements_.get_requests.Step();
    if (code == SQLITE_DONE)
      return database_.DataLoss(absl::StrCat("requests ", row, " are missing"));
    if (code != SQLITE_ROW) return database_.Error(code, "read old requests");
    absl::Status status =
        ReadRequests(row, statements_.get_requests.Blob(0), [&](const RequestView& view) {
          // Of a request that changed twice in one row there is one change: rows are of one commit.
          if (requests_.RowOf(view.request) != row) return;
          bytes_ += view.bytes;
          requests_moved_.push_back(view.request);
        });
    statements_.get_requests.Reset();
    if (!status.ok()) return database_.DataLoss(status.message());
  }
  requests_cut_below_ = range.last;
  if (requests_moved_.empty()) return absl::OkStatus();
  const uint64_t row = requests_.next_row();
  SealRequests(row, &bytes_);
  statements_.add_requests.Bind(1, static_cast<int64_t>(row)).BindBlob(2, bytes_);
  return Run(statements_.add_requests, "move old requests");
}

// ---- History ----

absl::Status SqliteStore::Writer::WriteHistory(const std::vector<HistoryRow>& rows) {
  if (rows.empty() || !history_.kept()) return absl::OkStatus();
  bytes_.clear();
  for (const HistoryRow& row : rows) AppendHistory(row, &bytes_);
  SealHistory(history_.next(), &bytes_);
  statements_.add_history.Bind(1, static_cast<int64_t>(history_.next())).BindBlob(2, bytes_);
  if (absl::Status status = Run(statements_.add_history, "add history"); !status.ok())
    return status;
  history_cut_below_ = history_.DeadBelow();
  if (history_cut_below_ == 0) return absl::OkStatus();
  statements_.cut_history.Bind(1, static_cast<int64_t>(history_cut_below_));
  return Run(statements_.cut_history, "remove old history");
}

}  // namespace semaphored::sqlite
