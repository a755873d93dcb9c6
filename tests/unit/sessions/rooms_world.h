// The rooms of Sessions that work on claims, put together as Sessions does, on lanes that answer when the test says so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/sessions/claim_events.h"
#include "server/sessions/grants.h"
#include "server/sessions/session_closings.h"
#include "tests/unit/sessions/room_host.h"

namespace semaphored {

// Notes what it receives.
class RoomListener : public SessionListener {
 public:
  void OnQueued(uint64_t, uint64_t position, WaitReason, int64_t) override {
    queued.push_back(position);
  }
  void OnGranted(uint64_t, const LeasePtr& lease, const std::string&, Vouch) override {
    granted.push_back(lease->id);
  }
  void OnRefused(uint64_t, Refusal refusal) override { refused.push_back(refusal.reason); }
  void OnRecalled(uint64_t, const Id& claim, const std::string&, const RecallNotice&) override {
    recalled.push_back(claim);
  }
  void OnEnded(uint64_t, const Id&, const std::string&, EndCause cause) override {
    ended.push_back(cause);
  }
  void OnOpened(const Id&, int64_t, Vouch, bool, const std::vector<HeldLease>&) override {}
  void OnSessionEnded(Refusal refusal) override { session_ended.push_back(refusal.reason); }

  std::vector<uint64_t> queued;
  std::vector<Id> granted;
  std::vector<Reason> refused;
  std::vector<Id> recalled;
  std::vector<EndCause> ended;
  std::vector<Reason> session_ended;
};

struct RoomsWorld {
  RoomHost host;
  Timers& timers = host.timers;
  ClaimBook claims;
  SessionBook sessions;
  SemaphoreMetrics metrics{&host.time, 0, [](const SemaphoreMetrics::Visit&) {}};
  LeaseLog lease_log{&host.time, false};
  UnreadSemaphores unread{Milliseconds(9000)};
  Vouching vouching{&host, &claims, &unread, /*node_ttl_ms=*/10'000, /*sweep_interval_ms=*/5000};
  Moves moves{&host.time, &claims};
  Recalls recalls{&host, &timers, &claims,
                  [this](ClaimRecord* record, EndCause cause) { ends.End(record, cause, false); }};
  WorkDesk work{
      {&host, &timers, &host.lists, &claims, &sessions, &vouching, &recalls, &metrics, &lease_log},
      1000,
      {[this](ClaimRecord* offer) { ends.End(offer, EndCause::kCancelled, true); },
       [this](ClaimRecord* offer) { ends.Drop(offer); }}};
  Deadlines deadlines{&timers};
  ClaimEnds ends{{&host, &timers, &deadlines, &claims, &moves, &metrics, &lease_log, &unread,
                  &vouching, &work}};
  SessionEnds session_ends{&host, &claims, &sessions};
  QueuePaces paces{&host.time};
  EndMarks marks{&host};
  Grants grants{{&host, &deadlines, &claims, &moves, &recalls, &metrics, &lease_log, &paces, &marks,
                 &unread, &vouching, &ends}};
  SessionClosings closings{
      {&host, &timers, &deadlines, &claims, &sessions, &moves, &vouching, &ends, &session_ends},
      [this](SessionRecord* record) { sessions.StopListening(record); }};
  Adoptions adoptions;
  ClaimEvents events{{&host, &timers, &claims, &sessions, &metrics, &vouching, &recalls, &marks,
                      &adoptions, &work, &ends, &grants, &closings}};
  RoomListener listener;
  SessionRecord* session = sessions.FindOrAdd(Id{1, 1});

  RoomsWorld() {
    session->life.ttl_ms = 30'000;
    session->opened = true;
    vouching.Revive(&session->life);
    sessions.Listen(session, &listener);
  }
  RoomsWorld(const RoomsWorld&) = delete;
  RoomsWorld& operator=(const RoomsWorld&) = delete;

  // A claim of this owner; null: a detached one.
  ClaimRecord* Asked(const Id& id, SessionRecord* owner) {
    ClaimRecord* claim = claims.Add(id, "a", owner);
    claim->remembered = true;
    claim->listener = &listener;
    claim->life.ttl_ms = 30'000;
    return claim;
  }
  ClaimRecord* Waiting(const Id& id, SessionRecord* owner) {
    ClaimRecord* claim = Asked(id, owner);
    claim->state = ClaimRecord::State::kWaiting;
    return claim;
  }
  ClaimRecord* Held(const Id& id, SessionRecord* owner) {
    ClaimRecord* claim = Asked(id, owner);
    claim->state = ClaimRecord::State::kHeld;
    claim->lease = LeaseOf(*claim);
    return claim;
  }
  static LeasePtr LeaseOf(const ClaimRecord& claim) {
    auto lease = std::make_shared<Lease>();
    lease->id = claim.id;
    lease->session = claim.owner();
    lease->epoch = claim.life.epoch;
    lease->permits = 1;
    lease->ttl_ms = 30'000;
    return lease;
  }
  static Event EventOf(Event::Kind kind, const ClaimRecord& claim) {
    Event event;
    event.kind = kind;
    event.claim = claim.id;
    event.session = claim.owner();
    if (kind != Event::Kind::kMoved && kind != Event::Kind::kWaitEnded)
      event.lease = LeaseOf(claim);
    return event;
  }
  // The timer that is due next, after so long.
  TimerKind DueAfter(Milliseconds after) {
    CHECK_FALSE(host.Pass(after - Milliseconds(1)));
    const auto timer = host.Pass(Milliseconds(1));
    REQUIRE(timer);
    return timer->kind;
  }
};

}  // namespace semaphored
