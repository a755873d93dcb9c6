// A file system for SQLite that forwards to the real one and fails when told to. One for the
// process; not for two threads. It is named in DatabaseOptions::vfs.
#pragma once

#include <string>

namespace semaphored::sqlite {

struct Fault {
  enum class Operation { kNone, kOpen, kRead, kWrite, kSync };
  Operation operation = Operation::kNone;
  // Only on the log ("-wal"); else only on the database itself.
  bool log = true;
  // Operations of that kind that still succeed.
  int after = 0;
  // What SQLite is told; for kOpen SQLITE_READONLY means that the file is opened for reading only.
  int code = 0;
  // So many bytes of a write that fails are written all the same. kAll: the disk did it, and only
  // the answer was lost.
  int bytes_written = 0;
  static constexpr int kAll = 1 << 30;
  // How often it has failed.
  int failures = 0;
};

// Registers it once, and gives its name.
const std::string& FaultVfsName();
// What fails now, until it is set to something else.
Fault& CurrentFault();

}  // namespace semaphored::sqlite
