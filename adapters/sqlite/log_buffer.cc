#include "adapters/sqlite/log_buffer.h"

#include <sqlite3.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::sqlite {
namespace {

// A larger transaction is written in parts. SQLite's own file system takes less than 128 KiB in one
// write: it masks the size, and reports a full disk when nothing is left of it.
constexpr size_t kBufferBytesMax = 1 << 16;

struct Layer {
  std::string name;
  sqlite3_vfs* base = nullptr;
  sqlite3_vfs vfs{};
};

// The log's file. The underlying one lies behind it, in the room that SQLite has made for both.
struct LogFile {
  sqlite3_file header;
  std::string* waiting;  // Owned. What comes from `at` on.
  sqlite3_int64 at;

  sqlite3_file* base() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

LogFile* Of(sqlite3_file* file) { return reinterpret_cast<LogFile*>(file); }

// Nothing waits any more, whatever it returns: SQLite takes back a transaction whose write failed.
int Flush(LogFile* log) {
  if (log->waiting->empty()) return SQLITE_OK;
  const int code = log->base()->pMethods->xWrite(log->base(), log->waiting->data(),
                                                 static_cast<int>(log->waiting->size()), log->at);
  log->waiting->clear();
  return code;
}

int Close(sqlite3_file* file) {
  LogFile* log = Of(file);
  const int flushed = Flush(log);
  const int closed = log->base()->pMethods->xClose(log->base());
  delete std::exchange(log->waiting, nullptr);
  return flushed != SQLITE_OK ? flushed : closed;
}

int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
  const int flushed = Flush(Of(file));
  if (flushed != SQLITE_OK) return flushed;
  return Of(file)->base()->pMethods->xRead(Of(file)->base(), to, size, at);
}

int Write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
  LogFile* log = Of(file);
  const auto waiting = static_cast<sqlite3_int64>(log->waiting->size());
  const bool continues = waiting == 0 || log->at + waiting == at;
  if (!continues || log->waiting->size() + static_cast<size_t>(size) > kBufferBytesMax) {
    const int flushed = Flush(log);
    if (flushed != SQLITE_OK) return flushed;
  }
  if (log->waiting->empty()) log->at = at;
  log->waiting->append(static_cast<const char*>(from), static_cast<size_t>(size));
  return SQLITE_OK;
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  const int flushed = Flush(Of(file));
  if (flushed != SQLITE_OK) return flushed;
  return Of(file)->base()->pMethods->xTruncate(Of(file)->base(), size);
}

int Sync(sqlite3_file* file, int flags) {
  const int flushed = Flush(Of(file));
  if (flushed != SQLITE_OK) return flushed;
  return Of(file)->base()->pMethods->xSync(Of(file)->base(), flags);
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  const int flushed = Flush(Of(file));
  if (flushed != SQLITE_OK) return flushed;
  return Of(file)->base()->pMethods->xFileSize(Of(file)->base(), size);
}

int Lock(sqlite3_file* file, int level) {
  return Of(file)->base()->pMethods->xLock(Of(file)->base(), level);
}

int Unlock(sqlite3_file* file, int level) {
  return Of(file)->base()->pMethods->xUnlock(Of(file)->base(), level);
}

int CheckReservedLock(sqlite3_file* file, int* reserved) {
  return Of(file)->base()->pMethods->xCheckReservedLock(Of(file)->base(), reserved);
}

int FileControl(sqlite3_file* file, int operation, void* argument) {
  return Of(file)->base()->pMethods->xFileControl(Of(file)->base(), operation, argument);
}

int SectorSize(sqlite3_file* file) {
  return Of(file)->base()->pMethods->xSectorSize(Of(file)->base());
}

int DeviceCharacteristics(sqlite3_file* file) {
  return Of(file)->base()->pMethods->xDeviceCharacteristics(Of(file)->base());
}

const sqlite3_io_methods kMethods = [] {
  sqlite3_io_methods methods{};
  methods.iVersion = 1;  // Shared memory belongs to the database's file, and the log is not mapped.
  methods.xClose = Close;
  methods.xRead = Read;
  methods.xWrite = Write;
  methods.xTruncate = Truncate;
  methods.xSync = Sync;
  methods.xFileSize = FileSize;
  methods.xLock = Lock;
  methods.xUnlock = Unlock;
  methods.xCheckReservedLock = CheckReservedLock;
  methods.xFileControl = FileControl;
  methods.xSectorSize = SectorSize;
  methods.xDeviceCharacteristics = DeviceCharacteristics;
  return methods;
}();

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  sqlite3_vfs* base = static_cast<Layer*>(vfs->pAppData)->base;
  if ((flags & SQLITE_OPEN_WAL) == 0) return base->xOpen(base, name, file, flags, flags_out);
  LogFile* log = Of(file);
  log->header.pMethods = nullptr;
  const int code = base->xOpen(base, name, log->base(), flags, flags_out);
  if (code != SQLITE_OK) {
    // SQLite closes a file whose methods are set; the underlying one may ask for that by itself.
    if (log->base()->pMethods != nullptr) log->base()->pMethods->xClose(log->base());
    return code;
  }
  log->waiting = new std::string;
  log->at = 0;
  log->header.pMethods = &kMethods;
  return SQLITE_OK;
}

}  // namespace

absl::StatusOr<std::string> LogBufferVfs(const std::string& base) {
  static std::mutex mutex;
  // Never freed: SQLite keeps a pointer to each for as long as the process lives.
  static auto* const layers = new std::map<std::string, std::unique_ptr<Layer>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Layer>& layer = (*layers)[base];
  if (layer != nullptr) return layer->name;
  sqlite3_vfs* below = sqlite3_vfs_find(base.empty() ? nullptr : base.c_str());
  if (below == nullptr) {
    return absl::NotFoundError(absl::StrCat("SQLite has no virtual file system ", base));
  }
  auto made = std::make_unique<Layer>();
  made->name = absl::StrCat("semaphored-log-", below->zName);
  made->base = below;
  // All but Open is the underlying system's, which looks at its own data.
  made->vfs = *below;
  made->vfs.szOsFile = below->szOsFile + static_cast<int>(sizeof(LogFile));
  made->vfs.zName = made->name.c_str();
  made->vfs.pNext = nullptr;
  made->vfs.pAppData = made.get();
  made->vfs.xOpen = Open;
  if (sqlite3_vfs_register(&made->vfs, 0) != SQLITE_OK) {
    return absl::InternalError("SQLite does not take another virtual file system");
  }
  layer = std::move(made);
  return layer->name;
}

}  // namespace semaphored::sqlite
