#include <utility>

#include "server/service/call_log.h"
#include "server/service/convert.h"
#include "server/service/gate.h"
#include "server/service/session_call.h"
#include "server/service/status.h"

namespace semaphored {

void SessionCall::Handle(pb::SessionRequest& message) {
  if (!IsStillKnown()) return;
  if (stage_ == Stage::kFirst) {
    signs_.Begin(arrived_);
    return HandleOpen(message);
  }
  caller_.StillUses(client_id_);
  if (message.has_open()) return Refuse(InvalidField("open", "must be in the first message only"));
  if (message.commands_size() > limits().commands_per_message_max) {
    return Refuse(InvalidField(
        "commands", "must be at most " + std::to_string(limits().commands_per_message_max) +
                        " in one message, not " + std::to_string(message.commands_size())));
  }
  if (Problem problem = signs_.Take(message, arrived_, session_, limits(), sessions()))
    return Refuse(*problem);
  const Vouch vouch = sessions()->TouchSession(session_);
  if (stage_ != Stage::kOpen) return;  // Its session has ended meanwhile.
  if (vouch.none()) {
    return Refuse({absl::StatusCode::kUnavailable, Reason::kNotVouched,
                   "this daemon cannot vouch for the session now", "",
                   "resume the session at another endpoint"});
  }
  const bool wait = !message.close() && (!deferred_.empty() || TooMuchUnderWay());
  if (message.close()) RunDeferred(/*all=*/true);
  for (pb::SessionCommand& command : *message.mutable_commands()) {
    if (wait) {
      deferred_.Add(std::move(command));
      continue;
    }
    HandleCommand(command);
    if (stage_ != Stage::kOpen) return;
  }
  if (message.has_ping()) HandlePing(message.ping().ping_id(), vouch);
  if (message.close()) HandleClose();
}

bool SessionCall::IsStillKnown() {
  Problem problem = caller_.Again();
  if (problem) Refuse(*problem);
  return !problem;
}

void SessionCall::HandleOpen(pb::SessionRequest& message) {
  if (!message.has_open()) return Refuse(InvalidField("open", "must be in the first message"));
  if (message.commands_size() > 0 || message.has_ping() || message.close()) {
    return Refuse(InvalidField("open", "must be alone in its message"));
  }
  OpenParams params;
  if (Problem problem = Check(*message.mutable_open(), limits(), &params)) return Refuse(*problem);
  params.trace = TraceOf(*context_);
  Usage usage;
  usage.sessions = 1;
  if (!params.resume.empty()) {
    params.charge = caller_.Keep(usage);  // It stands already.
  } else if (Problem problem = caller_.Take(usage, &params.charge)) {
    return Refuse(*problem);
  }
  // What stands is not refused; its commands may be.
  if (Problem problem = caller_.Scope(&params.client_id); problem && params.resume.empty())
    return Refuse(*problem);
  client_id_ = params.client_id;
  holder_ = params.holder;
  stage_ = Stage::kOpening;
  attached_ = true;
  sessions()->Open(std::move(params), this);
}

void SessionCall::HandleCommand(pb::SessionCommand& command) {
  const uint64_t sequence = command.sequence();
  if (sequence == 0 || sequence > static_cast<uint64_t>(INT64_MAX)) {
    return AddError(sequence,
                    InvalidField("sequence", "must be 1 to 9223372036854775807, rising by one"));
  }
  switch (command.command_case()) {
    case pb::SessionCommand::kAcquire:
      return HandleAcquire(sequence, *command.mutable_acquire());
    case pb::SessionCommand::kRelease:
      return HandleRelease(sequence, *command.mutable_release());
    case pb::SessionCommand::kVerify:
      return HandleVerify(sequence, *command.mutable_verify());
    case pb::SessionCommand::kCancel:
      AddResult(sequence)->set_cancelled(sessions()->CancelIn(session_, command.cancel()));
      return;
    case pb::SessionCommand::COMMAND_NOT_SET:
      return AddError(sequence,
                      InvalidField("command", "must be acquire, release, verify or cancel"));
  }
}

void SessionCall::HandleAcquire(uint64_t sequence, pb::SessionAcquire& command) {
  AcquireParams params;
  if (Problem problem = Check(command, limits(), &params)) return AddError(sequence, *problem);
  params.requester.sequence = sequence;
  if (Problem problem = Admit(caller_, &params)) return AddError(sequence, *problem);
  if (Problem problem = caller_.Use(client_id_)) return AddError(sequence, *problem);
  params.requester.client_id = client_id_;
  if (params.holder.empty()) params.holder = holder_;
  sessions()->AcquireIn(session_, std::move(params), sequence, command.report_queued());
}

void SessionCall::HandleRelease(uint64_t sequence, pb::SessionRelease& command) {
  ReleaseCommand release;
  if (Problem problem = Check(command, limits(), &release)) return AddError(sequence, *problem);
  if (Problem problem = caller_.Check(kHolds | Verb::kAdminister, release.semaphore))
    return AddError(sequence, *problem);
  if (!caller_.MayName(sessions()->OwnerOfClaim(release.claim), release.semaphore))
    return ToProto(ReleaseAnswer{0, 0, EndCause::kUnknown, {}},
                   AddResult(sequence)->mutable_released());
  if (Problem problem = caller_.Use(client_id_)) return AddError(sequence, *problem);
  release.requester.client_id = client_id_;
  release.requester.sequence = sequence;
  release.session = session_;
  release.caller = caller_.NameAt(release.semaphore);
  ++replies_owed_;
  const Id claim = release.claim;
  sessions()->Release(std::move(release), [this, sequence, claim](Result<ReleaseAnswer> result) {
    if (!TakeReply()) return;
    if (!result.ok()) return AddError(sequence, *result.refusal);
    if (result.value.released > 0 && result.value.remaining == 0) released_.insert(claim);
    ToProto(result.value, AddResult(sequence)->mutable_released());
  });
}

void SessionCall::HandleVerify(uint64_t sequence, pb::VerifyRequest& command) {
  VerifyCommand verify;
  if (Problem problem = Check(command, limits(), &verify)) return AddError(sequence, *problem);
  if (Problem problem = CheckVerify(caller_, verify)) return AddError(sequence, *problem);
  const bool by_lease_id = !verify.claim.empty();
  if (by_lease_id && !caller_.MayName(sessions()->OwnerOfClaim(verify.claim), verify.semaphore)) {
    VerifyAnswer unknown;
    unknown.ended = EndCause::kUnknown;
    return ToProto(unknown, SteadyTime::duration::zero(), AddResult(sequence)->mutable_verified());
  }
  verify.caller = caller_.NameAt(verify.semaphore);
  ++replies_owed_;
  // The answer's time counts from the message that asked, of which there may be others before it is
  // here; a span of 0 is always right, only shorter.
  sessions()->Verify(std::move(verify), [this, sequence, by_lease_id](Result<VerifyAnswer> result) {
    if (!TakeReply()) return;
    if (!result.ok()) return AddError(sequence, *result.refusal);
    const size_t slots = result.value.held ? result.value.lease->slots.runs().size() : 0;
    pb::VerifyResponse* verified =
        AddResult(sequence, slots * Outbox::kRangeBytes)->mutable_verified();
    ToProto(result.value, SteadyTime::duration::zero(), verified);
    if (verified->has_lease())
      HideSecrets(caller_, *sessions(), by_lease_id, verified->mutable_lease());
  });
}

void SessionCall::HandlePing(uint64_t ping_id, const Vouch& vouch) {
  pb::SessionPong* pong = outbox_.AddPong();
  pong->set_ping_id(ping_id);
  pong->mutable_validity()->Clear();
  ToProto(vouch, environment_->reactor->event_time() - arrived_, pong->mutable_validity());
  MarkDirty();
}

void SessionCall::HandleClose() {
  stage_ = Stage::kClosing;
  attached_ = false;  // Sessions reports nothing more than that it is done.
  ++replies_owed_;
  sessions()->CloseSession(session_, [this] {
    if (TakeReply()) End(grpc::Status::OK);
  });
}

bool SessionCall::TakeReply() {
  --replies_owed_;
  if (stage_ < Stage::kEnding) return true;
  MarkDirty();  // It may have been the last thing that was waited for.
  return false;
}

pb::SessionResult* SessionCall::AddResult(uint64_t sequence, size_t bytes) {
  MarkDirty();
  pb::SessionResult* result = outbox_.AddResult(bytes);
  result->set_sequence(sequence);
  return result;
}

void SessionCall::AddError(uint64_t sequence, const Refusal& refusal) {
  LogRefusal(Method::kSession, refusal, *context_);
  google::rpc::Status error;
  ToProto(refusal, environment_->adapter, &error);
  *AddResult(sequence, error.ByteSizeLong())->mutable_error() = error;
}

void SessionCall::OnQueued(uint64_t tag, uint64_t position, WaitReason reason,
                           int64_t expected_wait_ms) {
  ToProto(position, reason, expected_wait_ms, AddResult(tag)->mutable_queued());
}

void SessionCall::OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                            Vouch vouch) {
  const size_t bytes = lease->slots.runs().size() * Outbox::kRangeBytes;
  ToProto(*lease, semaphore, vouch.recall, last_ping(), AddResult(tag, bytes)->mutable_granted());
}

