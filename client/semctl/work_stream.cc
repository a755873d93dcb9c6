#include "client/semctl/work_stream.h"

#include <utility>

#include "client/semaphore/status_conversion.h"

namespace semaphore::semctl {
WorkStream::WorkStream(const std::string& endpoint, Transport& transport, Mailbox* mailbox,
                       Callbacks callbacks)
    : mailbox_(mailbox),
      callbacks_(std::move(callbacks)),
      stub_(v1::SemaphoreService::NewStub(transport.ConnectAlone(endpoint))) {
  transport.Authorize(&context_);
  reader_ = std::thread([this] { Read(); });
}

WorkStream::~WorkStream() {
  *self_ = nullptr;
  context_.TryCancel();
  reader_.join();
}

void WorkStream::Write(v1::WorkRequest message) {
  writing_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    outgoing_ = std::move(message);
  }
  changed_.notify_one();
}

// Its own thread, since a write waits for the connection.
void WorkStream::WriteLoop() {
  while (true) {
    v1::WorkRequest message;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || outgoing_.has_value(); });
      if (ended_) return;
      message = *std::exchange(outgoing_, std::nullopt);
    }
    // If it fails the stream has ended, which the reader hears.
    if (!call_->Write(message)) return;
    mailbox_->Post([self = self_] {
      if (*self == nullptr) return;
      (*self)->writing_ = false;
      (*self)->callbacks_.on_written();
    });
  }
}

void WorkStream::Read() {
  call_ = stub_->Work(&context_);
  std::thread writer([this] { WriteLoop(); });
  while (true) {
    auto message = std::make_shared<v1::WorkResponse>();
    if (!call_->Read(message.get())) break;
    mailbox_->Post([self = self_, message] {
      if (*self != nullptr) (*self)->callbacks_.on_message(*message);
    });
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  writer.join();
  const absl::Status status = ToAbslStatus(call_->Finish());
  mailbox_->Post([self = self_, status] {
    // What is called may destroy the stream.
    if (*self != nullptr) Callbacks((*self)->callbacks_).on_end(status);
  });
}

}  // namespace semaphore::semctl
