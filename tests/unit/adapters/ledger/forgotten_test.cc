// Requesters that were silent for long are forgotten, but not with the end of their own claim.
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/damaged_engine.h"

namespace semaphored::ledger {
namespace {

struct ForgetfulDaemon {
  ForgetfulDaemon() {
    options.self = world.engine.Join("node");
    options.now = [this] { return now; };
    options.now_unix_ms = [] { return int64_t{1}; };
    options.client_retention = std::chrono::seconds(60);
    world.engine.may_forget = [](const Transaction&, uint32_t) { return true; };
    lane = MakeLedgerAdapter(std::make_unique<DamagedStore>(&world, /*exclusive=*/true), options)
               .value();
  }

  Outcome Do(Command command) {
    const Submission submission{++number, std::move(command)};
    return std::move(lane->Step({&submission, 1}, SteadyTime::max()).value().outcomes.front());
  }
  AcquireCommand Ask(const std::string& client, bool wait) {
    AcquireCommand acquire;
    acquire.requester = {client, 1};
    acquire.semaphore = "s";
    acquire.claim = acquire.session = Id{1, ++number};
    acquire.limit = 1;
    acquire.wait = wait;
    return acquire;
  }

  DamagedWorld world;
  SteadyTime now{};
  LedgerOptions options;
  std::unique_ptr<Adapter> lane;
  uint64_t number = 0;
};

}  // namespace

TEST_CASE("forgotten: a requester whose wait has just ended hears of the end when it asks again") {
  ForgetfulDaemon daemon;
  REQUIRE(daemon.Do(daemon.Ask("holder", false)).kind == OutcomeKind::kGranted);
  const AcquireCommand waits = daemon.Ask("waiter", true);
  REQUIRE(daemon.Do(waits).kind == OutcomeKind::kQueued);
  daemon.now += std::chrono::hours(1);
  EndCommand end;
  end.semaphore = "s";
  end.claim = waits.claim;
  end.cause = EndCause::kWaitExpired;
  REQUIRE(daemon.Do(end).kind == OutcomeKind::kDone);
  CHECK(daemon.Do(waits).kind == OutcomeKind::kWaitEnded);
  // And is forgotten after its retention.
  daemon.now += std::chrono::seconds(61);
  REQUIRE(daemon.Do(daemon.Ask("other", false)).kind == OutcomeKind::kFull);
  daemon.now += std::chrono::seconds(61);
  REQUIRE(daemon.Do(OpenSessionCommand{Id{9, 9}, "third", 1000, "", false}).kind ==
          OutcomeKind::kDone);
  CHECK(daemon.Do(waits).kind == OutcomeKind::kQueued);
}

}  // namespace semaphored::ledger
