#include "server/rpc/bidi_call.h"

#include <string>
#include <tuple>
#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"

namespace semaphored {
namespace {

Refusal SlowReader(const ServiceLimits& most, const std::string& advice) {
  return {absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
          "the client has not read more than " + std::to_string(most.stream_entries_max) +
              " results and events, or stream_bytes_max (" + std::to_string(most.stream_bytes_max) +
              ") bytes of them",
          "", advice};
}

}  // namespace

template <typename Incoming, typename Response>
BidiCall<Incoming, Response>::BidiCall(Environment* environment, const BidiWords& words)
    : environment_(environment),
      words_(words),
      outbox_(&std::get<MessagePool<Response>>(environment->responses)) {}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::Request() {
  stage_ = Stage::kAskedFor;
  reading_ = writing_ = broken_ = false;
  // The stream refers to the context.
  stream_.reset();
  context_.emplace();
  stream_.emplace(&*context_);
  Register(&accepted_event_);
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::OnAccepted(bool ok) {
  if (!ok) return Recycle();  // The server is stopping: no call came.
  stage_ = Stage::kServing;
  Replace();
  const CallBound bound{"streams_max", "streams", environment_->limits.streams_max,
                        words_.fewer_streams};
  if (Problem problem = environment_->TakeIn(words_.method, *context_, bound,
                                             &environment_->streams, &count_, &caller_))
    return Refuse(*problem);
  Begin();
  MaybeRead();
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::OnRead(bool ok) {
  reading_ = false;
  arrived_ = environment_->reactor->event_time();
  if (!ok) {
    OnNoMore();
  } else if (stage_ == Stage::kServing) {
    auto& message = std::get<ArenaMessage<Incoming>>(environment_->stream_requests);
    if (Parse(&incoming_, message.get())) {
      OnMessage(*message.get());
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

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::OnWritten(bool ok) {
  writing_ = false;
  writing_bytes_ = 0;
  if (!ok) {
    broken_ = true;
    outbox_.Clear();
  }
  MarkDirty();
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::OnFinished(bool /*ok*/) {
  stage_ = Stage::kOver;
  MarkDirty();
}

// The client lets its last messages lie: it will not read the status either.
template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::OnUnread() {
  if (writing_) CutOff(&*context_, status_);
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::End(grpc::Status status) {
  if (stage_ >= Stage::kEnding) return;
  stage_ = Stage::kEnding;
  environment_->CountEnd(words_.method, status.error_code());
  status_ = std::move(status);
  OnEnding();
  Reactor* reactor = environment_->reactor;
  reactor->Arm(&unread_, reactor->event_time() + environment_->limits.unread_max);
  MarkDirty();
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::Refuse(const Refusal& refusal) {
  LogRefusal(words_.method, refusal, *context_);
  End(ToStatus(refusal, environment_->adapter));
}

template <typename Incoming, typename Response>
bool BidiCall<Incoming, Response>::TakeReply() {
  --replies_owed_;
  if (stage_ < Stage::kEnding) return true;
  MarkDirty();  // It may have been the last thing that was waited for.
  return false;
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::MarkDirty() {
  if (std::exchange(dirty_, true)) return;
  environment_->dirty.push_back(this);
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::Flush() {
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

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::OnFullest() {
  if (stage_ >= Stage::kEnding) return;
  fullest_ = true;
  MarkDirty();
  environment_->reactor->Post([] {});  // This turn may be at its end.
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::RefuseReader(const Refusal& refusal) {
  outbox_.Clear();
  Refuse(refusal);
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::CheckReader() {
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

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::MaybeWrite() {
  if (broken_) outbox_.Clear();
  if (writing_ || outbox_.empty()) return;
  writing_ = true;
  const grpc::ByteBuffer bytes = Serialize(outbox_.front());
  outbox_.PopFront();
  writing_bytes_ = bytes.Length();
  stream_->Write(bytes, &written_event_);
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::MaybeRead() {
  if (stage_ != Stage::kServing) return;
  const Line line = reading_ ? Line::kReading : broken_ ? Line::kBroken : Line::kQuiet;
  const Reading reading = BeforeRead(line);
  if (reading == Reading::kLater) MarkDirty();
  if (reading_ || reading != Reading::kNext || stage_ != Stage::kServing) return;
  if (broken_) return OnNoMore();  // Nothing else tells that the client has gone.
  reading_ = true;
  stream_->Read(&incoming_, &read_event_);
}

template <typename Incoming, typename Response>
void BidiCall<Incoming, Response>::MaybeRecycle() {
  if (stage_ != Stage::kOver || reading_ || writing_ || replies_owed_ > 0 || dirty_) return;
  count_.End();
  environment_->reactor->Disarm(&unread_);
  environment_->unread_streams.Set(this, 0, environment_->limits.streams_bytes_max);
  fullest_ = false;
  OnOver();
  outbox_.Clear();
  incoming_.Clear();
  stream_.reset();
  context_.reset();
  Recycle();
}

template class BidiCall<pb::SessionRequest, pb::SessionResponse>;
template class BidiCall<pb::WorkRequest, pb::WorkResponse>;

}  // namespace semaphored
