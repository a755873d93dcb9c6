// Takes permits with the C++ client, one after the other, and writes down when it is inside; as
// worker.mjs beside it.
//
//   worker_cpp ADDRESS[,ADDRESS...] NAME LIMIT LOGFILE SECONDS
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/semaphore/client.h"

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void Note(int log, const char* what) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  const std::string line = absl::StrCat(what, " ", getpid(), " ", now_ns, "\n");
  if (write(log, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
}

// Inside for some milliseconds, or until the permit is lost.
void StayInside(const std::stop_token& lost, milliseconds stay) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_for(lock, lost, stay, [] { return false; });
}

bool MayGoOn(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDeadlineExceeded ||
         status.code() == absl::StatusCode::kUnavailable;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string name = argv[2];
  const auto limit = static_cast<std::uint32_t>(std::atoi(argv[3]));
  const int log = open(argv[4], O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (log < 0) return 1;
  const char* ttl_ms = std::getenv("WORKER_TTL_MS");
  semaphore::ClientOptions options;
  options.endpoints = std::vector<std::string>(absl::StrSplit(argv[1], ','));
  options.ttl = milliseconds(ttl_ms != nullptr ? std::atoi(ttl_ms) : 2'000);
  auto client = semaphore::Client::Create(options);
  if (!client.ok()) return 1;
  std::mt19937 random{std::random_device()()};
  std::uniform_int_distribution<int> stay_ms(5, 25);
  const auto ends_at = steady_clock::now() + std::chrono::seconds(std::atoi(argv[5]));
  while (steady_clock::now() < ends_at) {
    auto permit = (*client)->Acquire(name, {.limit = limit, .wait = milliseconds(1'000)});
    if (!permit.ok()) {
      if (MayGoOn(permit.status())) continue;
      std::fprintf(stderr, "acquire: %s\n", permit.status().ToString().c_str());
      return 1;
    }
    if (!permit->held()) continue;
    Note(log, "enter");
    StayInside(permit->lost(), milliseconds(stay_ms(random)));
    Note(log, "exit");
    permit->Release().IgnoreError();  // its loss was reported before
  }
  return 0;
}
