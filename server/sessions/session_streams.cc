#include "server/sessions/session_streams.h"

#include <memory>
#include <utility>
#include <vector>

#include "server/sessions/refusals.h"

namespace semaphored {

void Unlisten(SessionRecord* record, ClaimBook* claims, SessionBook* sessions, WorkDesk* work) {
  sessions->StopListening(record);
  for (const Id& id : record->claims) {
    if (ClaimRecord* claim = claims->Find(id)) claim->listener = nullptr;
  }
  work->Stop(record);
}

// Its client comes with another stream: to the one that had it until now it has moved.
SessionRecord* SessionStreams::SendAway(SessionRecord* record) {
  if (record == nullptr || record->listener == nullptr) return record;
  const Id id = record->id;
  SessionListener* older = record->listener;
  Leave(record);
  older->OnSessionEnded(MovedRefusal(""));
  return parts_.sessions->Find(id);
}

// ---- Opening ----

void SessionStreams::Open(OpenParams params, SessionListener* listener) {
  const Id id = parts_.host->NewId();
  SessionRecord* const record = parts_.sessions->FindOrAdd(id);
  record->life.ttl_ms = params.ttl_ms;
  record->client_id = params.client_id;
  record->holder = params.holder;
  record->release_on_disconnect = params.release_on_disconnect;
  record->trace = params.trace;
  record->owner = TenantName(params.charge);
  record->charge = std::move(params.charge);
  parts_.sessions->BeginOpening(listener, id);
  std::shared_ptr<const WorkParams> work = std::move(params.work);
  OpenSessionCommand command = std::move(params);
  command.session = id;
  command.owner = record->owner;
  parts_.host->Submit(kSessionsLane,
                      Job{std::move(command), [this, id, listener, work = std::move(work)](
                                                  absl::StatusOr<Outcome> outcome) {
                            OnMade(id, listener, work.get(), outcome);
                          }});
}

void SessionStreams::OnMade(const Id& session, SessionListener* listener, const WorkParams* work,
                            const absl::StatusOr<Outcome>& outcome) {
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr) return;
  const bool listens = parts_.sessions->EndOpening(listener, session);
  if (outcome.ok() && outcome->kind == OutcomeKind::kDone)
    return Attach(record, listens ? listener : nullptr, work, false);
  Refusal refusal = outcome.ok() ? RefusalOf(*outcome, "", parts_.host->guarantees().adapter)
                                 : RefusalOf(outcome.status(), "");
  parts_.sessions->Erase(session);
  if (listens) listener->OnSessionEnded(std::move(refusal));
}

void SessionStreams::Attach(SessionRecord* record, SessionListener* listener,
                            const WorkParams* work, bool resumed) {
  record->opened = true;
  if (listener != nullptr) parts_.sessions->Listen(record, listener);
  parts_.vouching->Revive(&record->life);
  parts_.deadlines->ArmTtl(record);
  if (listener == nullptr) return;
  std::vector<HeldLease> held;
  for (const Id& id : record->claims) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim == nullptr) continue;
    // Without a tag, this daemon has adopted a wait whose acquire it has not received. The client
    // repeats it on this stream; a grant that comes sooner is the answer to that.
    const bool asked = claim->has_lease() || claim->tag != 0;
    if (claim->lost) continue;
    if (!claim->offers && asked) claim->listener = listener;
    if (claim->state == ClaimRecord::State::kHeld && !claim->put_back)
      held.push_back({claim->lease, claim->semaphore, parts_.vouching->NoticeOf(*claim)});
  }
  const Vouch vouch = parts_.vouching->For(record);
  if (vouch.none()) {
    Leave(record);
    return listener->OnSessionEnded(NotVouchedRefusal(""));
  }
  const Id session = record->id;
  listener->OnOpened(session, record->life.ttl_ms, vouch, resumed, held);
  record = parts_.sessions->Find(session);
  if (record == nullptr || record->listener != listener) return;
  if (work != nullptr) return parts_.work->Start(record, *work);
  parts_.work->Stop(record);  // What a worker has left, if it was one.
}

// ---- Living ----

Vouch SessionStreams::Touch(const Id& session) {
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr || !record->life.hosted) return {};
  if (parts_.host->vouch_until() <= Now()) return {0, record->life.epoch};
  parts_.vouching->Revive(&record->life);
  return parts_.vouching->For(record);
}

bool SessionStreams::Cancel(const Id& session, uint64_t tag) {
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr) return false;
  const auto found = record->by_tag.find(tag);
  ClaimRecord* claim = found == record->by_tag.end() ? nullptr : parts_.claims->Find(found->second);
  if (claim == nullptr || claim->has_lease()) return false;
  if (claim->cancel_asked) return true;
  claim->cancel_asked = true;
  if (claim->state == ClaimRecord::State::kWaiting)
    parts_.ends->End(claim, EndCause::kCancelled, true);
  return true;
}

// ---- Going away ----

void SessionStreams::Detach(SessionListener* listener) {
  parts_.sessions->ForgetOpening(listener);
  SessionRecord* record = parts_.sessions->FindOf(listener);
  if (record == nullptr) return;
  Leave(record);
  if (stopping_ || record->closing) return;
  if (record->release_on_disconnect)
    return parts_.closings->End(record, EndCause::kDisconnected, [] {});
  record->grace_until = Now() + Milliseconds(grace_ms_);
  parts_.timers->Add(record->grace_until, TimerKind::kGrace, record->id);
}

void SessionStreams::OnGraceOver(SessionRecord* record) {
  if (record->listener != nullptr || record->closing || Now() < record->grace_until) return;
  std::vector<Id> waiting;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = parts_.claims->Find(id);
    if (claim != nullptr && claim->state == ClaimRecord::State::kWaiting && !claim->offers)
      waiting.push_back(id);
  }
  for (const Id& id : waiting) {
    ClaimRecord* claim = parts_.claims->Find(id);
    if (claim == nullptr) continue;
    claim->given_up = true;
    parts_.ends->End(claim, EndCause::kCancelled, true);
  }
}

void SessionStreams::Close(const Id& session, absl::AnyInvocable<void()> done) {
  SessionRecord* record = parts_.sessions->Find(session);
  if (record == nullptr) return done();
  Leave(record);
  if (stopping_) return done();
  parts_.work->PutAllBack(record);
  parts_.closings->End(record, EndCause::kReleased, std::move(done));
}

}  // namespace semaphored
