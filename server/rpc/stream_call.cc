#include "server/rpc/stream_call.h"

#include <tuple>
#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/gate.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"

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

Refusal SlowReader(const ServiceLimits& most, const std::string& advice) {
  return {absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
          "the client has not read more than " + std::to_string(most.stream_entries_max) +
              " results and events, or stream_bytes_max (" + std::to_string(most.stream_bytes_max) +
              ") bytes of them",
          "", advice};
}

}  // namespace

template <typename Incoming, typename Response, typename Command>
StreamCall<Incoming, Response, Command>::StreamCall(Environment* environment,
                                                    const StreamWords& words)
    : environment_(environment),
      words_(words),
      outbox_(&std::get<MessagePool<Response>>(environment->responses)) {}

// ---- The stream ----

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::Request() {
  stage_ = Stage::kAskedFor;
  attached_ = reading_ = writing_ = broken_ = false;
  session_ = Id{};
  // The stream refers to the context.
  stream_.reset();
  context_.emplace();
  stream_.emplace(&*context_);
  Register(&accepted_event_);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnAccepted(bool ok) {
  if (!ok) return Recycle();  // The server is stopping: no call came.
  stage_ = Stage::kFirst;
  count_.Begin(&environment_->streams);
  environment_->CountBegin(words_.method, *context_);
  Replace();
  if (environment_->stopping) {
    Refuse(ShuttingDown());
  } else if (environment_->streams > environment_->limits.streams_max) {
    RefuseOutsider(
        TooMany("streams_max", "streams", environment_->limits.streams_max, words_.fewer_streams));
  } else if (Problem problem = caller_.Identify(&environment_->access, &*context_)) {
    RefuseOutsider(*problem);
  } else {
    MaybeRead();
  }
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnRead(bool ok) {
  reading_ = false;
  arrived_ = environment_->reactor->event_time();
  if (!ok) {
    OnNoMore();
  } else if (stage_ == Stage::kFirst || stage_ == Stage::kOpen) {
    auto& message = std::get<ArenaMessage<Incoming>>(environment_->stream_requests);
    if (Parse(&incoming_, message.get())) {
      Handle(*message.get());
    } else {
      Refuse(Unreadable());
    }
    message.Renew();
    // Read on at the end of the turn, after the lanes have got their jobs: gRPC may send a window
    // update first.
  } else {
    incoming_.Clear();  // It came too late to matter.
  }
  MarkDirty();
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnNoMore() {
  switch (stage_) {
    case Stage::kFirst:
      Refuse(InvalidField("open", "must be in the first message"));
      break;
    case Stage::kOpening:
    case Stage::kOpen:
      Refuse({absl::StatusCode::kCancelled, Reason::kUnspecified,
              std::string("the stream was closed without `close`: ") + words_.without_close, "",
              "resume it with resume_session_id"});
      break;
    case Stage::kAskedFor:
    case Stage::kClosing:
    case Stage::kEnding:
    case Stage::kFinishing:
    case Stage::kOver:
      break;
  }
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnWritten(bool ok) {
  writing_ = false;
  writing_bytes_ = 0;
  if (!ok) {
    broken_ = true;
    outbox_.Clear();
  }
  MarkDirty();
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnFinished(bool /*ok*/) {
  stage_ = Stage::kOver;
  MarkDirty();
}

// The client lets its last messages lie: it will not read the status either.
template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnUnread() {
  if (writing_) CutOff(&*context_, status_);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::End(grpc::Status status) {
  if (stage_ >= Stage::kEnding) return;
  stage_ = Stage::kEnding;
  environment_->CountEnd(words_.method, status.error_code());
  status_ = std::move(status);
  if (std::exchange(attached_, false)) sessions()->DetachSession(this);
  Reactor* reactor = environment_->reactor;
  reactor->Arm(&unread_, reactor->event_time() + environment_->limits.unread_max);
  MarkDirty();
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::Refuse(const Refusal& refusal) {
  LogRefusal(words_.method, refusal, *context_);
  End(ToStatus(refusal, environment_->adapter));
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::RefuseOutsider(const Refusal& refusal) {
  count_.MoveToConnection(environment_->access.peers, *context_);
  Refuse(refusal);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::MarkDirty() {
  if (std::exchange(dirty_, true)) return;
  environment_->dirty.push_back(this);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::Flush() {
  dirty_ = false;
  if (environment_->reactor->closed()) return;
  OnTurnOver();
  CheckReader();
  MaybeWrite();
  MaybeRead();
  if (stage_ == Stage::kEnding && !writing_ && outbox_.empty()) {
    stage_ = Stage::kFinishing;
    stream_->Finish(status_, &finished_event_);
  }
  MaybeRecycle();
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnFullest() {
  if (stage_ >= Stage::kEnding) return;
  fullest_ = true;
  MarkDirty();
  environment_->reactor->Post([] {});  // This turn may be at its end.
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::RefuseReader(const Refusal& refusal) {
  outbox_.Clear();
  Refuse(refusal);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::CheckReader() {
  environment_->stream_bytes.Add(outbox_.bytes(), environment_->reactor->event_time());
  const ServiceLimits& most = environment_->limits;
  if (std::exchange(fullest_, false)) {
    RefuseReader(FullestStream(most.streams_bytes_max));
    // What is on its way takes memory, too.
    if (writing_) CutOff(&*context_, status_);
  }
  environment_->unread_streams.Set(this, outbox_.bytes() + writing_bytes_, most.streams_bytes_max);
  if (outbox_.entries() > most.stream_entries_max || outbox_.bytes() > most.stream_bytes_max)
    RefuseReader(SlowReader(most, words_.read_faster));
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::MaybeWrite() {
  if (broken_) outbox_.Clear();
  if (writing_ || outbox_.empty()) return;
  writing_ = true;
  const grpc::ByteBuffer bytes = Serialize(outbox_.front());
  outbox_.PopFront();
  writing_bytes_ = bytes.Length();
  stream_->Write(bytes, &written_event_);
}

template <typename Incoming, typename Response, typename Command>
bool StreamCall<Incoming, Response, Command>::TooMuchUnderWay() const {
  return replies_owed_ > environment_->limits.stream_entries_pause ||
         environment_->host->jobs_under_way() > environment_->limits.jobs_pause;
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::RunDeferred(bool all) {
  while (!deferred_.empty() && stage_ == Stage::kOpen && (all || !TooMuchUnderWay())) {
    Command command = deferred_.Take();
    HandleCommand(command);
  }
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::MaybeRead() {
  if (stage_ != Stage::kFirst && stage_ != Stage::kOpen) return deferred_.Clear();
  RunDeferred(/*all=*/false);
  // Something is on its way whose end begins another turn: then it is looked at again.
  if (!deferred_.empty()) MarkDirty();
  if (reading_ || (stage_ != Stage::kFirst && stage_ != Stage::kOpen)) return;
  if (broken_) {
    // Nothing else tells that the client has gone. What it said before that has its effect.
    unread_by_us_ = !deferred_.empty();
    if (!unread_by_us_) OnNoMore();
    return;
  }
  const ServiceLimits& limits = environment_->limits;
  unread_by_us_ = deferred_.bytes() > limits.deferred_stream_bytes_max ||
                  environment_->deferred_bytes > limits.deferred_bytes_max;
  if (unread_by_us_ || client_is_behind()) return MarkDirty();
  reading_ = true;
  stream_->Read(&incoming_, &read_event_);
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::MaybeRecycle() {
  if (stage_ != Stage::kOver || reading_ || writing_ || replies_owed_ > 0 || dirty_) return;
  count_.End();
  environment_->reactor->Disarm(&unread_);
  environment_->unread_streams.Set(this, 0, environment_->limits.streams_bytes_max);
  fullest_ = false;
  OnOver();
  deferred_.Clear();
  outbox_.Clear();
  incoming_.Clear();
  stream_.reset();
  context_.reset();
  Recycle();
}

// ---- The messages ----

template <typename Incoming, typename Response, typename Command>
bool StreamCall<Incoming, Response, Command>::IsStillKnown() {
  const bool renewed = caller_.Changed();
  Problem problem = caller_.Again();
  if (!problem && renewed) problem = CheckAgain();
  if (problem) Refuse(*problem);
  return !problem;
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::Handle(Incoming& message) {
  if (!IsStillKnown()) return;
  if (stage_ == Stage::kFirst) {
    signs_.Begin(arrived_);
    return HandleOpen(message);
  }
  caller_.StillUses(client_id_);
  if (message.has_open()) return Refuse(InvalidField("open", "must be in the first message only"));
  const int commands = CommandsOf(message)->size();
  if (commands > limits().commands_per_message_max) {
    return Refuse(InvalidField(
        words_.commands, "must be at most " + std::to_string(limits().commands_per_message_max) +
                             " in one message, not " + std::to_string(commands)));
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
  params.trace = TraceOf(*context_);
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
  ToProto(vouch, environment_->reactor->event_time() - arrived_, pong->mutable_validity());
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
bool StreamCall<Incoming, Response, Command>::TakeReply() {
  --replies_owed_;
  if (stage_ < Stage::kEnding) return true;
  MarkDirty();  // It may have been the last thing that was waited for.
  return false;
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
    ToProto(vouch, environment_->reactor->event_time() - arrived_, page.mutable_validity());
    page.set_resumed(resumed);
    *outbox_.Own(1 + page.leases_size())->mutable_opened() = std::move(page);
  }
  MarkDirty();
  DenyForbidden(caller_, held, sessions());
}

template <typename Incoming, typename Response, typename Command>
void StreamCall<Incoming, Response, Command>::OnSessionEnded(Refusal refusal) {
  attached_ = false;
  Refuse(refusal);
}

template class StreamCall<pb::SessionRequest, pb::SessionResponse, pb::SessionCommand>;
template class StreamCall<pb::WorkRequest, pb::WorkResponse, pb::FinishTicket>;

}  // namespace semaphored
