#include "server/rpc/listener.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

// A folder of its own with a socket in it; both are removed at the end.
class SocketFolder {
 public:
  SocketFolder() { REQUIRE(mkdtemp(folder_) != nullptr); }
  ~SocketFolder() {
    unlink(path().c_str());
    rmdir(folder_);
  }
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  std::string path() const { return std::string(folder_) + "/socket"; }
  // Connects to it and goes away.
  void Knock() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    close(client);
  }

 private:
  char folder_[32] = "/tmp/semaphored-listener-XXXXXX";
};

ListenerOptions OptionsAt(const SocketFolder& folder) {
  ListenerOptions options;
  options.listen = "unix:" + folder.path();
  return options;
}

}  // namespace

TEST_CASE("listener: it ends in the middle of a flood", "[service]") {
  constexpr int kFlood = 1'000'000;
  const SocketFolder folder;
  auto listener = Listener::Open(&SystemClock(), OptionsAt(folder));
  REQUIRE(listener.ok());
  std::atomic<int> taken = 0;
  std::atomic<bool> ended = false;
  // For each connection that is taken another one waits.
  (*listener)->Start([&](int descriptor) {
    close(descriptor);
    if (++taken < kFlood && !ended) folder.Knock();
    taken.notify_one();
  });
  folder.Knock();
  taken.wait(0);
  (*listener)->Stop();
  ended = true;
  CHECK(taken < kFlood);
}

TEST_CASE("listener: descriptors are kept for what is no client's connection", "[service]") {
  constexpr rlim_t kFew = 300;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(before.rlim_max >= 1'000);
  const rlimit few{kFew, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const SocketFolder folder;
  ListenerOptions options = OptionsAt(folder);
  options.connections_max = 100;
  options.descriptors_each = 3;
  options.other_descriptors = 512;
  const auto listener = Listener::Open(&SystemClock(), options);
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE(listener.ok());
  CHECK(after.rlim_cur == 3 * 100 + 512);
  CHECK((*listener)->connections_max() == 100);
}

}  // namespace semaphored
