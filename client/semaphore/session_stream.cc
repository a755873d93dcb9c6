#include "client/semaphore/session_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <utility>

#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

std::unique_ptr<v1::SemaphoreService::Stub> Connect(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  // Otherwise gRPC would hand out the connection that was found broken, or its own pause after it.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::SemaphoreService::NewStub(
      grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
}

}  // namespace

std::shared_ptr<SessionStream> SessionStream::Create(const std::string& endpoint,
                                                     std::shared_ptr<StreamListener> listener) {
  return std::shared_ptr<SessionStream>(new SessionStream(endpoint, std::move(listener)));
}

SessionStream::SessionStream(const std::string& endpoint, std::shared_ptr<StreamListener> listener)
    : stub_(Connect(endpoint)), listener_(std::move(listener)) {}

void SessionStream::Start() {
  self_ = shared_from_this();
  stub_->async()->Session(&context_, this);
  AddHold();
  StartRead(&response_);
  StartCall();
}

void SessionStream::Write() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return;
    writing_ = true;
  }
  StartWrite(&request_);
}

void SessionStream::OnReadDone(bool ok) {
  if (ok) {
    listener_->OnStreamMessage(this, response_);
    StartRead(&response_);
    return;
  }
  bool last = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    last = !writing_;
  }
  if (last) RemoveHold();
}

void SessionStream::OnWriteDone(bool ok) {
  bool last = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    last = ended_;
  }
  if (last) {
    RemoveHold();
  } else if (ok) {
    listener_->OnStreamWritten(this);
  }
}

void SessionStream::OnDone(const grpc::Status& status) {
  const std::shared_ptr<StreamListener> listener = std::move(listener_);
  listener->OnStreamEnd(std::move(self_), ToAbslStatus(status));
}

}  // namespace semaphore
