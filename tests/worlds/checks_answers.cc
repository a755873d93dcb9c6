// What is answered and reported, and what must hold when nothing is left to do.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/requests.h"
#include "tests/worlds/checks.h"

namespace semaphored::worlds {

using ledger::RequestRow;
using simulation::StoredSemaphore;

namespace {

bool SameSlots(const Slots& a, const Slots& b) { return std::ranges::equal(a, b); }

void Unexpected(const std::string& command, const Outcome& outcome) {
  Fail(absl::StrCat(command, " was answered with ", static_cast<int>(outcome.kind), " ",
                    outcome.message));
}

}  // namespace

// ---- answers ----

void Checks::Answered(const Command& command, const Outcome& outcome, const LaneView& view) {
  if (const Requester* requester = ledger::RequesterOf(command);
      requester != nullptr && requester->sequence != 0) {
    const Id fingerprint = ledger::FingerprintOf(command);
    const auto before = rows_before_.find({requester->client_id, requester->sequence});
    const bool other = before != rows_before_.end() && before->second != fingerprint;
    const bool refused = outcome.kind == OutcomeKind::kReused;
    if (other && !refused) Fail("an id that stands for another effect was used again");
    // (Another command of the batch may have been first.)
    const RequestRow* row = RowOf(*requester);
    if (refused && !other && (row == nullptr || row->fingerprint == fingerprint))
      Fail("a request was refused as reused, and is not");
    if (outcome.kind == OutcomeKind::kReused) return;
  }
  if (const auto* acquire = std::get_if<AcquireCommand>(&command))
    return AcquireAnswered(*acquire, outcome, view);
  if (const auto* release = std::get_if<ReleaseCommand>(&command))
    return ReleaseAnswered(*release, outcome);
  if (const auto* end = std::get_if<EndCommand>(&command)) return EndAnswered(*end, outcome);
  if (const auto* verify = std::get_if<VerifyCommand>(&command))
    return VerifyAnswered(*verify, outcome);
  if (const auto* admin = std::get_if<AdminCommand>(&command);
      admin != nullptr && admin->requester.sequence != 0 && outcome.kind == OutcomeKind::kDone) {
    const RequestRow* row = RowOf(admin->requester);
    if (row == nullptr || row->number != outcome.affected() || row->changed != outcome.changed)
      Fail("an act was answered other than its request's row says");
  }
}

void Checks::Settled(const Command& command, const Outcome& outcome, const LaneView& view) {
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  if (acquire == nullptr) return;
  const bool held = outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kMoving;
  if (!held && outcome.kind != OutcomeKind::kQueued) return;
  const Id& id = held ? outcome.lease->id : outcome.claim;
  const auto life = lives_.find(id);
  if (life == lives_.end() || (held && !life->second.granted))
    Fail("a request was settled as done, and the engine knows of nothing");
  if (!life->second.over) SameAnswer(acquire->requester, id);
  // Its end is reported yet: see Quiet.
  if (view.ended.contains(id)) Fail("a claim was settled as standing after its end was reported");
}

void Checks::AcquireAnswered(const AcquireCommand& command, const Outcome& outcome,
                             const LaneView& view) {
  if (outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kMoving) {
    if (view.ended.contains(outcome.lease->id))
      Fail("a lease was reported as held after its end was reported");
    SameAnswer(command.requester, outcome.lease->id);
    Held(command, outcome);
  } else if (outcome.kind == OutcomeKind::kQueued) {
    SameAnswer(command.requester, outcome.claim);
    if (FindWaiter(command.semaphore, outcome.claim) == nullptr &&
        FindLease(command.semaphore, outcome.claim) == nullptr && !EndedInStep(outcome.claim))
      Fail("a request was answered as waiting, and does not wait");
  } else {
    Refused(command, outcome);
  }
}

void Checks::Held(const AcquireCommand& command, const Outcome& outcome) const {
  const Id& id = outcome.lease->id;
  if (EndedInStep(id)) return;
  const Lease* stored = FindLease(command.semaphore, id);
  if (stored == nullptr) Fail("a lease was reported as held, and the engine has none");
  const bool detached = command.session == command.claim;
  if (detached ? !stored->detached() : stored->session != command.session)
    Fail("a lease was reported as held to another than its owner");
  if (!SameSlots(stored->slots, outcome.lease->slots) || stored->token != outcome.lease->token ||
      stored->token == 0)
    Fail("a lease was reported as held with other slots or another token");
  if ((stored->moved_from != 0) != (outcome.kind == OutcomeKind::kMoving))
    Fail("a lease was granted while its move is not over, or the other way round");
}

void Checks::Refused(const AcquireCommand& command, const Outcome& outcome) const {
  const StoredSemaphore* stored = engine_->Find(command.semaphore);
  const RequestRow* row = RowOf(command.requester);
  const auto session = engine_->sessions().find(command.session);
  const bool session_stands = session != engine_->sessions().end() && !session->second.closing;
  const auto is = [&](OutcomeKind kind) { return outcome.kind == kind; };
  if (is(OutcomeKind::kNotHeld) || is(OutcomeKind::kWaitEnded)) {
    if (row != nullptr && row->pinned() && !EndedInStep(row->claim))
      Fail("a request was answered as ended, and has not");
  } else if (is(OutcomeKind::kFull)) {
    const bool room = stored != nullptr && landed_in_step_ == 0 && stored->waiters.empty() &&
                      stored->held() + command.permits <= stored->row.limit;
    if (room) Fail("a request was refused though there is room");
  } else if (is(OutcomeKind::kNoSuchSemaphore)) {
    if (stored != nullptr && landed_in_step_ == 0) Fail("a semaphore was said to be absent");
  } else if (is(OutcomeKind::kSessionLost)) {
    if (session_stands) Fail("a session was said to be lost");
  } else if (is(OutcomeKind::kStale)) {
    if (session_stands && session->second.epoch == command.epoch)
      Fail("a session was said to have moved");
  } else if (is(OutcomeKind::kNotAskedBefore)) {
    if (row != nullptr && landed_in_step_ == 0) Fail("a request that has a row was said to be new");
  } else if (!is(OutcomeKind::kPaused) && !is(OutcomeKind::kDestroyed) &&
             !is(OutcomeKind::kExceedsLimit) && !is(OutcomeKind::kLimitMismatch)) {
    Unexpected("an acquire", outcome);
  }
}

void Checks::SameAnswer(const Requester& requester, const Id& claim) {
  Id& answered = answered_[{requester.client_id, requester.sequence}];
  if (!answered.empty() && answered != claim) {
    const ClaimLife& life = lives_.at(answered);
    if (!life.over || life.granted) Fail("a repeated request was answered with another claim");
  }
  answered = claim;
}

void Checks::ReleaseAnswered(const ReleaseCommand& command, const Outcome& outcome) const {
  const bool held = FindLease(command.semaphore, command.claim) != nullptr;
  if (outcome.kind == OutcomeKind::kReleased) {
    if (held) Fail("a lease was answered as released, and is held");
    const RequestRow* row = RowOf(command.requester);
    if (row == nullptr || row->number != outcome.released())
      Fail("a release was answered other than its request's row says");
    return;
  }
  if (outcome.kind != OutcomeKind::kNotHeld) Unexpected("a release", outcome);
  if (held && landed_in_step_ == 0 && outcome.cause != EndCause::kMoved)
    Fail("a lease that is held was not released");
}

void Checks::EndAnswered(const EndCommand& command, const Outcome& outcome) const {
  const Lease* lease = FindLease(command.semaphore, command.claim);
  const Waiter* waiter = FindWaiter(command.semaphore, command.claim);
  const Claim* claim = lease != nullptr ? static_cast<const Claim*>(lease) : waiter;
  if (outcome.kind == OutcomeKind::kStale) {
    if (claim == nullptr || landed_in_step_ > 0 || (lease != nullptr && command.only_waiting))
      return;
    const auto session = engine_->sessions().find(claim->session);
    const uint32_t epoch = claim->detached()                      ? claim->epoch
                           : session == engine_->sessions().end() ? 0
                                                                  : session->second.epoch;
    if (claim->session == command.session && epoch == command.epoch)
      Fail("an end was refused as stale, and is not");
    return;
  }
  if (outcome.kind != OutcomeKind::kDone && outcome.kind != OutcomeKind::kNotHeld)
    Unexpected("an end", outcome);
  if (claim != nullptr) Fail("a claim was answered as ended, and has not ended");
}

void Checks::VerifyAnswered(const VerifyCommand& command, const Outcome& outcome) const {
  const Lease* lease = FindLease(command.semaphore, command.claim);
  const Waiter* waiter = FindWaiter(command.semaphore, command.claim);
  if (outcome.kind == OutcomeKind::kHeld) {
    if (EndedInStep(command.claim)) return;
    if (lease == nullptr) Fail("a lease was verified, and the engine has none");
    if (!SameSlots(lease->slots, outcome.lease->slots) || lease->token != outcome.lease->token)
      Fail("a lease was verified with other slots or another token");
  } else if (outcome.kind == OutcomeKind::kStillWaiting) {
    if (waiter == nullptr && landed_in_step_ == 0) Fail("a claim was verified as waiting");
  } else if (landed_in_step_ == 0 && (lease != nullptr || waiter != nullptr)) {
    Fail("a claim that stands was verified as gone");
  }
}

// ---- events ----

void Checks::Heard(const Event& event, LaneView* view) {
  const auto life = lives_.find(event.claim);
  switch (event.kind) {
    case Event::Kind::kGranted:
      if (life == lives_.end() || !life->second.waited)
        Fail("a grant was reported of a claim that never waited");
      if (view->ended.contains(event.claim)) Fail("a grant was reported after the end");
      if (!view->granted.insert(event.claim).second) Fail("a grant was reported twice");
      if (!life->second.granted) Fail("a grant was reported, and the engine knows of none");
      view->claims[event.claim] = LaneView::Is::kHeld;
      return;
    case Event::Kind::kEnded:
    case Event::Kind::kWaitEnded:
      if (!view->ended.insert(event.claim).second) Fail("an end was reported twice");
      if (life == lives_.end() || !life->second.over)
        Fail("an end was reported of a claim that stands");
      if (event.cause != EndCause::kUnknown && event.cause != life->second.cause)
        Fail(absl::StrCat("an end was reported with cause ", static_cast<int>(event.cause),
                          " instead of ", static_cast<int>(life->second.cause)));
      view->claims.erase(event.claim);
      return;
    case Event::Kind::kMoved:
    case Event::Kind::kRecalled:
      return;
  }
}

// ---- nothing is left to do ----

void Checks::Quiet(const Adapter& ledger, const LaneView& view, const IsUp& is_up) const {
  const ledger::LedgerProbe probe{ledger};
  for (const auto& [name, stored] : engine_->semaphores()) {
    if (!probe.Loaded(name)) continue;
    if (!stored.row.intentions.empty())
      Fail(absl::StrCat("an act on ", name, " is not carried on: ", stored.row.intentions));
    if (stored.row.destroying && stored.leases.empty())
      Fail(absl::StrCat(name, " is to be destroyed, and stays"));
    const std::vector<const Waiter*> queue = stored.Queue();
    if (queue.empty() || stored.row.paused || stored.row.destroying) continue;
    if (stored.held() + queue.front()->permits <= stored.row.limit)
      Fail(absl::StrCat(queue.front()->id.Hex(), " waits for ever, though it fits"));
  }
  for (const auto& [name, cached] : probe.state()) Cached(*cached, probe.state(), is_up);
  for (const auto& [id, is] : view.claims) {
    const auto life = lives_.find(id);
    if (life == lives_.end() || life->second.over)
      Fail(absl::StrCat("the end of ", id.Hex(), " is never reported"));
    if (is == LaneView::Is::kWaiting && FindWaiter(life->second.semaphore, id) == nullptr)
      Fail(absl::StrCat("the grant of ", id.Hex(), " is never reported"));
  }
}

void Checks::Cached(const ledger::Semaphore& cached, const ledger::LedgerState& state,
                    const IsUp& is_up) const {
  const std::string& name = cached.row.name;
  const StoredSemaphore* stored = engine_->Find(name);
  if (stored == nullptr) Fail(absl::StrCat("a lane still knows ", name));
  if (cached.row != stored->row) Fail(absl::StrCat("a lane knows another row of ", name));
  if (cached.leases.size() != stored->leases.size() ||
      cached.waiters.size() != stored->waiters.size())
    Fail(absl::StrCat("a lane knows other claims of ", name));
  const auto same = [&](const Claim& a, const Claim& b) {
    if (a.session != b.session || a.host != b.host || a.epoch != b.epoch || a.order != b.order)
      Fail(absl::StrCat("a lane knows another row of ", a.id.Hex()));
    if (a.detached()) return;
    const ledger::SessionPtr& session = state.FindSession(a.session);
    const auto found = engine_->sessions().find(a.session);
    if (found != engine_->sessions().end() && !is_up(found->second.host)) return;
    if (!session || found == engine_->sessions().end() || session->host != found->second.host ||
        session->epoch != found->second.epoch)
      Fail(absl::StrCat("a lane knows another row of the session of ", a.id.Hex()));
  };
  for (const auto& [id, lease] : cached.leases) {
    const Lease* other = FindLease(name, id);
    if (other == nullptr || other->token != lease->token ||
        !SameSlots(other->slots, lease->slots) || other->moved_from != lease->moved_from ||
        other->recall != lease->recall)
      Fail(absl::StrCat("a lane knows another lease ", id.Hex()));
    same(*lease, *other);
  }
  for (const auto& [id, waiter] : cached.waiters) {
    const Waiter* other = FindWaiter(name, id);
    if (other == nullptr) Fail(absl::StrCat("a lane knows another waiter ", id.Hex()));
    same(*waiter, *other);
  }
}

}  // namespace semaphored::worlds
