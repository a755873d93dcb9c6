// One connection of the HTTP server: reads heads, and writes what they are answered with. It decides
// nothing; its owner does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "server/base/clock.h"
#include "server/http/head_reader.h"
#include "server/http/message.h"

namespace semaphored::http {

// Used on the thread that runs the socket's context. Held by shared pointers, as each read or write
// under way keeps it; at most one of the two is.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class State : uint8_t {
    kIdle,       // Between an answer and the next request.
    kReading,    // A head has begun, or is the first.
    kAsking,     // The owner has a head, and is to call Answer().
    kWriting,    // The answer.
    kLingering,  // The last answer has been sent, and may still be on its way.
  };
  struct Patience {
    Milliseconds request;
    Milliseconds idle;
    Milliseconds answer;
    Milliseconds stall;
  };
  // Called with the connection itself. None is called within another, nor after Shut().
  struct Events {
    std::function<void(Connection*, HeadReader::Result)> on_head;
    std::function<void(size_t bytes)> on_sent;
    std::function<void(Connection*)> on_read;  // The client has taken the answer.
    std::function<void(Connection*)> on_over;  // To be shut.
  };

  // `clock`, `patience` and `events` outlive it.
  Connection(uint64_t number, boost::asio::ip::tcp::socket socket, boost::asio::ip::address address,
             const Clock* clock, const Patience* patience, const Events* events);

  void Begin() { ReadMore(); }
  // REQUIRES: kAsking. Not `keep_alive`: it is the last answer. `with_body`: false for HEAD.
  void Answer(Response response, bool keep_alive, bool with_body);
  // At once, whatever is under way.
  void Shut();

  uint64_t number() const { return number_; }
  const boost::asio::ip::address& address() const { return address_; }
  State state() const { return state_; }
  // The last time that it got any further.
  SteadyTime moved_at() const { return moved_at_; }
  // When its owner is to shut it, if it has got no further.
  SteadyTime deadline() const { return deadline_; }
  // Of the body that is being written; 0: none is.
  size_t unread_bytes() const { return unread_bytes_; }

 private:
  void Enter(State state, SteadyTime::duration patience);
  void ReadMore();
  void OnBytes(size_t bytes);
  void TakeHead();
  void Write();
  void OnWritten(size_t bytes);
  void Linger();
  void Drain();
  void End() { events_->on_over(this); }

  const uint64_t number_;
  boost::asio::ip::tcp::socket socket_;
  const boost::asio::ip::address address_;
  const Clock* const clock_;
  const Patience* const patience_;
  const Events* const events_;
  State state_ = State::kReading;
  SteadyTime moved_at_;
  SteadyTime deadline_;
  HeadReader heads_;

  // The answer that is being written.
  std::string head_;
  std::shared_ptr<const std::string> body_;
  bool keep_alive_ = false;
  size_t written_ = 0;  // Of both.
  size_t unread_bytes_ = 0;
  SteadyTime write_by_;
};

}  // namespace semaphored::http
