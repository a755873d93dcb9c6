#include "server/sessions/session_resumption.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using State = ClaimRecord::State;

// For an identity to which it does not belong, it is not there.
bool BelongsToAnother(const SessionRecord* record, const OpenParams& params) {
  return record != nullptr && IsAnothers(record->owner, TenantName(params.charge));
}

// The ends of its claims and of its row are under way, lane by lane. They would take what the client
// of a resumed session counts on.
bool IsEnding(const SessionRecord* record) {
  return record != nullptr && record->life.hosted && (record->closing || record->life.expiring);
}

}  // namespace

void SessionResumption::Resume(OpenParams params, SessionListener* listener) {
  const Id id = params.resume;
  SessionRecord* record = parts_.sessions->Find(id);
  if (BelongsToAnother(record, params)) return listener->OnSessionEnded(SessionLostRefusal());
  if (record != nullptr && !record->opened && record->life.hosted) {
    return listener->OnSessionEnded(
        MovedRefusal(""));  // It is still being opened by another stream.
  }
  // Its client has closed it. It stands only until its leases have moved.
  if (record != nullptr && record->end_cause != EndCause::kNone)
    return listener->OnSessionEnded(SessionLostRefusal());
  record = parts_.streams->SendAway(record);
  if (IsEnding(record))
    return listener->OnSessionEnded(parts_.host->guarantees().exclusive ? SessionLostRefusal()
                                                                        : EndingRefusal());
  // On a shared engine it may have moved without our knowledge: the engine is asked.
  if (parts_.host->guarantees().exclusive && record != nullptr && record->life.hosted) {
    record->client_id = params.client_id;
    record->trace = params.trace;
    if (record->owner.empty()) record->owner = TenantName(params.charge);
    record->charge = std::move(params.charge);
    return parts_.streams->Attach(record, listener, params.work.get(), true);
  }
  parts_.sessions->BeginOpening(listener, id);
  absl::btree_set<Id> known;
  if (record != nullptr) {
    for (const Id& claim : record->claims) {
      const ClaimRecord* each = parts_.claims->Find(claim);
      if (each != nullptr && each->state != State::kAsked) known.insert(claim);
    }
  }
  parts_.adoptions->Begin(id);
  Adopt(id, std::move(params), listener, std::move(known));
}

void SessionResumption::Adopt(const Id& id, OpenParams params, SessionListener* listener,
                              absl::btree_set<Id> known) {
  AdoptSessionCommand command;
  command.session = id;
  command.caller = TenantName(params.charge);
  parts_.host->Submit(
      kSessionsLane,
      Job{std::move(command), [this, id, listener, params = std::move(params),
                               known = std::move(known)](absl::StatusOr<Outcome> outcome) mutable {
            if (outcome.ok() && outcome->kind == OutcomeKind::kReading)
              return Adopt(id, std::move(params), listener, std::move(known));
            OnAdopted(id, params, listener, known, std::move(outcome));
          }});
}

void SessionResumption::OnAdopted(const Id& id, const OpenParams& params, SessionListener* listener,
                                  const absl::btree_set<Id>& known,
                                  absl::StatusOr<Outcome> outcome) {
  const bool listens = parts_.sessions->EndOpening(listener, id);
  const Adoptions::Changes changes = parts_.adoptions->Take(id);
  if (!outcome.ok() || outcome->kind != OutcomeKind::kDone)
    return OnNotAdopted(id, outcome, listens ? listener : nullptr);
  const SessionRecord* before = parts_.sessions->Find(id);
  const bool forbidden = BelongsToAnother(before, params);
  // An adoption that raised the epoch has made the ends under way stale.
  if (forbidden || (IsEnding(before) && !outcome->changed)) {
    if (listens) listener->OnSessionEnded(forbidden ? SessionLostRefusal() : EndingRefusal());
    return;
  }
  // A client that found the answer late has asked again, on a stream of its own each time. The last
  // one counts; the end of the others, which is heard of later, must not be taken for its end. If
  // the one that asked has gone meanwhile, the stream that has the session knows more than this.
  if (before != nullptr && before->listener != nullptr && !listens && !outcome->changed) return;
  parts_.streams->SendAway(parts_.sessions->Find(id));
  std::vector<ClaimInfo>& claims = outcome->report->claims;
  changes.BringUpToDate(&claims);
  parts_.ends->LeaveOthers(id, claims);
  SessionRecord* const record = parts_.sessions->FindOrAdd(id);
  Host(record, params, *outcome->report->session, /*moved=*/outcome->changed);
  parts_.found->DropOthers(record, known, changes, claims);
  parts_.found->Add(record, claims);
  if (outcome->report->unread) read_again_.Add(id);
  // The lanes of these semaphores may not have them loaded. The probe loads them, and finds what
  // happened to the claims since the sessions' lane read them.
  for (const Id& claim : record->claims) {
    const ClaimRecord* each = parts_.claims->Find(claim);
    if (each == nullptr || each->state == State::kAsked || known.contains(claim)) continue;
    if (LaneOf(each->semaphore, parts_.host->lane_count()) != kSessionsLane)
      parts_.events->Probe(*each);
  }
  parts_.streams->Attach(record, listens ? listener : nullptr, params.work.get(), true);
}

