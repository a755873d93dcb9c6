// Whether the checks find what is wrong: faults planted in the engine, in a store and in an adapter, each
// of which a bounded exploration must find.
#include <iostream>

#include "catch2/catch_test_macros.hpp"
#include "tests/worlds/explorer.h"

namespace semaphored::worlds {
namespace {

using simulation::Mutant;

void Finds(const std::string& world, const Planted& planted, int depth = 5) {
  const Explored explored = Explore(WorldNamed(world), planted, {depth, /*states_max=*/20'000});
  INFO(planted.name << ": " << explored.states << " states, depth " << explored.depth);
  REQUIRE(explored.violation);
  std::cout << planted.name << ": " << *explored.violation;
}

TEST_CASE("planted: what an engine can do wrong is found") {
  Finds("queue", {"commits ignore the revision", Mutant::kIgnoreRevision});
  Finds("queue", {"the last in the queue is filed first", Mutant::kLifo});
  Finds("repeats", {"requests are not remembered", Mutant::kLoseRequests});
  Finds("destroyed and made again", {"tokens begin again", Mutant::kTokensRepeat});
  Finds("lost answers of dead nodes",
        {"a node that was replaced may write", Mutant::kIgnoreIncarnation});
  Planted epoch{"commits ignore the epochs of sessions"};
  epoch.ignore_epoch = true;
  Finds("sessions", epoch);
  Planted row{"commits ignore the rows of sessions"};
  row.ignore_session_row = true;
  Finds("lost answers of dead nodes", row);
}

TEST_CASE("planted: what a store can do wrong is found") {
  Planted won{"settled as won, though it is lost"};
  won.store.settle_says_won = true;
  Finds("lost answers", won);
  Planted lost{"settled as lost, though it has landed"};
  lost.store.settle_says_lost = true;
  Finds("lost answers", lost);
  Planted half{"the rows of requests do not follow the claims"};
  half.store.half_requests = true;
  Finds("repeats", half);
  Finds("queue", {"a waiter is forgotten on loading", Mutant::kForgetWaiters});
  Finds("queue", {"a queue is turned round on loading", Mutant::kReverseQueue});
  Finds("repeats", {"a change is not seen", Mutant::kStaleReads});
  Finds("queue", {"notices leave out the grants", Mutant::kHalfNotices});
}

TEST_CASE("planted: what an adapter can do wrong is found") {
  Finds("repeats", {"an expiry ends what has moved", Mutant::kEndIgnoresEpoch});
  Finds("batches", {"granted though it is full", Mutant::kGrantWhenFull});
  Finds("lost answers", {"answered before it is settled", Mutant::kAnswerBeforeSettled});
}

}  // namespace
}  // namespace semaphored::worlds
