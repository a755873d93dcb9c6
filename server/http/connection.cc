#include "server/http/connection.h"

#include <poll.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace semaphored::http {
namespace {

// For a client to hear that it was refused, before the connection ends under what it still sends.
constexpr Milliseconds kLinger{1'000};
// What the kernel may keep of a stream's events.
constexpr int kStreamSendBytes = 16 << 10;
constexpr char kLastChunk[] = "0\r\n\r\n";
constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
// A client that has ended its sending is mostly answered before.
constexpr Milliseconds kProbeAfter{200};
// A line of an event stream that means nothing.
constexpr char kComment[] = ":\n\n";

std::string Chunk(std::string_view bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n",
                      absl::string_view(bytes.data(), bytes.size()), "\r\n");
}

// (An error, too.)
bool Polls(int descriptor, int events) {
  pollfd file{descriptor, static_cast<short>(events), 0};
  return poll(&file, 1, /*timeout=*/0) == 1;
}

}  // namespace

Connection::Connection(uint64_t number, Transport transport, boost::asio::ip::address address,
                       std::string peer, const Clock* clock, const Patience* patience,
                       const Events* events)
    : number_(number),
      transport_(std::move(transport)),
      address_(std::move(address)),
      peer_(std::move(peer)),
      clock_(clock),
      patience_(patience),
      events_(events),
      moved_at_(clock->Now()),
      deadline_(moved_at_ + patience->request) {}

void Connection::Enter(State state, SteadyTime::duration patience) {
  state_ = state;
  moved_at_ = clock_->Now();
  deadline_ = patience == SteadyTime::duration::max() ? SteadyTime::max() : moved_at_ + patience;
}

void Connection::Shut() { transport_.Close(/*in_order=*/state_ == State::kIdle); }

// ---- reading ----

void Connection::ReadMore() {
  transport_.ReadSome(heads_.Room(), [self = shared_from_this()](bool ok, size_t bytes) {
    if (!self->transport_.is_open()) return;
    if (self->gave_up_) return self->OnGivenUp();
    if (!ok) return self->End();
    self->OnBytes(bytes);
  });
}

// (A "100 Continue" that is being written ends, too, and the connection with it.)
void Connection::GiveUpReading() {
  gave_up_ = true;
  transport_.Cancel();
}

void Connection::OnGivenUp() {
  body_.reset();
  Enter(State::kAsking, patience_->answer);
  events_->on_request(this, Status::kRequestTimeout);
}

void Connection::OnBytes(size_t bytes) {
  heads_.Filled(bytes);
  if (state_ == State::kBody) return TakeBody();
  // The first head has its time from the connection on. More bytes of a head give it no more.
  if (state_ == State::kIdle) Enter(State::kReading, patience_->request);
  TakeHead();
}

void Connection::TakeHead() {
  std::optional<HeadReader::Result> head = heads_.Next();
  if (!head) return ReadMore();
  Enter(State::kAsking, patience_->answer);
  if (Head* const good = std::get_if<Head>(&*head)) {
    good->request.peer = peer_;
    good->request.certificate = transport_.certificate();
    is_1_1_ = good->request.is_1_1;
  }
  events_->on_head(this, *std::move(head));
}

void Connection::ReadBody(Head head, size_t bytes_max) {
  BodyReader reader(head, bytes_max);
  body_keep_alive_ = head.keep_alive;
  body_.emplace(Body{std::move(head), std::move(reader)});
  Enter(State::kBody, patience_->body);
  if (!AsksToGoOn()) return TakeBody();
  written_ = 0;
  WriteGoOn();
}

// Not of a body that is refused already, whose client gets that answer, nor of one that is on its way.
bool Connection::AsksToGoOn() const {
  const Request& request = body_->head.request;
  const std::string_view expected = request.Header("expect").value_or("");
  return request.is_1_1 && body_->reader.status() == Status::kOk && !heads_.begun() &&
         absl::EqualsIgnoreCase({expected.data(), expected.size()}, "100-continue");
}

