#include "server/service/listener.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

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

 private:
  char folder_[32] = "/tmp/semaphored-listener-XXXXXX";
};

ListenerOptions OptionsAt(const SocketFolder& folder) {
  ListenerOptions options;
  options.listen = "unix:" + folder.path();
  return options;
}

}  // namespace

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
