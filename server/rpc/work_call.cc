#include "server/rpc/work_call.h"

#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/status.h"
#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

constexpr StreamWords kWords{{Method::kWork, "let one worker take more tickets at once",
                              "read the stream while writing to it, or take fewer tickets at once"},
                             "finished",
                             "its tickets stay with the worker for the TTL"};

}  // namespace

WorkCall::WorkCall(Environment* environment, Acceptor<WorkCall>* acceptor)
    : StreamCall(environment, kWords), acceptor_(acceptor) {}

void WorkCall::Register(QueueEvent* accepted) {
  grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
  environment()->service->RequestWork(context(), stream(), queue, queue, accepted);
}

Problem WorkCall::CheckAgain() {
  return work_ == nullptr ? std::nullopt : CheckWork(caller(), *work_);
}

// What waits to be written is bounded by what is read: results by `finished`, assignments and
// their ends by the tickets that the worker may have.
bool WorkCall::client_is_behind() const {
  return outbox().entries() > service_limits().stream_entries_pause;
}

void WorkCall::OnOver() {
  charge_.reset();
  work_.reset();
}

Problem WorkCall::Admit(OpenParams* params) {
  if (Problem problem = CheckWork(caller(), *params->work)) return problem;
  Usage usage;
  usage.permits = params->work->tickets_max;
  usage.sessions = 1;
  // What stands already is not refused; what is asked for beyond it may be.
  const Charge* before =
      params->resume.empty() ? nullptr : sessions()->ChargeOfSession(params->resume);
  if (!params->resume.empty() && before == nullptr) {
    params->charge = caller().Keep(usage);
  } else if (Problem problem = caller().Take(usage, &params->charge,
                                             before == nullptr ? Usage() : before->usage())) {
    return problem;
  }
  if (Problem problem = caller().Scope(&params->client_id); problem && params->resume.empty())
    return problem;
  charge_ = params->charge;
  work_ = params->work;
  return std::nullopt;
}

// Before what has finished: a worker that wants no more is given no more.
Problem WorkCall::BeforeCommands(const pb::WorkRequest& message) {
  if (!message.has_tickets_max()) return std::nullopt;
  const uint32_t tickets_max = message.tickets_max();
  if (Problem problem = CheckTicketsMax(tickets_max)) return problem;
  if (charge_ != nullptr) {
    Usage usage = charge_->usage();
    Usage more;
    more.permits = tickets_max;
    if (tickets_max > usage.permits) {
      if (Problem problem = CheckQuotas(*charge_->tenant(), more, usage)) return problem;
    }
    usage.permits = tickets_max;
    charge_->Set(usage);
  }
  sessions()->SetTicketsMax(session(), tickets_max);
  return std::nullopt;
}

void WorkCall::HandleCommand(pb::FinishTicket& finished) {
  const uint64_t sequence = finished.sequence();
  if (sequence == 0 || sequence > static_cast<uint64_t>(INT64_MAX)) {
    const Refusal refusal =
        InvalidField("sequence", "must be 1 to 9223372036854775807, rising by one");
    return AddResult(sequence, &refusal, {});
  }
  FinishCommand finish;
  if (Problem problem = Check(finished, limits(), &finish))
    return AddResult(sequence, &*problem, {});
  if (!caller().MayName(sessions()->OwnerOfClaim(finish.claim), finish.semaphore)) {
    const Refusal refusal = NotHeldRefusal(EndCause::kUnknown, finish.semaphore);
    return AddResult(sequence, &refusal, {});
  }
  if (Problem problem = caller().Use(client_id())) return AddResult(sequence, &*problem, {});
  finish.requester.sequence = sequence;
  finish.caller = caller().NameAt(finish.semaphore);
  OweReply();
  sessions()->FinishIn(session(), std::move(finish), [this, sequence](Result<FinishAnswer> result) {
    if (TakeReply()) AddResult(sequence, result.refusal.get(), result.value);
  });
}

void WorkCall::AddResult(uint64_t sequence, const Refusal* refusal, const FinishAnswer& answer) {
  google::rpc::Status error;
  if (refusal != nullptr) {
    LogRefusal(Method::kWork, *refusal, *context());
    ToProto(*refusal, environment()->adapter, &error);
  }
  pb::FinishTicketResult* result = Say(error.ByteSizeLong())->add_results();
  result->set_sequence(sequence);
  if (refusal != nullptr) {
    *result->mutable_error() = std::move(error);
  } else if (answer.state.has_value()) {
    result->set_state(ToProto(*answer.state));
  }
}

void WorkCall::OnAssigned(const Assignment& assignment) {
  ToProto(assignment, last_ping(), Say(assignment.ticket->payload_bytes)->add_assignments());
}

std::unique_ptr<AnyAcceptor> AcceptWork(Environment* environment) {
  return std::make_unique<Acceptor<WorkCall>>(environment);
}

}  // namespace semaphored
