#include "server/http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace semaphored::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

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

Connection::Connection(uint64_t number, tcp::socket socket, net::ip::address address,
                       std::string peer, const Clock* clock, const Patience* patience,
                       const Events* events)
    : number_(number),
      socket_(std::move(socket)),
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

void Connection::Shut() {
  error_code ignored;
  socket_.close(ignored);
}

// ---- reading ----

void Connection::ReadMore() {
  const std::span<char> room = heads_.Room();
  socket_.async_read_some(net::buffer(room.data(), room.size()),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            if (!self->socket_.is_open()) return;
                            if (self->gave_up_) return self->OnGivenUp();
                            if (error) return self->End();
                            self->OnBytes(bytes);
                          });
}

// (A "100 Continue" that is being written ends, too, and the connection with it.)
void Connection::GiveUpReading() {
  gave_up_ = true;
  error_code ignored;
  socket_.cancel(ignored);
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
    is_1_1_ = good->request.is_1_1;
  }
  events_->on_head(this, *std::move(head));
}

void Connection::ReadBody(Head head, size_t bytes_max) {
  BodyReader reader(head, bytes_max);
  body_keep_alive_ = head.keep_alive;
  body_.emplace(Body{std::move(head), std::move(reader)});
  Enter(State::kBody, patience_->body);
  AsksToGoOn() ? WriteGoOn() : TakeBody();
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
  net::async_write(socket_, net::buffer(kGoOn.data(), kGoOn.size()),
                   [self = shared_from_this()](const error_code& error, size_t bytes) {
                     if (!self->socket_.is_open()) return;
                     if (error) return self->End();
                     self->events_->on_sent(bytes);
                     self->TakeBody();
                   });
}

// The whole body has one time limit: more bytes of it give it no more.
void Connection::TakeBody() {
  heads_.Drop(body_->reader.Read(heads_.rest()));
  // What is read again of a chunk's head has to end within the buffer.
  const bool stuck = heads_.Room().empty();
  if (body_->reader.status() == Status::kOk && !body_->reader.done() && !stuck) {
    SetBodyBytes(body_->reader.bytes());
    if (socket_.is_open()) ReadMore();
    return;
  }
  SetBodyBytes(body_->reader.bytes());
  if (!socket_.is_open()) return;
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
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
    if (!self->socket_.is_open()) return;
    self->watching_ = false;
    if (self->gave_up_) return;
    if (error) return self->End();
    self->OnReadable();
  });
}

void Connection::OnReadable() {
  if (state_ != State::kAsking && state_ != State::kStreaming) return;
  char byte = 0;
  const ssize_t got = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return WatchEnd();
  if (got < 0) return End();
  eof_ = true;
  events_->on_eof(this);
}

bool Connection::HasGone(SteadyTime now) {
  if (state_ != State::kAsking || watching_) return false;
  const int descriptor = socket_.native_handle();
  // Bytes of a next request have ended the watch, and the client's end may have come behind them.
  if (!eof_ && !Polls(descriptor, POLLRDHUP)) return false;
  if (Polls(descriptor, 0)) return true;  // It has reset the connection.
  if (!probe_at_) probe_at_ = now + kProbeAfter;
  if (now < *probe_at_ || !is_1_1_) return false;
  probe_at_ = now + patience_->silence;
  const ssize_t sent = send(descriptor, kGoOn.data(), kGoOn.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno != EAGAIN;
  events_->on_sent(static_cast<size_t>(sent));
  return sent != static_cast<ssize_t>(kGoOn.size());
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
  error_code ignored;
  socket_.set_option(net::socket_base::send_buffer_size(kStreamSendBytes), ignored);
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
  const std::array<net::const_buffer, 2> rest = {
      net::buffer(head_) + of_head, net::buffer(tail.data(), tail.size()) + (written_ - of_head)};
  writing_ = true;
  socket_.async_write_some(rest,
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             if (!self->socket_.is_open()) return;
                             self->writing_ = false;
                             if (error) return self->End();
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
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  Enter(State::kLingering, kLinger);
  heads_ = HeadReader();
  Drain();
}

void Connection::Drain() {
  const std::span<char> room = heads_.Room();
  socket_.async_read_some(net::buffer(room.data(), room.size()),
                          [self = shared_from_this()](const error_code& error, size_t) {
                            if (!self->socket_.is_open()) return;
                            if (error) return self->End();
                            self->Drain();
                          });
}

}  // namespace semaphored::http
