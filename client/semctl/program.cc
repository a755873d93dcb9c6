#include "client/semctl/program.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"

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

// Of a script, as the kernel reads it: from "#!" to the next blank. Empty: it is no script.
std::string InterpreterOf(const std::string& path) {
  char head[256] = "";
  std::ifstream(path, std::ios::binary).read(head, sizeof(head) - 1);
  std::string line = head;
  line.resize(std::min(line.find('\n'), line.size()));
  const std::size_t begin = line.find_first_not_of(" \t", 2);
  if (!line.starts_with("#!") || begin == std::string::npos) return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
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

std::string ExecErrorText(const std::string& command, int error) {
  const std::string path = ProgramOf(command);
  std::string of;
  if (IsProgram(path)) {
    const std::string interpreter = InterpreterOf(path);
    if (!interpreter.empty() && !IsProgram(interpreter)) of = ": its interpreter " + interpreter;
    if (interpreter.empty() && error == ENOENT) of = ": its loader";
  }
  return absl::StrCat(command, of, ": ", std::generic_category().message(error));
}

}  // namespace semaphore::semctl
