// The daemon's end of a channel: calls into Sessions, and what Sessions tells as replies.
#include <algorithm>
#include <utility>

#include "tests/simulation/wire.h"

namespace semaphored::simulation {
namespace {

Reply LeaseReply(Reply::Kind kind, uint64_t tag, const Lease& lease, const std::string& semaphore) {
  Reply reply;
  reply.kind = kind;
  reply.tag = tag;
  reply.claim = lease.id;
  reply.semaphore = semaphore;
  reply.slots.assign(lease.slots.begin(), lease.slots.end());
  reply.token = lease.token;
  return reply;
}

}  // namespace

int64_t Connection::ElapsedMs(SteadyTime since) const {
  return std::chrono::duration_cast<Milliseconds>(Now() - since).count();
}

void Connection::Send(Reply reply) {
  if (const auto channel = channel_.lock()) channel->Down(std::move(reply));
}

void Connection::SendRefusal(uint64_t tag, const Refusal& refusal) {
  Reply reply;
  reply.kind = Reply::Kind::kRefused;
  reply.tag = tag;
  reply.code = refusal.code;
  reply.reason = refusal.reason;
  if (refusal.reason == Reason::kEngineCorrupt && !refusal.semaphore.empty())
    daemon_->CheckDamaged(refusal.semaphore);
  Send(std::move(reply));
}

// ---- detached claims ----

void Connection::Acquire(uint64_t tag, const AcquireParams& params) {
  Call call;
  call.arrived = Now();
  Begin(tag, params, std::move(call));
}

void Connection::Hold(uint64_t tag, const AcquireParams& params, bool release_on_disconnect,
                      int64_t beat_interval_ms) {
  Call call;
  call.arrived = Now();
  call.hold = true;
  call.release_on_disconnect = release_on_disconnect;
  call.beat_interval_ms = beat_interval_ms;
  Begin(tag, params, std::move(call));
}

void Connection::Begin(uint64_t tag, const AcquireParams& params, Call call) {
  if (gone_) return;
  const bool hold = call.hold;
  calls_[tag] = std::move(call);
  const Id claim = daemon_->sessions().Acquire(params, this, tag);
  const auto found = calls_.find(tag);
  if (found == calls_.end()) return;  // Refused within the call.
  found->second.claim = claim;
  if (hold || !found->second.granted) return;
  daemon_->sessions().Detach(claim);
  calls_.erase(found);
}

void Connection::OnQueued(uint64_t tag, uint64_t, WaitReason, int64_t) {
  Reply reply;
  reply.kind = Reply::Kind::kQueued;
  reply.tag = tag;
  Send(std::move(reply));
}

void Connection::OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                           Vouch vouch) {
  Reply reply = LeaseReply(Reply::Kind::kGranted, tag, *lease, semaphore);
  reply.epoch = vouch.epoch;
  AddRecall(tag, vouch.recall, &reply);
  const auto found = calls_.find(tag);
  if (found == calls_.end())
    return Send(std::move(reply));  // Within a session, whose time holds for it.
  Call& call = found->second;
  call.granted = true;
  reply.elapsed_ms = ElapsedMs(call.arrived);
  reply.valid_for_ms = vouch.valid_for_ms;
  Send(std::move(reply));
  if (call.hold) return ArmBeat(tag);
  if (call.claim.empty()) return;
  daemon_->sessions().Detach(call.claim);
  calls_.erase(found);
}

void Connection::OnRefused(uint64_t tag, Refusal refusal) {
  calls_.erase(tag);
  SendRefusal(tag, refusal);
}

void Connection::OnRecalled(uint64_t tag, const Id& claim, const std::string& semaphore,
                            const RecallNotice& recall) {
  Reply reply;
  reply.kind = Reply::Kind::kRecalled;
  reply.tag = tag;
  reply.claim = claim;
  reply.semaphore = semaphore;
  AddRecall(tag, recall, &reply);
  Send(std::move(reply));
}

void Connection::AddRecall(uint64_t tag, const RecallNotice& recall, Reply* reply) const {
  reply->recalls.push_back(recall);
  const auto call = calls_.find(tag);
  reply->recall_tag = call != calls_.end() ? tag : ping_tag_;
  reply->recall_elapsed_ms = ElapsedMs(call != calls_.end() ? call->second.arrived : ping_arrived_);
}

