// A daemon's lane on the DynamoDB of the tests: the rules over the store, without a server.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/open.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {

// One lane of a daemon, with the rules.
class OneLane {
 public:
  // `endpoint`: of a proxy, for example; empty: DynamoDB's own.
  OneLane(const StoreTable& table, const std::string& node_id, const std::string& endpoint = "",
          std::chrono::milliseconds sweep_interval = ledger::LedgerOptions().sweep_interval)
      : engine_(OpenEngine(absl::StrCat("dynamodb://local/", table.url().table, "?endpoint=",
                                        endpoint.empty() ? table.url().endpoint : endpoint))
                    .value()) {
    options_.sweep_interval = sweep_interval;
    options_.carry_on_time = std::chrono::seconds(30);
    options_.self = engine_->nodes().Join(node_id).value();
    options_.now = [] { return SteadyClock::now(); };
    options_.now_unix_ms = [] { return int64_t{1'800'000'000'000}; };
    lane_ = engine_->OpenLane(options_).value();
  }

  NodeRef self() const { return options_.self; }
  absl::Status Heartbeat() { return engine_->nodes().Heartbeat(); }
  const Upkeep& upkeep() const { return *engine_->upkeep(); }

  // By itself, also where it fails.
  absl::StatusOr<Outcome> Try(Command command) {
    const Submission submission{++number_, std::move(command)};
    absl::StatusOr<StepResult> result = lane_->Step({&submission, 1}, Deadline());
    if (!result.ok()) return result.status();
    Collect(*result);
    return std::move(result->outcomes.front());
  }
  std::vector<Outcome> RunAll(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number_, std::move(command)});
    absl::StatusOr<StepResult> result = lane_->Step(batch, Deadline());
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    Collect(*result);
    return std::move(result->outcomes);
  }
  Outcome Run(Command command) {
    std::vector<Command> commands;
    commands.push_back(std::move(command));
    return std::move(RunAll(std::move(commands)).front());
  }
  // Lets events come until there are so many of a kind.
  void Await(Event::Kind kind, size_t count) {
    const SteadyTime bound = Deadline();
    while (claims[kind].size() < count && SteadyClock::now() < bound) {
      const absl::StatusOr<StepResult> result =
          lane_->Step({}, SteadyClock::now() + std::chrono::milliseconds(20));
      REQUIRE(result.ok());
      Collect(*result);
    }
    CHECK(claims[kind].size() == count);
  }

  AcquireCommand Ask(uint64_t number, const std::string& semaphore, bool wait) const {
    AcquireCommand acquire;
    acquire.requester = {absl::StrCat("client", number), 1};
    acquire.semaphore = semaphore;
    acquire.claim = acquire.session = MakeId(number);
    acquire.ttl_ms = 10'000;
    acquire.wait = wait;
    return acquire;
  }
  template <typename Act>
  Outcome Administer(Act act, const std::string& client = "") {
    AdminCommand command;
    if (!client.empty()) command.requester = {client, 1};
    command.semaphore = "s";
    command.act = std::move(act);
    return Run(command);
  }
  SemaphoreInfo Describe() { return *Administer(AdminDescribe{1000}).report->info; }
  // Leases or waiters with numbers from `first`.
  void Fill(uint64_t first, uint64_t count, OutcomeKind expected) {
    std::vector<Command> commands;
    for (uint64_t i = first; i < first + count; ++i) commands.push_back(Ask(i, "s", true));
    for (const Outcome& outcome : RunAll(std::move(commands))) REQUIRE(outcome.kind == expected);
  }

  // Offers to work: a detached claim, or one of a session.
  TakeCommand Offer(uint64_t number, const Id& session = {}) const {
    TakeCommand take;
    take.semaphore = "s";
    take.claim = MakeId(number);
    take.session = session.empty() ? take.claim : session;
    take.ttl_ms = 10'000;
    take.keep = OfferKept::kAlways;
    return take;
  }
  EnqueueCommand Job(uint64_t number, const std::string& payload) const {
    EnqueueCommand enqueue;
    enqueue.requester = {absl::StrCat("client", number), 1};
    enqueue.semaphore = "s";
    enqueue.ticket = MakeId(number);
    enqueue.payload = std::make_shared<const std::string>(payload);
    return enqueue;
  }
  FinishCommand Finish(uint64_t claim, FinishCommand::Result result) const {
    FinishCommand finish;
    finish.requester = {absl::StrCat("client", claim), 1};
    finish.semaphore = "s";
    finish.claim = MakeId(claim);
    finish.result = result;
    finish.reason = "why";
    return finish;
  }

  std::map<Event::Kind, std::vector<Id>> claims;  // Of the events, in their order.
  std::map<Id, std::string> payloads;             // Of tickets that were given to claims.

 private:
  static SteadyTime Deadline() { return SteadyClock::now() + std::chrono::seconds(20); }
  void Collect(const StepResult& result) {
    for (const Event& event : result.events) {
      claims[event.kind].push_back(event.claim);
      if (event.payload) payloads[event.claim] = *event.payload;
    }
  }

  std::unique_ptr<Engine> engine_;
  ledger::LedgerOptions options_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
};

}  // namespace semaphored::dynamodb
