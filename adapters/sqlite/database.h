// A connection to an SQLite file: opened for one process alone, with prepared statements, one
// transaction at a time and errors as absl::Status whose message names the file. Knows nothing of
// semaphores.
//
// How a commit may fail. In WAL mode a commit appends pages to the log, the last one marked as the
// end of the transaction, and syncs the log:
//   * before COMMIT, or when there is no room for the pages (SQLITE_FULL, from the write itself,
//     and the marked page is the last thing written: see log_buffer.h): nothing of it is there, and
//     nothing will be. CommitFate::kFailed.
//   * an input/output error during COMMIT: the marked page may have been written, and may or may
//     not reach the disk; SQLite rolls the transaction back in memory, but a process that recovered
//     the log now could find it complete. CommitFate::kUnknown.
// The next commit begins at the offset in the log where the failed one began (or begins a new log,
// with another salt, which makes void all that stood in the old one). So when it wins it has
// overwritten the failed one, and pages of that which lie beyond do not continue its chain of
// checksums. Hence: after kUnknown the caller reports nothing to a client until a commit has won.
// Should the process die before, the next process to open the file sees one outcome or the other,
// whole, and no client has received either.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "adapters/sqlite/file_lock.h"

namespace semaphored::sqlite {

// A prepared statement. Texts and blobs that are bound are not copied: they must live until Step
// has returned.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}

  Statement& Bind(int index, int64_t value) {
    sqlite3_bind_int64(handle_.get(), index, value);
    return *this;
  }
  Statement& BindBlob(int index, std::string_view bytes) {
    sqlite3_bind_blob(handle_.get(), index, bytes.data(), static_cast<int>(bytes.size()),
                      SQLITE_STATIC);
    return *this;
  }
  Statement& BindText(int index, std::string_view text) {
    sqlite3_bind_text(handle_.get(), index, text.data(), static_cast<int>(text.size()),
                      SQLITE_STATIC);
    return *this;
  }
  // SQLITE_ROW, or SQLITE_DONE, or an error; after the latter two it can be bound and stepped
  // again.
  int Step() {
    int code = sqlite3_step(handle_.get());
    if (code != SQLITE_ROW) {
      int reset = sqlite3_reset(handle_.get());
      if (code != SQLITE_DONE) code = reset;
    }
    return code;
  }
  void Reset() { sqlite3_reset(handle_.get()); }

  // Of the row that Step found. Texts and blobs are good until the next Step or Reset.
  int64_t Int(int column) { return sqlite3_column_int64(handle_.get(), column); }
  std::string_view Blob(int column) {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(handle_.get(), column));
    return {bytes, static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column))};
  }
  std::string_view Text(int column) {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
    return {bytes, static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column))};
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

// A mutex that two threads have by turns when both want it. std::mutex lets the thread that has just
// released it take it again first: a lane that commits without a pause would keep a back-up out.
class FairMutex {
 public:
  void lock() {
    const std::scoped_lock turn(next_);
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex next_;  // Held by the thread that has it next.
  std::mutex mutex_;
};

struct DatabaseOptions {
  // Empty: in memory.
  std::string path;
  // False: a commit is not synced. For tests only.
  bool synchronous = true;
  // A virtual file system by which tests make the disk fail. Empty: the system's.
  std::string vfs;
};

enum class CommitFate : uint8_t { kWon, kFailed, kUnknown };

class Database {
 public:
  // Errors as for OpenEngine. Does not look at what the file says.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const DatabaseOptions& options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // The thread that uses the connection holds it. Contended only while a back-up is made: the
  // node's row is written once, at the start.
  FairMutex& mutex() { return mutex_; }

  // The connection, for a back-up; the mutex must be held.
  sqlite3* handle() const { return handle_; }

  // The file's path; ":memory:" if there is none.
  const std::string& name() const { return name_; }
  bool in_memory() const { return lock_ == nullptr; }

  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  // One or more statements, whose rows are ignored.
  absl::Status Execute(const std::string& sql);
  // The first column of the only row. NOT_FOUND if there is no row.
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql);

  absl::Status Begin();
  // `status` is set unless it has won. In each case no transaction is open any more.
  CommitFate Commit(absl::Status* status);
  void Rollback();
  // The last commit's fate is not known, and none has won since.
  bool unsettled() const { return unsettled_; }
  // Rows that the last statement has changed.
  int Changes() const { return sqlite3_changes(handle_); }

  // What a code that a statement gave back means; `doing` completes "cannot …".
  absl::Status Error(int code, absl::string_view doing) const;
  // For a record that cannot be read.
  absl::Status DataLoss(absl::string_view what) const;

  // Pages in the log that a checkpoint would have to go through.
  int log_pages() const { return log_pages_; }
  // Moves the log's pages into the file. A failure costs nothing but that the log grows on: the log
  // has it all.
  absl::Status Checkpoint();

  struct Pages {
    int64_t all = 0;
    int64_t free = 0;  // Nothing is in them.
  };
  absl::StatusOr<Pages> CountPages();
  // False: the file was made without what GiveBack needs, and keeps its size.
  bool can_shrink() const { return can_shrink_; }
  // Takes so many free pages off the file's end, having moved what was there into others. A commit
  // of its own, on which nothing rests: if it fails, also with an unknown fate, the next commit
  // takes its place in the log, and needs no settling. REQUIRES: no transaction is open, and none
  // is unsettled.
  absl::Status GiveBack(int pages);
  // Pages have been given back, and a checkpoint will cut the file.
  bool cut_due() const { return cut_due_; }

  // Whether the file is still ours; see FileLock. Any thread, without the mutex.
  absl::Status CheckFile() const {
    return lock_ == nullptr ? absl::OkStatus() : lock_->CheckStillOurs();
  }

 private:
  explicit Database(std::unique_ptr<FileLock> lock);
  absl::Status OpenHandle(const DatabaseOptions& options);
  absl::Status SetUp(const DatabaseOptions& options);
  absl::Status PrepareToShrink();
  absl::Status CheckPages();
  void ReserveLog();

  const std::unique_ptr<FileLock> lock_;  // Null in memory.
  const std::string name_;
  FairMutex mutex_;
  sqlite3* handle_ = nullptr;
  Statement begin_;
  Statement commit_;
  int log_pages_ = 0;
  bool unsettled_ = false;
  bool can_shrink_ = false;
  bool cut_due_ = false;
};

}  // namespace semaphored::sqlite
