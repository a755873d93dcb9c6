// What only this client has of a session's rules. What all clients share is in the traces of tests/conformance.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semaphore/session_machine.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;

// A machine, and its clock.
struct MachineAtWork {
  static ClientOptions Options() {
    ClientOptions options;
    options.endpoints = {"a:1"};
    options.ttl = milliseconds(9'000);
    options.margin = milliseconds(100);
    return options;
  }

  std::shared_ptr<std::optional<absl::Status>> Acquire() {
    auto status = std::make_shared<std::optional<absl::Status>>();
    AcquireCall call;
    call.on_recall = [this](const RecallNotice& notice) { recall = notice; };
    call.done = [this, status](const absl::StatusOr<std::shared_ptr<LeaseState>>& result) {
      *status = result.status();
      if (result.ok()) lease = *result;
    };
    machine.Acquire(std::move(call), now);
    return status;
  }

  void Effect() {
    Effects effects = machine.TakeEffects();
    for (const LeaseKeeper::Recalled& recalled : effects.recalls)
      recalled.lease->on_recall(recalled.notice);
    for (Closure& loss : effects.losses) loss();
    for (Closure& result : effects.results) result();
  }

  void Connect(const std::string& session) {
    std::size_t endpoint = 0;
    REQUIRE(machine.StartConnecting(&endpoint, now));
    v1::SessionRequest request;
    REQUIRE(machine.NextMessage(&request, now));
    v1::SessionResponse response;
    response.mutable_opened()->set_session_id(session);
    response.mutable_opened()->mutable_validity()->set_valid_for_ms(9'000);
    machine.OnMessage(response, now);
    machine.NextMessage(&request, now);
  }

  // In a session that Connect opened.
  void Hold() {
    Acquire();
    Connect("s1");
    v1::SessionResponse response;
    response.add_results()->set_sequence(1);
    response.mutable_results(0)->mutable_granted()->set_lease_id("L1");
    machine.OnMessage(response, now);
    Effect();
    REQUIRE(lease != nullptr);
  }

  TimePoint now{std::chrono::hours(1)};
  std::shared_ptr<LeaseState> lease;
  std::optional<RecallNotice> recall;
  SessionMachine machine{Options(), [] { return "client"; }};
};

TEST_CASE("session machine: what the application gave is handed out, and not destroyed within") {
  MachineAtWork work;
  const auto given = std::make_shared<int>();
  work.Hold();
  work.lease->AddLossCallback([given](const Loss&) {});
  work.machine.Release(std::exchange(work.lease, nullptr), nullptr, work.now);
  v1::SessionRequest request;
  REQUIRE(work.machine.NextMessage(&request, work.now));
  v1::SessionResponse response;
  response.add_results()->set_sequence(2);
  response.mutable_results(0)->mutable_released()->set_released(1);
  work.machine.OnMessage(response, work.now);
  CHECK(given.use_count() == 2);
  work.Effect();
  CHECK(given.use_count() == 1);

  AcquireCall call;
  call.on_queued = [given](const QueuePlace&) {};
  const std::uint64_t waiting = work.machine.Acquire(std::move(call), work.now);
  work.machine.Cancel(waiting, work.now);
  CHECK(given.use_count() == 2);
  work.Effect();
  CHECK(given.use_count() == 1);
}

TEST_CASE("session machine: all acquires are given up at once") {
  MachineAtWork work;
  const std::vector statuses = {work.Acquire(), work.Acquire()};
  work.machine.CancelAllAcquires(work.now);
  work.Effect();
  for (const auto& status : statuses) {
    REQUIRE(status->has_value());
    CHECK((*status)->code() == absl::StatusCode::kCancelled);
  }
}

TEST_CASE("session machine: a loss requests stop") {
  MachineAtWork work;
  work.Hold();
  CHECK_FALSE(work.lease->stop_token().stop_requested());
  work.now += milliseconds(8'900);
  work.machine.Tick(work.now);
  work.Effect();
  CHECK(work.lease->stop_token().stop_requested());
}

TEST_CASE("session machine: a recall says by when the work must have stopped") {
  MachineAtWork work;
  work.Hold();
  v1::SessionResponse response;
  v1::LeaseRecalled* recalled = response.add_events()->mutable_recalled();
  recalled->set_lease_id("L1");
  recalled->mutable_recall()->set_grace_ms(2'000);
  work.machine.OnMessage(response, work.now);
  work.Effect();
  REQUIRE(work.recall.has_value());
  CHECK(work.recall->stop_by == work.now + milliseconds(1'900));
}

TEST_CASE("session machine: a later session does not extend a lease of an earlier one") {
  MachineAtWork work;
  work.Hold();
  const TimePoint good_until = work.lease->GoodUntil();
  work.machine.OnStreamEnd(absl::NotFoundError("no such session"), work.now);
  work.Acquire();
  work.now += milliseconds(3'000);
  work.Connect("s2");
  CHECK(work.lease->lost.load());
  CHECK(work.lease->GoodUntil() == good_until);
}

}  // namespace
}  // namespace semaphore
