// One daemon to a file: a lock beside the database, taken before SQLite looks at it and held for
// the life of the process. The kernel gives it up when the process dies, however it dies.
//
// Beside it and not on it, since SQLite's own locks on a file vanish when other code in the process
// closes another descriptor of it. Two paths to one file through symbolic links meet in the same
// lock, for its name is made from the resolved path; two hard links are caught later, by SQLite's
// own exclusive lock.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace semaphored::sqlite {

class FileLock {
 public:
  // Makes the database's file if it is not there (its folder must be), and locks it. Does not wait.
  // FAILED_PRECONDITION: another process has it; names the file and that process.
  // PERMISSION_DENIED, UNAVAILABLE: the file or its lock cannot be made, and why.
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // The database's path without symbolic links.
  const std::string& resolved_path() const { return path_; }

  // FAILED_PRECONDITION if the files at the two paths are no longer those that were locked:
  // replaced or deleted under us, another daemon could be at work on what is there now. Any thread.
  absl::Status CheckStillOurs() const;

 private:
  struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  FileLock(std::string path, int lock_file) : path_(std::move(path)), lock_file_(lock_file) {}
  static absl::StatusOr<FileIdentity> Identify(const std::string& path);

  const std::string path_;
  const int lock_file_;
  FileIdentity database_;
  FileIdentity lock_;
};

}  // namespace semaphored::sqlite
