// The sockets on which connections come in, and the thread that accepts them and hands them on.
//
// Not gRPC's own: that one (up to 1.51 at least) stops listening for ever when accept() fails once,
// as it does when all descriptors are taken, and it knows no limit to the number of connections.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/common/rare_line.h"
#include "server/base/clock.h"

namespace semaphored {

struct ListenerOptions {
  std::string listen;  // HOST:PORT, [HOST]:PORT or unix:PATH. Port 0: any free one.
  // Beyond it a new connection is closed at once. Measured by the number of the connection's
  // descriptor, of which the kernel gives the lowest that is free: so there may be a few more, or
  // less if the process opens many files.
  size_t connections_max = 100'000;
  // How many descriptors a connection takes from those that the process may have.
  size_t descriptors_each = 1;
  // Kept for the engine, the log, and whatever else is not a client's connection.
  size_t other_descriptors = 256;
  // What was sent and not acknowledged for so long ends the connection.
  int64_t unacknowledged_max_ms = 5'000;
};

// Used by one thread.
class Listener {
 public:
  // Opens the sockets and starts the thread. Until Start() a connection is closed at once, so that
  // its client goes to another daemon. UNAVAILABLE: the address cannot be listened on, with the
  // system's word for why: another process has it, say. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const Clock* clock,
                                                        const ListenerOptions& options);
  // Stop() if that was not called; a Unix socket's file is removed.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // As it is, with the port that was chosen.
  const std::string& address() const { return address_; }
  // Less than what was asked for, if the process may not have so many descriptors.
  size_t connections_max() const { return connections_max_; }
  // How many descriptors the process had at Start(), about. 0 before. Any thread.
  size_t descriptors_before() const { return descriptors_before_; }

  // From now on each connection goes to `take`, on the listener's thread, which owns the
  // descriptor then. Once; after what else the process opens at its start.
  void Start(std::function<void(int descriptor)> take);
  // Accepts no more, and closes the sockets. Returns when `take` runs no more.
  void Stop();

 private:
  Listener(const Clock* clock, const ListenerOptions& options);

  struct FileIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
  };
  // Of a socket's file; zeros: there is none.
  static FileIdentity Identify(const std::string& path);

  absl::Status OpenUnix(const std::string& path);
  absl::Status OpenHost(const std::string& host, const std::string& port);
  // On the listener's thread.
  void Run();
  // False: nothing can be accepted for a moment, and no event says when that is over.
  bool AcceptSome(int socket);
  void Refuse(int descriptor);
  void Warn(const std::string& what);

  const Clock* clock_;
  const ListenerOptions options_;
  size_t connections_max_ = 0;
  int descriptors_max_ = 0;  // A connection with this number, or a higher one, is closed.
  size_t other_descriptors_ = 0;
  std::atomic<size_t> descriptors_before_ = 0;
  std::string address_;
  std::string unix_path_;
  FileIdentity unix_file_;
  std::vector<int> sockets_;
  int stop_event_ = -1;
  RareLine warning_;
  std::function<void(int)> take_;
  std::atomic<bool> taking_ = false;  // take_ and descriptors_max_ are set.
  std::thread thread_;
};

}  // namespace semaphored
