// One connection of the HTTP server: reads requests, and writes what they are answered with. It decides
// nothing; its owner does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <boost/asio/ip/address.hpp>

#include "server/base/clock.h"
#include "server/http/head_reader.h"
#include "server/http/message.h"
#include "server/http/reply.h"
#include "server/http/transport.h"

namespace semaphored::http {

// Used on the thread that runs the socket's context. Held by shared pointers, as each operation under
// way keeps it: at most one that reads or waits for bytes, and one that writes.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class State : uint8_t {
    kIdle,       // Between an answer and the next request.
    kReading,    // A head has begun, or is the first.
    kBody,       // The head was taken, and its body is on its way.
    kAsking,     // The owner has a request, and is to call Answer() or Begin().
    kWriting,    // The answer.
    kStreaming,  // The answer is a stream that has not ended.
    kLingering,  // The last answer has been sent, and may still be on its way.
  };
  struct Patience {
    Milliseconds request;
    Milliseconds body;
    Milliseconds idle;
    Milliseconds answer;
    Milliseconds stall;
    Milliseconds silence;  // Of a stream: after it a comment is written.
  };
  // Called with the connection itself; never after Shut(). on_body_bytes and on_request may be called within
  // ReadBody().
  struct Events {
    // The owner calls ReadBody(), Ask(), Answer() or Begin().
    std::function<void(Connection*, HeadReader::Result)> on_head;
    // As above, but ReadBody(). A status: the body is bad, or too large.
    std::function<void(Connection*, std::variant<Request, Status>)> on_request;
    std::function<void(size_t before, size_t now)> on_body_bytes;  // Of body_bytes().
    std::function<void(size_t bytes)> on_sent;
    std::function<void(Connection*)> on_read;  // The client has taken the answer.
    std::function<void(Connection*)> on_eof;   // It will send no more; once.
    std::function<void(Connection*)> on_over;  // To be shut.
  };

  // `clock`, `patience` and `events` outlive it.
  Connection(uint64_t number, Transport transport, boost::asio::ip::address address,
             std::string peer, const Clock* clock, const Patience* patience, const Events* events);

  void Begin() { TakeHead(); }
  // REQUIRES: within on_head, of a head with a body of at most `bytes_max`.
  void ReadBody(Head head, size_t bytes_max);
  // The request is too slow: reads no more, and calls on_request with kRequestTimeout. REQUIRES: kReading or kBody.
  void GiveUpReading();
  // The request is with its handler, from now on. `is_patient`: there is no time limit for the answer.
  void Ask();
  void BePatient();
  // The handler keeps the body no more.
  void DropBody() { SetBodyBytes(0); }
  // REQUIRES: Ask() was called, or within on_head or on_request. Not `keep_alive`: it is the last answer.
  // `with_body`: false for HEAD.
  void Answer(Response response, bool keep_alive, bool with_body);
  // As Answer(), with the stream's events for a body.
  void Stream(const Response& head, bool chunked, StreamPtr stream);
  // The stream may have more. REQUIRES: kStreaming.
  void Pump();
  // The stream has been silent: shows whether the connection still stands.
  void WriteComment();
  // At once, whatever is under way.
  void Shut();

  uint64_t number() const { return number_; }
  const boost::asio::ip::address& address() const { return address_; }
  const std::string& peer() const { return peer_; }
  State state() const { return state_; }
  // Some of a request has come, and not all.
  bool has_begun() const { return heads_.begun() || body_.has_value(); }
  // How many requests have been with a handler.
  uint64_t asked() const { return asked_; }
  // The last time that it got any further.
  SteadyTime moved_at() const { return moved_at_; }
  // When its owner is to shut it, if it has got no further.
  SteadyTime deadline() const { return deadline_; }
  // Of the body that is being written; 0: none is.
  size_t unread_bytes() const { return unread_bytes_; }
  // Of the request's body: what of it has come, and all of it until the request is answered.
  size_t body_bytes() const { return body_bytes_; }
  // Of the last request that had a body: as its client wants it.
  bool body_keep_alive() const { return body_keep_alive_; }
  bool ended_by_client() const { return eof_; }
  // With a handler: the client has gone. One that has only said that it sends no more may wait for its answer: now and then
  // a "100 Continue" is written to it, which one that has gone refuses. HTTP/1.0 has none: there the system's probes notice it.
  bool HasGone(SteadyTime now);
  const StreamPtr& stream() const { return stream_; }
  // A stream whose events have all been written, since when.
  bool is_silent(SteadyTime now) const {
    return state_ == State::kStreaming && !writing_ && now - moved_at_ >= patience_->silence;
  }

 private:
  struct Body {
    Head head;
    BodyReader reader;
  };

  void Enter(State state, SteadyTime::duration patience);
  void ReadMore();
  void OnBytes(size_t bytes);
  void OnGivenUp();
  void TakeHead();
  // The client may keep the body back until it is asked for: "Expect: 100-continue".
  bool AsksToGoOn() const;
  void WriteGoOn();
  void TakeBody();
  void SetBodyBytes(size_t bytes);
  void WatchEnd();
  void OnReadable();
  void Write();
  void OnWritten(size_t bytes);
  void OnAnswerWritten();
  void OnChunkWritten();
  void Linger();
  void Drain();
  void End() { events_->on_over(this); }

  const uint64_t number_;
  Transport transport_;
  const boost::asio::ip::address address_;
  const std::string peer_;
  const Clock* const clock_;
  const Patience* const patience_;
  const Events* const events_;
  State state_ = State::kReading;
  SteadyTime moved_at_;
  SteadyTime deadline_;
  HeadReader heads_;
  std::optional<Body> body_;
  size_t body_bytes_ = 0;
  bool body_keep_alive_ = false;
  bool gave_up_ = false;  // What is being read ends.
  bool is_1_1_ = true;    // The request is.
  // When a client that has ended is sent the next "100 Continue"; nullopt: it is not known to have ended.
  std::optional<SteadyTime> probe_at_;
  uint64_t asked_ = 0;
  bool watching_ = false;  // For the client's end, while the owner has its request.
  bool eof_ = false;

  // What is being written: a head, and what follows it.
  bool writing_ = false;
  std::string head_;
  std::shared_ptr<const std::string> tail_;
  bool keep_alive_ = false;
  size_t written_ = 0;  // Of both.
  size_t unread_bytes_ = 0;
  SteadyTime write_by_;
  // Of a stream.
  StreamPtr stream_;
  bool chunked_ = false;
  bool last_ = false;      // The stream's end is being written.
  bool has_sent_ = false;  // Since Drained() was called.
};

}  // namespace semaphored::http
