// Sessions on streams: opened, attached, ended.
#include <algorithm>
#include <iterator>
#include <utility>

#include "server/core/sessions_impl.h"

namespace semaphored {
namespace {

// Ends of one session's claims that are asked for at the same time.
constexpr size_t kEndsAtOnce = 32;

}  // namespace

SessionRecord* SessionsImpl::FindSession(const Id& id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void SessionsImpl::Unlisten(SessionRecord* record) {
  by_listener_.erase(record->listener);
  record->listener = nullptr;
  for (const Id& id : record->claims) {
    if (ClaimRecord* claim = FindClaim(id)) claim->listener = nullptr;
  }
  // Nobody is there to be given anything.
  if (!stopping_) StopWork(record);
}

// Its client comes with another stream: to the one that had it until now it has moved.
SessionRecord* SessionsImpl::SendAway(SessionRecord* record) {
  if (record == nullptr || record->listener == nullptr) return record;
  const Id id = record->id;
  SessionListener* older = record->listener;
  Unlisten(record);
  older->OnSessionEnded(MovedRefusal(""));
  return FindSession(id);
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
  auto& record = sessions_[id];
  record = std::make_unique<SessionRecord>();
  record->id = id;
  record->life.ttl_ms = params.ttl_ms;
  record->client_id = params.client_id;
  record->holder = params.holder;
  record->release_on_disconnect = params.release_on_disconnect;
  record->trace = params.trace;
  record->owner = TenantName(params.charge);
  record->charge = std::move(params.charge);
  opening_[listener] = id;
  OpenSessionCommand command;
  command.session = id;
  command.client_id = std::move(params.client_id);
  command.ttl_ms = params.ttl_ms;
  command.holder = std::move(params.holder);
  command.owner = record->owner;
  command.release_on_disconnect = params.release_on_disconnect;
  host_->Submit(0, Job{std::move(command), [this, id, listener, work = std::move(params.work)](
                                               absl::StatusOr<Outcome> outcome) {
                         SessionRecord* opened = FindSession(id);
                         if (opened == nullptr) return;
                         const auto waiting = opening_.find(listener);
                         const bool listens = waiting != opening_.end() && waiting->second == id;
                         if (listens) opening_.erase(waiting);
                         if (!outcome.ok() || outcome->kind != OutcomeKind::kDone) {
                           Refusal refusal =
                               outcome.ok() ? RefusalOf(*outcome, "", host_->guarantees().adapter)
                                            : RefusalOf(outcome.status(), "");
                           sessions_.erase(id);
                           if (listens) listener->OnSessionEnded(std::move(refusal));
                           return;
                         }
                         Attach(opened, listens ? listener : nullptr, work.get(), false);
                       }});
}

void SessionsImpl::Attach(SessionRecord* record, SessionListener* listener, const WorkParams* work,
                          bool resumed) {
  record->opened = true;
  record->listener = listener;
  Revive(&record->life);
  ArmTtl(&record->life, TimerKind::kSessionTtl, record->id);
  if (listener == nullptr) return;
  by_listener_[listener] = record->id;
  std::vector<HeldLease> held;
  for (const Id& id : record->claims) {
    ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr) continue;
    // Without a tag, this daemon has adopted a wait whose acquire it has not received. The client
    // repeats it on this stream; a grant that comes sooner is the answer to that.
    const bool asked = claim->has_lease() || claim->tag != 0;
    if (claim->lost) continue;
    if (!claim->offers && asked) claim->listener = listener;
    if (claim->state == ClaimRecord::State::kHeld && !claim->put_back)
      held.push_back({claim->lease, claim->semaphore, NoticeOf(*claim)});
  }
  const Vouch vouch = VouchFor(record);
  if (vouch.none()) {
    Unlisten(record);
    return listener->OnSessionEnded(NotVouchedRefusal(""));
  }
  const Id session = record->id;
  listener->OnOpened(session, record->life.ttl_ms, vouch, resumed, held);
  record = FindSession(session);
  if (record == nullptr || record->listener != listener) return;
  if (work != nullptr) return StartWork(record, *work);
  StopWork(record);  // What a worker has left, if it was one.
}

// ---- Living ----

Vouch SessionsImpl::TouchSession(const Id& session) {
  SessionRecord* record = FindSession(session);
  if (record == nullptr || !record->life.hosted) return {};
  if (host_->vouch_until() <= Now()) return {0, record->life.epoch};
  Revive(&record->life);
  return VouchFor(record);
}

bool SessionsImpl::CancelIn(const Id& session, uint64_t tag) {
  SessionRecord* record = FindSession(session);
  if (record == nullptr) return false;
  const auto found = record->by_tag.find(tag);
  ClaimRecord* claim = found == record->by_tag.end() ? nullptr : FindClaim(found->second);
  if (claim == nullptr || claim->has_lease()) return false;
  if (claim->cancel_asked) return true;
  claim->cancel_asked = true;
  if (claim->state == ClaimRecord::State::kWaiting) EndClaim(claim, EndCause::kCancelled, true);
  return true;
}

// ---- Ending ----

void SessionsImpl::DetachSession(SessionListener* listener) {
  opening_.erase(listener);
  const auto found = by_listener_.find(listener);
  SessionRecord* record = found == by_listener_.end() ? nullptr : FindSession(found->second);
  if (record == nullptr) return;
  Unlisten(record);
  if (stopping_ || record->closing) return;
  if (record->release_on_disconnect) return EndSession(record, EndCause::kDisconnected, [] {});
  record->grace_until = Now() + Milliseconds(options_.resume_grace_ms);
  timers_.Add(record->grace_until, TimerKind::kGrace, record->id);
}

void SessionsImpl::OnGraceOver(SessionRecord* record) {
  if (record->listener != nullptr || record->closing || Now() < record->grace_until) return;
  std::vector<Id> waiting;
  for (const Id& id : record->claims) {
    const ClaimRecord* claim = FindClaim(id);
    if (claim != nullptr && claim->state == ClaimRecord::State::kWaiting && !claim->offers)
      waiting.push_back(id);
  }
  for (const Id& id : waiting) {
    ClaimRecord* claim = FindClaim(id);
    if (claim == nullptr) continue;
    claim->given_up = true;
    EndClaim(claim, EndCause::kCancelled, true);
  }
}

void SessionsImpl::CloseSession(const Id& session, absl::AnyInvocable<void()> done) {
  SessionRecord* record = FindSession(session);
  if (record == nullptr) return done();
  Unlisten(record);
  if (stopping_) return done();
  PutAllBack(record);
  EndSession(record, EndCause::kReleased, std::move(done));
}

EndCommand SessionsImpl::EndOf(const ClaimRecord& record, EndCause cause) {
  EndCommand end;
  end.semaphore = record.semaphore;
  end.claim = record.id;
  end.cause = cause;
  end.session = record.owner();
  end.epoch = record.session != nullptr ? record.session->life.epoch : record.life.epoch;
  return end;
}

EndCommand SessionsImpl::EndWithSession(const ClaimRecord& record, EndCause cause) {
  const bool gives_up = !record.has_lease() && cause == EndCause::kReleased;
  return EndOf(record, gives_up ? EndCause::kCancelled : cause);
}

void SessionsImpl::SubmitEnds(std::vector<EndCommand> ends, absl::AnyInvocable<void()> done) {
  if (ends.empty()) return done();
  struct Ending {
    size_t left;
    absl::AnyInvocable<void()> done;
  };
  auto ending = std::make_shared<Ending>(Ending{ends.size(), std::move(done)});
  for (EndCommand& end : ends) {
    const std::string semaphore = end.semaphore;
    Submit(semaphore, std::move(end), [ending](const absl::StatusOr<Outcome>&) {
      if (--ending->left == 0) ending->done();
    });
  }
}

// An acquire without an answer may be a repeated one, whose lease moves here: the session must not
// end before that is known. A lane answers in order, so the answer to such an end comes after it.
std::vector<EndCommand> SessionsImpl::EndsOfAsked(const SessionRecord& record, EndCause cause) {
  std::vector<EndCommand> ends;
  for (const Id& id : record.claims) {
    const ClaimRecord* claim = FindClaim(id);
    const bool asked = claim != nullptr && claim->state == ClaimRecord::State::kAsked;
    if (asked && claim->remembered && !claim->offers) ends.push_back(EndWithSession(*claim, cause));
  }
  return ends;
}

void SessionsImpl::EndSession(SessionRecord* record, EndCause cause,
                              absl::AnyInvocable<void()> done) {
  record->closing = cause != EndCause::kExpired;
  const Id id = record->id;
  const uint32_t epoch = record->life.epoch;
  if (std::vector<EndCommand> asked = EndsOfAsked(*record, cause); !asked.empty()) {
    return SubmitEnds(std::move(asked), [this, id, epoch, cause, done = std::move(done)]() mutable {
      SessionRecord* again = FindSession(id);
      if (again == nullptr || again->life.epoch != epoch)
        return CloseRow(id, epoch, cause, std::move(done));
      EndSession(again, cause, std::move(done));
    });
  }
  if (const SteadyTime at = MovesOverAt(*record); at > Now())
    return EndSessionLater(record, cause, at, std::move(done));
  // Other lanes' claims first; the row stays until they are gone, so that nothing is forgotten if
  // we die in between. Of very many claims those of the row's lane too: one commit is not to be as
  // large as a session may be.
  const bool many = record->claims.size() > kEndsAtOnce;
  std::vector<std::pair<uint64_t, Id>> by_token;
  for (const Id& claim_id : record->claims) {
    const ClaimRecord* claim = FindClaim(claim_id);
    if (claim == nullptr || (!many && LaneOf(claim->semaphore) == 0)) continue;
    by_token.emplace_back(claim->has_lease() ? claim->lease->token : 0, claim_id);
  }
  // Its waits go first, so that the end of a lease lets none of them in. Leases that were granted one
  // after the other lie side by side in the engine: a page of them changes few of the engine's pages.
  std::ranges::sort(by_token);
  Ending ending{id, epoch, cause, {}, 0, {}};
  ending.claims.reserve(by_token.size());
  for (const auto& [token, claim_id] : by_token) ending.claims.push_back(claim_id);
  ending.done = [this, id, epoch, cause, done = std::move(done)]() mutable {
    CloseRow(id, epoch, cause, std::move(done));
  };
  SubmitEndsInPages(std::move(ending));
}

// A page is asked for when the one before is answered: what other clients ask for meanwhile comes
// between them.
void SessionsImpl::SubmitEndsInPages(Ending ending) {
  const SessionRecord* record = FindSession(ending.session);
  if (record == nullptr || record->life.epoch != ending.epoch) return ending.done();
  std::vector<EndCommand> page;
  while (page.size() < kEndsAtOnce && ending.submitted < ending.claims.size()) {
    const ClaimRecord* claim = FindClaim(ending.claims[ending.submitted++]);
    if (claim != nullptr && claim->session == record)
      page.push_back(EndWithSession(*claim, ending.cause));
  }
  if (page.empty()) return ending.done();
  SubmitEnds(std::move(page), [this, ending = std::move(ending)]() mutable {
    SubmitEndsInPages(std::move(ending));
  });
}

void SessionsImpl::CloseRow(const Id& session, uint32_t epoch, EndCause cause,
                            absl::AnyInvocable<void()> done) {
  host_->Submit(0,
                Job{CloseSessionCommand{session, epoch, cause},
                    [this, session, epoch, cause,
                     done = std::move(done)](absl::StatusOr<Outcome> outcome) mutable {
                      SessionRecord* record = FindSession(session);
                      // Adopted anew while this was under way: whatever became of it, it is not for
                      // what has come back.
                      const bool undone = !outcome.ok() || outcome->kind == OutcomeKind::kStale;
                      if (record != nullptr && undone && record->life.epoch != epoch) {
                        record->life.expiring = record->closing = false;
                        Revive(&record->life);
                        ArmTtl(&record->life, TimerKind::kSessionTtl, session);
                      } else if (record != nullptr &&
                                 (!outcome.ok() || outcome->kind == OutcomeKind::kLimitReached)) {
                        // Not done: looked at again soon, as one whose TTL has passed.
                        record->life.expiring = false;
                        record->life.expires_at = record->closing ? Now() : record->life.expires_at;
                        record->closing = false;
                        record->life.armed = true;
                        timers_.Add(Now() + kTryAgainAfter, TimerKind::kSessionTtl, session);
                      } else if (record != nullptr && IsUndone(outcome)) {
                        OnPartlyClosed(record, *outcome);
                      } else if (record != nullptr) {
                        const bool moved = outcome->kind == OutcomeKind::kStale;
                        // The claims' own events come after this; they are told before the session
                        // is.
                        std::vector<std::pair<Id, std::string>> claims;
                        for (const Id& id : std::exchange(record->claims, {}))
                          claims.emplace_back(id, FindClaim(id) ? FindClaim(id)->semaphore : "");
                        SessionListener* listener = record->listener;
                        by_listener_.erase(listener);
                        for (const auto& [id, semaphore] : claims) {
                          ClaimRecord* claim = FindClaim(id);
                          if (claim == nullptr) continue;
                          const bool held = claim->state == ClaimRecord::State::kHeld;
                          if (!moved) CountEnd(claim, cause);
                          Drop(claim);
                          if (listener != nullptr && held && !moved)
                            listener->OnEnded(0, id, semaphore, EndCause::kExpired);
                        }
                        sessions_.erase(session);
                        if (listener != nullptr)
                          listener->OnSessionEnded(moved ? MovedRefusal("") : SessionLostRefusal());
                      }
                      done();
                    }});
}

// To its client the session has ended. What it has in semaphores that cannot be changed ends later.
void SessionsImpl::OnPartlyClosed(SessionRecord* record, const Outcome& outcome) {
  record->life.epoch = outcome.closing_epoch();
  record->life.expiring = record->closing = false;
  record->end_cause = EndCause::kExpired;  // It is not resumed.
  record->life.expires_at = Now();
  record->life.armed = true;
  timers_.Add(Now() + kTryDamagedAfter, TimerKind::kSessionTtl, record->id);
  SessionListener* listener = record->listener;
  if (listener == nullptr) return;
  Unlisten(record);
  listener->OnSessionEnded(SessionLostRefusal());
}

void SessionsImpl::DropSession(SessionRecord* record, Refusal refusal) {
  SessionListener* listener = record->listener;
  by_listener_.erase(listener);
  // (What is left of it is of no interest to the claims that go.)
  for (const Id& id : std::exchange(record->claims, {})) {
    if (ClaimRecord* claim = FindClaim(id)) Drop(claim);
  }
  const Id id = record->id;
  sessions_.erase(id);
  if (listener != nullptr) listener->OnSessionEnded(std::move(refusal));
}

}  // namespace semaphored
