#include "client/semctl/process_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <unordered_set>

namespace semaphore::semctl {
namespace {

// A killed process takes a moment to end, and one that cannot be killed takes long: we look again
// after the first pause, and then after longer ones.
constexpr long kPauseFirstNs = 250'000;
constexpr long kPauseMostNs = 64'000'000;

// Of files in /proc, which have no size. nullopt: there is no such file (any more).
std::optional<std::string> Contents(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::string contents;
  char buffer[4096];
  ssize_t some = 0;
  while ((some = read(file, buffer, sizeof(buffer))) > 0) contents.append(buffer, some);
  close(file);
  if (some < 0) return std::nullopt;
  return contents;
}

// The entries of a folder that are numbers: of /proc, processes; of /proc/PID/task, threads.
std::vector<pid_t> NumbersIn(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  std::vector<pid_t> numbers;
  if (entries == nullptr) return numbers;
  // Not shared by threads. NOLINTNEXTLINE(concurrency-mt-unsafe)
  while (const dirent* const entry = readdir(entries.get())) {
    const pid_t number = std::atoi(entry->d_name);
    if (number > 0) numbers.push_back(number);
  }
  return numbers;
}

std::string FolderOf(pid_t pid) { return "/proc/" + std::to_string(pid); }

// 0 if the process has ended.
pid_t ParentOf(pid_t pid) {
  const std::optional<std::string> stat = Contents(FolderOf(pid) + "/stat");
  // "PID (NAME) STATE PARENT …", and a name may have any character.
  const std::size_t name_end = stat.has_value() ? stat->rfind(')') : std::string::npos;
  char state = 0;
  pid_t parent = 0;
  if (name_end == std::string::npos ||
      std::sscanf(stat->c_str() + name_end + 1, " %c %d", &state, &parent) != 2) {
    return 0;
  }
  return parent;
}

bool Contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

std::optional<std::vector<pid_t>> ListedChildren(pid_t parent) {
  std::vector<pid_t> children;
  bool listed = false;
  for (const pid_t thread : NumbersIn(FolderOf(parent) + "/task")) {
    const auto list = Contents(FolderOf(parent) + "/task/" + std::to_string(thread) + "/children");
    if (!list.has_value()) continue;
    listed = true;
    const char* at = list->c_str();
    char* end = nullptr;
    for (long pid = 0; (pid = std::strtol(at, &end, 10)) > 0; at = end) {
      children.push_back(static_cast<pid_t>(pid));
    }
  }
  if (!listed) return std::nullopt;
  return children;
}

std::vector<pid_t> ScannedChildren(pid_t parent) {
  std::vector<pid_t> children;
  for (const pid_t pid : NumbersIn("/proc")) {
    if (ParentOf(pid) == parent) children.push_back(pid);
  }
  return children;
}

bool ShowsOwnProcesses(const std::string& proc) {
  char self[16];
  const ssize_t length = readlink((proc + "/self").c_str(), self, sizeof(self));
  return length > 0 && std::string_view(self, length) == std::to_string(getpid());
}

std::vector<Descendant> DescendantsOf(pid_t ancestor, const std::vector<pid_t>& spared) {
  // Ours are listed, or nothing is.
  static const bool lists = ListedChildren(getpid()).has_value();
  std::vector<Descendant> found = {{ancestor, 0}};
  // One whose parent has ended meanwhile is found twice.
  std::unordered_set<pid_t> known(spared.begin(), spared.end());
  for (std::size_t next = 0; next < found.size(); ++next) {
    const pid_t parent = found[next].pid;
    const std::vector<pid_t> children =
        lists ? ListedChildren(parent).value_or(std::vector<pid_t>()) : ScannedChildren(parent);
    for (const pid_t child : children) {
      if (known.insert(child).second) found.push_back({child, parent});
    }
  }
  found.erase(found.begin());
  return found;
}

std::string NameOf(pid_t pid) {
  std::string name = Contents(FolderOf(pid) + "/comm").value_or("");
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

int SendSignal(const Descendant& descendant, int signal_number) {
  int failed = 0;
  if (descendant.parent == getpid()) {
    // A child keeps its pid until we reap it.
    failed = kill(descendant.pid, signal_number);
    return failed == 0 || errno == ESRCH ? 0 : errno;
  }
  // Others are reaped by their parents, and their pids given out again. The descriptor stands for
  // the process that we mean if that has the same parent still, or was left to us.
  const int process = static_cast<int>(syscall(SYS_pidfd_open, descendant.pid, 0));
  if (process < 0 && errno != ENOSYS) return 0;
  const pid_t parent = ParentOf(descendant.pid);
  if (parent == descendant.parent || parent == getpid()) {
    failed =
        process < 0
            ? kill(descendant.pid, signal_number)
            : static_cast<int>(syscall(SYS_pidfd_send_signal, process, signal_number, nullptr, 0));
  }
  const int error = failed == 0 || errno == ESRCH ? 0 : errno;
  if (process >= 0) close(process);
  return error;
}

namespace {

// A list of children that change may lack one of them.
bool HasNoChildBut(const std::vector<pid_t>& spared) {
  siginfo_t child{};
  if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
  if (spared.empty()) return false;
  const std::vector<pid_t> children = ScannedChildren(getpid());
  return std::all_of(children.begin(), children.end(),
                     [&spared](pid_t pid) { return Contains(spared, pid); });
}

}  // namespace

bool KillDescendants(const std::vector<pid_t>& spared, TimePoint deadline) {
  std::vector<pid_t> before;
  long pause_ns = kPauseFirstNs;
  while (true) {
    std::vector<pid_t> now;
    for (const Descendant& descendant : DescendantsOf(getpid(), spared)) {
      SendSignal(descendant, SIGKILL);
      now.push_back(descendant.pid);
    }
    if (now.empty() && HasNoChildBut(spared)) return true;
    for (const pid_t pid : now) waitpid(pid, nullptr, WNOHANG);
    if (BootClock::now() >= deadline) return false;
    if (now == before) {
      const timespec pause{0, pause_ns};
      nanosleep(&pause, nullptr);
      pause_ns = std::min(pause_ns * 2, kPauseMostNs);
    } else {
      // One that forks as fast as it can is caught only by looking again at once.
      pause_ns = kPauseFirstNs;
      before = std::move(now);
    }
  }
}

}  // namespace semaphore::semctl
