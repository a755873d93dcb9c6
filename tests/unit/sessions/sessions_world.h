// Sessions on a store in memory, in one thread, with a clock that moves when it is told to.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/open.h"
#include "server/lanes/lane.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class ManualClock : public Clock {
 public:
  SteadyTime Now() const override { return now_; }
  int64_t NowUnixMs() const override { return 1'000'000'000'000; }
  void Advance(Milliseconds by) { now_ += by; }

 private:
  SteadyTime now_ = SteadyTime(std::chrono::hours(1));
};

// A worker's stream: notes what it is told.
class WorkerStream : public SessionListener {
 public:
  void OnQueued(uint64_t, uint64_t, WaitReason, int64_t) override {}
  void OnGranted(uint64_t, const LeasePtr&, const std::string&, Vouch) override {}
  void OnRefused(uint64_t, Refusal) override {}
  void OnRecalled(uint64_t, const Id&, const std::string&, const RecallNotice&) override {
    ++recalls;
  }
  void OnEnded(uint64_t, const Id& claim, const std::string&, EndCause cause) override {
    ended.emplace_back(claim, cause);
  }
  void OnOpened(const Id& id, int64_t, Vouch, bool was_resumed,
                const std::vector<HeldLease>& held) override {
    session = id;
    resumed = was_resumed;
    listed = held.size();
  }
  void OnSessionEnded(Refusal refusal) override { refused.push_back(std::move(refusal)); }
  void OnAssigned(const Assignment& assignment) override { assigned.push_back(assignment); }

  std::string Payload(size_t i) const {
    return assigned.at(i).payload == nullptr ? "" : *assigned.at(i).payload;
  }

  Id session;
  bool resumed = false;
  size_t listed = 0;
  int recalls = 0;
  std::vector<Assignment> assigned;
  std::vector<std::pair<Id, EndCause>> ended;
  std::vector<Refusal> refused;
};

class SessionsWorld : public SessionsHost {
 public:
  // On the embedded store, unless there is another engine; with one lane, unless that takes more.
  explicit SessionsWorld(SessionsOptions options = {}, std::unique_ptr<Engine> engine = nullptr,
                         const std::string& node_id = "test", size_t lanes = 1)
      : engine_(engine ? std::move(engine) : OpenEngine("sqlite::memory:").value()),
        self_(engine_->nodes().Join(node_id).value()) {
    ledger::LedgerOptions ledger;
    ledger.self = self_;
    ledger.now_unix_ms = [this] { return clock_.NowUnixMs(); };
    ledger.now = [this] { return clock_.Now(); };
    ledger.watched = watched_;
    for (size_t i = 0; i < lanes; ++i) {
      LaneOptions lane;
      lane.number = i;
      lane.lanes = lanes;
      lanes_.push_back(
          std::make_unique<LaneCore>(engine_->OpenLane(ledger).value(), &clock_, lane));
    }
    jobs_.resize(lanes);
    sessions_ = MakeSessions(this, options);
    sessions_->TakeOver({}, [](const absl::Status&) {});
    Settle();
  }

