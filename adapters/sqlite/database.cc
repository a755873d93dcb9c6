#include "adapters/sqlite/database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/sqlite/log_buffer.h"

namespace semaphored::sqlite {
namespace {

// The log is filled with zeros up to here when the file is opened, so that a commit's sync does not
// have to write the file's size as well (0.13 ms instead of 0.19). Twice what is written between
// two checkpoints. A log that a large commit has made longer is cut to this (journal_size_limit).
constexpr int64_t kLogBytesReserved = 16 << 20;

// A file of up to 64 MiB is checked when it is opened: that takes some 3 ms for each MiB.
constexpr int64_t kPagesCheckedMax = 16'384;

// One daemon has the file (EXCLUSIVE: the log's index lives in memory, no file locks on the way). A
// page deleted is not overwritten with zeros (Debian's default), which would write it once more.
constexpr char kSettings[] =
    "PRAGMA locking_mode=EXCLUSIVE;"
    "PRAGMA cache_size=-65536;"
    "PRAGMA temp_store=MEMORY;"
    "PRAGMA secure_delete=OFF;"
    "PRAGMA cell_size_check=ON;"
    "PRAGMA trusted_schema=OFF;"
    "PRAGMA wal_autocheckpoint=0;"
    "PRAGMA journal_size_limit=16777216;";
static_assert(kLogBytesReserved == 16'777'216);

// As PRAGMA auto_vacuum returns it.
constexpr int64_t kIncremental = 2;

// SQLite counts every allocation under one mutex unless configured not to. Too late if other code
// of the process used SQLite first.
void ConfigureOnce() {
  static const int done = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  (void)done;
}

absl::StatusCode CodeOf(int code, int system_error) {
  const bool forbidden = system_error == EACCES || system_error == EPERM || system_error == EROFS;
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_CANTOPEN:
      return forbidden ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kFailedPrecondition;
    case SQLITE_IOERR:
      return code == SQLITE_IOERR_SHORT_READ || code == SQLITE_IOERR_CORRUPTFS
                 ? absl::StatusCode::kDataLoss
                 : absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

int KeepLogPages(void* log_pages, sqlite3*, const char*, int pages) {
  *static_cast<int*>(log_pages) = pages;
  return SQLITE_OK;
}

}  // namespace

Database::Database(std::unique_ptr<FileLock> lock)
    : lock_(std::move(lock)), name_(lock_ == nullptr ? ":memory:" : lock_->resolved_path()) {}

Database::~Database() {
  begin_ = Statement();
  commit_ = Statement();
  // With a limit SQLite would cut the log to nothing, and the next start would have to fill it.
  if (handle_ != nullptr)
    sqlite3_exec(handle_, "PRAGMA journal_size_limit=-1", nullptr, nullptr, nullptr);
  // Checkpoints what is in the log. Before the lock goes, which is a member.
  sqlite3_close_v2(handle_);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const DatabaseOptions& options) {
  ConfigureOnce();
  std::unique_ptr<FileLock> lock;
  if (!options.path.empty()) {
    absl::StatusOr<std::unique_ptr<FileLock>> taken = FileLock::Take(options.path);
    if (!taken.ok()) return taken.status();
    lock = *std::move(taken);
  }
  std::unique_ptr<Database> database(new Database(std::move(lock)));
  if (absl::Status status = database->OpenHandle(options); !status.ok()) return status;
  if (absl::Status status = database->SetUp(options); !status.ok()) return status;
  return database;
}

absl::Status Database::OpenHandle(const DatabaseOptions& options) {
  const int flags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  std::string vfs = options.vfs;
  // Without syncs nothing would say when what is appended is to be written.
  if (options.synchronous) {
    absl::StatusOr<std::string> buffered = LogBufferVfs(options.vfs);
    if (!buffered.ok()) return buffered.status();
    vfs = *std::move(buffered);
  }
  const int code =
      sqlite3_open_v2(name_.c_str(), &handle_, flags, vfs.empty() ? nullptr : vfs.c_str());
  if (code != SQLITE_OK) return Error(code, "open it");
  if (sqlite3_db_readonly(handle_, "main") == 1) {
    return absl::PermissionDeniedError(absl::StrCat("sqlite: ", name_, " can only be read"));
  }
  return absl::OkStatus();
}

absl::Status Database::SetUp(const DatabaseOptions& options) {
  if (absl::Status status = Execute(kSettings); !status.ok()) return status;
  if (absl::Status status = PrepareToShrink(); !status.ok()) return status;
  if (lock_ != nullptr) {
    absl::StatusOr<Statement> mode = Prepare("PRAGMA journal_mode=WAL");
    if (!mode.ok()) return mode.status();
    const int code = mode->Step();
    if (code != SQLITE_ROW) return Error(code, "open its log");
    if (mode->Text(0) != "wal")
      return absl::InternalError(absl::StrCat("sqlite: ", name_, " cannot have a log"));
    mode->Reset();
    int keep = 1;
    sqlite3_file_control(handle_, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    sqlite3_wal_hook(handle_, KeepLogPages, &log_pages_);
  }
  const char* synchronous =
      options.synchronous ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=OFF";
  if (absl::Status status = Execute(synchronous); !status.ok()) return status;
  // The first read takes SQLite's own lock and recovers the log; the write makes sure that the file
  // can be written.
  if (absl::StatusOr<int64_t> read = QueryInt("SELECT count(*) FROM sqlite_master"); !read.ok())
    return read.status();
  if (absl::Status status = Execute("BEGIN IMMEDIATE; COMMIT"); !status.ok()) return status;
  if (lock_ != nullptr) {
    if (absl::Status status = CheckPages(); !status.ok()) return status;
    if (options.synchronous) ReserveLog();
  }
  absl::StatusOr<Statement> begin = Prepare("BEGIN IMMEDIATE");
  if (!begin.ok()) return begin.status();
  absl::StatusOr<Statement> commit = Prepare("COMMIT");
  if (!commit.ok()) return commit.status();
  begin_ = *std::move(begin);
  commit_ = *std::move(commit);
  return absl::OkStatus();
}

// Whether a file can shrink is chosen before its first page is written.
absl::Status Database::PrepareToShrink() {
  const absl::StatusOr<int64_t> pages = QueryInt("PRAGMA page_count");
  if (!pages.ok()) return pages.status();
  if (*pages == 0) {
    absl::Status status = Execute("PRAGMA auto_vacuum=INCREMENTAL");
    if (!status.ok()) return status;
  }
  const absl::StatusOr<int64_t> mode = QueryInt("PRAGMA auto_vacuum");
  if (!mode.ok()) return mode.status();
  can_shrink_ = *mode == kIncremental;
  return absl::OkStatus();
}

// What loading does not meet: pages that are used twice, or are free and used at once. Loading
// reads everything else, so that a large file, most of it history, need not be read twice.
absl::Status Database::CheckPages() {
  absl::StatusOr<int64_t> pages = QueryInt("PRAGMA page_count");
  if (!pages.ok()) return pages.status();
  if (*pages > kPagesCheckedMax) return absl::OkStatus();
  absl::StatusOr<Statement> check = Prepare("PRAGMA quick_check(1)");
  if (!check.ok()) return check.status();
  const int code = check->Step();
  if (code != SQLITE_ROW) return Error(code, "check it");
  const std::string found(check->Text(0));
  return found == "ok" ? absl::OkStatus() : DataLoss(absl::StrCat("the file is corrupt: ", found));
}

// Zeros after the log's last page mean nothing to SQLite: a page there would need a checksum that
// continues the chain. A disk with no room for them is no reason not to serve. SQLite puts no locks
// on this file, so that another descriptor of it may be closed.
void Database::ReserveLog() {
  const std::string path = name_ + "-wal";
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return;  // A file system of tests, which keeps it elsewhere.
  struct stat status = {};
  // By small writes: after large ones the kernel keeps the file in large pieces of memory, which a
  // commit of a few pages then pays for (a tenth of its sync).
  const std::string zeros(4096, '\0');
  int64_t at = fstat(file, &status) == 0 ? status.st_size : kLogBytesReserved;
  while (at < kLogBytesReserved) {
    const auto size = std::min(kLogBytesReserved - at, static_cast<int64_t>(zeros.size()));
    const ssize_t written = pwrite(file, zeros.data(), static_cast<size_t>(size), at);
    if (written <= 0) break;
    at += written;
  }
  fdatasync(file);
  close(file);
}

absl::StatusOr<Statement> Database::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code, absl::StrCat("prepare '", sql, "'"));
  return Statement(statement);
}

absl::Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus()
                           : Error(code, absl::StrCat("execute '", sql.substr(0, 60), "'"));
}

