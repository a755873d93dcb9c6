#include <utility>

#include "server/core/refusals.h"
#include "server/service/call_log.h"
#include "server/service/convert.h"
#include "server/service/gate.h"
#include "server/service/status.h"
#include "server/service/work_call.h"

namespace semaphored {
namespace {

// A message's fields beside a payload, about.
constexpr size_t kFieldsBytes = 256;

}  // namespace

void WorkCall::Handle(pb::WorkRequest& message) {
  if (!IsStillKnown()) return;
  if (stage_ == Stage::kFirst) {
    signs_.Begin(arrived_);
    return HandleOpen(message);
  }
  caller_.StillUses(client_id_);
  if (message.has_open()) return Refuse(InvalidField("open", "must be in the first message only"));
  if (message.finished_size() > limits().commands_per_message_max) {
    return Refuse(InvalidField(
        "finished", "must be at most " + std::to_string(limits().commands_per_message_max) +
                        " in one message, not " + std::to_string(message.finished_size())));
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
  if (message.has_tickets_max()) {
    if (Problem problem = CheckTicketsMax(message.tickets_max())) return Refuse(*problem);
    // Before what has finished: a worker that wants no more is given no more.
    if (!SetTicketsMax(message.tickets_max())) return;
  }
  const bool wait = !message.close() && (!deferred_.empty() || TooMuchUnderWay());
  if (message.close()) RunDeferred(/*all=*/true);
  for (pb::FinishTicket& finished : *message.mutable_finished()) {
    if (wait) {
      deferred_.Add(std::move(finished));
      continue;
    }
    HandleFinished(finished);
    if (stage_ != Stage::kOpen) return;
  }
  if (message.has_ping()) HandlePing(message.ping().ping_id(), vouch);
  if (message.close()) HandleClose();
}

bool WorkCall::IsStillKnown() {
  const bool renewed = caller_.Changed();
  Problem problem = caller_.Again();
  if (!problem && renewed && work_ != nullptr) problem = CheckWork(caller_, *work_);
  if (problem) Refuse(*problem);
  return !problem;
}

Problem WorkCall::Admit(OpenParams* params) {
  if (Problem problem = CheckWork(caller_, *params->work)) return problem;
  Usage usage;
  usage.permits = params->work->tickets_max;
  usage.sessions = 1;
  // What stands already is not refused; what is asked for beyond it may be.
  const Charge* before =
      params->resume.empty() ? nullptr : sessions()->ChargeOfSession(params->resume);
  if (!params->resume.empty() && before == nullptr) {
    params->charge = caller_.Keep(usage);
  } else if (Problem problem = caller_.Take(usage, &params->charge,
                                            before == nullptr ? Usage() : before->usage())) {
    return problem;
  }
  Problem problem = caller_.Scope(&params->client_id);
  return params->resume.empty() ? problem : std::nullopt;
}

bool WorkCall::SetTicketsMax(uint32_t tickets_max) {
  if (charge_ != nullptr) {
    Usage usage = charge_->usage();
    Usage more;
    more.permits = tickets_max;
    if (tickets_max > usage.permits) {
      if (Problem problem = CheckQuotas(*charge_->tenant(), more, usage)) {
        Refuse(*problem);
        return false;
      }
    }
    usage.permits = tickets_max;
    charge_->Set(usage);
  }
  sessions()->SetTicketsMax(session_, tickets_max);
  return true;
}

void WorkCall::HandleOpen(pb::WorkRequest& message) {
  if (!message.has_open()) return Refuse(InvalidField("open", "must be in the first message"));
  if (message.finished_size() > 0 || message.has_ping() || message.has_tickets_max() ||
      message.close()) {
    return Refuse(InvalidField("open", "must be alone in its message"));
  }
  OpenParams params;
  if (Problem problem = Check(*message.mutable_open(), limits(), &params)) return Refuse(*problem);
  params.trace = TraceOf(*context_);
  if (Problem problem = Admit(&params)) return Refuse(*problem);
  charge_ = params.charge;
  client_id_ = params.client_id;
  work_ = params.work;
  stage_ = Stage::kOpening;
  attached_ = true;
  sessions()->Open(std::move(params), this);
}

void WorkCall::HandleFinished(pb::FinishTicket& finished) {
  const uint64_t sequence = finished.sequence();
  if (sequence == 0 || sequence > static_cast<uint64_t>(INT64_MAX)) {
    const Refusal refusal =
        InvalidField("sequence", "must be 1 to 9223372036854775807, rising by one");
    return AddResult(sequence, &refusal, {});
  }
  FinishCommand finish;
  if (Problem problem = Check(finished, limits(), &finish))
    return AddResult(sequence, &*problem, {});
  if (!caller_.MayName(sessions()->OwnerOfClaim(finish.claim), finish.semaphore)) {
    const Refusal refusal = NotHeldRefusal(EndCause::kUnknown, finish.semaphore);
    return AddResult(sequence, &refusal, {});
  }
  if (Problem problem = caller_.Use(client_id_)) return AddResult(sequence, &*problem, {});
  finish.requester.sequence = sequence;
  finish.caller = caller_.NameAt(finish.semaphore);
  ++replies_owed_;
  sessions()->FinishIn(session_, std::move(finish), [this, sequence](Result<FinishAnswer> result) {
    if (TakeReply()) AddResult(sequence, result.refusal.get(), result.value);
  });
}

void WorkCall::HandlePing(uint64_t ping_id, const Vouch& vouch) {
  // A message has one pong; a later one says more than an earlier one, and replaces it.
  pb::SessionPong* pong = Say(kFieldsBytes)->mutable_pong();
  pong->set_ping_id(ping_id);
  pong->mutable_validity()->Clear();
  ToProto(vouch, environment_->reactor->event_time() - arrived_, pong->mutable_validity());
}

void WorkCall::HandleClose() {
  stage_ = Stage::kClosing;
  attached_ = false;  // Sessions reports nothing more than that it is done.
  ++replies_owed_;
  sessions()->CloseSession(session_, [this] {
    if (TakeReply()) End(grpc::Status::OK);
  });
}

bool WorkCall::TakeReply() {
  --replies_owed_;
  if (stage_ < Stage::kEnding) return true;
  MarkDirty();  // It may have been the last thing that was waited for.
  return false;
}

// ---- What is said ----

pb::WorkResponse* WorkCall::Say(size_t bytes) {
  MarkDirty();
  return outbox_.Next(bytes);
}

void WorkCall::AddResult(uint64_t sequence, const Refusal* refusal, const FinishAnswer& answer) {
  google::rpc::Status error;
  if (refusal != nullptr) {
    LogRefusal(Method::kWork, *refusal, *context_);
    ToProto(*refusal, environment_->adapter, &error);
  }
  pb::FinishTicketResult* result = Say(kFieldsBytes + error.ByteSizeLong())->add_results();
  result->set_sequence(sequence);
  if (refusal != nullptr) {
    *result->mutable_error() = std::move(error);
  } else if (answer.state.has_value()) {
    result->set_state(ToProto(*answer.state));
  }
}

void WorkCall::OnAssigned(const Assignment& assignment) {
  const size_t bytes = kFieldsBytes + assignment.ticket->payload_bytes;
  ToProto(assignment, last_ping(), Say(bytes)->add_assignments());
}

void WorkCall::OnRecalled(uint64_t /*tag*/, const Id& claim, const std::string& semaphore,
                          const RecallNotice& recall) {
  pb::LeaseRecalled* recalled = Say(kFieldsBytes)->add_events()->mutable_recalled();
  AppendLeaseId(semaphore, claim, recalled->mutable_lease_id());
  ToProto(recall, last_ping(), recalled->mutable_recall());
}

void WorkCall::OnEnded(uint64_t /*tag*/, const Id& claim, const std::string& semaphore,
                       EndCause cause) {
  pb::LeaseLost* lost = Say(kFieldsBytes)->add_events()->mutable_lost();
  AppendLeaseId(semaphore, claim, lost->mutable_lease_id());
  lost->set_cause(ToProto(cause));
}

void WorkCall::OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                        const std::vector<HeldLease>& held) {
  session_ = session;
  stage_ = Stage::kOpen;
  // A worker has at most 1000 tickets at once, so there is one page. Their tickets follow, as soon as the payloads have
  // been read.
  pb::SessionOpened* opened = Say(kFieldsBytes)->mutable_opened();
  *opened = std::move(OpenedPages(held, last_ping()).front());
  opened->set_session_id(session.Hex());
  opened->set_ttl_ms(static_cast<uint32_t>(ttl_ms));
  ToProto(vouch, environment_->reactor->event_time() - arrived_, opened->mutable_validity());
  opened->set_resumed(resumed);
  DenyForbidden(caller_, held, sessions());
}

void WorkCall::OnSessionEnded(Refusal refusal) {
  attached_ = false;
  Refuse(refusal);
}

}  // namespace semaphored
