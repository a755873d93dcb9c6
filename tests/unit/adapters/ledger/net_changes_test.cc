// What a batch did to each row, however often it did something.
#include "adapters/ledger/state/net_changes.h"

#include <memory>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace semaphored::ledger {
namespace {

SessionPtr SessionWith(uint64_t id, uint32_t epoch) {
  auto session = std::make_shared<Session>();
  session->id = Id{0, id};
  session->epoch = epoch;
  return session;
}

TEST_CASE("net changes: each row once, from what it was to what it is") {
  const SessionPtr first = SessionWith(1, 1), moved = SessionWith(1, 2), closed = SessionWith(1, 3);
  const SessionPtr opened = SessionWith(2, 1), passing = SessionWith(3, 1);
  const std::vector<SessionChange> changes = {
      {first, moved}, {nullptr, opened}, {nullptr, passing}, {moved, closed}, {passing, nullptr}};
  const auto net = NetChanges(changes);
  REQUIRE(net.size() == 3);
  CHECK(net[0].id == first->id);
  CHECK(net[0].before == first);
  CHECK(net[0].after == closed);
  REQUIRE(net[0].steps.size() == 2);
  CHECK(net[0].steps[0] == &changes[0]);
  CHECK(net[0].steps[1] == &changes[3]);
  CHECK(net[1].before == nullptr);
  CHECK(net[1].after == opened);
  CHECK(net[2].id == passing->id);
  CHECK(net[2].before == nullptr);
  CHECK(net[2].after == nullptr);
}

}  // namespace
}  // namespace semaphored::ledger
