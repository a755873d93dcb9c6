#include "server/service/work_call.h"

#include <utility>

#include "server/service/call_log.h"
#include "server/service/calls.h"
#include "server/service/method_call.h"
#include "server/service/status.h"
#include "server/service/wire.h"

namespace semaphored {

void WorkCall::Request() {
  stage_ = Stage::kAskedFor;
  attached_ = reading_ = writing_ = broken_ = false;
  session_ = Id{};
  // The stream refers to the context.
  stream_.reset();
  context_.emplace();
  stream_.emplace(&*context_);
  grpc::ServerCompletionQueue* queue = environment_->reactor->queue();
  environment_->service->RequestWork(&*context_, &*stream_, queue, queue, &accepted_event_);
}

void WorkCall::OnAccepted(bool ok) {
  if (!ok) {
    acceptor_->TakeBack(this);  // The server is stopping: no call came.
    return;
  }
  stage_ = Stage::kFirst;
  count_.Begin(&environment_->streams);
  environment_->CountBegin(Method::kWork, *context_);
  acceptor_->Replace();
  if (environment_->stopping) {
    Refuse(ShuttingDown());
  } else if (environment_->streams > environment_->limits.streams_max) {
    RefuseOutsider(TooMany("streams_max", "streams", environment_->limits.streams_max,
                           "let one worker take more tickets at once"));
  } else if (Problem problem = caller_.Identify(&environment_->access, &*context_)) {
    RefuseOutsider(*problem);
  } else {
    MaybeRead();
  }
}

void WorkCall::OnRead(bool ok) {
  reading_ = false;
  arrived_ = environment_->reactor->event_time();
  if (!ok) {
    OnNoMore();
  } else if (stage_ == Stage::kFirst || stage_ == Stage::kOpen) {
    pb::WorkRequest& message = Scratch<pb::WorkRequest>();
    if (Parse(&incoming_, &message)) {
      Handle(message);
    } else {
      Refuse(Unreadable());
    }
  } else {
    incoming_.Clear();  // It came too late to matter.
  }
  MarkDirty();
}

void WorkCall::OnNoMore() {
  switch (stage_) {
    case Stage::kFirst:
      Refuse(InvalidField("open", "must be in the first message"));
      break;
    case Stage::kOpening:
    case Stage::kOpen:
      Refuse({absl::StatusCode::kCancelled, Reason::kUnspecified,
              "the stream was closed without `close`: its tickets stay with the worker for the TTL",
              "", "resume it with resume_session_id"});
      break;
    case Stage::kAskedFor:
    case Stage::kClosing:
    case Stage::kEnding:
    case Stage::kFinishing:
    case Stage::kOver:
      break;
  }
}

void WorkCall::OnWritten(bool ok) {
  writing_ = false;
  writing_bytes_ = 0;
  if (!ok) {
    broken_ = true;
    outbox_.Clear();
  }
  MarkDirty();
}

void WorkCall::OnFinished(bool /*ok*/) {
  stage_ = Stage::kOver;
  MarkDirty();
}

// The client lets its last messages lie: it will not read the status either.
void WorkCall::OnUnread() {
  if (writing_) CutOff(&*context_, status_);
}

void WorkCall::End(grpc::Status status) {
  if (stage_ >= Stage::kEnding) return;
  stage_ = Stage::kEnding;
  environment_->CountEnd(Method::kWork, status.error_code());
  status_ = std::move(status);
  if (std::exchange(attached_, false)) sessions()->DetachSession(this);
  Reactor* reactor = environment_->reactor;
  reactor->Arm(&unread_, reactor->event_time() + environment_->limits.unread_max);
  MarkDirty();
}

void WorkCall::Refuse(const Refusal& refusal) {
  LogRefusal(Method::kWork, refusal, *context_);
  End(ToStatus(refusal, environment_->adapter));
}

void WorkCall::RefuseOutsider(const Refusal& refusal) {
  count_.MoveToConnection(environment_->access.peers, *context_);
  Refuse(refusal);
}

void WorkCall::MarkDirty() {
  if (std::exchange(dirty_, true)) return;
  environment_->dirty.push_back(this);
}

void WorkCall::Flush() {
  dirty_ = false;
  if (environment_->reactor->closed()) return;
  CheckReader();
  MaybeWrite();
  MaybeRead();
  if (stage_ == Stage::kEnding && !writing_ && outbox_.empty()) {
    stage_ = Stage::kFinishing;
    stream_->Finish(status_, &finished_event_);
  }
  MaybeTakeBack();
}

void WorkCall::OnFullest() {
  if (stage_ >= Stage::kEnding) return;
  fullest_ = true;
  MarkDirty();
  environment_->reactor->Post([] {});  // This turn may be at its end.
}

void WorkCall::RefuseReader(const Refusal& refusal) {
  outbox_.Clear();
  Refuse(refusal);
}

// A worker that takes part, but does not read: its tickets go by, each with its payload.
void WorkCall::CheckReader() {
  environment_->stream_bytes.Add(outbox_.bytes(), environment_->reactor->event_time());
  const size_t together = environment_->limits.streams_bytes_max;
  if (std::exchange(fullest_, false)) {
    RefuseReader(FullestStream(together));
    // What is on its way takes memory, too.
    if (writing_) CutOff(&*context_, status_);
  }
  environment_->unread_streams.Set(this, outbox_.bytes() + writing_bytes_, together);
  const size_t most = environment_->limits.stream_bytes_max;
  if (outbox_.bytes() <= most) return;
  RefuseReader({absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
                "the worker has not read more than stream_bytes_max (" + std::to_string(most) +
                    ") bytes of tickets and events",
                "", "read the stream while writing to it, or take fewer tickets at once"});
}

void WorkCall::MaybeWrite() {
  if (broken_) outbox_.Clear();
  if (writing_ || outbox_.empty()) return;
  writing_ = true;
  const grpc::ByteBuffer bytes = Serialize(outbox_.front());
  outbox_.PopFront();
  writing_bytes_ = bytes.Length();
  stream_->Write(bytes, &written_event_);
}

bool WorkCall::TooMuchUnderWay() const {
  return replies_owed_ > environment_->limits.stream_entries_pause ||
         environment_->host->jobs_under_way() > environment_->limits.jobs_pause;
}

void WorkCall::RunDeferred(bool all) {
  while (!deferred_.empty() && stage_ == Stage::kOpen && (all || !TooMuchUnderWay())) {
    pb::FinishTicket finished = deferred_.Take();
    HandleFinished(finished);
  }
}

// What waits to be written is bounded by what is read: results by `finished`, assignments and
// their ends by the tickets that the worker may have.
void WorkCall::MaybeRead() {
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
  if (unread_by_us_ || outbox_.entries() > limits.stream_entries_pause) return MarkDirty();
  reading_ = true;
  stream_->Read(&incoming_, &read_event_);
}

void WorkCall::MaybeTakeBack() {
  if (stage_ != Stage::kOver || reading_ || writing_ || replies_owed_ > 0 || dirty_) return;
  count_.End();
  environment_->reactor->Disarm(&unread_);
  environment_->unread_streams.Set(this, 0, environment_->limits.streams_bytes_max);
  fullest_ = false;
  deferred_.Clear();
  charge_.reset();
  work_.reset();
  outbox_.Clear();
  incoming_.Clear();
  stream_.reset();
  context_.reset();
  acceptor_->TakeBack(this);
}

std::unique_ptr<AnyAcceptor> AcceptWork(Environment* environment) {
  return std::make_unique<Acceptor<WorkCall>>(environment);
}

}  // namespace semaphored
