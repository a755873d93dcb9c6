#include "client/semaphore/session_stream.h"

#include <utility>

#include "client/semaphore/status_conversion.h"

namespace semaphore {
StreamLoop::StreamLoop() : thread_([this] { Run(); }) {}

void StreamLoop::Stop() {
  queue_.Shutdown();
  thread_.join();
}

void StreamLoop::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const auto* const done = static_cast<SessionStream::Tag*>(tag);
    done->stream->OnStep(done->step, ok);
  }
}

std::shared_ptr<SessionStream> SessionStream::Create(const std::string& endpoint,
                                                     Transport& transport, StreamLoop& loop,
                                                     std::shared_ptr<StreamListener> listener) {
  return std::shared_ptr<SessionStream>(
      new SessionStream(endpoint, transport, loop, std::move(listener)));
}

SessionStream::SessionStream(const std::string& endpoint, Transport& transport, StreamLoop& loop,
                             std::shared_ptr<StreamListener> listener)
    : stub_(v1::SemaphoreService::NewStub(transport.ConnectAlone(endpoint))),
      loop_(loop),
      listener_(std::move(listener)) {
  transport.Authorize(&context_);
}

void SessionStream::Start() {
  self_ = shared_from_this();
  call_ = stub_->PrepareAsyncSession(&context_, loop_.queue());
  call_->StartCall(&start_);
}

void SessionStream::Write() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (finishing_) return;
  if (!started_) {
    write_wanted_ = true;
    return;
  }
  writing_ = true;
  call_->Write(request_, &write_);
}

void SessionStream::OnStep(Step step, bool ok) {
  switch (step) {
    case Step::kStart:
      return OnStarted(ok);
    case Step::kRead:
      return OnRead(ok);
    case Step::kWrite:
      return OnWritten(ok);
    case Step::kFinish: {
      std::unique_lock<std::mutex> lock(mutex_);
      finished_ = true;
      lock.unlock();
      return EndIfDone();
    }
  }
}

void SessionStream::OnStarted(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  started_ = true;
  if (!ok) return FinishLocked();
  call_->Read(&response_, &read_);
  if (!write_wanted_) return;
  writing_ = true;
  call_->Write(request_, &write_);
}

void SessionStream::OnRead(bool ok) {
  if (ok) {
    listener_->OnStreamMessage(this, response_);
    call_->Read(&response_, &read_);
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  FinishLocked();
}

// A write that failed needs nothing more: reading fails as well, and ends the stream.
void SessionStream::OnWritten(bool ok) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
  }
  if (ok) listener_->OnStreamWritten(this);
  EndIfDone();
}

void SessionStream::FinishLocked() {
  if (finishing_) return;
  finishing_ = true;
  call_->Finish(&status_, &finish_);
}

void SessionStream::EndIfDone() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!finished_ || writing_) return;
  }
  if (listener_ == nullptr) return;
  const std::shared_ptr<StreamListener> listener = std::move(listener_);
  listener->OnStreamEnd(std::move(self_), ToAbslStatus(status_));
}

}  // namespace semaphore
