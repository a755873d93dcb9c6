#include "server/rpc/unary_call.h"

#include <utility>

#include "server/rpc/call_log.h"

namespace semaphored {
void UnaryCall::Request() {
  stage_ = Stage::kAskedFor;
  done_awaited_ = false;
  // The writer refers to the context.
  writer_.reset();
  context_.emplace();
  writer_.emplace(&*context_);
  Register();
}

void UnaryCall::WatchCancel() {
  context_->AsyncNotifyWhenDone(&done_);
  done_awaited_ = true;
}

void UnaryCall::OnEvent(bool ok) {
  if (stage_ == Stage::kSending) {
    stage_ = Stage::kSent;
    environment_->unread.Remove(this);
    MaybeEnd();
    return;
  }
  if (!ok) {
    // The server is stopping: no call came, so no done event follows.
    Recycle();
    return;
  }
  stage_ = Stage::kServing;
  arrived_ = environment_->reactor->event_time();
  Replace();
  const CallBound bound{"calls_max", "calls", environment_->limits.calls_max,
                        "repeat the request later, or use Session"};
  if (Problem problem =
          environment_->TakeIn(method_, *context_, bound, &environment_->calls, &count_, &caller_))
    return Refuse(*problem);
  Begin();
}

void UnaryCall::ReplyBytes(const grpc::ByteBuffer& bytes) { Send(bytes, grpc::Status::OK); }

void UnaryCall::OnUnread() { CutOff(&*context_, grpc::Status::OK); }

// (The caller of a call that was refused at once is not known.)
std::string UnaryCall::Peer() const { return PeerOf(environment_->access, *context_); }

void UnaryCall::Refuse(const Refusal& refusal) {
  LogRefusal(method_, refusal, *context_);
  // Finished with empty bytes: gRPC sends none along with an error.
  Send(grpc::ByteBuffer(), ToStatus(refusal, environment_->adapter));
}

void UnaryCall::Send(const grpc::ByteBuffer& bytes, const grpc::Status& status) {
  stage_ = Stage::kSending;
  environment_->CountEnd(method_, status.error_code());
  if (environment_->reactor->closed()) return;
  if (status.ok()) {
    writer_->Finish(bytes, status, this);
  } else {
    writer_->FinishWithError(status, this);
  }
  environment_->OnAnswer(this, bytes.Length());
}

void UnaryCall::Drop() {
  environment_->CountEnd(method_, grpc::StatusCode::CANCELLED);
  stage_ = Stage::kSent;
  MaybeEnd();
}

void UnaryCall::OnDoneEvent(bool /*ok*/) {
  done_awaited_ = false;
  const bool cancelled = context_->IsCancelled();
  if (stage_ == Stage::kServing) {
    OnDone(cancelled);
  } else {
    MaybeEnd();
  }
}

void UnaryCall::MaybeEnd() {
  if (stage_ != Stage::kSent || done_awaited_) return;
  count_.End();
  request_.Clear();
  writer_.reset();
  context_.reset();
  Recycle();
}

}  // namespace semaphored
