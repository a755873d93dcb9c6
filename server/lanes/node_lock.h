// A file by which a daemon shows its next life on the same machine that it has ended: it holds the
// file's lock (flock) for as long as it lives, and the kernel lets go of it however the process
// dies.
//
// The file lies in a folder of this user alone, under a name made of node id and store. What counts
// is not its path but which file it is: boot of the machine, device, inode, and a number that each
// life draws and writes into it. The row of the node in the engine has these four. So nothing
// follows from a file that was removed, replaced or copied, nor from one of another machine or
// container: then the newcomer waits (joining.h).
//
// Only file systems of this machine are used: a network's may lose a lock whose owner is alive.
// A file that can be on disk (anything but tmpfs) counts only if the boot's id can be read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace semaphored {

struct LockIdentity {
  std::string boot;  // /proc/sys/kernel/random/boot_id; empty: it cannot be read.
  uint64_t device = 0;
  uint64_t inode = 0;  // 0: there is no lock.
  std::string nonce;   // 32 hexadecimal digits, drawn by each life; never empty.
  friend bool operator==(const LockIdentity&, const LockIdentity&) = default;
};

// Where the file may lie, the best first: $RUNTIME_DIRECTORY and $STATE_DIRECTORY (of systemd, the
// first of several), $XDG_RUNTIME_DIR/semaphored, /tmp/semaphored-UID.
std::vector<std::string> LockFolders(
    const std::vector<std::pair<std::string, std::string>>& environment);

// The file's name.
std::string LockName(const std::string& node_id, const std::string& store);

// Used by one thread. Waits for nothing.
class NodeLock {
 public:
  // Opens the file in the first folder that can be used, and makes it if it is not there; the last
  // part of the folder's path too. A folder is refused if it is a symbolic link, another user's, or
  // others may write in it. Takes no lock yet.
  NodeLock(const std::vector<std::string>& folders, const std::string& name);
  // Lets go of the lock.
  ~NodeLock();
  NodeLock(const NodeLock&) = delete;
  NodeLock& operator=(const NodeLock&) = delete;

  // True: the process that had `former` has certainly ended. False: that is not known. Takes the
  // lock if it is free. Before Claim().
  bool HasEnded(const LockIdentity& former);

  // Of this life, for its row: takes the lock if it is free, and writes a new nonce. Without a lock
  // inode is 0, and trouble() says why. Once.
  LockIdentity Claim();

  // The file's path; empty: there is none.
  const std::string& path() const { return path_; }
  // Why there is no lock, for people; empty: there is one.
  const std::string& trouble() const { return trouble_; }

 private:
  bool OpenIn(const std::string& path, const std::string& name);
  bool Take();

  std::string path_;
  std::string trouble_;
  int file_ = -1;
  bool taken_ = false;
  LockIdentity found_;  // As the file was before this life; its nonce is read when it is locked.
};

}  // namespace semaphored
