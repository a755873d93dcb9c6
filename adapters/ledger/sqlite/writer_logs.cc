// What a commit adds to the logs of answers and history, and the clients that they speak of.
#include "absl/strings/str_cat.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/writer.h"

namespace semaphored::sqlite {
namespace {

using ledger::Answer;
using ledger::Transaction;

// Old answers moved by a commit, for each that it adds and once.
constexpr uint64_t kMovedPerAnswer = 2;
constexpr uint64_t kMovedAtLeast = 64;

}  // namespace

// ---- Clients and their answers ----

absl::Status SqliteStore::Writer::WriteClients(const Transaction& transaction) {
  for (const uint32_t client : transaction.forgotten_clients) {
    statements_.remove_client.Bind(1, client);
    if (absl::Status status = Run(statements_.remove_client, "remove a client"); !status.ok())
      return status;
  }
  for (const ledger::NewClient& client : transaction.new_clients) {
    statements_.add_client.Bind(1, client.number)
        .BindText(2, client.client_id)
        .Bind(3, static_cast<int64_t>(answers_.next_row()));
    if (absl::Status status = Run(statements_.add_client, "add a client"); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Writer::WriteAnswers(const std::vector<Answer>& answers) {
  if (answers.empty()) return absl::OkStatus();
  for (const Answer& answer : answers) {
    if (answers_.Find(answer.request))
      return Lost(answer.semaphore, "the request has been answered");
  }
  uint64_t row = answers_.next_row();
  const AnswerLog::Range range =
      answers_.RowsToMove(kMovedPerAnswer * answers.size() + kMovedAtLeast);
  if (range.last > range.first) {
    if (absl::Status status = MoveAnswers(range); !status.ok()) return status;
    if (!answers_moved_.empty()) ++row;
  } else {
    answers_cut_below_ = answers_.DeadBelow();
  }
  bytes_.clear();
  for (const Answer& answer : answers) AppendAnswer(answer, &bytes_);
  SealAnswers(row, &bytes_);
  statements_.add_answers.Bind(1, static_cast<int64_t>(row)).BindBlob(2, bytes_);
  if (absl::Status status = Run(statements_.add_answers, "add answers"); !status.ok())
    return status;
  if (answers_cut_below_ == 0) return absl::OkStatus();
  statements_.cut_answers.Bind(1, static_cast<int64_t>(answers_cut_below_));
  return Run(statements_.cut_answers, "remove old answers");
}

// Into a row of their own, so that rows never become longer than a batch.
absl::Status SqliteStore::Writer::MoveAnswers(AnswerLog::Range range) {
  bytes_.clear();
  for (uint64_t row = range.first; row < range.last; ++row) {
    statements_.get_answers.Bind(1, static_cast<int64_t>(row));
    const int code = statements_.get_answers.Step();
    if (code == SQLITE_DONE)
      return database_.DataLoss(absl::StrCat("answers ", row, " are missing"));
    if (code != SQLITE_ROW) return database_.Error(code, "read old answers");
    absl::Status status =
        ReadAnswers(row, statements_.get_answers.Blob(0), [&](const AnswerView& answer) {
          if (answers_.Find(answer.request) != row) return;
          bytes_ += answer.bytes;
          answers_moved_.push_back(answer.request);
        });
    statements_.get_answers.Reset();
    if (!status.ok()) return database_.DataLoss(status.message());
  }
  answers_cut_below_ = range.last;
  if (answers_moved_.empty()) return absl::OkStatus();
  const uint64_t row = answers_.next_row();
  SealAnswers(row, &bytes_);
  statements_.add_answers.Bind(1, static_cast<int64_t>(row)).BindBlob(2, bytes_);
  return Run(statements_.add_answers, "move old answers");
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
