// A file that appears under its name only when it is complete and on disk, and is gone before that
// with the process that writes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/common/descriptor.h"

namespace semaphored {

class NewFile {
 public:
  // For this user alone. ALREADY_EXISTS: `path`, or PATH-wal, is there, which a restore would take
  // for its log. NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE: its folder cannot be written to, or
  // cannot have a file of this name.
  //
  // A file system that has no files without names (NFS) has it as PATH.partial until it is
  // complete, and a process that is killed leaves it there; it is then ALREADY_EXISTS.
  static absl::StatusOr<NewFile> Make(const std::string& path);
  NewFile(NewFile&&) = default;
  ~NewFile();

  // Copies `size` bytes of the file `from`, from its begin. `progress` is called every few ms.
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: `from` is shorter. UNAVAILABLE: and why.
  absl::Status CopyFrom(int from, int64_t size,
                        const std::function<void(int64_t done_bytes)>& progress);

  // Syncs it, and gives it its name. ALREADY_EXISTS: another file has come to have it.
  absl::Status Publish();

 private:
  NewFile(std::string path, Descriptor file, std::string partial)
      : path_(std::move(path)), file_(std::move(file)), partial_(std::move(partial)) {}

  std::string path_;
  Descriptor file_;
  std::string partial_;  // Empty: it has no name until it is published.
};

}  // namespace semaphored
