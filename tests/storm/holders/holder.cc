// Holds permits with the C++ client, one after the other, and records each act of its work in a
// trace; as holder.py beside it.
//
//   storm_holder ADDRESS[,ADDRESS...] NAME LIMIT TTL_MS SEED TRACE
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/semaphore/client.h"
#include "client/semaphore/errors.h"

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait(5'000);
constexpr milliseconds kActEvery(10);
constexpr std::array<std::pair<int, int>, 4> kStaysMs = {
    {{50, 400}, {50, 400}, {400, 2'000}, {2'000, 7'000}}};

std::atomic<bool> stopping = false;

std::int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// NOT_HELD: what it was granted has ended before it heard of the grant.
bool Passes(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status) ||
         semaphore::ErrorReason(status) == "NOT_HELD";
}

class Holder {
 public:
  Holder(semaphore::Client* client, std::string name, std::uint32_t limit, std::uint32_t seed,
         int trace)
      : client_(client), name_(std::move(name)), limit_(limit), random_(seed), trace_(trace) {}

  // An error that does not pass by itself ends the program.
  absl::Status Run() {
    while (!stopping) {
      absl::Status status = Turn();
      if (status.ok()) continue;
      if (!Passes(status)) return status;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Turn() {
    absl::StatusOr<semaphore::Permit> permit =
        client_->Acquire(name_, {.limit = limit_, .wait = kWait});
    if (!permit.ok()) return permit.status();
    slot_ = permit->slots().front();
    token_ = permit->token();
    const bool is_held = Work(*permit);
    const absl::Status released = permit->Release();
    if (is_held && semaphore::ErrorReason(released) == "NOT_HELD")
      Write("lost", NowNs(), "RELEASE");
    return absl::OkStatus();
  }

  // Acts until the time is over; false if the permit was lost.
  bool Work(const semaphore::Permit& permit) {
    const std::pair<int, int>& stay = kStaysMs[random_() % kStaysMs.size()];
    std::uniform_int_distribution<int> stay_ms(stay.first, stay.second);
    const std::int64_t until_ns = NowNs() + std::int64_t{stay_ms(random_)} * 1'000'000;
    absl::string_view kind = "grant";
    while (true) {
      // Before the check: the permit was held at this time, however long this process stands still.
      const std::int64_t at_ns = NowNs();
      if (!permit.held()) {
        const auto cause =
            permit.lost().stop_requested() ? permit.loss().cause : semaphore::LossCause::kNoContact;
        Write("lost", NowNs(), absl::StrReplaceAll(semaphore::ToString(cause), {{" ", "-"}}));
        return false;
      }
      const bool is_over = at_ns >= until_ns || stopping;
      Write(is_over ? "done" : kind, at_ns, "-");
      if (is_over) return true;
      kind = "act";
      std::mutex mutex;
      std::condition_variable_any changed;
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait_for(lock, permit.lost(), kActEvery, [] { return false; });
    }
  }

  // One line in one write, so that it is there whole when the process is killed.
  void Write(absl::string_view kind, std::int64_t at_ns, absl::string_view detail) const {
    const std::string line =
        absl::StrCat(kind, " ", at_ns, " ", name_, " ", slot_, " ", token_, " ", detail, "\n");
    if (write(trace_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  }

  semaphore::Client* client_;
  const std::string name_;
  const std::uint32_t limit_;
  std::mt19937 random_;
  const int trace_;
  // Of the permit that is held.
  std::uint32_t slot_ = 0;
  std::uint64_t token_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int trace = open(argv[6], O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (trace < 0) return 1;
  semaphore::ClientOptions options;
  options.endpoints = std::vector<std::string>(absl::StrSplit(argv[1], ','));
  options.ttl = milliseconds(std::atoi(argv[4]));
  auto client = semaphore::Client::Create(options);
  if (!client.ok()) return 1;
  // Reading has no end but that of the input, and the program does not wait for it.
  std::thread([] {
    while (std::getchar() != EOF) {
    }
    stopping = true;
  }).detach();
  const absl::Status status =
      Holder(client->get(), argv[2], static_cast<std::uint32_t>(std::atoi(argv[3])),
             static_cast<std::uint32_t>(std::atoi(argv[5])), trace)
          .Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