void Connection::OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
                         EndCause cause) {
  calls_.erase(tag);
  Reply reply;
  reply.kind = Reply::Kind::kEnded;
  reply.tag = tag;
  reply.claim = claim;
  reply.semaphore = semaphore;
  reply.cause = cause;
  Send(std::move(reply));
}

void Connection::ArmBeat(uint64_t tag) {
  const auto found = calls_.find(tag);
  if (found == calls_.end()) return;
  const SteadyTime at = Now() + Milliseconds(found->second.beat_interval_ms);
  world_->At(daemon_->own_clock().WorldTimeOf(at), [self = weak_from_this(), tag] {
    const auto connection = self.lock();
    const auto channel = connection == nullptr ? nullptr : connection->channel_.lock();
    if (channel == nullptr || connection->gone_) return;
    channel->daemon().Post([connection, channel, tag] {
      if (!connection->gone_) connection->Beat(tag);
    });
  });
}

void Connection::Beat(uint64_t tag) {
  const auto found = calls_.find(tag);
  if (found == calls_.end() || found->second.claim.empty()) return;
  const SteadyTime arrived = found->second.arrived;
  const Id claim = found->second.claim;
  const int64_t elapsed_ms = ElapsedMs(arrived);
  const Vouch vouch = daemon_->sessions().Touch(claim);
  if (!calls_.contains(tag)) return;
  if (vouch.valid_for_ms <= 0) {
    daemon_->sessions().Detach(claim);
    calls_.erase(tag);
    return SendRefusal(tag, {absl::StatusCode::kUnavailable, Reason::kNotVouched, "", "", ""});
  }
  Reply reply;
  reply.kind = Reply::Kind::kAlive;
  reply.tag = tag;
  reply.elapsed_ms = elapsed_ms;
  reply.valid_for_ms = vouch.valid_for_ms;
  reply.epoch = vouch.epoch;
  Send(std::move(reply));
  ArmBeat(tag);
}

// ---- by lease ----

void Connection::Acknowledge(const Id& claim, uint64_t recall) {
  if (!session_.empty()) daemon_->sessions().AcknowledgeRecall(session_, claim, recall);
}

void Connection::Renew(uint64_t tag, const std::string& semaphore, const Id& claim,
                       uint64_t acknowledged) {
  const SteadyTime arrived = Now();
  daemon_->sessions().Renew({{semaphore, claim}, acknowledged},
                            [self = shared_from_this(), tag, arrived](Result<RenewAnswer> result) {
                              if (!result.ok()) return self->SendRefusal(tag, *result.refusal);
                              Reply reply = LeaseReply(Reply::Kind::kAlive, tag,
                                                       *result.value.lease, result.value.semaphore);
                              reply.elapsed_ms = self->ElapsedMs(arrived);
                              reply.valid_for_ms = result.value.vouch.valid_for_ms;
                              reply.epoch = result.value.vouch.epoch;
                              reply.recalls.push_back(result.value.vouch.recall);
                              reply.recall_tag = tag;
                              reply.recall_elapsed_ms = reply.elapsed_ms;
                              self->Send(std::move(reply));
                            });
}

void Connection::Release(uint64_t tag, const ReleaseCommand& command) {
  daemon_->sessions().Release(command,
                              [self = shared_from_this(), tag](Result<ReleaseAnswer> result) {
                                if (!result.ok()) return self->SendRefusal(tag, *result.refusal);
                                Reply reply;
                                reply.kind = Reply::Kind::kReleased;
                                reply.tag = tag;
                                reply.released = result.value.released;
                                reply.remaining = result.value.remaining;
                                reply.cause = result.value.ended;
                                self->Send(std::move(reply));
                              });
}

void Connection::Verify(uint64_t tag, const VerifyCommand& command) {
  daemon_->sessions().Verify(command,
                             [self = shared_from_this(), tag](Result<VerifyAnswer> result) {
                               if (!result.ok()) return self->SendRefusal(tag, *result.refusal);
                               Reply reply;
                               reply.kind = Reply::Kind::kVerified;
                               reply.tag = tag;
                               reply.held = result.value.held;
                               reply.cause = result.value.ended;
                               self->Send(std::move(reply));
                             });
}

