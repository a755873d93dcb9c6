// Sessions on streams: opened, attached, ended.
#include <utility>
#include <vector>

#include "server/sessions/sessions_impl.h"

namespace semaphored {

void SessionsImpl::Unlisten(SessionRecord* record) {
  sessions_.StopListening(record);
  for (const Id& id : record->claims) {
    if (ClaimRecord* claim = claims_.Find(id)) claim->listener = nullptr;
  }
  // No client is there to receive a ticket.
  if (!stopping_) work_.Stop(record);
}

// Its client comes with another stream: to the one that had it until now it has moved.
SessionRecord* SessionsImpl::SendAway(SessionRecord* record) {
  if (record == nullptr || record->listener == nullptr) return record;
  const Id id = record->id;
  SessionListener* older = record->listener;
  Unlisten(record);
  older->OnSessionEnded(MovedRefusal(""));
  return sessions_.Find(id);
}

// ---- Opening ----

void SessionsImpl::Open(OpenParams params, SessionListener* listener) {
  if (stopping_) return listener->OnSessionEnded(ShuttingDownRefusal());
  if (params.work != nullptr && !host_->guarantees().durable_tickets) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kUnsupported;
    outcome.message = "the adapter " + host_->guarantees().adapter + " keeps no tickets";
    return listener->OnSessionEnded(RefusalOf(outcome, "", host_->guarantees().adapter));
  }
  if (params.resume.empty()) {
    OpenNew(std::move(params), listener);
  } else {
    Resume(std::move(params), listener);
  }
}

void SessionsImpl::OpenNew(OpenParams params, SessionListener* listener) {
  const Id id = host_->NewId();
  SessionRecord* const record = sessions_.FindOrAdd(id);
  record->life.ttl_ms = params.ttl_ms;
  record->client_id = params.client_id;
  record->holder = params.holder;
  record->release_on_disconnect = params.release_on_disconnect;
  record->trace = params.trace;
  record->owner = TenantName(params.charge);
  record->charge = std::move(params.charge);
  sessions_.BeginOpening(listener, id);
  std::shared_ptr<const WorkParams> work = std::move(params.work);
  OpenSessionCommand command = std::move(params);
  command.session = id;
  command.owner = record->owner;
  host_->Submit(0, Job{std::move(command), [this, id, listener, work = std::move(work)](
                                               absl::StatusOr<Outcome> outcome) {
                         SessionRecord* opened = sessions_.Find(id);
                         if (opened == nullptr) return;
                         const bool listens = sessions_.EndOpening(listener, id);
                         if (!outcome.ok() || outcome->kind != OutcomeKind::kDone) {
                           Refusal refusal =
                               outcome.ok() ? RefusalOf(*outcome, "", host_->guarantees().adapter)
                                            : RefusalOf(outcome.status(), "");
                           sessions_.Erase(id);
                           if (listens) listener->OnSessionEnded(std::move(refusal));
                           return;
                         }
                         Attach(opened, listens ? listener : nullptr, work.get(), false);
                       }});
}

void SessionsImpl::Attach(SessionRecord* record, SessionListener* listener, const WorkParams* work,
                          bool resumed) {
  record->opened = true;
  if (listener != nullptr) sessions_.Listen(record, listener);
  vouching_.Revive(&record->life);
  deadlines_.ArmTtl(record);
  if (listener == nullptr) return;
  std::vector<HeldLease> held;
  for (const Id& id : record->claims) {
    ClaimRecord* claim = claims_.Find(id);
    if (claim == nullptr) continue;
    // Without a tag, this daemon has adopted a wait whose acquire it has not received. The client
    // repeats it on this stream; a grant that comes sooner is the answer to that.
    const bool asked = claim->has_lease() || claim->tag != 0;
    if (claim->lost) continue;
    if (!claim->offers && asked) claim->listener = listener;
    if (claim->state == ClaimRecord::State::kHeld && !claim->put_back)
      held.push_back({claim->lease, claim->semaphore, vouching_.NoticeOf(*claim)});
  }
  const Vouch vouch = vouching_.For(record);
  if (vouch.none()) {
    Unlisten(record);
    return listener->OnSessionEnded(NotVouchedRefusal(""));
  }
  const Id session = record->id;
  listener->OnOpened(session, record->life.ttl_ms, vouch, resumed, held);
  record = sessions_.Find(session);
  if (record == nullptr || record->listener != listener) return;
  if (work != nullptr) return work_.Start(record, *work);
  work_.Stop(record);  // What a worker has left, if it was one.
}

// ---- Living ----

Vouch SessionsImpl::TouchSession(const Id& session) {
  SessionRecord* record = sessions_.Find(session);
  if (record == nullptr || !record->life.hosted) return {};
  if (host_->vouch_until() <= Now()) return {0, record->life.epoch};
  vouching_.Revive(&record->life);
  return vouching_.For(record);
}

bool SessionsImpl::CancelIn(const Id& session, uint64_t tag) {
  SessionRecord* record = sessions_.Find(session);
  if (record == nullptr) return false;
  const auto found = record->by_tag.find(tag);
  ClaimRecord* claim = found == record->by_tag.end() ? nullptr : claims_.Find(found->second);
  if (claim == nullptr || claim->has_lease()) return false;
  if (claim->cancel_asked) return true;
  claim->cancel_asked = true;
  if (claim->state == ClaimRecord::State::kWaiting) ends_.End(claim, EndCause::kCancelled, true);
  return true;
}

// ---- Going away ----

void SessionsImpl::DetachSession(SessionListener* listener) {
  sessions_.ForgetOpening(listener);
  SessionRecord* record = sessions_.FindOf(listener);
  if (record == nullptr) return;
  Unlisten(record);
  if (stopping_ || record->closing) return;
  if (record->release_on_disconnect) return closings_.End(record, EndCause::kDisconnected, [] {});
  record->grace_until = Now() + Milliseconds(options_.resume_grace_ms);
  timers_.Add(record->grace_until, TimerKind::kGrace, record->id);
}

void SessionsImpl::OnGraceOver(SessionRecord* record) {
  if (record->listener != nullptr || record->closing || Now() < record->grace_until) return;
  std::vector<Id> waiting;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = claims_.Find(id);
    if (claim != nullptr && claim->state == ClaimRecord::State::kWaiting && !claim->offers)
      waiting.push_back(id);
  }
  for (const Id& id : waiting) {
    ClaimRecord* claim = claims_.Find(id);
    if (claim == nullptr) continue;
    claim->given_up = true;
    ends_.End(claim, EndCause::kCancelled, true);
  }
}

void SessionsImpl::CloseSession(const Id& session, absl::AnyInvocable<void()> done) {
  SessionRecord* record = sessions_.Find(session);
  if (record == nullptr) return done();
  Unlisten(record);
  if (stopping_) return done();
  work_.PutAllBack(record);
  closings_.End(record, EndCause::kReleased, std::move(done));
}

}  // namespace semaphored