void SessionResumption::OnNotAdopted(const Id& id, const absl::StatusOr<Outcome>& outcome,
                                     SessionListener* listener) {
  Refusal refusal = outcome.ok() ? RefusalOf(*outcome, "", parts_.host->guarantees().adapter)
                                 : RefusalOf(outcome.status(), "");
  // What is closing has claims yet, and goes on to its end.
  const bool gone = outcome.ok() && outcome->kind == OutcomeKind::kSessionLost && !outcome->changed;
  SessionRecord* record = parts_.sessions->Find(id);
  if (gone && record != nullptr && !record->life.expiring)
    parts_.closings->Drop(record, SessionLostRefusal());
  if (listener != nullptr) listener->OnSessionEnded(std::move(refusal));
}

void SessionResumption::Host(SessionRecord* record, const OpenParams& params,
                             const Session& session, bool moved) {
  record->life.ttl_ms = session.ttl_ms;
  record->life.epoch = session.epoch;
  record->life.hosted = true;
  record->client_id = params.client_id;
  record->trace = params.trace;
  record->holder = session.holder;
  record->owner = session.owner.empty() ? TenantName(params.charge) : session.owner;
  record->release_on_disconnect = session.release_on_disconnect;
  record->charge = params.charge;
  if (!moved) return;
  parts_.vouching->KeepAfterMove(&record->life, session.ttl_ms);
  // The daemon that had the session may have assigned to the worker what was to be put back here.
  for (const Id& claim : record->claims) {
    ClaimRecord* each = parts_.claims->Find(claim);
    if (each == nullptr) continue;
    each->put_back = false;
    Recalls::Forget(each);
  }
}

// ---- What could not be read when it moved here ----

void SessionResumption::OnReadAgainDue() {
  for (const Id& id : read_again_.TakeDue()) ReadAgain(id);
}

void SessionResumption::ReadAgain(const Id& session) {
  const SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr || !record->life.hosted || record->closing || record->life.expiring) return;
  const uint32_t epoch = record->life.epoch;
  parts_.adoptions->Begin(session);
  parts_.host->Submit(kSessionsLane, Job{AdoptSessionCommand{session, epoch},
                                         [this, session, epoch](absl::StatusOr<Outcome> outcome) {
                                           OnReadAgain(session, epoch, std::move(outcome));
                                         }});
}

void SessionResumption::OnReadAgain(const Id& session, uint32_t epoch,
                                    absl::StatusOr<Outcome> outcome) {
  const Adoptions::Changes changes = parts_.adoptions->Take(session);
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr || record->life.epoch != epoch) return;
  if (!outcome.ok() || outcome->kind == OutcomeKind::kReading) return read_again_.Add(session);
  // It has moved, or ended: its lanes tell of that.
  if (outcome->kind != OutcomeKind::kDone) return;
  // The answer to a request that is under way may be one of these claims.
  absl::btree_set<std::string> asked;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = parts_.claims->Find(id);
    if (claim != nullptr && claim->state == State::kAsked) asked.insert(claim->semaphore);
  }
  bool again = outcome->report->unread;
  std::vector<ClaimInfo>& claims = outcome->report->claims;
  changes.BringUpToDate(&claims);
  std::erase_if(claims, [&](const ClaimInfo& info) {
    if (parts_.claims->Find(RowOf(info).id) != nullptr ||
        parts_.marks->Find(RowOf(info).id) != nullptr)
      return true;
    again = again || asked.contains(info.semaphore);
    return asked.contains(info.semaphore);
  });
  if (again) read_again_.Add(session);
  parts_.found->Add(record, claims);
  // Waits go first, so that the end of a lease lets none of them in.
  std::stable_partition(claims.begin(), claims.end(),
                        [](const ClaimInfo& info) { return !info.lease; });
  for (const ClaimInfo& info : claims) {
    if (ClaimRecord* claim = parts_.claims->Find(RowOf(info).id)) parts_.ends->EndUntold(claim);
  }
}

}  // namespace semaphored
