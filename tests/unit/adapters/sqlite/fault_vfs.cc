#include "tests/unit/adapters/sqlite/fault_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <string_view>

namespace semaphored::sqlite {
namespace {

struct FaultFile {
  sqlite3_file base;
  bool log;
  // The real file lies behind this struct.
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

FaultFile* Of(sqlite3_file* file) { return reinterpret_cast<FaultFile*>(file); }
sqlite3_file* Real(sqlite3_file* file) { return Of(file)->real(); }
sqlite3_vfs* RealVfs() {
  static sqlite3_vfs* const vfs = sqlite3_vfs_find("unix");
  return vfs;
}

bool Strikes(Fault::Operation operation, bool log) {
  Fault& fault = CurrentFault();
  if (fault.operation != operation || fault.log != log) return false;
  if (fault.after-- > 0) return false;
  ++fault.failures;
  return true;
}

int Close(sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); }

int Read(sqlite3_file* file, void* bytes, int size, sqlite3_int64 at) {
  if (Strikes(Fault::Operation::kRead, Of(file)->log)) return CurrentFault().code;
  return Real(file)->pMethods->xRead(Real(file), bytes, size, at);
}

int Write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 at) {
  const bool strikes = Strikes(Fault::Operation::kWrite, Of(file)->log);
  if (strikes) size = std::min(size, CurrentFault().bytes_written);
  if (size == 0) return CurrentFault().code;
  const int code = Real(file)->pMethods->xWrite(Real(file), bytes, size, at);
  return strikes ? CurrentFault().code : code;
}

int Sync(sqlite3_file* file, int flags) {
  if (Strikes(Fault::Operation::kSync, Of(file)->log)) return CurrentFault().code;
  return Real(file)->pMethods->xSync(Real(file), flags);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Real(file)->pMethods->xTruncate(Real(file), size);
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Real(file)->pMethods->xFileSize(Real(file), size);
}
int Lock(sqlite3_file* file, int kind) { return Real(file)->pMethods->xLock(Real(file), kind); }
int Unlock(sqlite3_file* file, int kind) { return Real(file)->pMethods->xUnlock(Real(file), kind); }
int CheckLock(sqlite3_file* file, int* locked) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), locked);
}
int Control(sqlite3_file* file, int operation, void* argument) {
  return Real(file)->pMethods->xFileControl(Real(file), operation, argument);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int Characteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
}

// Version 1: without shared memory, which a connection in exclusive mode does not need.
const sqlite3_io_methods kMethods = {
    1,       Close,     Read,    Write,      Truncate,        Sync,    FileSize, Lock,
    Unlock,  CheckLock, Control, SectorSize, Characteristics, nullptr, nullptr,  nullptr,
    nullptr, nullptr,   nullptr};

int OpenFaulty(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  FaultFile* fault_file = Of(file);
  fault_file->base.pMethods = nullptr;
  fault_file->log = (flags & SQLITE_OPEN_WAL) != 0;
  const bool strikes = Strikes(Fault::Operation::kOpen, fault_file->log);
  if (strikes && CurrentFault().code != SQLITE_READONLY) return CurrentFault().code;
  const int code = RealVfs()->xOpen(RealVfs(), name, fault_file->real(), flags, out_flags);
  if (code != SQLITE_OK) return code;
  if (strikes && out_flags != nullptr)
    *out_flags = (*out_flags & ~SQLITE_OPEN_READWRITE) | SQLITE_OPEN_READONLY;
  fault_file->base.pMethods = &kMethods;
  return SQLITE_OK;
}

}  // namespace

Fault& CurrentFault() {
  static Fault fault;
  return fault;
}

const std::string& FaultVfsName() {
  static const std::string name = [] {
    static sqlite3_vfs vfs = *RealVfs();
    vfs.szOsFile += static_cast<int>(sizeof(FaultFile));
    vfs.zName = "semaphored-faults";
    vfs.pNext = nullptr;
    vfs.xOpen = OpenFaulty;
    sqlite3_vfs_register(&vfs, 0);
    return std::string(vfs.zName);
  }();
  return name;
}

}  // namespace semaphored::sqlite