void SessionCall::OnRefused(uint64_t tag, Refusal refusal) { AddError(tag, refusal); }

void SessionCall::OnRecalled(uint64_t /*tag*/, const Id& claim, const std::string& semaphore,
                             const RecallNotice& recall) {
  pb::LeaseRecalled* recalled = outbox_.AddEvent()->mutable_recalled();
  AppendLeaseId(semaphore, claim, recalled->mutable_lease_id());
  ToProto(recall, last_ping(), recalled->mutable_recall());
  MarkDirty();
}

void SessionCall::OnEnded(uint64_t /*tag*/, const Id& claim, const std::string& semaphore,
                          EndCause cause) {
  if (cause == EndCause::kReleased && released_.contains(claim)) return;
  pb::LeaseLost* lost = outbox_.AddEvent()->mutable_lost();
  AppendLeaseId(semaphore, claim, lost->mutable_lease_id());
  lost->set_cause(ToProto(cause));
  MarkDirty();
}

void SessionCall::OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                           const std::vector<HeldLease>& held) {
  session_ = session;
  stage_ = Stage::kOpen;
  std::vector<pb::SessionOpened> pages = OpenedPages(held, last_ping());
  for (pb::SessionOpened& page : pages) {
    page.set_session_id(session.Hex());
    page.set_ttl_ms(static_cast<uint32_t>(ttl_ms));
    ToProto(vouch, environment_->reactor->event_time() - arrived_, page.mutable_validity());
    page.set_resumed(resumed);
    *outbox_.AddOpened(page.leases_size()) = std::move(page);
  }
  MarkDirty();
  DenyForbidden(caller_, held, sessions());
}

void SessionCall::OnSessionEnded(Refusal refusal) {
  attached_ = false;
  Refuse(refusal);
}

}  // namespace semaphored
