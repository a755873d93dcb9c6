#include "server/sessions/adoptions.h"

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

constexpr Id kAdoptedSession{5, 1};
constexpr Id kAdoptedClaim{5, 2};

LeasePtr AdoptedLease(uint32_t permits, uint32_t epoch = 1) {
  Lease lease;
  lease.id = kAdoptedClaim;
  lease.session = kAdoptedSession;
  lease.permits = permits;
  lease.epoch = epoch;
  return std::make_shared<Lease>(lease);
}

std::vector<ClaimInfo> HeldInAnswer(uint32_t permits, uint32_t epoch = 1) {
  std::vector<ClaimInfo> claims(1);
  claims[0].lease = AdoptedLease(permits, epoch);
  return claims;
}

std::vector<ClaimInfo> WaitingInAnswer() {
  Waiter waiter;
  waiter.id = kAdoptedClaim;
  waiter.session = kAdoptedSession;
  std::vector<ClaimInfo> claims(1);
  claims[0].waiter = std::make_shared<Waiter>(waiter);
  return claims;
}

Event AdoptedEvent(Event::Kind kind, LeasePtr lease) {
  Event event;
  event.kind = kind;
  event.claim = kAdoptedClaim;
  event.lease = std::move(lease);
  return event;
}

TEST_CASE("adoptions: what ends before the answer comes is not in it", "[unit]") {
  Adoptions adoptions;
  adoptions.Keep(AdoptedEvent(Event::Kind::kEnded, AdoptedLease(1)));  // Before it was asked for.
  adoptions.Begin(kAdoptedSession);
  std::vector<ClaimInfo> claims = HeldInAnswer(1);
  SECTION("nothing was reported") {
    adoptions.Take(kAdoptedSession).BringUpToDate(&claims);
    CHECK(claims.size() == 1);
  }
  SECTION("an end of the lease") {
    adoptions.Keep(AdoptedEvent(Event::Kind::kEnded, AdoptedLease(1)));
    adoptions.Take(kAdoptedSession).BringUpToDate(&claims);
    CHECK(claims.empty());
  }
  SECTION("an end of the wait") {
    claims = WaitingInAnswer();
    Event ended = AdoptedEvent(Event::Kind::kWaitEnded, nullptr);
    ended.session = kAdoptedSession;
    adoptions.Keep(ended);
    adoptions.Take(kAdoptedSession).BringUpToDate(&claims);
    CHECK(claims.empty());
  }
}

TEST_CASE("adoptions: a grant, and permits given back, are newer than the answer", "[unit]") {
  Adoptions adoptions;
  adoptions.Begin(kAdoptedSession);
  adoptions.Keep(AdoptedEvent(Event::Kind::kGranted, AdoptedLease(3)));
  std::vector<ClaimInfo> waiting = WaitingInAnswer();
  adoptions.KeepLease(AdoptedLease(2));
  const Adoptions::Changes changes = adoptions.Take(kAdoptedSession);
  changes.BringUpToDate(&waiting);
  REQUIRE(waiting[0].lease != nullptr);
  CHECK(waiting[0].lease->permits == 2);
  std::vector<ClaimInfo> held = HeldInAnswer(3);
  changes.BringUpToDate(&held);
  CHECK(held[0].lease->permits == 2);
  // The answer may know more.
  held = HeldInAnswer(1);
  changes.BringUpToDate(&held);
  CHECK(held[0].lease->permits == 1);
}

TEST_CASE("adoptions: a claim that has left counts by the epoch with which it left", "[unit]") {
  Adoptions adoptions;
  adoptions.Begin(kAdoptedSession);
  Event left = AdoptedEvent(Event::Kind::kMoved, nullptr);
  left.session = kAdoptedSession;
  left.epoch = 4;
  adoptions.Keep(left);
  const Adoptions::Changes changes = adoptions.Take(kAdoptedSession);
  CHECK(changes.HasLeft(kAdoptedClaim));
  CHECK_FALSE(changes.HasLeft(kAdoptedSession));
  std::vector<ClaimInfo> before = HeldInAnswer(1, 3);
  changes.BringUpToDate(&before);
  CHECK(before.empty());
  std::vector<ClaimInfo> back = HeldInAnswer(1, 5);
  changes.BringUpToDate(&back);
  CHECK(back.size() == 1);
}

TEST_CASE("adoptions: each answer gets what was reported since the first question", "[unit]") {
  Adoptions adoptions;
  adoptions.Begin(kAdoptedSession);
  adoptions.Begin(kAdoptedSession);
  adoptions.Keep(AdoptedEvent(Event::Kind::kEnded, AdoptedLease(1)));
  for (int answer = 0; answer < 2; ++answer) {
    std::vector<ClaimInfo> claims = HeldInAnswer(1);
    adoptions.Take(kAdoptedSession).BringUpToDate(&claims);
    CHECK(claims.empty());
  }
  adoptions.Begin(kAdoptedSession);
  std::vector<ClaimInfo> claims = HeldInAnswer(1);
  adoptions.Take(kAdoptedSession).BringUpToDate(&claims);
  CHECK(claims.size() == 1);
}

}  // namespace
}  // namespace semaphored
