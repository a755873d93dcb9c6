#include "server/service/session_call.h"

#include <utility>

#include "server/service/call_log.h"
#include "server/service/calls.h"
#include "server/service/status.h"
#include "server/service/wire.h"

namespace semaphored {

SessionCall::SessionCall(Environment* environment, Acceptor<SessionCall>* acceptor)
    : environment_(environment), acceptor_(acceptor), outbox_(&environment->responses) {}

void SessionCall::Request() {
  stage_ = Stage::kAskedFor;
  attached_ = reading_ = writing_ = broken_ = false;
  session_ = Id{};
  // The stream refers to the context.
  stream_.reset();
  context_.emplace();
  stream_.emplace(&*context_);
  grpc::ServerCompletionQueue* queue = environment_->reactor->queue();
  environment_->service->RequestSession(&*context_, &*stream_, queue, queue, &accepted_event_);
}

void SessionCall::OnAccepted(bool ok) {
  if (!ok) {
    acceptor_->TakeBack(this);  // The server is stopping: no call came.
    return;
  }
  stage_ = Stage::kFirst;
  count_.Begin(&environment_->streams);
  environment_->CountBegin(Method::kSession, *context_);
  acceptor_->Replace();
  if (environment_->stopping) {
    Refuse(ShuttingDown());
  } else if (environment_->streams > environment_->limits.streams_max) {
    RefuseOutsider(TooMany("streams_max", "streams", environment_->limits.streams_max,
                           "share one session among more work"));
  } else if (Problem problem = caller_.Identify(&environment_->access, &*context_)) {
    RefuseOutsider(*problem);
  } else {
    MaybeRead();
  }
}

void SessionCall::OnRead(bool ok) {
  reading_ = false;
  arrived_ = environment_->reactor->event_time();
  if (!ok) {
    OnNoMore();
  } else if (stage_ == Stage::kFirst || stage_ == Stage::kOpen) {
    ArenaMessage<pb::SessionRequest>& message = environment_->session_request;
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

void SessionCall::OnNoMore() {
  switch (stage_) {
    case Stage::kFirst:
      Refuse(InvalidField("open", "must be in the first message"));
      break;
    case Stage::kOpening:
    case Stage::kOpen:
      Refuse({absl::StatusCode::kCancelled, Reason::kUnspecified,
              "the stream was closed without `close`: the session goes on for its TTL", "",
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

void SessionCall::OnWritten(bool ok) {
  writing_ = false;
  writing_bytes_ = 0;
  if (!ok) {
    broken_ = true;
    outbox_.Clear();
  }
  MarkDirty();
}

void SessionCall::OnFinished(bool /*ok*/) {
  stage_ = Stage::kOver;
  MarkDirty();
}

// The client lets its last messages lie: it will not read the status either.
void SessionCall::OnUnread() {
  if (writing_) CutOff(&*context_, status_);
}

void SessionCall::End(grpc::Status status) {
  if (stage_ >= Stage::kEnding) return;
  stage_ = Stage::kEnding;
  environment_->CountEnd(Method::kSession, status.error_code());
  status_ = std::move(status);
  if (std::exchange(attached_, false)) sessions()->DetachSession(this);
  Reactor* reactor = environment_->reactor;
  reactor->Arm(&unread_, reactor->event_time() + environment_->limits.unread_max);
  MarkDirty();
}

void SessionCall::Refuse(const Refusal& refusal) {
  LogRefusal(Method::kSession, refusal, *context_);
  End(ToStatus(refusal, environment_->adapter));
}

void SessionCall::RefuseOutsider(const Refusal& refusal) {
  count_.MoveToConnection(environment_->access.peers, *context_);
  Refuse(refusal);
}

void SessionCall::MarkDirty() {
  if (std::exchange(dirty_, true)) return;
  environment_->dirty.push_back(this);
}

void SessionCall::Flush() {
  dirty_ = false;
  if (environment_->reactor->closed()) return;
  released_.clear();
  CheckReader();
  MaybeWrite();
  MaybeRead();
  if (stage_ == Stage::kEnding && !writing_ && outbox_.empty()) {
    stage_ = Stage::kFinishing;
    stream_->Finish(status_, &finished_event_);
  }
  MaybeTakeBack();
}

void SessionCall::OnFullest() {
  if (stage_ >= Stage::kEnding) return;
  fullest_ = true;
  MarkDirty();
  environment_->reactor->Post([] {});  // This turn may be at its end.
}

void SessionCall::RefuseReader(const Refusal& refusal) {
  outbox_.Clear();
  Refuse(refusal);
}

void SessionCall::CheckReader() {
  environment_->stream_bytes.Add(outbox_.bytes(), environment_->reactor->event_time());
  const ServiceLimits& most = environment_->limits;
  if (std::exchange(fullest_, false)) {
    RefuseReader(FullestStream(most.streams_bytes_max));
    // What is on its way takes memory, too.
    if (writing_) CutOff(&*context_, status_);
  }
  environment_->unread_streams.Set(this, outbox_.bytes() + writing_bytes_, most.streams_bytes_max);
  if (outbox_.entries() <= most.stream_entries_max && outbox_.bytes() <= most.stream_bytes_max)
    return;
  RefuseReader({absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
                "the client has not read more than " + std::to_string(most.stream_entries_max) +
                    " results and events, or stream_bytes_max (" +
                    std::to_string(most.stream_bytes_max) + ") bytes of them",
                "", "read the stream while writing to it"});
}

void SessionCall::MaybeWrite() {
  if (broken_) outbox_.Clear();
  if (writing_ || outbox_.empty()) return;
  writing_ = true;
  const grpc::ByteBuffer bytes = Serialize(outbox_.front());
  outbox_.PopFront();
  writing_bytes_ = bytes.Length();
  stream_->Write(bytes, &written_event_);
}

bool SessionCall::TooMuchUnderWay() const {
  return replies_owed_ > environment_->limits.stream_entries_pause ||
         environment_->host->jobs_under_way() > environment_->limits.jobs_pause;
}

void SessionCall::RunDeferred(bool all) {
  while (!deferred_.empty() && stage_ == Stage::kOpen && (all || !TooMuchUnderWay())) {
    pb::SessionCommand command = deferred_.Take();
    HandleCommand(command);
  }
}

void SessionCall::MaybeRead() {
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
  const bool unread_by_client = outbox_.entries() > limits.stream_entries_pause ||
                                outbox_.bytes() > limits.stream_bytes_max / 2;
  if (unread_by_us_ || unread_by_client) return MarkDirty();
  reading_ = true;
  stream_->Read(&incoming_, &read_event_);
}

void SessionCall::MaybeTakeBack() {
  if (stage_ != Stage::kOver || reading_ || writing_ || replies_owed_ > 0 || dirty_) return;
  count_.End();
  environment_->reactor->Disarm(&unread_);
  environment_->unread_streams.Set(this, 0, environment_->limits.streams_bytes_max);
  fullest_ = false;
  deferred_.Clear();
  outbox_.Clear();
  incoming_.Clear();
  stream_.reset();
  context_.reset();
  acceptor_->TakeBack(this);
}

std::unique_ptr<AnyAcceptor> AcceptSession(Environment* environment) {
  return std::make_unique<Acceptor<SessionCall>>(environment);
}

}  // namespace semaphored