// The body is read behind it, so that nothing else is written meanwhile. It has the body's time.
void Connection::WriteGoOn() {
  transport_.WriteSome(kGoOn.substr(written_), "",
                       [self = shared_from_this()](bool ok, size_t bytes) {
                         if (!self->transport_.is_open()) return;
                         if (!ok) return self->End();
                         self->events_->on_sent(bytes);
                         self->written_ += bytes;
                         self->written_ < kGoOn.size() ? self->WriteGoOn() : self->TakeBody();
                       });
}

// The whole body has one time limit: more bytes of it give it no more.
void Connection::TakeBody() {
  heads_.Drop(body_->reader.Read(heads_.rest()));
  // What is read again of a chunk's head has to end within the buffer.
  const bool stuck = heads_.Room().empty();
  if (body_->reader.status() == Status::kOk && !body_->reader.done() && !stuck) {
    SetBodyBytes(body_->reader.bytes());
    if (transport_.is_open()) ReadMore();
    return;
  }
  SetBodyBytes(body_->reader.bytes());
  if (!transport_.is_open()) return;
  std::variant<Request, Status> result = body_->reader.status();
  if (body_->reader.done()) {
    body_->head.request.body = body_->reader.Take();
    result = std::move(body_->head.request);
  } else if (body_->reader.status() == Status::kOk) {
    result = Status::kBadRequest;
  }
  body_.reset();
  Enter(State::kAsking, patience_->answer);
  events_->on_request(this, std::move(result));
}

void Connection::SetBodyBytes(size_t bytes) {
  const size_t before = std::exchange(body_bytes_, bytes);
  if (before != bytes) events_->on_body_bytes(before, bytes);
}

void Connection::Ask() {
  ++asked_;
  probe_at_.reset();
  WatchEnd();
}

void Connection::BePatient() {
  if (state_ == State::kAsking) deadline_ = SteadyTime::max();
}

// Bytes of a next request are left where they are, and end the watch.
void Connection::WatchEnd() {
  if (eof_ || std::exchange(watching_, true)) return;
  transport_.WaitForBytes([self = shared_from_this()](bool ok, size_t) {
    if (!self->transport_.is_open()) return;
    self->watching_ = false;
    if (self->gave_up_) return;
    if (!ok) return self->End();
    self->OnReadable();
  });
}

void Connection::OnReadable() {
  if (state_ != State::kAsking && state_ != State::kStreaming) return;
  switch (transport_.Look()) {
    case Transport::Sight::kBytes:
      return;
    case Transport::Sight::kNothing:
      return WatchEnd();
    case Transport::Sight::kBroken:
      return End();
    case Transport::Sight::kEnd:
      eof_ = true;
      events_->on_eof(this);
  }
}

bool Connection::HasGone(SteadyTime now) {
  if (state_ != State::kAsking || watching_) return false;
  const int descriptor = transport_.descriptor();
  // Bytes of a next request have ended the watch, and the client's end may have come behind them.
  if (!eof_ && !Polls(descriptor, POLLRDHUP)) return false;
  if (Polls(descriptor, 0)) return true;  // It has reset the connection.
  if (!probe_at_) probe_at_ = now + kProbeAfter;
  if (now < *probe_at_ || !is_1_1_) return false;
  probe_at_ = now + patience_->silence;
  const int64_t sent = transport_.WriteNow(kGoOn);
  if (sent > 0) events_->on_sent(static_cast<size_t>(sent));
  return sent == Transport::kNoUse;
}

// ---- writing ----

