#include "client/semctl/command_group.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>

namespace semaphore::semctl {
namespace {

// Where the hierarchy of version 2 is mounted; empty: nowhere.
std::string MountPoint() {
  std::ifstream mounts("/proc/self/mounts");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::string device;
    std::string folder;
    std::string type;
    fields >> device >> folder >> type;
    if (type == "cgroup2") return folder;
  }
  return "";
}

// This process's group in that hierarchy, from its root; empty: it is in none.
std::string OwnGroup() {
  constexpr std::string_view kVersion2 = "0::";
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    if (line.starts_with(kVersion2)) return line.substr(kVersion2.size());
  }
  return "";
}

void WriteTo(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t ignored = write(file, text.data(), text.size());
  static_cast<void>(ignored);
  close(file);
}

}  // namespace

CommandGroup CommandGroup::Make() {
  const std::string mounted = MountPoint();
  const std::string own = OwnGroup();
  // Another process may have this pid, in another PID namespace.
  std::uint32_t number = 0;
  const bool random = getrandom(&number, sizeof(number), 0) == static_cast<ssize_t>(sizeof(number));
  if (mounted.empty() || own.empty() || !random) return {};
  const std::string path = mounted + (own == "/" ? "" : own) + "/permit-" +
                           std::to_string(getpid()) + "-" + std::to_string(number);
  if (mkdir(path.c_str(), 0755) != 0) return {};
  if (access((path + "/cgroup.kill").c_str(), W_OK) == 0) return CommandGroup(path);
  rmdir(path.c_str());
  return {};
}

void CommandGroup::Enter() const {
  if (!path_.empty()) WriteTo(path_ + "/cgroup.procs", "0");
}

void CommandGroup::Kill() const {
  if (!path_.empty()) WriteTo(path_ + "/cgroup.kill", "1");
}

void CommandGroup::Remove() const {
  if (!path_.empty()) rmdir(path_.c_str());
}

}  // namespace semaphore::semctl
