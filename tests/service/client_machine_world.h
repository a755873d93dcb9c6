// A session's rules with a clock and a daemon that are the test's own: no threads, no sockets, and
// time is a number.
#ifndef SEMAPHORED_TESTS_SERVICE_CLIENT_MACHINE_WORLD_H_
#define SEMAPHORED_TESTS_SERVICE_CLIENT_MACHINE_WORLD_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semaphore/session_machine.h"
#include "tests/service/client_error.h"

namespace semaphore::test {

using std::chrono::milliseconds;

// A machine, its clock, and a daemon that says what the test wants.
class World {
 public:
  explicit World(ClientOptions options = Options())
      : machine(options, [this] { return "client-" + std::to_string(++clients); }) {}

  static ClientOptions Options() {
    ClientOptions options;
    options.endpoints = {"a:1", "b:1"};
    options.ttl = milliseconds(9'000);
    options.margin = milliseconds(100);
    return options;
  }

  struct Acquired {
    std::uint64_t operation = 0;
    std::optional<absl::StatusOr<std::shared_ptr<LeaseState>>> result;
    int queued = 0;
    std::optional<Loss> loss;
    std::optional<RecallNotice> recall;
  };

  std::shared_ptr<Acquired> Acquire(const std::string& name, milliseconds wait = milliseconds(-1)) {
    auto acquired = std::make_shared<Acquired>();
    AcquireCall call;
    call.request.set_semaphore(name);
    call.wait = wait;
    call.done = [acquired](auto result) { acquired->result = std::move(result); };
    call.on_queued = [acquired](const QueuePlace&) { ++acquired->queued; };
    call.on_lost = [acquired](const Loss& loss) { acquired->loss = loss; };
    call.on_recall = [acquired](const RecallNotice& notice) { acquired->recall = notice; };
    acquired->operation = machine.Acquire(std::move(call), now);
    Effect();
    return acquired;
  }

  std::shared_ptr<std::optional<absl::Status>> Release(const Acquired& acquired) {
    auto status = std::make_shared<std::optional<absl::Status>>();
    machine.Release(
        acquired.result->value(), [status](absl::Status s) { *status = s; }, now);
    Effect();
    return status;
  }

  void Effect() {
    Effects effects = machine.TakeEffects();
    dropped += effects.drop_stream ? 1 : 0;
    for (Closure& loss : effects.losses) loss();
    for (Closure& result : effects.results) result();
  }

  void Advance(milliseconds by) {
    now += by;
    machine.Tick(now);
    Effect();
  }

  // Opens the stream that the machine wants; returns its first message.
  v1::OpenSession Connect() {
    while (!machine.StartConnecting(&endpoint, now)) {
      REQUIRE(machine.NextDue(true) != kNever);
      now = std::max(now, machine.NextDue(true));
      machine.Tick(now);
      Effect();
    }
    v1::SessionRequest request;
    REQUIRE(machine.NextMessage(&request, now));
    REQUIRE(request.has_open());
    return request.open();
  }

  // `more`: it is not the last page.
  void Opened(std::vector<std::string> leases = {}, bool resumed = false,
              const std::string& session = "s1", std::uint64_t epoch = 1, bool more = false) {
    v1::SessionResponse response;
    v1::SessionOpened* opened = response.mutable_opened();
    opened->set_session_id(session);
    opened->set_ttl_ms(9'000);
    opened->set_resumed(resumed);
    opened->set_more(more);
    opened->mutable_validity()->set_valid_for_ms(9'000);
    opened->mutable_validity()->set_epoch(epoch);
    for (const std::string& lease : leases) opened->add_leases()->set_lease_id(lease);
    Receive(response);
  }

  void Receive(const v1::SessionResponse& response) {
    machine.OnMessage(response, now);
    Effect();
  }

  v1::SessionRequest Next() {
    v1::SessionRequest request;
    machine.NextMessage(&request, now);
    return request;
  }

  void Granted(std::uint64_t sequence, const std::string& lease_id) {
    v1::SessionResponse response;
    v1::SessionResult* result = response.add_results();
    result->set_sequence(sequence);
    result->mutable_granted()->set_lease_id(lease_id);
    v1::SlotRange* range = result->mutable_granted()->add_slots();
    range->set_first(1);
    range->set_last(1);
    result->mutable_granted()->set_token(7);
    Receive(response);
  }

  void Queued(std::uint64_t sequence) {
    v1::SessionResponse response;
    v1::SessionResult* result = response.add_results();
    result->set_sequence(sequence);
    result->mutable_queued()->set_position(1);
    Receive(response);
  }

  void Error(std::uint64_t sequence, absl::StatusCode code, const std::string& reason) {
    v1::SessionResponse response;
    v1::SessionResult* result = response.add_results();
    result->set_sequence(sequence);
    *result->mutable_error() = ErrorWith(static_cast<int>(code), reason);
    Receive(response);
  }

  void Released(std::uint64_t sequence, std::uint32_t released = 1) {
    v1::SessionResponse response;
    v1::SessionResult* result = response.add_results();
    result->set_sequence(sequence);
    result->mutable_released()->set_released(released);
    if (released == 0) result->mutable_released()->set_ended(v1::END_CAUSE_EXPIRED);
    Receive(response);
  }

  void Pong(std::uint64_t ping, milliseconds elapsed, milliseconds valid_for, std::uint64_t epoch) {
    v1::SessionResponse response;
    response.mutable_pong()->set_ping_id(ping);
    response.mutable_pong()->mutable_validity()->set_elapsed_ms(elapsed.count());
    response.mutable_pong()->mutable_validity()->set_valid_for_ms(valid_for.count());
    response.mutable_pong()->mutable_validity()->set_epoch(epoch);
    Receive(response);
  }

  void End(absl::StatusCode code) {
    machine.OnStreamEnd(absl::Status(code, "test"), now);
    Effect();
  }

  // A session that holds one lease "L1".
  std::shared_ptr<Acquired> Holding() {
    auto acquired = Acquire("db");
    Connect();
    Opened();
    Next();
    Granted(1, "L1");
    REQUIRE(acquired->result.has_value());
    REQUIRE(acquired->result->ok());
    return acquired;
  }

  int clients = 0;
  int dropped = 0;
  std::size_t endpoint = 0;
  TimePoint now{std::chrono::hours(1)};
  SessionMachine machine;
};

}  // namespace semaphore::test

#endif  // SEMAPHORED_TESTS_SERVICE_CLIENT_MACHINE_WORLD_H_
