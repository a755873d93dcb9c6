// What the parts of Sessions are tested with: a host whose lanes answer when the test says so, timers, and lists.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <catch2/catch_test_macros.hpp>

#include "server/base/timers.h"
#include "server/sessions/lists.h"
#include "server/sessions/sessions.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {

class RoomHost : public SessionsHost {
 public:
  explicit RoomHost(size_t lanes = 1) : lanes_(lanes) {
    promises.names = promises.revisions = promises.exclusive = true;
  }

  const Clock& clock() const override { return time; }
  size_t lane_count() const override { return lanes_; }
  const Guarantees& guarantees() const override { return promises; }
  void Submit(size_t lane, Job job) override { jobs.push_back({lane, std::move(job)}); }
  SteadyTime vouch_until() const override { return vouched_until; }
  Id NewId() override { return Id{7, ++ids_}; }
  std::shared_ptr<WatchedNames> watched() override { return watched_; }

  // ---- the oldest job that has no answer ----
  template <typename C>
  C Oldest() const {
    REQUIRE(!jobs.empty());
    REQUIRE(std::holds_alternative<C>(jobs.front().job.command));
    return std::get<C>(jobs.front().job.command);
  }
  void Answer(absl::StatusOr<Outcome> outcome) {
    REQUIRE(!jobs.empty());
    Completion done = std::move(jobs.front().job.done);
    jobs.pop_front();
    done(std::move(outcome));
  }
  void Answer(OutcomeKind kind) {
    Outcome outcome;
    outcome.kind = kind;
    Answer(std::move(outcome));
  }
  // One that lists semaphores.
  void AnswerList(std::vector<SemaphoreInfo> infos, bool more = false) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kDone;
    outcome.report = std::make_unique<Report>();
    outcome.report->infos = std::move(infos);
    outcome.report->more = more;
    Answer(std::move(outcome));
  }

  // Time passes. A timer that is due then, taken out.
  std::optional<Timer> Pass(Milliseconds by) {
    time.Advance(by);
    Timer timer;
    if (!timers.TakeDue(time.Now(), &timer)) return std::nullopt;
    return timer;
  }

  struct Submitted {
    size_t lane;
    Job job;
  };
  ManualClock time;
  Guarantees promises;
  SteadyTime vouched_until = SteadyTime::max();
  std::deque<Submitted> jobs;
  Timers timers{[](const Timer&) { return true; }};
  Lists lists{1000, ReadFromLanes(this)};

 private:
  const size_t lanes_;
  uint64_t ids_ = 0;
  std::shared_ptr<WatchedNames> watched_ = WatchedNames::Make();
};

inline SemaphoreInfo InfoOf(const std::string& name, uint64_t revision = 1) {
  SemaphoreInfo info;
  info.row.name = name;
  info.row.revision = revision;
  return info;
}

}  // namespace semaphored
