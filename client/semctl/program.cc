#include "client/semctl/program.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace semaphore::semctl {
namespace {

bool IsProgram(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// Empty: there is none.
std::string ProgramOf(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  // Before there are threads. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* const folders = std::getenv("PATH");
  std::istringstream all(folders == nullptr ? "/bin:/usr/bin" : folders);
  std::string folder;
  while (std::getline(all, folder, ':')) {
    std::string path = (folder.empty() ? "." : folder) + "/" + command;
    if (IsProgram(path)) return path;
  }
  return "";
}

}  // namespace

std::optional<std::string> SetUserIdFile(const std::string& command) {
  if (geteuid() == 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return std::nullopt;
  const std::string path = ProgramOf(command);
  struct stat found {};
  struct statvfs system {};
  if (path.empty() || stat(path.c_str(), &found) != 0 || (found.st_mode & S_ISUID) == 0 ||
      found.st_uid == geteuid() || statvfs(path.c_str(), &system) != 0 ||
      (system.f_flag & ST_NOSUID) != 0) {
    return std::nullopt;
  }
  return path;
}

}  // namespace semaphore::semctl