absl::StatusOr<int64_t> Database::QueryInt(absl::string_view sql) {
  absl::StatusOr<Statement> statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  const int code = statement->Step();
  if (code == SQLITE_DONE)
    return absl::NotFoundError(absl::StrCat("sqlite: ", name_, ": no row for '", sql, "'"));
  if (code != SQLITE_ROW) return Error(code, "read it");
  return statement->Int(0);
}

absl::Status Database::Begin() {
  const int code = begin_.Step();
  return code == SQLITE_DONE ? absl::OkStatus() : Error(code, "begin to write");
}

CommitFate Database::Commit(absl::Status* status) {
  const int code = commit_.Step();
  if (code == SQLITE_DONE) {
    unsettled_ = false;
    return CommitFate::kWon;
  }
  *status = Error(code, "write to it");
  Rollback();
  // Memory may run out after the last page was written, when SQLite notes it in the log's index.
  const bool unknown = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_NOMEM;
  if (!unknown) return CommitFate::kFailed;
  unsettled_ = true;
  return CommitFate::kUnknown;
}

void Database::Rollback() {
  // SQLite has rolled back by itself after some errors.
  if (sqlite3_get_autocommit(handle_) == 0)
    sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::Status Database::Error(int code, absl::string_view doing) const {
  const int system_error = handle_ == nullptr ? 0 : sqlite3_system_errno(handle_);
  std::string message =
      absl::StrCat("sqlite: ", name_, ": cannot ", doing, ": ",
                   handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_));
  const absl::StatusCode status_code = CodeOf(code, system_error);
  if (status_code == absl::StatusCode::kFailedPrecondition) {
    absl::StrAppend(&message, "; another process has the file open");
  }
  return absl::Status(status_code, message);
}

absl::Status Database::DataLoss(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("sqlite: ", name_, ": ", what));
}

absl::Status Database::Checkpoint() {
  if (log_pages_ == 0) {
    cut_due_ = false;
    return absl::OkStatus();
  }
  const int code =
      sqlite3_wal_checkpoint_v2(handle_, "main", SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (code != SQLITE_OK) return Error(code, "checkpoint its log");
  log_pages_ = 0;
  cut_due_ = false;
  return absl::OkStatus();
}

absl::StatusOr<Database::Pages> Database::CountPages() {
  const absl::StatusOr<int64_t> all = QueryInt("PRAGMA page_count");
  if (!all.ok()) return all.status();
  const absl::StatusOr<int64_t> free = QueryInt("PRAGMA freelist_count");
  if (!free.ok()) return free.status();
  return Pages{*all, *free};
}

absl::Status Database::GiveBack(int pages) {
  const std::string sql = absl::StrCat("PRAGMA incremental_vacuum(", pages, ")");
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    absl::Status status = Error(code, "give free space back");
    Rollback();
    return status;
  }
  cut_due_ = true;
  return absl::OkStatus();
}

}  // namespace semaphored::sqlite
