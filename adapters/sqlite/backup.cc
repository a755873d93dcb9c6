#include "adapters/sqlite/backup.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "adapters/sqlite/files.h"
#include "adapters/steady_clock.h"

namespace semaphored::sqlite {
namespace {

using std::chrono::microseconds;

// A commit that comes meanwhile waits for one step.
constexpr microseconds kStepTime(2'000);
constexpr int kPagesAtOnceMin = 4;
constexpr int kPagesAtOnceMax = 256;

// So much may be on its way to the disk: a commit's sync would have to wait for more.
constexpr int64_t kUnsyncedBytesMax = 8 << 20;

// It is thrown away unless it is complete, so it needs neither a journal nor syncs by SQLite.
constexpr char kSettings[] =
    "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE; "
    "PRAGMA cache_size=-1024;";

absl::Status SystemError(const std::string& doing) {
  return FromCode(doing, std::error_code(errno, std::generic_category()));
}

// One copy. The source's connection is used under the database's mutex only.
class Copy {
 public:
  explicit Copy(Database* database) : database_(*database) {}
  ~Copy() { Close(); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  absl::Status Begin();
  // The next pages. True: it has all of them.
  absl::StatusOr<bool> Step();
  // On disk, up to what was written until now. Takes no mutex.
  absl::Status SyncSome(int64_t unsynced_bytes_max);
  // Whether the disk still has room for the rest of it.
  absl::Status CheckRoom() const;
  // REQUIRES: Step has returned true.
  absl::StatusOr<Descriptor> Finish();

  int64_t done_bytes() const { return done_pages_ * page_bytes_; }
  int64_t all_bytes() const { return all_pages_ * page_bytes_; }
  SteadyClock::duration step_time() const { return step_time_; }

 private:
  absl::Status MakeFile();
  absl::Status TargetError(int code) const;
  void Close();

  Database& database_;
  Descriptor file_;
  sqlite3* target_ = nullptr;
  sqlite3_backup* backup_ = nullptr;
  int64_t page_bytes_ = 0;
  int64_t done_pages_ = 0;
  int64_t all_pages_ = 0;
  int64_t synced_bytes_ = 0;
  int pages_at_once_ = 32;
  SteadyClock::duration step_time_{};
};

absl::Status Copy::TargetError(int code) const {
  const std::string text =
      absl::StrCat("sqlite: cannot back up ", database_.name(), ": ", sqlite3_errstr(code));
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(text);
    default:
      return absl::UnavailableError(text);
  }
}

// The name goes as soon as SQLite has the file open. One that is there is what a kill in between
// has left.
absl::Status Copy::MakeFile() {
  const std::string path = database_.name() + ".backup";
  unlink(path.c_str());
  file_ = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_.open()) return SystemError("make " + path);
  int code =
      sqlite3_open_v2(path.c_str(), &target_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code == SQLITE_OK) code = sqlite3_exec(target_, kSettings, nullptr, nullptr, nullptr);
  unlink(path.c_str());
  return code == SQLITE_OK ? absl::OkStatus() : TargetError(code);
}

absl::Status Copy::Begin() {
  if (absl::Status status = MakeFile(); !status.ok()) return status;
  std::scoped_lock lock(database_.mutex());
  const absl::StatusOr<int64_t> page_bytes = database_.QueryInt("PRAGMA page_size");
  if (!page_bytes.ok()) return page_bytes.status();
  const absl::StatusOr<Database::Pages> pages = database_.CountPages();
  if (!pages.ok()) return pages.status();
  page_bytes_ = *page_bytes;
  all_pages_ = pages->all;
  backup_ = sqlite3_backup_init(target_, "main", database_.handle(), "main");
  return backup_ != nullptr ? absl::OkStatus() : TargetError(sqlite3_errcode(target_));
}

absl::StatusOr<bool> Copy::Step() {
  std::scoped_lock lock(database_.mutex());
  if (database_.unsettled()) {
    return absl::UnavailableError(absl::StrCat("sqlite: cannot back up ", database_.name(),
                                               ": its disk does not take its commits"));
  }
  const SteadyTime began = SteadyClock::now();
  const int code = sqlite3_backup_step(backup_, pages_at_once_);
  step_time_ = SteadyClock::now() - began;
  if (code != SQLITE_OK && code != SQLITE_DONE) return TargetError(code);
  if (step_time_ > kStepTime) {
    pages_at_once_ = std::max(pages_at_once_ / 2, kPagesAtOnceMin);
  } else if (step_time_ < kStepTime / 2) {
    pages_at_once_ = std::min(pages_at_once_ * 2, kPagesAtOnceMax);
  }
  all_pages_ = sqlite3_backup_pagecount(backup_);
  done_pages_ = all_pages_ - sqlite3_backup_remaining(backup_);
  return code == SQLITE_DONE;
}

absl::Status Copy::SyncSome(int64_t unsynced_bytes_max) {
  if (done_bytes() - synced_bytes_ < unsynced_bytes_max) return absl::OkStatus();
  if (fdatasync(file_.get()) != 0) return SystemError("sync a back-up");
  synced_bytes_ = done_bytes();
  return CheckRoom();
}

absl::Status Copy::CheckRoom() const {
  struct statvfs disk {};
  if (fstatvfs(file_.get(), &disk) != 0) return SystemError("look at the disk");
  const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  const int64_t needed = all_bytes() - synced_bytes_ + kRoomKept;
  if (free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("sqlite: cannot back up ", database_.name(), ": its disk has ", free >> 20,
                   " MiB free, and the copy that is made beside it needs ", needed >> 20, " MiB"));
}

absl::StatusOr<Descriptor> Copy::Finish() {
  Close();
  if (fsync(file_.get()) != 0) return SystemError("sync a back-up");
  return std::move(file_);
}

void Copy::Close() {
  std::scoped_lock lock(database_.mutex());
  sqlite3_backup_finish(std::exchange(backup_, nullptr));
  sqlite3_close(std::exchange(target_, nullptr));
}

// So long that `bytes` in it, and in the step before, are no more than the rate; and at least as
// long as that step, so that commits have half of the time.
SteadyClock::duration Pause(int64_t bytes, int64_t bytes_per_second,
                            SteadyClock::duration step_time) {
  const microseconds at_rate(bytes * 1'000'000 / bytes_per_second);
  return std::max<SteadyClock::duration>(at_rate - step_time, step_time);
}

}  // namespace

absl::StatusOr<Descriptor> BackUp(Database* database, const BackUpOptions& options) {
  if (database->in_memory())
    return absl::FailedPreconditionError("sqlite: a store in memory has no back-up");
  Copy copy(database);
  absl::Status status = copy.Begin();
  if (status.ok()) status = copy.CheckRoom();
  while (status.ok()) {
    const int64_t before = copy.done_bytes();
    const absl::StatusOr<bool> complete = copy.Step();
    if (!complete.ok()) return complete.status();
    if (*complete) return copy.Finish();
    status = copy.SyncSome(kUnsyncedBytesMax);
    if (options.progress && !options.progress(copy.done_bytes(), copy.all_bytes()))
      return absl::CancelledError("sqlite: the back-up was given up");
    std::this_thread::sleep_for(
        Pause(copy.done_bytes() - before, options.bytes_per_second, copy.step_time()));
  }
  return status;
}

}  // namespace semaphored::sqlite
