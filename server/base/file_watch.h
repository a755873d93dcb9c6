// Tells whether files have been changed since they were last looked at, by their time stamps, sizes
// and places on the disk, so that a file that was replaced by renaming is noticed too.
#pragma once

#include <string>
#include <vector>

namespace semaphored {

// Used by one thread at a time.
class FileWatch {
 public:
  // Empty paths are left out.
  explicit FileWatch(std::vector<std::string> paths);

  // True if any file looks different than at the last call (or at the start), also if it has gone
  // or come. Blocks for a few system calls.
  bool Changed();

 private:
  // "" for a file that is not there.
  static std::string StampOf(const std::string& path);
  std::vector<std::string> Stamps() const;

  std::vector<std::string> paths_;
  std::vector<std::string> stamps_;
};

}  // namespace semaphored
