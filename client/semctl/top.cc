// semctl top: a live table of semaphores. It is fed by Watch, so nothing is asked again and again.
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/admin.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

constexpr int kBarWidth = 20;

struct Row {
  v1::SemaphoreInfo semaphore;
  std::uint64_t grants = 0;  // since the last drawing
  std::uint64_t ended = 0;
};

// Filled by the thread that watches, read by the one that draws.
struct Board {
  std::mutex mutex;
  std::map<std::string, Row> rows;
  bool fresh = false;  // a first event has come

  void Take(const v1::WatchResponse& event) {
    std::lock_guard<std::mutex> lock(mutex);
    fresh = true;
    const std::string& name = event.semaphore().semaphore();
    if (event.kind() == v1::WATCH_EVENT_KIND_DESTROYED) {
      rows.erase(name);
      return;
    }
    Row& row = rows[name];
    row.semaphore = event.semaphore();
    row.grants += event.kind() == v1::WATCH_EVENT_KIND_GRANTED ? 1 : 0;
    row.ended += event.kind() == v1::WATCH_EVENT_KIND_ENDED ? 1 : 0;
  }

  // The rows, those with the longest queues first; the counts begin again at 0.
  std::vector<Row> Snapshot() {
    std::lock_guard<std::mutex> lock(mutex);
    std::vector<Row> snapshot;
    for (auto& [name, row] : rows) {
      snapshot.push_back(row);
      row.grants = 0;
      row.ended = 0;
    }
    std::stable_sort(snapshot.begin(), snapshot.end(), [](const Row& a, const Row& b) {
      return std::make_pair(a.semaphore.waiting(), a.semaphore.held()) >
             std::make_pair(b.semaphore.waiting(), b.semaphore.held());
    });
    return snapshot;
  }
};

std::string Bar(const v1::SemaphoreInfo& semaphore) {
  const std::uint64_t limit = std::max<std::uint64_t>(semaphore.limit(), 1);
  const std::uint64_t full =
      std::min<std::uint64_t>(std::uint64_t{semaphore.held()} * kBarWidth / limit, kBarWidth);
  return absl::StrCat("[", std::string(full, '#'), std::string(kBarWidth - full, '.'), "]");
}

int TerminalRows() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 5 ? size.ws_row : 50;
}

void Draw(const Context& context, const std::vector<Row>& rows, double seconds, bool clear) {
  std::vector<std::vector<std::string>> table = {
      {"SEMAPHORE", "HELD", "LIMIT", "", "WAITING", "GRANTS/S", "ENDS/S", ""}};
  std::uint64_t held = 0;
  std::uint64_t waiting = 0;
  const std::size_t shown_max = clear ? static_cast<std::size_t>(TerminalRows()) - 4 : rows.size();
  for (const Row& row : rows) {
    const v1::SemaphoreInfo& semaphore = row.semaphore;
    held += semaphore.held();
    waiting += semaphore.waiting();
    if (table.size() > shown_max) continue;
    table.push_back({semaphore.semaphore(), absl::StrCat(semaphore.held()),
                     absl::StrCat(semaphore.limit()), Bar(semaphore),
                     absl::StrCat(semaphore.waiting()),
                     absl::StrFormat("%.1f", row.grants / seconds),
                     absl::StrFormat("%.1f", row.ended / seconds),
                     semaphore.paused() ? "paused" : (semaphore.destroying() ? "destroying" : "")});
  }
  if (clear) std::printf("\033[H\033[2J");
  std::printf("%s  %zu semaphores, %s held, %s waiting\n\n", context.server.c_str(), rows.size(),
              absl::StrCat(held).c_str(), absl::StrCat(waiting).c_str());
  PrintTable(table);
}

void DrawJson(const std::vector<Row>& rows, double seconds) {
  Json json = {{"semaphores", Json::array()}};
  for (const Row& row : rows) {
    Json one = ToJson(row.semaphore);
    one["grants_per_s"] = row.grants / seconds;
    one["ends_per_s"] = row.ended / seconds;
    json["semaphores"].push_back(std::move(one));
  }
  PrintJson(json);
}

// OK if a daemon answers.
absl::Status Reach(UnaryCaller* caller, const std::string& prefix) {
  v1::AdministerRequest list;
  list.mutable_list()->set_prefix(prefix);
  list.mutable_list()->set_page_size(1);
  return Administer(caller, list).status();
}

int Top(const Context& context, const v1::WatchRequest& request, milliseconds interval,
        int rounds) {
  // INT and TERM end the drawing, not the process: read by sigtimedwait below, so before any
  // thread.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Board board;
  absl::Status watched;
  // Made in place, since it cannot be moved.
  const std::unique_ptr<UnaryCaller> caller(new UnaryCaller(context.MakeCaller()));
  // Without a daemon there is nothing to draw.
  if (const absl::Status reached = Reach(caller.get(), request.prefix()); !reached.ok())
    return context.Fail(reached);
  std::jthread watcher([&](const std::stop_token& stop) {
    watched = caller->Call(
        [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
          const auto reader = stub.Watch(call, request);
          v1::WatchResponse event;
          while (reader->Read(&event)) board.Take(event);
          return reader->Finish();
        },
        milliseconds(-1), stop);
    if (!stop.stop_requested()) kill(getpid(), SIGTERM);
  });
  const bool clear = !context.json() && isatty(STDOUT_FILENO) == 1;
  const double seconds = static_cast<double>(std::max(interval, milliseconds(1)).count()) / 1'000;
  const timespec pause{interval.count() / 1'000, interval.count() % 1'000 * 1'000'000};
  bool ended = false;
  for (int round = 0; !ended && (rounds == 0 || round < rounds); ++round) {
    ended = sigtimedwait(&ends, nullptr, &pause) > 0;
    if (ended) break;
    const std::vector<Row> rows = board.Snapshot();
    context.json() ? DrawJson(rows, seconds) : Draw(context, rows, seconds, clear);
    ended = std::fflush(stdout) != 0;  // The reader is gone.
  }
  watcher.request_stop();
  watcher.join();
  const bool given_up = watched.code() == absl::StatusCode::kCancelled;
  return watched.ok() || given_up ? kDone : context.Fail(watched);
}

}  // namespace

void AddTopCommand(Command app, Context& context) {
  auto request = std::make_shared<v1::WatchRequest>();
  auto interval = std::make_shared<milliseconds>(1'000);
  auto rounds = std::make_shared<int>(0);
  const Command top = AddCommand(
      app, context, "top", "A live table of semaphores, those with the longest queues first",
      "  semctl top\n  semctl top team/ --interval 500ms\n  semctl top --rounds 1 -o json",
      [&context, request, interval, rounds] { return Top(context, *request, *interval, *rounds); });
  top.Add("PREFIX", request->mutable_prefix(), "Names that begin with this").Takes(kTakesPrefix);
  top.AddDuration("--interval", interval.get(), "Between drawings [1s]");
  top.Add("--rounds", rounds.get(), "End after so many drawings [never]");
}

}  // namespace semaphore::semctl
