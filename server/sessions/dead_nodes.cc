#include "server/sessions/dead_nodes.h"

#include <algorithm>
#include <utility>

#include "spdlog/spdlog.h"

namespace semaphored {
namespace {

// A page has at most so many semaphores, and about so many claims and tickets.
constexpr uint32_t kPageRowsMax = 256;
constexpr uint32_t kPageRowsFirst = 32;
constexpr uint64_t kPageClaims = 4096;
constexpr Milliseconds kProgressLoggedEvery{2000};

// After a page of `rows` with `claims`. It at most doubles, since semaphores differ in size.
uint32_t NextRows(uint32_t rows, uint64_t claims) {
  const uint64_t fit = rows * kPageClaims / std::max<uint64_t>(claims, 1);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(fit, 1, std::min<uint64_t>(kPageRowsMax, 2 * uint64_t{rows})));
}

}  // namespace

struct DeadNodes::Gathering {
  size_t lanes_left;
  absl::Status status;
  absl::AnyInvocable<void(absl::Status)> ready;
  SteadyTime begun_at;
  uint64_t claims = 0;  // That were read so far, of …
  uint64_t pages = 0;   // … so many pages.
  SteadyTime logged_at = begun_at;

  void Count(uint64_t read, SteadyTime now) {
    claims += read;
    ++pages;
    if (now - logged_at < kProgressLoggedEvery) return;
    logged_at = now;
    spdlog::info("take-over: {} claims were read so far", claims);
  }
  void End(SteadyTime now) {
    if (claims > kPageClaims && status.ok()) {
      const auto took = std::chrono::duration_cast<Milliseconds>(now - begun_at);
      spdlog::info("take-over: {} claims were read, in {} pages and {} ms", claims, pages,
                   took.count());
    }
    ready(status);
  }
};

void DeadNodes::TakeOver(const std::vector<NodeRef>& dead,
                         absl::AnyInvocable<void(absl::Status)> ready) {
  NoteDead(dead);
  const size_t lanes = host_->lane_count();
  auto gathering = std::make_shared<Gathering>(
      Gathering{lanes, absl::OkStatus(), std::move(ready), host_->clock().Now()});
  for (size_t lane = 0; lane < lanes; ++lane) {
    OrphansCommand page;
    page.dead = dead;
    page.lane = static_cast<uint32_t>(lane);
    page.lanes = static_cast<uint32_t>(lanes);
    page.rows_max = kPageRowsFirst;
    Gather(gathering, std::move(page));
  }
}

void DeadNodes::Gather(std::shared_ptr<Gathering> gathering, OrphansCommand page) {
  const uint32_t lane = page.lane;
  Command command = page;
  Completion received = [this, gathering = std::move(gathering),
                         page = std::move(page)](absl::StatusOr<Outcome> outcome) mutable {
    if (outcome.ok()) {
      for (const Orphan& orphan : outcome->report->orphans) actions_.absorb(orphan);
      for (const DelayedTicket& each : outcome->report->delayed) actions_.count_delay(each);
      ++pages_;
      gathering->Count(outcome->affected(), host_->clock().Now());
      page.after = std::move(outcome->report->next);
      page.rows_max = NextRows(page.rows_max, outcome->affected());
      if (!page.after.empty() && !stopped_) return Gather(std::move(gathering), std::move(page));
    } else {
      gathering->status = outcome.status();
    }
    if (--gathering->lanes_left == 0) gathering->End(host_->clock().Now());
  };
  host_->Submit(lane, Job{std::move(command), std::move(received)});
}

void DeadNodes::NoteDead(const std::vector<NodeRef>& dead) {
  for (const NodeRef& node : dead) {
    const auto known = std::ranges::find(dead_, node.number, &NodeRef::number);
    if (known == dead_.end()) {
      dead_.push_back(node);
    } else {
      known->incarnation = std::max(known->incarnation, node.incarnation);
    }
  }
}

void DeadNodes::TakeOverAgain() {
  if (stopped_) return;
  TakeOver(std::vector<NodeRef>(dead_), [this](const absl::Status& status) {
    if (!status.ok() && !stopped_)
      timers_->Add(host_->clock().Now() + kTryAgainAfter, TimerKind::kTakeOver, Id());
  });
}

}  // namespace semaphored
