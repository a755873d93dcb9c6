#include "server/rpc/server_stream_call.h"

#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/status.h"

namespace semaphored {

void ServerStreamCall::Request() {
  stage_ = Stage::kAskedFor;
  writing_ = false;
  broken_ = false;
  sent_ = 0;
  Discard();
  // The writer refers to the context.
  writer_.reset();
  context_.emplace();
  writer_.emplace(&*context_);
  context_->AsyncNotifyWhenDone(&done_);
  done_awaited_ = true;
  Register(&accepted_);
}

void ServerStreamCall::OnAccepted(bool ok) {
  if (!ok) {
    // The server is stopping: no call came, so no done event follows.
    Recycle();
    return;
  }
  stage_ = Stage::kServing;
  arrived_ = environment_->reactor->event_time();
  Replace();
  const CallBound bound{"streams_max", "streams", environment_->limits.streams_max,
                        "use one Session for many leases"};
  if (Problem problem = environment_->TakeIn(method_, *context_, bound, &environment_->streams,
                                             &count_, &caller_))
    return Refuse(*problem);
  Begin();
}

void ServerStreamCall::Enqueue(grpc::ByteBuffer bytes) {
  if (stage_ != Stage::kServing || broken_) return;
  waiting_bytes_ += bytes.Length();
  waiting_.push_back(std::move(bytes));
  Pump();
  OnWaiting();
}

void ServerStreamCall::End(grpc::Status status) {
  if (stage_ != Stage::kServing) return;
  stage_ = Stage::kEnding;
  environment_->CountEnd(method_, status.error_code());
  status_ = std::move(status);
  Pump();
  if (!writing_) return;
  Reactor* reactor = environment_->reactor;
  reactor->Arm(&unread_, reactor->event_time() + environment_->limits.unread_max);
}

void ServerStreamCall::Refuse(const Refusal& refusal) {
  LogRefusal(method_, refusal, *context_);
  End(ToStatus(refusal, environment_->adapter));
}

void ServerStreamCall::Pump() {
  if (writing_ || environment_->reactor->closed()) return;
  if (!waiting_.empty()) {
    writing_ = true;
    ++sent_;
    const grpc::ByteBuffer bytes = waiting_.front();
    waiting_.pop_front();
    waiting_bytes_ -= bytes.Length();
    grpc::WriteOptions options;
    if (!waiting_.empty()) options.set_buffer_hint();
    writer_->Write(bytes, options, &written_);
    OnWaiting();
  } else if (stage_ == Stage::kEnding) {
    stage_ = Stage::kFinishing;
    writer_->Finish(status_, &finished_);
  }
}

void ServerStreamCall::OnWritten(bool ok) {
  writing_ = false;
  if (!ok) {
    broken_ = true;
    Discard();
  }
  if (stage_ == Stage::kOver) {
    MaybeRecycle();
  } else if (waiting_.empty() && stage_ == Stage::kServing) {
    if (!broken_) OnDrained();  // Otherwise the done event comes.
  } else {
    Pump();
  }
}

// The client lets its last messages lie: it will not read the status either.
void ServerStreamCall::OnUnread() {
  if (writing_) CutOff(&*context_, status_);
}

void ServerStreamCall::OnFinished(bool /*ok*/) {
  stage_ = Stage::kOver;
  MaybeRecycle();
}

void ServerStreamCall::OnDoneEvent(bool /*ok*/) {
  done_awaited_ = false;
  Discard();
  const Stage before = stage_;
  // Finish is not called for a client that has gone; if it was called, its own event comes.
  if (stage_ == Stage::kServing || stage_ == Stage::kEnding) stage_ = Stage::kOver;
  if (before == Stage::kServing) {
    environment_->CountEnd(method_, grpc::StatusCode::CANCELLED);
    OnGone();
  }
  MaybeRecycle();
}

void ServerStreamCall::MaybeRecycle() {
  if (stage_ != Stage::kOver || writing_ || done_awaited_) return;
  count_.End();
  environment_->reactor->Disarm(&unread_);
  request_.Clear();
  writer_.reset();
  context_.reset();
  Recycle();
}

}  // namespace semaphored