void Connection::Answer(Response response, bool keep_alive, bool with_body) {
  SetBodyBytes(0);
  // (What HEAD asks for may have no length.)
  const bool sized = with_body || response.body != nullptr;
  head_ = HeadText(response, keep_alive, sized ? Framing::kLength : Framing::kClose);
  tail_ = with_body ? std::move(response.body) : nullptr;
  keep_alive_ = keep_alive;
  written_ = 0;
  unread_bytes_ = tail_ == nullptr ? 0 : tail_->size();
  Enter(State::kWriting, patience_->stall);
  write_by_ = moved_at_ + patience_->answer;
  Write();
}

void Connection::Stream(const Response& head, bool chunked, StreamPtr stream) {
  SetBodyBytes(0);
  stream_ = std::move(stream);
  chunked_ = chunked;
  // So that a client that does not read is noticed sooner.
  transport_.BoundUnsent(kStreamSendBytes);
  head_ = HeadText(head, /*keep_alive=*/false, chunked ? Framing::kChunked : Framing::kClose);
  tail_ = nullptr;
  written_ = 0;
  Enter(State::kStreaming, patience_->stall);
  Write();
  WatchEnd();
}

void Connection::Pump() {
  if (writing_ || state_ != State::kStreaming) return;
  bool ended = false;
  const std::string events = stream_->Take(&ended);
  head_.clear();
  if (!events.empty()) head_ = chunked_ ? Chunk(events) : events;
  if (ended && chunked_) head_ += kLastChunk;
  last_ = ended;
  if (head_.empty()) {
    if (ended) return Linger();
    return Enter(State::kStreaming, SteadyTime::duration::max());
  }
  has_sent_ = has_sent_ || !events.empty();
  written_ = 0;
  Enter(State::kStreaming, patience_->stall);
  Write();
}

void Connection::WriteComment() {
  if (writing_ || state_ != State::kStreaming) return;
  head_ = chunked_ ? Chunk(kComment) : kComment;
  written_ = 0;
  Enter(State::kStreaming, patience_->stall);
  Write();
}

void Connection::Write() {
  const std::string_view tail = tail_ == nullptr ? std::string_view() : *tail_;
  const size_t of_head = std::min(written_, head_.size());
  writing_ = true;
  transport_.WriteSome(std::string_view(head_).substr(of_head), tail.substr(written_ - of_head),
                       [self = shared_from_this()](bool ok, size_t bytes) {
                         if (!self->transport_.is_open()) return;
                         self->writing_ = false;
                         if (!ok) return self->End();
                         self->OnWritten(bytes);
                       });
}

void Connection::OnWritten(size_t bytes) {
  written_ += bytes;
  events_->on_sent(bytes);
  const bool answers = state_ == State::kWriting;
  Enter(state_, patience_->stall);
  if (answers) deadline_ = std::min(deadline_, write_by_);
  if (written_ < head_.size() + (tail_ == nullptr ? 0 : tail_->size())) return Write();
  answers ? OnAnswerWritten() : OnChunkWritten();
}

void Connection::OnAnswerWritten() {
  events_->on_read(this);
  unread_bytes_ = 0;
  tail_ = nullptr;
  if (!keep_alive_) return Linger();
  // Requests may have come one behind the other.
  Enter(heads_.begun() ? State::kReading : State::kIdle,
        heads_.begun() ? patience_->request : patience_->idle);
  TakeHead();
}

void Connection::OnChunkWritten() {
  if (last_) return Linger();
  Pump();
  if (writing_ || state_ != State::kStreaming || !std::exchange(has_sent_, false)) return;
  // It may send more within.
  const StreamPtr stream = stream_;
  stream->Drained();
}

// To close at once would reset the connection if the client still sends, and what it was answered
// might never reach it.
void Connection::Linger() {
  transport_.EndWriting(shared_from_this());
  Enter(State::kLingering, kLinger);
  heads_ = HeadReader();
  Drain();
}

void Connection::Drain() {
  transport_.Discard(heads_.Room(), [self = shared_from_this()](bool ok, size_t) {
    if (!self->transport_.is_open()) return;
    if (!ok) return self->End();
    self->Drain();
  });
}

}  // namespace semaphored::http