void Connection::Administer(uint64_t tag, const AdminCommand& command) {
  daemon_->sessions().Administer(
      command, 0, [self = shared_from_this(), tag](Result<AdminAnswer> result) {
        if (!result.ok()) return self->SendRefusal(tag, *result.refusal);
        Reply reply;
        reply.tag = tag;
        reply.affected = result.value.affected;
        reply.changed = result.value.changed;
        if (result.value.report && result.value.report->info) {
          const SemaphoreInfo& info = *result.value.report->info;
          reply.shown = Shown{info.row.limit, info.row.paused, info.held, info.waiting};
        }
        self->Send(std::move(reply));
      });
}

// ---- sessions ----

void Connection::Open(uint64_t tag, const OpenParams& params) {
  if (gone_) return;
  opening_ = true;
  open_tag_ = tag;
  open_arrived_ = ping_arrived_ = Now();
  ping_tag_ = tag;
  daemon_->sessions().Open(params, this);
}

void Connection::OnOpened(const Id& session, int64_t, Vouch vouch, bool resumed,
                          const std::vector<HeldLease>& held) {
  opening_ = false;
  session_ = session;
  Reply reply;
  reply.kind = Reply::Kind::kOpened;
  reply.tag = open_tag_;
  reply.claim = session;
  reply.elapsed_ms = ElapsedMs(open_arrived_);
  reply.valid_for_ms = vouch.valid_for_ms;
  reply.epoch = vouch.epoch;
  reply.resumed = resumed;
  for (const HeldLease& each : held) {
    reply.claims.push_back(each.lease->id);
    AddRecall(0, each.recall, &reply);
  }
  Send(std::move(reply));
}

void Connection::OnSessionEnded(Refusal refusal) {
  opening_ = false;
  session_ = Id{};
  Reply reply;
  reply.kind = Reply::Kind::kSessionEnded;
  reply.code = refusal.code;
  reply.reason = refusal.reason;
  Send(std::move(reply));
}

void Connection::TouchSession() {
  if (!session_.empty()) daemon_->sessions().TouchSession(session_);
}

void Connection::Ping(uint64_t tag) {
  if (session_.empty()) return;
  const SteadyTime arrived = ping_arrived_ = Now();
  ping_tag_ = tag;
  const Vouch vouch = daemon_->sessions().TouchSession(session_);
  Reply reply;
  reply.kind = Reply::Kind::kAlive;
  reply.tag = tag;
  reply.elapsed_ms = ElapsedMs(arrived);
  reply.valid_for_ms = vouch.valid_for_ms;
  reply.epoch = vouch.epoch;
  Send(std::move(reply));
}

void Connection::AcquireIn(uint64_t tag, const AcquireParams& params) {
  if (session_.empty()) return;
  TouchSession();
  daemon_->sessions().AcquireIn(session_, params, tag, /*report_queued=*/true);
}

void Connection::ReleaseIn(uint64_t tag, const ReleaseCommand& command) {
  if (session_.empty()) return;
  TouchSession();
  Release(tag, command);
}

void Connection::CancelIn(uint64_t tag) {
  if (session_.empty()) return;
  TouchSession();
  daemon_->sessions().CancelIn(session_, tag);
}

void Connection::Close(uint64_t tag) {
  if (session_.empty()) return;
  const Id session = std::exchange(session_, Id{});
  daemon_->sessions().CloseSession(session, [self = shared_from_this(), tag] {
    Reply reply;
    reply.tag = tag;
    self->Send(std::move(reply));
  });
}

void Connection::OnGone() {
  if (std::exchange(gone_, true)) return;
  for (const auto& [tag, call] : std::exchange(calls_, {})) {
    if (!call.claim.empty()) daemon_->sessions().Abandon(call.claim, call.release_on_disconnect);
  }
  if (opening_ || !session_.empty()) daemon_->sessions().DetachSession(this);
  session_ = Id{};
  opening_ = false;
}

}  // namespace semaphored::simulation
