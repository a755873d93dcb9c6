#include "tests/bench/session_stream.h"

#include <google/protobuf/arena.h>

#include <array>
#include <utility>

namespace semaphored::bench {

namespace pb = ::semaphore::v1;

namespace {

// What the API takes in one message.
constexpr int kCommandsPerMessage = 1000;

}  // namespace

// Messages live on arenas that begin in a block of their own, so that a message of ordinary size
// allocates nothing.
template <typename Message>
struct ArenaMessage {
  ArenaMessage() : arena(block.data(), block.size()) { Renew(); }
  void Renew() {
    arena.Reset();
    message = google::protobuf::Arena::CreateMessage<Message>(&arena);
  }
  std::array<char, 96 * 1024> block;
  google::protobuf::Arena arena;
  Message* message = nullptr;
};

struct SessionStream::Batch : ArenaMessage<pb::SessionRequest> {};
struct SessionStream::Incoming : ArenaMessage<pb::SessionResponse> {};

class SessionStream::Operation : public Tag {
 public:
  using Member = void (SessionStream::*)(bool);
  Operation(SessionStream* stream, Member member) : stream_(stream), member_(member) {}
  void Proceed(bool ok) override {
    if (member_ == nullptr) {
      stream_->OnFinished();
    } else {
      (stream_->*member_)(ok);
    }
  }

 private:
  SessionStream* stream_;
  Member member_;
};

SessionStream::SessionStream(Loop* loop, std::shared_ptr<grpc::Channel> channel,
                             SessionHandler* handler)
    : loop_(loop),
      stub_(pb::SemaphoreService::NewStub(std::move(channel))),
      handler_(handler),
      started_(std::make_unique<Operation>(this, &SessionStream::OnStarted)),
      written_(std::make_unique<Operation>(this, &SessionStream::OnWritten)),
      read_(std::make_unique<Operation>(this, &SessionStream::OnRead)),
      finished_(std::make_unique<Operation>(this, nullptr)),
      incoming_(std::make_unique<Incoming>()) {}

SessionStream::~SessionStream() = default;

void SessionStream::Open(const std::string& client_id, int64_t ttl_ms) {
  ttl_ms_ = ttl_ms;
  pb::OpenSession* open = Tail()->message->mutable_open();
  open->set_client_id(client_id);
  open->set_ttl_ms(ttl_ms);
  waiting_.push_back(std::make_unique<Batch>());  // nothing more goes into the first message
  in_flight_ = std::make_unique<Batch>();         // the start of the call counts as a write
  stream_ = stub_->AsyncSession(&context_, loop_->queue(), started_.get());
}

void SessionStream::OnStarted(bool ok) {
  stream_->Read(incoming_->message, read_.get());
  OnWritten(ok);
}

SessionStream::Batch* SessionStream::Tail() {
  if (waiting_.empty() || waiting_.back()->message->commands_size() >= kCommandsPerMessage) {
    if (spare_.empty()) spare_.push_back(std::make_unique<Batch>());
    waiting_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  }
  return waiting_.back().get();
}

pb::SessionCommand* SessionStream::Add() {
  pb::SessionCommand* command = Tail()->message->add_commands();
  command->set_sequence(++sequence_);
  return command;
}

void SessionStream::Flush() {
  if (in_flight_ != nullptr || broken_ || waiting_.empty()) return;
  const pb::SessionRequest& next = *waiting_.front()->message;
  const bool empty =
      !next.has_open() && next.commands_size() == 0 && !next.has_ping() && !next.close();
  if (empty) return;
  in_flight_ = std::move(waiting_.front());
  waiting_.pop_front();
  last_sent_ = Clock::now();
  stream_->Write(*in_flight_->message, written_.get());
}

void SessionStream::Tick(TimePoint now) {
  if (stream_ == nullptr || broken_) return;
  if (now - last_sent_ < std::chrono::milliseconds(ttl_ms_ / 3)) return;
  Tail()->message->mutable_ping()->set_ping_id(++pings_);
  Flush();
}

void SessionStream::Close() {
  Tail()->message->set_close(true);
  Flush();
}

void SessionStream::OnWritten(bool ok) {
  in_flight_->Renew();
  if (spare_.size() < 4) spare_.push_back(std::move(in_flight_));
  in_flight_ = nullptr;
  broken_ |= !ok;
  Flush();
}

void SessionStream::OnRead(bool ok) {
  if (!ok) {
    broken_ = true;
    stream_->Finish(&status_, finished_.get());
    return;
  }
  const TimePoint now = Clock::now();
  const pb::SessionResponse& response = *incoming_->message;
  if (response.has_opened()) handler_->OnOpened();
  for (const pb::SessionResult& result : response.results()) handler_->OnResult(result, now);
  for (const pb::SessionEvent& event : response.events()) handler_->OnEvent(event);
  if (response.has_pong() && response.pong().validity().valid_for_ms() > 0) ++pongs_;
  // What follows from it goes first: with the next read gRPC sends a window update of its own.
  Flush();
  incoming_->Renew();
  stream_->Read(incoming_->message, read_.get());
}

void SessionStream::OnFinished() { handler_->OnEnded(status_); }

}  // namespace semaphored::bench
