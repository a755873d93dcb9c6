// Sessions whose clients come again: resumed where they are, or moved here from another daemon.
#include <utility>
#include <vector>

#include "server/sessions/sessions_impl.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

// The ends of its claims and of its row are under way, lane by lane. They would take what the client
// of a resumed session counts on.
bool IsEnding(const SessionRecord* record) {
  return record != nullptr && record->life.hosted && (record->closing || record->life.expiring);
}

}  // namespace

void SessionsImpl::Resume(OpenParams params, SessionListener* listener) {
  const Id id = params.resume;
  SessionRecord* record = sessions_.Find(id);
  if (BelongsToAnother(record, params)) return listener->OnSessionEnded(SessionLostRefusal());
  if (record != nullptr && !record->opened && record->life.hosted) {
    return listener->OnSessionEnded(
        MovedRefusal(""));  // It is still being opened by another stream.
  }
  // Its client has closed it. It stands only until its leases have moved.
  if (record != nullptr && record->end_cause != EndCause::kNone)
    return listener->OnSessionEnded(SessionLostRefusal());
  record = SendAway(record);
  if (IsEnding(record))
    return listener->OnSessionEnded(exclusive() ? SessionLostRefusal() : EndingRefusal());
  // On a shared engine it may have moved without our knowledge: the engine is asked.
  if (exclusive() && record != nullptr && record->life.hosted) {
    record->client_id = params.client_id;
    record->trace = params.trace;
    if (record->owner.empty()) record->owner = TenantName(params.charge);
    record->charge = std::move(params.charge);
    return Attach(record, listener, params.work.get(), true);
  }
  sessions_.BeginOpening(listener, id);
  absl::btree_set<Id> known;
  if (record != nullptr) {
    for (const Id& claim : record->claims) {
      const ClaimRecord* each = claims_.Find(claim);
      if (each != nullptr && each->state != State::kAsked) known.insert(claim);
    }
  }
  adoptions_.Begin(id);
  Adopt(id, std::move(params), listener, std::move(known));
}

void SessionsImpl::Adopt(const Id& id, OpenParams params, SessionListener* listener,
                         absl::btree_set<Id> known) {
  AdoptSessionCommand command;
  command.session = id;
  command.caller = TenantName(params.charge);
  host_->Submit(0, Job{std::move(command),
                       [this, id, listener, params = std::move(params),
                        known = std::move(known)](absl::StatusOr<Outcome> outcome) mutable {
                         if (outcome.ok() && outcome->kind == OutcomeKind::kReading)
                           return Adopt(id, std::move(params), listener, std::move(known));
                         OnAdopted(id, params, listener, known, std::move(outcome));
                       }});
}

