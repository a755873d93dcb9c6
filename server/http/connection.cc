#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>

namespace semaphored::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;

// For a client to hear that it was refused, before the connection ends under what it still sends.
constexpr Milliseconds kLinger{1'000};

}  // namespace

Connection::Connection(uint64_t number, tcp::socket socket, net::ip::address address,
                       const Clock* clock, const Patience* patience, const Events* events)
    : number_(number),
      socket_(std::move(socket)),
      address_(std::move(address)),
      clock_(clock),
      patience_(patience),
      events_(events),
      moved_at_(clock->Now()),
      deadline_(moved_at_ + patience->request) {}

void Connection::Enter(State state, SteadyTime::duration patience) {
  state_ = state;
  moved_at_ = clock_->Now();
  deadline_ = moved_at_ + patience;
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
                            if (error) return self->End();
                            self->OnBytes(bytes);
                          });
}

void Connection::OnBytes(size_t bytes) {
  heads_.Filled(bytes);
  // The first head has its time from the connection on. More bytes of a head give it no more.
  if (state_ == State::kIdle) Enter(State::kReading, patience_->request);
  TakeHead();
}

void Connection::TakeHead() {
  std::optional<HeadReader::Result> head = heads_.Next();
  if (!head) return ReadMore();
  Enter(State::kAsking, patience_->answer);
  events_->on_head(this, *std::move(head));
}

// ---- writing ----

void Connection::Answer(Response response, bool keep_alive, bool with_body) {
  head_ = HeadText(response, keep_alive);
  body_ = with_body ? std::move(response.body) : nullptr;
  keep_alive_ = keep_alive;
  written_ = 0;
  unread_bytes_ = body_ == nullptr ? 0 : body_->size();
  Enter(State::kWriting, patience_->stall);
  write_by_ = moved_at_ + patience_->answer;
  Write();
}

void Connection::Write() {
  const std::string_view body = body_ == nullptr ? std::string_view() : *body_;
  const size_t of_head = std::min(written_, head_.size());
  const std::array<net::const_buffer, 2> rest = {
      net::buffer(head_) + of_head, net::buffer(body.data(), body.size()) + (written_ - of_head)};
  socket_.async_write_some(rest,
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             if (!self->socket_.is_open()) return;
                             if (error) return self->End();
                             self->OnWritten(bytes);
                           });
}

void Connection::OnWritten(size_t bytes) {
  written_ += bytes;
  events_->on_sent(bytes);
  Enter(State::kWriting, patience_->stall);
  deadline_ = std::min(deadline_, write_by_);
  if (written_ < head_.size() + unread_bytes_) return Write();
  events_->on_read(this);
  unread_bytes_ = 0;
  body_ = nullptr;
  if (!keep_alive_) return Linger();
  // Requests may have come one behind the other.
  Enter(heads_.begun() ? State::kReading : State::kIdle,
        heads_.begun() ? patience_->request : patience_->idle);
  TakeHead();
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
