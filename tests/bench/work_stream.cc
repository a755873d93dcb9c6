#include "tests/bench/work_stream.h"

#include <chrono>
#include <utility>

namespace semaphored::bench {

namespace pb = ::semaphore::v1;

namespace {

// What the API takes in one message.
constexpr int kFinishedPerMessage = 1000;

}  // namespace

class WorkStream::Operation : public Tag {
 public:
  using Member = void (WorkStream::*)(bool);
  Operation(WorkStream* stream, Member member) : stream_(stream), member_(member) {}
  void Proceed(bool ok) override { (stream_->*member_)(ok); }

 private:
  WorkStream* stream_;
  Member member_;
};

WorkStream::WorkStream(Loop* loop, std::shared_ptr<grpc::Channel> channel, WorkHandler* handler)
    : loop_(loop),
      stub_(pb::SemaphoreService::NewStub(std::move(channel))),
      handler_(handler),
      started_(std::make_unique<Operation>(this, &WorkStream::OnStarted)),
      written_(std::make_unique<Operation>(this, &WorkStream::OnWritten)),
      read_(std::make_unique<Operation>(this, &WorkStream::OnRead)),
      finished_(std::make_unique<Operation>(this, &WorkStream::OnFinished)) {}

WorkStream::~WorkStream() = default;

void WorkStream::Open(const std::string& client_id, int64_t ttl_ms, pb::OpenWork open) {
  ttl_ms_ = ttl_ms;
  open.set_client_id(client_id);
  open.set_ttl_ms(ttl_ms);
  *waiting_.mutable_open() = std::move(open);
  anything_waits_ = true;
  writing_ = true;  // The start of the call counts as a write.
  last_sent_ = Clock::now();
  stream_ = stub_->AsyncWork(&context_, loop_->queue(), started_.get());
}

void WorkStream::OnStarted(bool ok) {
  stream_->Read(&incoming_, read_.get());
  OnWritten(ok);
}

uint64_t WorkStream::AddDone(const std::string& lease_id) {
  pb::FinishTicket* finish = waiting_.add_finished();
  finish->set_sequence(++sequence_);
  finish->set_lease_id(lease_id);
  finish->mutable_done();
  anything_waits_ = true;
  if (waiting_.finished_size() >= kFinishedPerMessage) Flush();
  return sequence_;
}

void WorkStream::Flush() {
  if (writing_ || broken_ || !anything_waits_) return;
  in_flight_.Swap(&waiting_);
  anything_waits_ = false;
  writing_ = true;
  last_sent_ = Clock::now();
  stream_->Write(in_flight_, written_.get());
}

void WorkStream::Tick(TimePoint now) {
  if (stream_ == nullptr || broken_) return;
  if (now - last_sent_ < std::chrono::milliseconds(ttl_ms_ / 3)) return;
  waiting_.mutable_ping()->set_ping_id(++pings_);
  anything_waits_ = true;
  Flush();
}

void WorkStream::Close() {
  waiting_.set_close(true);
  anything_waits_ = true;
  Flush();
}

void WorkStream::OnWritten(bool ok) {
  writing_ = false;
  in_flight_.Clear();
  broken_ |= !ok;
  Flush();
}

void WorkStream::OnRead(bool ok) {
  if (!ok) {
    broken_ = true;
    stream_->Finish(&status_, finished_.get());
    return;
  }
  const TimePoint now = Clock::now();
  if (incoming_.has_opened()) handler_->OnOpened();
  for (const pb::FinishTicketResult& result : incoming_.results()) handler_->OnResult(result, now);
  for (const pb::TicketAssignment& assignment : incoming_.assignments())
    handler_->OnAssigned(assignment, now);
  for (const pb::SessionEvent& event : incoming_.events()) handler_->OnEvent(event);
  // What follows from it goes first: with the next read gRPC sends a window update of its own.
  Flush();
  stream_->Read(&incoming_, read_.get());
}

void WorkStream::OnFinished(bool /*ok*/) { handler_->OnEnded(status_); }

}  // namespace semaphored::bench