void SessionsImpl::OnAdopted(const Id& id, const OpenParams& params, SessionListener* listener,
                             const absl::btree_set<Id>& known, absl::StatusOr<Outcome> outcome) {
  const bool listens = sessions_.EndOpening(listener, id);
  const Adoptions::Changes changes = adoptions_.Take(id);
  if (!outcome.ok() || outcome->kind != OutcomeKind::kDone) {
    Refusal refusal = outcome.ok() ? RefusalOf(*outcome, "", host_->guarantees().adapter)
                                   : RefusalOf(outcome.status(), "");
    const bool lost = outcome.ok() && outcome->kind == OutcomeKind::kSessionLost;
    SessionRecord* record = sessions_.Find(id);
    // What is closing has claims yet, and goes on to its end.
    const bool gone = lost && !outcome->changed;
    if (gone && record != nullptr && !record->life.expiring)
      closings_.Drop(record, SessionLostRefusal());
    if (listens) listener->OnSessionEnded(std::move(refusal));
    return;
  }
  if (BelongsToAnother(sessions_.Find(id), params)) {
    if (listens) listener->OnSessionEnded(SessionLostRefusal());
    return;
  }
  // An adoption that raised the epoch has made the ends under way stale.
  if (IsEnding(sessions_.Find(id)) && !outcome->changed) {
    if (listens) listener->OnSessionEnded(EndingRefusal());
    return;
  }
  // A client that found the answer late has asked again, on a stream of its own each time. The last
  // one counts; the end of the others, which is heard of later, must not be taken for its end. If
  // the one that asked has gone meanwhile, the stream that has the session knows more than this.
  const SessionRecord* attached = sessions_.Find(id);
  if (attached != nullptr && attached->listener != nullptr && !listens && !outcome->changed) return;
  SendAway(sessions_.Find(id));
  std::vector<ClaimInfo>& claims = outcome->report->claims;
  changes.BringUpToDate(&claims);
  ends_.LeaveOthers(id, claims);
  const Session& session = *outcome->report->session;
  SessionRecord* const record = sessions_.FindOrAdd(id);
  record->life.ttl_ms = session.ttl_ms;
  record->life.epoch = session.epoch;
  record->life.hosted = true;
  record->client_id = params.client_id;
  record->trace = params.trace;
  record->holder = session.holder;
  record->owner = session.owner.empty() ? TenantName(params.charge) : session.owner;
  record->release_on_disconnect = session.release_on_disconnect;
  record->charge = params.charge;
  if (outcome->changed) {
    vouching_.KeepAfterMove(&record->life, session.ttl_ms);
    // The daemon that had the session may have assigned to the worker what was to be put back here.
    for (const Id& claim : record->claims) {
      ClaimRecord* each = claims_.Find(claim);
      if (each == nullptr) continue;
      each->put_back = false;
      Recalls::Forget(each);
    }
  }
  DropOthers(record, known, changes, claims);
  AddClaims(record, claims);
  if (outcome->report->unread) read_again_.Add(id);
  // The lanes of these semaphores may not have them loaded. The probe loads them, and finds what
  // happened to the claims since lane 0 read them.
  for (const Id& claim : record->claims) {
    const ClaimRecord* each = claims_.Find(claim);
    if (each == nullptr || each->state == State::kAsked || known.contains(claim)) continue;
    if (LaneOf(each->semaphore, host_->lane_count()) != 0) events_.Probe(*each);
  }
  Attach(record, listens ? listener : nullptr, params.work.get(), true);
}

// What ended while the session was hosted elsewhere. What was asked for stays, though it may have
// been answered meanwhile: its semaphore's lane is not the one that told `claims`, and may be ahead
// of it.
void SessionsImpl::DropOthers(SessionRecord* record, const absl::btree_set<Id>& known,
                              const Adoptions::Changes& changes,
                              const std::vector<ClaimInfo>& claims) {
  absl::btree_set<Id> stand;
  for (const ClaimInfo& info : claims) stand.insert(RowOf(info).id);
  for (const Id& id : known) {
    if (stand.contains(id)) continue;
    // The claim left the session meanwhile. If its record is here, the claim has come back.
    if (changes.HasLeft(id)) continue;
    ClaimRecord* claim = claims_.Find(id);
    if (claim != nullptr && claim->session == record) ends_.Drop(claim);
  }
}

void SessionsImpl::AddClaims(SessionRecord* record, const std::vector<ClaimInfo>& claims) {
  for (const ClaimInfo& info : claims) {
    const Claim& row = RowOf(info);
    const Id id = row.id;
    ClaimRecord* claim = claims_.Find(id);
    const bool known = claim != nullptr;
    // It has moved to another session since.
    if (known && claim->session != record) continue;
    // Its semaphore's lane reported the grant before the session's lane reported the wait.
    if (known && claim->has_lease() && !info.lease) continue;
    const bool moves = info.lease && info.lease->moved_from != 0;
    // The lane has granted it since: the move is over.
    if (known && moves && claim->state == State::kHeld && claim->life.epoch >= row.epoch) continue;
    if (!known) claim = claims_.Add(id, info.semaphore, record);
    claim->remembered = true;
    // This daemon knows when this move is over.
    const bool same_move = moves && claim->move != nullptr && claim->life.epoch == row.epoch;
    if (!same_move) moves_.End(claim);
    claim->life.epoch = std::max(claim->life.epoch, row.epoch);
    claim->lease = info.lease;
    claim->offers = info.lease ? !info.lease->ticket.empty() : info.waiter->works;
    claim->ticket = info.ticket;
    claim->state = !info.lease ? State::kWaiting : moves ? State::kMoving : State::kHeld;
    if (moves && !same_move)
      grants_.BecomeMoving(claim, info.lease, vouching_.MoveOverAt(*info.lease));
    grants_.Found(claim);
    if (record->charge != nullptr) Grants::ChargeTenant(claim, record->charge->tenant());
    recalls_.Arm(claim);
    if (!known && info.lease) recalls_.ArmLongestHold(*claim);
  }
  vouching_.Bound(record);
}

}  // namespace semaphored
