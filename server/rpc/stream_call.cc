#include "server/rpc/stream_call.h"

#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/caller.h"

namespace semaphored {
namespace {

auto* CommandsOf(pb::SessionRequest& message) { return message.mutable_commands(); }
auto* CommandsOf(pb::WorkRequest& message) { return message.mutable_finished(); }

// Beside `open`.
bool SaysMore(const pb::SessionRequest& message) {
  return message.commands_size() > 0 || message.has_ping() || message.close();
}
bool SaysMore(const pb::WorkRequest& message) {
  return message.finished_size() > 0 || message.has_ping() || message.has_tickets_max() ||
         message.close();
}

}  // namespace

template <typename Incoming, typename Response, typename Command>
StreamCall<Incoming, Response, Command>::StreamCall(Environment* environment,
                                                    const StreamWords& words)
    : Base(environment, words), words_(words), deferred_(&environment->deferred_bytes) {}

// ---- The stream ----

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::Begin() {
  stage_ = Stage::kFirst;
  unread_by_us_ = false;
  session_ = Id{};
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnNoMore() {
  switch (stage_) {
    case Stage::kFirst:
      return Refuse(InvalidField("open", "must be in the first message"));
    case Stage::kOpening:
    case Stage::kOpen:
      return Refuse({absl::StatusCode::kCancelled, Reason::kUnspecified,
                     std::string("the stream was closed without `close`: ") + words_.without_close,
                     "", "resume it with resume_session_id"});
    case Stage::kClosing:
    case Stage::kEnded:
      return;
  }
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnEnding() {
  stage_ = Stage::kEnded;
  deferred_.Clear();
  if (std::exchange(attached_, false)) sessions()->DetachSession(this);
}

template <typename Incoming, typename Response, typename Command>
bool StreamCall<Incoming, Response, Command>::TooMuchUnderWay() const {
  return replies_owed() > environment()->limits.stream_entries_pause ||
         environment()->host->jobs_under_way() > environment()->limits.jobs_pause;
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::RunDeferred(bool all) {
  while (!deferred_.empty() && stage_ == Stage::kOpen && (all || !TooMuchUnderWay())) {
    Command command = deferred_.Take();
    HandleCommand(command);
  }
}

template <typename Incoming, typename Response, typename Command>
auto StreamCall<Incoming, Response, Command>::BeforeRead(Line line) -> Reading {
  RunDeferred(/*all=*/false);
  // Something is on its way whose end begins another turn: then it is looked at again.
  if (!deferred_.empty()) MarkDirty();
  if (line == Line::kReading || (stage_ != Stage::kFirst && stage_ != Stage::kOpen))
    return Reading::kNothing;
  if (line == Line::kBroken) {
    // What the client said before it went has its effect.
    unread_by_us_ = !deferred_.empty();
    return unread_by_us_ ? Reading::kNothing : Reading::kNext;
  }
  const ServiceLimits& limits = service_limits();
  unread_by_us_ = deferred_.bytes() > limits.deferred_stream_bytes_max ||
                  environment()->deferred_bytes > limits.deferred_bytes_max;
  return unread_by_us_ || client_is_behind() ? Reading::kLater : Reading::kNext;
}

// ---- The messages ----

template <typename Incoming, typename Response, typename Command>
bool StreamCall<Incoming, Response, Command>::IsStillKnown() {
  const bool renewed = caller().Changed();
  Problem problem = caller().Again();
  if (!problem && renewed) problem = CheckAgain();
  if (problem) Refuse(*problem);
  return !problem;
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnMessage(Incoming& message) {
  if (!IsStillKnown()) return;
  if (stage_ == Stage::kFirst) {
    signs_.Begin(arrived());
    return HandleOpen(message);
  }
  caller().StillUses(client_id_);
  if (message.has_open()) return Refuse(InvalidField("open", "must be in the first message only"));
  const int commands = CommandsOf(message)->size();
  if (commands > limits().commands_per_message_max) {
    return Refuse(InvalidField(
        words_.commands, "must be at most " + std::to_string(limits().commands_per_message_max) +
                             " in one message, not " + std::to_string(commands)));
  }
  if (Problem problem = signs_.Take(message, arrived(), session_, limits(), sessions()))
    return Refuse(*problem);
  const Vouch vouch = sessions()->TouchSession(session_);
  if (stage_ != Stage::kOpen) return;  // Its session has ended meanwhile.
  if (vouch.none()) {
    return Refuse({absl::StatusCode::kUnavailable, Reason::kNotVouched,
                   "this daemon cannot vouch for the session now", "",
                   "resume the session at another endpoint"});
  }
  if (Problem problem = BeforeCommands(message)) return Refuse(*problem);
  if (!HandleCommands(message)) return;
  if (message.has_ping()) HandlePing(message.ping().ping_id(), vouch);
  if (message.close()) HandleClose();
}

template <typename Incoming, typename Response, typename Command>
bool StreamCall<Incoming, Response, Command>::HandleCommands(Incoming& message) {
  const bool wait = !message.close() && (!deferred_.empty() || TooMuchUnderWay());
  if (message.close()) RunDeferred(/*all=*/true);
  for (Command& command : *CommandsOf(message)) {
    if (wait) {
      deferred_.Add(std::move(command));
      continue;
    }
    HandleCommand(command);
    if (stage_ != Stage::kOpen) return false;
  }
  return true;
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::HandleOpen(Incoming& message) {
  if (!message.has_open()) return Refuse(InvalidField("open", "must be in the first message"));
  if (SaysMore(message)) return Refuse(InvalidField("open", "must be alone in its message"));
  OpenParams params;
  if (Problem problem = Check(*message.mutable_open(), limits(), &params)) return Refuse(*problem);
  params.trace = TraceOf(*context());
  if (Problem problem = Admit(&params)) return Refuse(*problem);
  client_id_ = params.client_id;
  stage_ = Stage::kOpening;
  attached_ = true;
  sessions()->Open(std::move(params), this);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::HandlePing(uint64_t ping_id, const Vouch& vouch) {
  // A message has one pong; a later one says more than an earlier one, and replaces it.
  pb::SessionPong* pong = Say()->mutable_pong();
  pong->set_ping_id(ping_id);
  pong->mutable_validity()->Clear();
  ToProto(vouch, environment()->reactor->event_time() - arrived(), pong->mutable_validity());
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::HandleClose() {
  stage_ = Stage::kClosing;
  attached_ = false;  // Sessions reports nothing more than that it is done.
  OweReply();
  sessions()->CloseSession(session_, [this] {
    if (TakeReply()) End(grpc::Status::OK);
  });
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnRecalled(uint64_t /*tag*/, const Id& claim,
                                                         const std::string& semaphore,
                                                         const RecallNotice& recall) {
  pb::LeaseRecalled* recalled = Say()->add_events()->mutable_recalled();
  AppendLeaseId(semaphore, claim, recalled->mutable_lease_id());
  ToProto(recall, last_ping(), recalled->mutable_recall());
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnEnded(uint64_t /*tag*/, const Id& claim,
                                                      const std::string& semaphore,
                                                      EndCause cause) {
  pb::LeaseLost* lost = Say()->add_events()->mutable_lost();
  AppendLeaseId(semaphore, claim, lost->mutable_lease_id());
  lost->set_cause(ToProto(cause));
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnOpened(const Id& session, int64_t ttl_ms,
                                                       Vouch vouch, bool resumed,
                                                       const std::vector<HeldLease>& held) {
  session_ = session;
  stage_ = Stage::kOpen;
  std::vector<pb::SessionOpened> pages = OpenedPages(held, last_ping());
  for (pb::SessionOpened& page : pages) {
    page.set_session_id(session.Hex());
    page.set_ttl_ms(static_cast<uint32_t>(ttl_ms));
    ToProto(vouch, environment()->reactor->event_time() - arrived(), page.mutable_validity());
    page.set_resumed(resumed);
    *SayAlone(1 + page.leases_size())->mutable_opened() = std::move(page);
  }
  DenyForbidden(caller(), held, sessions());
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnSessionEnded(Refusal refusal) {
  attached_ = false;
  Refuse(refusal);
}

template class StreamCall<pb::SessionRequest, pb::SessionResponse, pb::SessionCommand>;
template class StreamCall<pb::WorkRequest, pb::WorkResponse, pb::FinishTicket>;

}  // namespace semaphored
