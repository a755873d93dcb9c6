// A daemon on the Consul of the tests: one lane, with its ledger.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {

class Daemon {
 public:
  static constexpr std::chrono::milliseconds kSweepInterval{20};

  // `port` of a relay, for example.
  Daemon(const TestPrefix& prefix, const std::string& node_id, const std::string& url_options = "",
         uint16_t port = 0)
      : engine_(OpenEngine(prefix.UrlText(url_options, port)).value()) {
    ledger::LedgerOptions options;
    options.self = engine_->nodes().Join(node_id).value();
    options.now = [] { return SteadyClock::now(); };
    options.now_unix_ms = [] { return 1; };
    options.sweep_interval = kSweepInterval;
    // However slow the machine is, an act that is larger than one transaction is over with its Step.
    options.carry_on_time = std::chrono::seconds(30);
    self_ = options.self;
    lane_ = engine_->OpenLane(options).value();
  }

  NodeRef self() const { return self_; }
  const Upkeep& upkeep() const { return *engine_->upkeep(); }
  NodeStore& nodes() { return engine_->nodes(); }

  // One batch. All outcomes must be known at once.
  std::vector<Outcome> RunAll(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number_, std::move(command)});
    absl::StatusOr<StepResult> result =
        lane_->Step(batch, SteadyClock::now() + std::chrono::seconds(30));
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    return std::move(result->outcomes);
  }
  Outcome Run(Command command) {
    std::vector<Command> commands;
    commands.push_back(std::move(command));
    return std::move(RunAll(std::move(commands)).front());
  }
  template <typename Act>
  Outcome Administer(Act act, Requester requester = {}, const std::string& semaphore = "s") {
    return Run(AdminCommand{std::move(requester), semaphore, 0, std::move(act)});
  }

  static AcquireCommand Acquiring(const std::string& client, uint64_t sequence, uint64_t claim,
                                  const std::string& semaphore = "s") {
    AcquireCommand acquire;
    acquire.requester = {client, sequence};
    acquire.semaphore = semaphore;
    acquire.claim = acquire.session = MakeId(claim);
    acquire.limit = 1;
    acquire.ttl_ms = 10'000;
    acquire.wait = true;
    return acquire;
  }
  Outcome Acquire(const std::string& client, uint64_t sequence, uint64_t claim,
                  const std::string& semaphore = "s") {
    return Run(Acquiring(client, sequence, claim, semaphore));
  }
  // Of a semaphore that there is, without waiting.
  Outcome AcquireOne(const std::string& client, uint64_t sequence, uint64_t claim) {
    AcquireCommand acquire = Acquiring(client, sequence, claim);
    acquire.limit = 0;
    acquire.wait = false;
    return Run(acquire);
  }

  Outcome Release(const std::string& client, uint64_t sequence, uint64_t claim,
                  const std::string& semaphore = "s") {
    ReleaseCommand release;
    release.requester = {client, sequence};
    release.semaphore = semaphore;
    release.claim = MakeId(claim);
    return Run(release);
  }

  Outcome End(uint64_t claim, EndCause cause) {
    EndCommand end;
    end.semaphore = "s";
    end.claim = MakeId(claim);
    end.cause = cause;
    return Run(end);
  }

  OutcomeKind Verify(uint64_t claim, const std::string& semaphore = "s") {
    return Run(VerifyCommand{semaphore, MakeId(claim), 0, 0}).kind;
  }
  SemaphoreInfo Describe(const std::string& semaphore = "s") {
    return *Administer(AdminDescribe{2000}, {}, semaphore).report->info;
  }
  std::vector<Id> Waiters() {
    std::vector<Id> ids;
    for (const WaiterInfo& each : Describe().waiters) ids.push_back(each.waiter->id);
    return ids;
  }

  // Until it has swept at least once.
  absl::Status Idle() {
    const SteadyTime until = SteadyClock::now() + 3 * kSweepInterval;
    absl::Status status;
    while (status.ok() && SteadyClock::now() < until) status = lane_->Step({}, until).status();
    return status;
  }

  // Does what a lane does without commands until this is true, at most for a minute.
  bool IdleUntil(const std::function<bool()>& is_true) {
    const SteadyTime until = SteadyClock::now() + std::chrono::minutes(1);
    while (!is_true()) {
      if (SteadyClock::now() > until) return false;
      const absl::StatusOr<StepResult> result = lane_->Step({}, until);
      INFO(result.status().ToString());
      REQUIRE(result.ok());
      for (const Event& event : result->events) {
        if (event.kind == Event::Kind::kGranted) ++granted_;
      }
    }
    return true;
  }
  // By IdleUntil.
  size_t granted() const { return granted_; }

 private:
  const std::unique_ptr<Engine> engine_;
  NodeRef self_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
  size_t granted_ = 0;
};

}  // namespace semaphored::consul
