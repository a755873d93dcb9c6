#include "server/base/file_watch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

namespace semaphored {

FileWatch::FileWatch(std::vector<std::string> paths) : paths_(std::move(paths)) {
  std::erase(paths_, "");
  stamps_ = Stamps();
}

bool FileWatch::Changed() {
  std::vector<std::string> now = Stamps();
  if (now == stamps_) return false;
  stamps_ = std::move(now);
  return true;
}

std::string FileWatch::StampOf(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return "";
  return fmt::format("{}:{}:{}:{}.{}:{}.{}", about.st_dev, about.st_ino, about.st_size,
                     about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ctim.tv_sec,
                     about.st_ctim.tv_nsec);
}

std::vector<std::string> FileWatch::Stamps() const {
  std::vector<std::string> stamps;
  stamps.reserve(paths_.size());
  for (const std::string& path : paths_) stamps.push_back(StampOf(path));
  return stamps;
}

}  // namespace semaphored
