// Uses the C++ client as programs do, and writes what it called and was answered; as driver.py beside
// it.
//
//   history_driver ADDRESS[,ADDRESS...] NAME=LIMIT[,...] ADMINISTERED[,...] SEED LABEL WORKERS PERMITS_MAX
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/semaphore/client.h"
#include "client/semaphore/errors.h"

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTtl(1'500);
constexpr milliseconds kWait(3'000);
constexpr std::int64_t kLingersNs = 30'000'000'000;

std::atomic<bool> stopping = false;

std::int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The client's clock counts the time that the machine was suspended, the history's does not.
std::int64_t ToHistory(semaphore::TimePoint point) {
  const std::int64_t now_ns = NowNs();
  return now_ns + (point - semaphore::BootClock::now()).count();
}

// One operation, as a line of JSON. The texts have nothing that needs to be escaped.
class Line {
 public:
  Line(absl::string_view kind, absl::string_view client, absl::string_view semaphore) {
    Text("kind", kind).Text("client", client).Text("semaphore", semaphore);
  }

  Line& Text(absl::string_view name, absl::string_view value) {
    return Raw(name, absl::StrCat("\"", value, "\""));
  }
  Line& Number(absl::string_view name, std::uint64_t value) {
    return Raw(name, absl::StrCat(value));
  }
  Line& Raw(absl::string_view name, absl::string_view value) {
    fields_.push_back(absl::StrCat("\"", name, "\":", value));
    return *this;
  }
  void Write() const {
    static std::mutex mutex;
    const std::string line = absl::StrCat("{", absl::StrJoin(fields_, ","), "}\n");
    const std::lock_guard<std::mutex> lock(mutex);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

 private:
  std::vector<std::string> fields_;
};

struct Named {
  std::string name;
  std::uint32_t limit = 1;
  bool administered = false;
};

// Written by callbacks of the client.
struct Note {
  std::atomic<std::int64_t> queued_ns = 0;
  std::atomic<std::int64_t> recalled_ns = 0;
};

std::string SlotsText(absl::Span<const std::uint32_t> slots) {
  return absl::StrCat("[", absl::StrJoin(slots, ","), "]");
}

// Upper case with underscores, as the enum of the protocol; "": nothing was reported.
std::string CauseName(semaphore::LossCause cause) {
  switch (cause) {
    case semaphore::LossCause::kExpired:
      return "EXPIRED";
    case semaphore::LossCause::kRevoked:
      return "REVOKED";
    case semaphore::LossCause::kRecalled:
      return "RECALLED";
    case semaphore::LossCause::kMoved:
      return "MOVED";
    case semaphore::LossCause::kUnknown:
      return "UNKNOWN";
    case semaphore::LossCause::kNoContact:
    case semaphore::LossCause::kDestroyed:
    case semaphore::LossCause::kDisconnected:
    case semaphore::LossCause::kEngineLost:
      return "";
  }
  return "";
}

class Worker {
 public:
  Worker(semaphore::Client* client, const std::vector<Named>* semaphores, std::string name,
         std::uint32_t seed, std::uint32_t permits_max)
      : client_(client),
        semaphores_(semaphores),
        name_(std::move(name)),
        random_(seed),
        permits_max_(permits_max) {}

  void Run() {
    while (!stopping) Turn();
  }

 private:
  double Chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  milliseconds UpTo(int ms) {
    return milliseconds(std::uniform_int_distribution<int>(0, ms)(random_));
  }
  std::uint32_t OneTo(std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(1, most)(random_);
  }

  void Turn() {
    const Named& named = (*semaphores_)[OneTo(static_cast<std::uint32_t>(semaphores_->size())) - 1];
    auto note = std::make_shared<Note>();
    semaphore::Permit permit = Acquire(named, note);
    if (!permit) return;
    vouched_ns_ = 0;
    is_lost_ = false;
    lease_ = permit.lease_id();
    semaphore_ = named.name;
    Look(permit, *note);
    if (Chance() < 0.3) {
      Stay(permit, *note, UpTo(4));
    } else if (named.administered && Chance() < 0.08) {
      Stay(permit, *note, UpTo(250));
    }
    if (Chance() < 0.25) Verify(permit);
    Release(&permit, *note);
  }

  semaphore::Permit Acquire(const Named& named, const std::shared_ptr<Note>& note) {
    semaphore::AcquireOptions options;
    options.limit = named.limit;
    options.adopt_limit = named.administered;
    options.permits = OneTo(std::min(permits_max_, named.limit));
    options.wait = Chance() < 0.25 ? milliseconds(0) : kWait;
    options.priority = OneTo(4) == 1 ? 1 : 0;
    options.holder = name_;
    options.on_queued = [note](const semaphore::QueuePlace&) {
      if (note->queued_ns == 0) note->queued_ns = NowNs();
    };
    options.on_recall = [note](const semaphore::RecallNotice&) { note->recalled_ns = NowNs(); };
    std::stop_source cancel;
    std::jthread canceller;
    if (options.wait > milliseconds(0) && Chance() < 0.08) {
      options.cancel = cancel.get_token();
      canceller = std::jthread([cancel, after = UpTo(50)]() mutable {
        std::this_thread::sleep_for(after);
        cancel.request_stop();
      });
    }
    Line line("acquire", name_, named.name);
    line.Text("request", absl::StrCat(name_, "/", ++calls_))
        .Text("holder", name_)
        .Raw("steady", "false")
        .Number("permits", options.permits)
        .Number("priority", static_cast<std::uint64_t>(options.priority))
        // The client rounds what is left of a wait down.
        .Number("wait_ms",
                static_cast<std::uint64_t>(std::max<std::int64_t>(options.wait.count() - 1, 0)))
        .Number("begin_ns", static_cast<std::uint64_t>(NowNs()));
    auto permit = client_->Acquire(named.name, std::move(options));
    const auto end_ns = static_cast<std::uint64_t>(NowNs());
    line.Number("end_ns", end_ns);
    if (permit.ok()) {
      line.Text("outcome", "granted")
          .Text("lease", permit->lease_id())
          .Raw("slots", SlotsText(permit->slots()))
          .Number("token", permit->token())
          .Number("queued_ns", static_cast<std::uint64_t>(note->queued_ns.load()))
          .Write();
      return *std::move(permit);
    }
    const std::string reason(semaphore::ErrorReason(permit.status()));
    // Refusals that only the daemon can give.
    static const std::set<std::string> kRefusals = {"FULL", "PAUSED", "EXCEEDS_LIMIT"};
    line.Text("outcome", "error").Text("reason", reason.empty() ? "OTHER" : reason);
    if (!kRefusals.contains(reason)) line.Number("until_ns", end_ns + kLingersNs);
    line.Write();
    return {};
  }

  // Until when it can be relied on; or that it is lost.
  void Look(const semaphore::Permit& permit, const Note& note) {
    const std::int64_t until_ns = ToHistory(permit.good_until());
    if (permit.held()) {
      vouched_ns_ = std::max(vouched_ns_, until_ns);
    } else if (!is_lost_) {
      is_lost_ = true;
      WriteLoss(permit, note);
    }
  }

  void WriteLoss(const semaphore::Permit& permit, const Note& note) {
    const std::int64_t now_ns = NowNs();
    const std::string cause = permit.lost().stop_requested() ? CauseName(permit.loss().cause) : "";
    // Of a recall the client itself says when the grace is over, a margin before the daemon does; and on a busy machine
    // before our handler of recalls has had its turn.
    const bool recalled =
        note.recalled_ns != 0 ||
        (cause == "RECALLED" && !permit.loss().message.starts_with("the daemon says"));
    const bool reported = !cause.empty() && !recalled;
    const std::int64_t until_ns = recalled ? std::min(now_ns, vouched_ns_) : vouched_ns_;
    Of("end", now_ns, until_ns)
        .Number("end_ns", static_cast<std::uint64_t>(now_ns))
        .Text("outcome", "left")
        .Text("reason", reported ? "lost" : "left")
        .Text("cause", reported && cause != "UNKNOWN" ? cause : "")
        .Write();
  }

  Line Of(absl::string_view kind, std::int64_t begin_ns, std::int64_t vouched_ns) const {
    Line line(kind, name_, semaphore_);
    line.Text("lease", lease_)
        .Number("begin_ns", static_cast<std::uint64_t>(begin_ns))
        .Number("vouched_ns", static_cast<std::uint64_t>(vouched_ns));
    return line;
  }

  void Stay(const semaphore::Permit& permit, const Note& note, milliseconds stay) {
    const std::int64_t until_ns = NowNs() + stay.count() * 1'000'000;
    while (NowNs() < until_ns && !is_lost_) {
      std::mutex mutex;
      std::condition_variable_any changed;
      std::unique_lock<std::mutex> lock(mutex);
      const std::chrono::nanoseconds left(until_ns - NowNs());
      changed.wait_for(lock, permit.lost(),
                       std::min<std::chrono::nanoseconds>(left, milliseconds(10)),
                       [] { return false; });
      Look(permit, note);
    }
  }

  void Verify(const semaphore::Permit& permit) {
    Line line = Of("verify", NowNs(), is_lost_ ? 0 : vouched_ns_);
    const auto verdict = client_->Verify(permit);
    if (!verdict.ok()) return line.Write();
    line.Number("end_ns", static_cast<std::uint64_t>(NowNs()));
    if (verdict->held) {
      line.Text("outcome", "held")
          .Raw("slots", SlotsText(verdict->slots))
          .Number("token", verdict->token);
    } else {
      line.Text("outcome", "ended").Text("cause", verdict->ended);
    }
    line.Write();
  }

  void Release(semaphore::Permit* permit, const Note& note) {
    Look(*permit, note);
    if (const std::int64_t at_ns = note.recalled_ns; at_ns != 0) {
      Of("recalled", at_ns, 0)
          .Number("end_ns", static_cast<std::uint64_t>(at_ns))
          .Text("outcome", "left")
          .Write();
    }
    Line line = Of("release", NowNs(), is_lost_ ? 0 : vouched_ns_);
    const absl::Status status = permit->Release();
    const auto end_ns = static_cast<std::uint64_t>(NowNs());
    // After a loss, also one in this moment, the release is still sent, and its answer is not said.
    if (status.ok()) {
      line.Number("end_ns", end_ns).Text("outcome", "released");
    }
    line.Write();
  }

  semaphore::Client* client_;
  const std::vector<Named>* semaphores_;
  std::string name_;
  std::mt19937 random_;
  std::uint32_t permits_max_;
  int calls_ = 0;
  // Of the permit that is held.
  std::string lease_;
  std::string semaphore_;
  std::int64_t vouched_ns_ = 0;
  bool is_lost_ = false;
};

std::vector<Named> ParseSemaphores(absl::string_view limits, absl::string_view administered) {
  const std::set<std::string> changed = absl::StrSplit(administered, ',');
  std::vector<Named> semaphores;
  for (const absl::string_view each : absl::StrSplit(limits, ',')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(each, '=');
    semaphores.push_back({pair.first, static_cast<std::uint32_t>(std::atoi(pair.second.c_str())),
                          changed.contains(pair.first)});
  }
  return semaphores;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const std::vector<Named> semaphores = ParseSemaphores(argv[2], argv[3]);
  semaphore::ClientOptions options;
  options.endpoints = std::vector<std::string>(absl::StrSplit(argv[1], ','));
  options.ttl = kTtl;
  auto client = semaphore::Client::Create(options);
  if (!client.ok()) return 1;
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < std::atoi(argv[6]); ++number) {
      threads.emplace_back([&, number] {
        Worker(client->get(), &semaphores, absl::StrCat(argv[5], "-", number),
               static_cast<std::uint32_t>(std::atoi(argv[4]) * 100 + number),
               static_cast<std::uint32_t>(std::atoi(argv[7])))
            .Run();
      });
    }
    while (std::getchar() != EOF) {
    }
    stopping = true;
  }
  return 0;
}
