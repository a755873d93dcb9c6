// What tickets cost on the embedded store: rules and commits, without daemon and network, with real
// syncs. Each ticket is enqueued, taken and done.
//
//   ticket_bench FOLDER [SECONDS [COMMANDS_PER_BATCH [PAYLOAD_BYTES]]]
//
// Batches of enqueues, of takes and of finishes follow each other, on one semaphore and on as many
// as a batch has commands; the last run has a long queue standing before. Prints tickets/s, the
// CPU's part of it, and how long batches took.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/adapter.h"
#include "adapters/ledger/ledger.h"
#include "adapters/open.h"

namespace semaphored {
namespace {

using Clock = SteadyClock;

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench(const std::string& path, size_t commands, size_t semaphores, size_t payload_bytes)
      : commands_(commands),
        semaphores_(semaphores),
        payload_(std::make_shared<const std::string>(payload_bytes, 'p')) {
    engine_ = OrDie(OpenEngine("sqlite://" + path));
    ledger::LedgerOptions options;
    options.self = OrDie(engine_->nodes().Join("bench"));
    options.now = [] { return Clock::now(); };
    options.now_unix_ms = [] { return int64_t{1'700'000'000'000}; };
    lane_ = OrDie(engine_->OpenLane(options));
  }

  // One batch each: so many tickets come, are taken, and are done.
  void Turn(std::vector<double>* batches_ms) {
    Step(batches_ms, OutcomeKind::kEnqueued, [this](size_t i) { return Enqueue(i); });
    std::vector<Id> claims;
    Step(batches_ms, OutcomeKind::kGranted, [&](size_t i) {
      TakeCommand take;
      take.semaphore = Name(i);
      take.claim = take.session = NewId();
      take.ttl_ms = 30'000;
      take.holder = "host-17/4242";
      claims.push_back(take.claim);
      return take;
    });
    Step(batches_ms, OutcomeKind::kReleased, [&](size_t i) {
      FinishCommand finish;
      finish.requester = {"client", ++sequence_};
      finish.semaphore = Name(i);
      finish.claim = claims[i];
      return finish;
    });
  }

  void Queue(size_t tickets) {
    for (size_t i = 0; i < tickets; i += commands_)
      Step(nullptr, OutcomeKind::kEnqueued, [this](size_t each) { return Enqueue(each); });
  }

 private:
  std::string Name(size_t i) const { return absl::StrCat("team/resource-", i % semaphores_); }
  Id NewId() {
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    return {random_, ++ids_};
  }

  EnqueueCommand Enqueue(size_t i) {
    EnqueueCommand enqueue;
    enqueue.requester = {"client", ++sequence_};
    enqueue.semaphore = Name(i);
    enqueue.ticket = NewId();
    enqueue.limit = static_cast<uint32_t>(commands_);
    enqueue.content_type = "application/json";
    enqueue.payload = payload_;
    return enqueue;
  }

  template <typename Make>
  void Step(std::vector<double>* batches_ms, OutcomeKind expected, Make make) {
    std::vector<Submission> batch;
    batch.reserve(commands_);
    for (size_t i = 0; i < commands_; ++i) batch.push_back({++submissions_, make(i)});
    const auto before = Clock::now();
    const StepResult result = OrDie(lane_->Step(batch, before + std::chrono::seconds(10)));
    if (batches_ms != nullptr)
      batches_ms->push_back(
          std::chrono::duration<double, std::milli>(Clock::now() - before).count());
    for (const Outcome& outcome : result.outcomes) {
      if (outcome.kind == expected) continue;
      std::fprintf(stderr, "unexpected outcome %d: %s\n", static_cast<int>(outcome.kind),
                   outcome.message.c_str());
      std::exit(1);
    }
  }

  const size_t commands_;
  const size_t semaphores_;
  const PayloadPtr payload_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Adapter> lane_;
  uint64_t sequence_ = 0;
  uint64_t submissions_ = 0;
  uint64_t ids_ = 0;
  uint64_t random_ = 1;
};

struct Plan {
  double seconds = 3;
  size_t commands = 64;
  size_t payload_bytes = 300;
};

void Run(const std::string& folder, const Plan& plan, size_t semaphores, size_t queued) {
  const std::string path = folder + "/tickets.db";
  const auto remove = [&] {
    for (const char* suffix : {"", "-wal", ".lock"}) std::filesystem::remove(path + suffix);
  };
  remove();
  {
    Bench bench(path, plan.commands, semaphores, plan.payload_bytes);
    bench.Queue(queued);
    for (int i = 0; i < 20; ++i) bench.Turn(nullptr);
    std::vector<double> batches_ms;
    const double cpu = CpuSeconds();
    const auto start = Clock::now();
    while (Clock::now() - start < std::chrono::duration<double>(plan.seconds))
      bench.Turn(&batches_ms);
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    const double tickets = static_cast<double>(batches_ms.size() * plan.commands) / 3;
    std::ranges::sort(batches_ms);
    std::printf(
        "%3zu semaphores, %6zu tickets before: %7.0f tickets/s  %4.2f cores  %5.1f us CPU a ticket "
        " batch ms p50 %.2f p99 %.2f\n",
        semaphores, queued, tickets / took, (CpuSeconds() - cpu) / took,
        1e6 * (CpuSeconds() - cpu) / tickets, batches_ms[batches_ms.size() / 2],
        batches_ms[batches_ms.size() * 99 / 100]);
  }
  remove();
}

}  // namespace
}  // namespace semaphored

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: ticket_bench FOLDER [SECONDS [COMMANDS_PER_BATCH [PAYLOAD_BYTES]]]\n");
    return 2;
  }
  semaphored::Plan plan;
  if (argc > 2) plan.seconds = std::atof(argv[2]);
  if (argc > 3) plan.commands = std::strtoull(argv[3], nullptr, 10);
  if (argc > 4) plan.payload_bytes = std::strtoull(argv[4], nullptr, 10);
  semaphored::Run(argv[1], plan, 1, 0);
  semaphored::Run(argv[1], plan, plan.commands, 0);
  semaphored::Run(argv[1], plan, 1, 50'000);
  return 0;
}
