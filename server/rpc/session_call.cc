#include "server/rpc/session_call.h"

#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/status.h"

namespace semaphored {
namespace {

constexpr StreamWords kWords{
    {Method::kSession, "share one session among more work", "read the stream while writing to it"},
    "commands",
    "the session goes on for its TTL"};

}  // namespace

SessionCall::SessionCall(Environment* environment, Acceptor<SessionCall>* acceptor)
    : StreamCall(environment, kWords), acceptor_(acceptor) {}

void SessionCall::Register(QueueEvent* accepted) {
  grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
  environment()->service->RequestSession(context(), stream(), queue, queue, accepted);
}

Problem SessionCall::Admit(OpenParams* params) {
  Usage usage;
  usage.sessions = 1;
  const bool resumes = !params->resume.empty();
  if (resumes) {
    params->charge = caller().Keep(usage);  // It stands already.
  } else if (Problem problem = caller().Take(usage, &params->charge)) {
    return problem;
  }
  holder_ = params->holder;
  // What stands is not refused; its commands may be.
  Problem problem = caller().Scope(&params->client_id);
  return resumes ? std::nullopt : problem;
}

bool SessionCall::client_is_behind() const {
  return outbox().entries() > service_limits().stream_entries_pause ||
         outbox().bytes() > service_limits().stream_bytes_max / 2;
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
      AddResult(sequence)->set_cancelled(sessions()->CancelIn(session(), command.cancel()));
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
  if (Problem problem = semaphored::Admit(caller(), &params)) return AddError(sequence, *problem);
  if (Problem problem = caller().Use(client_id())) return AddError(sequence, *problem);
  if (params.holder.empty()) params.holder = holder_;
  sessions()->AcquireIn(session(), std::move(params), sequence, command.report_queued());
}

void SessionCall::HandleRelease(uint64_t sequence, pb::SessionRelease& command) {
  ReleaseCommand release;
  if (Problem problem = Check(command, limits(), &release)) return AddError(sequence, *problem);
  if (Problem problem = caller().Check(kHolds | Verb::kAdminister, release.semaphore))
    return AddError(sequence, *problem);
  if (!caller().MayName(sessions()->OwnerOfClaim(release.claim), release.semaphore))
    return ToProto(ReleaseAnswer{0, 0, EndCause::kUnknown, {}},
                   AddResult(sequence)->mutable_released());
  if (Problem problem = caller().Use(client_id())) return AddError(sequence, *problem);
  release.requester.client_id = client_id();
  release.requester.sequence = sequence;
  release.session = session();
  release.caller = caller().NameAt(release.semaphore);
  OweReply();
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
  if (Problem problem = CheckVerify(caller(), verify)) return AddError(sequence, *problem);
  const bool by_lease_id = !verify.claim.empty();
  if (by_lease_id && !caller().MayName(sessions()->OwnerOfClaim(verify.claim), verify.semaphore)) {
    VerifyAnswer unknown;
    unknown.ended = EndCause::kUnknown;
    return ToProto(unknown, SteadyTime::duration::zero(), AddResult(sequence)->mutable_verified());
  }
  verify.caller = caller().NameAt(verify.semaphore);
  OweReply();
  // The answer's time counts from the message that asked, of which there may be others before it is
  // here; a span of 0 is always right, only shorter.
  sessions()->Verify(std::move(verify), [this, sequence, by_lease_id](Result<VerifyAnswer> result) {
    if (!TakeReply()) return;
    if (!result.ok()) return AddError(sequence, *result.refusal);
    const size_t slots = result.value.held ? result.value.lease->slots.runs().size() : 0;
    pb::VerifyResponse* verified = AddResult(sequence, slots * kSlotRangeBytes)->mutable_verified();
    ToProto(result.value, SteadyTime::duration::zero(), verified);
    if (verified->has_lease())
      HideSecrets(caller(), *sessions(), by_lease_id, verified->mutable_lease());
  });
}

pb::SessionResult* SessionCall::AddResult(uint64_t sequence, size_t bytes) {
  pb::SessionResult* result = Say(bytes)->add_results();
  result->set_sequence(sequence);
  return result;
}

void SessionCall::AddError(uint64_t sequence, const Refusal& refusal) {
  LogRefusal(Method::kSession, refusal, *context());
  google::rpc::Status error;
  ToProto(refusal, environment()->adapter, &error);
  *AddResult(sequence, error.ByteSizeLong())->mutable_error() = error;
}

void SessionCall::OnQueued(uint64_t tag, uint64_t position, WaitReason reason,
                           int64_t expected_wait_ms) {
  ToProto(position, reason, expected_wait_ms, AddResult(tag)->mutable_queued());
}

void SessionCall::OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                            Vouch vouch) {
  const size_t bytes = lease->slots.runs().size() * kSlotRangeBytes;
  ToProto(*lease, semaphore, vouch.recall, last_ping(), AddResult(tag, bytes)->mutable_granted());
}

void SessionCall::OnRefused(uint64_t tag, Refusal refusal) { AddError(tag, refusal); }

void SessionCall::OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
                          EndCause cause) {
  if (cause == EndCause::kReleased && released_.contains(claim)) return;
  StreamCall::OnEnded(tag, claim, semaphore, cause);
}

std::unique_ptr<AnyAcceptor> AcceptSession(Environment* environment) {
  return std::make_unique<Acceptor<SessionCall>>(environment);
}

}  // namespace semaphored