  Sessions& sessions() { return *sessions_; }
  // Until nothing is under way, nor unknown.
  void Settle() {
    const auto busy = [this](size_t lane) {
      return !jobs_[lane].empty() || lanes_[lane]->unsettled();
    };
    for (bool any = true; any;) {
      any = false;
      for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (!busy(lane)) continue;
        any = true;
        Tell(lane, Run(lane));
      }
    }
  }
  // Hears what other daemons have done.
  void Hear() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      LaneResults results;
      lanes_[lane]->RunOnce({}, SystemClock().Now(), &results);
      Tell(lane, std::move(results));
    }
    Settle();
  }
  // What one lane does and tells, apart: for what comes between the two, and for lanes that are
  // slower than others.
  LaneResults Run(size_t lane) {
    LaneResults results;
    lanes_[lane]->RunOnce(std::exchange(jobs_[lane], {}), SystemClock().Now(), &results);
    most_events_ = std::max(most_events_, results.events.size());
    return results;
  }
  void Tell(size_t lane, LaneResults results) {
    sessions_->OnLaneResults(lane, std::move(results));
  }
  // Goes on with what this one has left.
  void TakeOver(const NodeRef& dead) {
    sessions_->TakeOver({dead}, [](const absl::Status&) {});
    Settle();
  }
  // Of one batch of a lane, since the last call.
  size_t TakeMostEvents() { return std::exchange(most_events_, 0); }
  // Commands, so far.
  int submitted() const { return submitted_; }
  const NodeRef& self() const { return self_; }
  NodeStore& nodes() { return engine_->nodes(); }
  // Time passes, in steps that no timer is late by more than.
  void Pass(Milliseconds time) {
    constexpr Milliseconds kStep{50};
    for (; time > Milliseconds(0); time -= kStep) {
      clock_.Advance(std::min(time, kStep));
      sessions_->OnTimer();
      Settle();
    }
  }

  // Time passes, and what is due is submitted; no lane runs.
  void PassIdle(Milliseconds time) {
    clock_.Advance(time);
    sessions_->OnTimer();
  }

  // ---- requests, in short ----
  std::optional<Refusal> Enqueue(const std::string& semaphore, const std::string& payload,
                                 int64_t delay_ms = 0, uint32_t max_attempts = 0) {
    EnqueueCommand command;
    command.semaphore = semaphore;
    command.limit = 1;
    command.adopt_limit = true;
    command.delay_ms = delay_ms;
    command.max_attempts = max_attempts;
    command.payload = std::make_shared<const std::string>(payload);
    std::optional<Refusal> refusal;
    sessions_->Enqueue(std::move(command), [&](Result<EnqueueAnswer> result) {
      if (!result.ok()) refusal = *result.refusal;
    });
    Settle();
    return refusal;
  }
  void Work(WorkerStream* stream, WorkParams work, const Id& resume = {}) {
    OpenParams params;
    params.client_id = "worker-" + std::to_string(self_.number);
    params.ttl_ms = 10'000;
    params.resume = resume;
    params.holder = "worker";
    params.work = std::make_shared<const WorkParams>(std::move(work));
    sessions_->Open(std::move(params), stream);
    Settle();
  }
  // The state that the ticket is told to be in; nullopt: it is gone.
  Result<FinishAnswer> Finish(WorkerStream* stream, const Assignment& assignment,
                              FinishCommand::Result how) {
    FinishCommand finish;
    finish.requester.sequence = ++sequence_;
    finish.semaphore = assignment.semaphore;
    finish.claim = assignment.lease->id;
    finish.result = how;
    finish.reason = "a reason";
    Result<FinishAnswer> answer;
    sessions_->FinishIn(stream->session, std::move(finish),
                        [&](Result<FinishAnswer> result) { answer = std::move(result); });
    Settle();
    return answer;
  }
  // Absent: there is no such semaphore.
  std::optional<SemaphoreInfo> Describe(const std::string& semaphore) {
    AdminCommand command;
    command.semaphore = semaphore;
    command.act = AdminDescribe{100};
    std::optional<SemaphoreInfo> info;
    sessions_->Administer(std::move(command), 0, [&](Result<AdminAnswer> result) {
      if (result.ok()) info = result.value.report->info;
    });
    Settle();
    return info;
  }

  // ---- SessionsHost ----
  const Clock& clock() const override { return clock_; }
  size_t lane_count() const override { return lanes_.size(); }
  const Guarantees& guarantees() const override { return lanes_[0]->guarantees(); }
  void Submit(size_t lane, Job job) override {
    ++submitted_;
    jobs_[lane].push_back(std::move(job));
  }
  SteadyTime vouch_until() const override { return SteadyTime::max(); }
  // Ids do not rise with time, no more than the daemon's.
  Id NewId() override {
    const uint64_t serial = (uint64_t{self_.incarnation} << 32) + ++last_id_;
    return {self_.number + 1, serial * 0x9E3779B97F4A7C15};
  }
  std::shared_ptr<WatchedNames> watched() override { return watched_; }

 private:
  ManualClock clock_;
  const std::shared_ptr<WatchedNames> watched_ = WatchedNames::Make();
  std::unique_ptr<Engine> engine_;
  NodeRef self_;
  std::vector<std::unique_ptr<LaneCore>> lanes_;
  std::vector<std::vector<Job>> jobs_;  // By lane.
  int submitted_ = 0;
  size_t most_events_ = 0;
  uint64_t last_id_ = 0;
  uint64_t sequence_ = 0;
  std::unique_ptr<Sessions> sessions_;
};

}  // namespace semaphored
