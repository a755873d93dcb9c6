// What a release costs Consul, counted in keys that are written or removed.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/daemon.h"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

// By key, the index at which it was written last.
std::map<std::string, uint64_t> KeysUnder(const TestPrefix& prefix) {
  std::map<std::string, uint64_t> keys;
  for (const Entry& entry : prefix.Tree(prefix.prefix() + "/"))
    keys[entry.key] = entry.modify_index;
  return keys;
}

// The keys that a release of these slots writes or removes. Empty slots: all.
size_t KeysOfRelease(const TestPrefix& prefix, Daemon* daemon, uint64_t claim, Slots slots = {}) {
  const std::map<std::string, uint64_t> before = KeysUnder(prefix);
  const ReleaseCommand release{{}, "s", MakeId(claim), std::move(slots)};
  REQUIRE(daemon->Run(release).kind == OutcomeKind::kReleased);
  const std::map<std::string, uint64_t> after = KeysUnder(prefix);
  size_t keys = 0;
  for (const auto& [key, index] : after) {
    const auto found = before.find(key);
    if (found == before.end() || found->second != index) ++keys;
  }
  for (const auto& [key, index] : before) {
    if (!after.contains(key)) ++keys;
  }
  return keys;
}

TEST_CASE("consul cost: the return of one slot of 32 leaves the places of the others alone",
          "[consul]") {
  constexpr uint32_t kPermits = 32;
  TestPrefix prefix;
  Daemon daemon(prefix, "a");
  REQUIRE(daemon.Administer(AdminCreate{kPermits, {}}).kind == OutcomeKind::kDone);
  AcquireCommand acquire = Daemon::Acquiring("c", 1, 1);
  acquire.limit = 0;
  acquire.permits = kPermits;
  acquire.wait = false;
  REQUIRE(daemon.Run(acquire).kind == OutcomeKind::kGranted);
  const size_t keys = KeysOfRelease(prefix, &daemon, 1, Slots{kPermits / 2});
  CHECK(keys > 0);
  CHECK(keys < kPermits / 2);
}

// Of a release that lets one in behind so many waiters that are at their holder's cap.
size_t KeysBehind(uint64_t capped) {
  TestPrefix prefix;
  Daemon daemon(prefix, "a");
  REQUIRE(daemon.Administer(AdminCreate{2, {.permits_per_holder = 1}}).kind == OutcomeKind::kDone);
  uint64_t sequence = 0;
  const auto ask = [&](uint64_t claim, const std::string& holder) {
    AcquireCommand acquire = Daemon::Acquiring("c", ++sequence, claim);
    acquire.limit = 0;
    acquire.holder = holder;
    return acquire;
  };
  REQUIRE(daemon.Run(ask(1, "greedy")).kind == OutcomeKind::kGranted);
  REQUIRE(daemon.Run(ask(2, "modest")).kind == OutcomeKind::kGranted);
  std::vector<Command> asked;
  for (uint64_t i = 0; i < capped; ++i) asked.emplace_back(ask(100 + i, "greedy"));
  asked.emplace_back(ask(3, "patient"));
  asked.emplace_back(ask(4, "patient too"));
  for (const Outcome& outcome : daemon.RunAll(std::move(asked)))
    REQUIRE(outcome.kind == OutcomeKind::kQueued);
  // The first commit after many came puts them on pages.
  REQUIRE(KeysOfRelease(prefix, &daemon, 2) > 0);
  REQUIRE(daemon.Verify(3) == OutcomeKind::kHeld);
  const size_t keys = KeysOfRelease(prefix, &daemon, 3);
  CHECK(daemon.Verify(4) == OutcomeKind::kHeld);
  return keys;
}

TEST_CASE("consul cost: what waits at its holder's cap costs others nothing", "[consul]") {
  // Four times as many pages.
  CHECK(KeysBehind(200) <= KeysBehind(50));
}

}  // namespace
}  // namespace semaphored::consul
