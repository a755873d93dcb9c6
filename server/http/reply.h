// How a handler answers: at once, later, or with a stream of events.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/message.h"

namespace semaphored::http {

class Stream;
using StreamPtr = std::shared_ptr<Stream>;

// Where an answer goes: the server's side of a Reply. Any thread; none of it blocks.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void Answer(Response response) = 0;
  virtual void Begin(Response head, StreamPtr stream) = 0;
  // The stream has something to be written, or has ended.
  virtual void Pump() = 0;
  virtual void SetOnGone(std::function<void()> on_gone) = 0;
  virtual void DropBody() = 0;
};

// An answer of server-sent events. Any thread, but for what says otherwise; none of it blocks.
class Stream {
 public:
  struct Events {
    // On the server's thread: all that was sent has been handed to the system. Once after each time
    // that something was sent.
    std::function<void()> on_drained;
    // On the server's thread, once, unless End() was called before: the client has gone, or has left
    // too much unread, or the server is stopping. Nothing is called afterwards.
    std::function<void()> on_gone;
  };
  Stream(std::shared_ptr<ReplySink> sink, Events events, size_t unread_bytes_max)
      : sink_(std::move(sink)), events_(std::move(events)), unread_bytes_max_(unread_bytes_max) {}

  // One event: `data` has a line for each of its lines. False: it is not sent. The stream has ended, its
  // client has gone, or leaves more than unread_bytes_max unread; then the connection is closed.
  bool Send(std::string_view event, std::string_view data);
  // What was sent still leaves; then the answer is complete.
  void End();
  // Bytes that wait to be written.
  size_t unread() const;

 private:
  friend class Connection;
  friend class Server;

  // ---- the server's thread ----
  // What waits, which is then being written. `ended`: nothing will follow it.
  std::string Take(bool* ended);
  void Drained();
  void Gone();
  bool overflowed() const;

  const std::shared_ptr<ReplySink> sink_;
  const Events events_;
  const size_t unread_bytes_max_;
  mutable std::mutex mutex_;
  // Guarded by mutex_, as all that follows.
  std::string waiting_;
  bool pumping_ = false;  // The server knows of what waits.
  bool ended_ = false;
  bool gone_ = false;
  bool overflowed_ = false;
};

// Of one request. It may be copied; only the first answer counts. Any thread, at any time, without
// blocking: where the connection or the server has gone, it has no effect.
class Reply {
 public:
  Reply(std::shared_ptr<ReplySink> sink, size_t stream_bytes_max)
      : sink_(std::move(sink)), stream_bytes_max_(stream_bytes_max) {}

  void operator()(Response response) const { sink_->Answer(std::move(response)); }
  // The answer has `head`, and then what is sent on the stream. Of HEAD it has no more: the client has gone, then.
  StreamPtr Begin(Response head, Stream::Events events) const;
  // Called on the server's thread, once, if the client goes before it is answered; also if it has gone
  // already. One that has only ended its sending is still there: after a close it is noticed within a second. Then the
  // connection has no time limit for the answer.
  void OnGone(std::function<void()> on_gone) const { sink_->SetOnGone(std::move(on_gone)); }
  // The handler keeps the request's body no more: it counts no longer in ServerOptions::bodies_bytes_max. Without this it
  // counts until the answer.
  void DropBody() const { sink_->DropBody(); }

 private:
  std::shared_ptr<ReplySink> sink_;
  size_t stream_bytes_max_;
};

}  // namespace semaphored::http
