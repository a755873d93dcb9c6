// A cgroup (version 2) of the command's own, where this process may make one. The kernel then ends all that
// is in it at once, as any user and however fast it forks: cgroup.kill (Linux 5.14).
#ifndef SEMAPHORED_CLIENT_SEMCTL_COMMAND_GROUP_H_
#define SEMAPHORED_CLIENT_SEMCTL_COMMAND_GROUP_H_

#include <string>
#include <utility>

namespace semaphore::semctl {

// The name of a group, or of none; copies name the same one. All calls are without effect where there is none,
// and none of them reports an error: a group is an addition to what ends processes anyway. None blocks.
class CommandGroup {
 public:
  CommandGroup() = default;
  // As path() of another process's.
  explicit CommandGroup(std::string path) : path_(std::move(path)) {}
  // Makes an empty group below this process's own one. Without a path: it may not, or the kernel cannot.
  static CommandGroup Make();

  // Empty: there is none.
  const std::string& path() const { return path_; }

  // Moves this process into the group; what it starts from then on is in it, too. After a fork: allocates
  // nothing but memory.
  void Enter() const;
  // SIGKILL to all that is in the group.
  void Kill() const;
  // If nothing is in it any more.
  void Remove() const;

 private:
  std::string path_;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_COMMAND_GROUP_H_
