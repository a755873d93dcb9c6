// Holds many leases in one session of the C++ client, and says how they stand.
//
//   holder_cpp ADDRESS NAME COUNT PERMITS TTL_MS
//
// Prints "held" when it has COUNT leases of PERMITS each. Then, for each empty line that it reads, how many of them it
// holds, and the least time in ms for which one of them is valid.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"

namespace {

using std::chrono::milliseconds;

constexpr int kAtOnce = 500;

struct Taken {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<semaphore::Permit> permits;
  int under_way = 0;
  bool failed = false;
};

// False: one was refused.
bool TakeAll(semaphore::Client& client, const std::string& name, int count,
             const semaphore::AcquireOptions& options, Taken* taken) {
  std::unique_lock<std::mutex> lock(taken->mutex);
  for (int begun = 0; begun < count && !taken->failed; ++begun) {
    taken->changed.wait(lock, [&] { return taken->under_way < kAtOnce; });
    ++taken->under_way;
    lock.unlock();
    client.AcquireAsync(name, options, [taken](absl::StatusOr<semaphore::Permit> permit) {
      const std::lock_guard<std::mutex> inner(taken->mutex);
      --taken->under_way;
      if (permit.ok()) {
        taken->permits.push_back(*std::move(permit));
      } else {
        std::fprintf(stderr, "acquire: %s\n", permit.status().ToString().c_str());
        taken->failed = true;
      }
      taken->changed.notify_all();
    });
    lock.lock();
  }
  taken->changed.wait(lock, [&] { return taken->under_way == 0; });
  return !taken->failed;
}

void Tell(const std::vector<semaphore::Permit>& permits) {
  std::size_t held = 0;
  auto least = milliseconds::max();
  for (const semaphore::Permit& permit : permits) {
    held += permit.held() ? 1 : 0;
    const auto left = permit.good_until() - semaphore::BootClock::now();
    least = std::min(least, std::chrono::floor<milliseconds>(left));
  }
  std::printf("%zu %lld\n", held, static_cast<long long>(least.count()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int count = std::atoi(argv[3]);
  semaphore::AcquireOptions acquire;
  acquire.permits = static_cast<std::uint32_t>(std::atoi(argv[4]));
  acquire.limit = static_cast<std::uint32_t>(count) * acquire.permits;
  semaphore::ClientOptions options;
  options.endpoints = {argv[1]};
  options.ttl = milliseconds(std::atoi(argv[5]));
  auto client = semaphore::Client::Create(options);
  if (!client.ok()) return 1;
  Taken taken;
  if (!TakeAll(**client, argv[2], count, acquire, &taken)) return 1;
  std::puts("held");
  std::fflush(stdout);
  for (int byte = std::getchar(); byte != EOF; byte = std::getchar()) Tell(taken.permits);
  std::_Exit(0);  // The leases end with their TTL.
}
