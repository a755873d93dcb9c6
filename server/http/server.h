// A small HTTP/1.1 server for what is read of the daemon beside its API, and for its API as JSON; with TLS or without.
//
// One thread moves the bytes of all connections, so one that is silent, half done or does not read
// keeps no other waiting. All that a client can make it keep has a bound (ServerOptions). At the
// bound it is an old connection that goes, so that a new client always gets in. Handshakes of TLS have a thread of their
// own, guard::Door's.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/http/message.h"
#include "server/http/reply.h"

namespace semaphored::guard {
class Tls;
}

namespace semaphored::http {

// Called on the server's thread, so it must not block. The reply may be called within. A request that is never
// answered ends its connection after ServerOptions::answer_timeout, unless Reply::OnGone was called.
using Handler = std::function<void(Request request, Reply reply)>;

// What one path serves.
struct Resource {
  // What only reads is its handler.
  template <typename Function>
  // NOLINTNEXTLINE(google-explicit-constructor)
  requires std::convertible_to<Function, Handler> Resource(Function each)
      : handler(std::move(each)) {}
  Resource(Methods some, size_t bytes, Handler each)
      : methods(some), body_bytes_max(bytes), handler(std::move(each)) {}

  Methods methods = kReads;
  size_t body_bytes_max = 0;  // Of requests that are not GET or HEAD.
  Handler handler;
};
using Resources = std::map<std::string, Resource>;

struct ServerOptions {
  std::string listen;            // HOST:PORT or [HOST]:PORT, HOST a number. Port 0: any free one.
  const Clock* clock = nullptr;  // Outlives the server.
  const guard::Tls* tls = nullptr;  // Null: without TLS. Outlives the server.
  // Of TLS. As many connections as are served may be at it, or wait for it.
  Milliseconds handshake_timeout{10'000};
  // At the bound the connection that has been silent the longest is closed; of the address that has
  // the most connections.
  size_t connections_max = 256;
  Milliseconds request_timeout{
      5'000};                         // For the whole head, from the connection or its first byte.
  Milliseconds idle_timeout{60'000};  // From an answer to the next request.
  Milliseconds body_timeout{10'000};  // For all of a request's body, from its head.
  Milliseconds answer_timeout{30'000};   // For the handler; and then for the client to read it all.
  Milliseconds stall_timeout{5'000};     // For the client to read some of it.
  Milliseconds silence_timeout{15'000};  // After it a comment is written to a stream.
  // What was sent and is not acknowledged for so long: the client's machine has gone. One that sends and is sent nothing
  // is probed after it.
  Milliseconds unacknowledged_max{15'000};
  // Bodies that are being sent, all together. Beyond it the one that has moved the least lately is
  // given up, but never the last.
  size_t unread_bytes_max = 64 << 20;
  // Bodies that are being read, all together. Beyond it the one that has moved the least lately is given up.
  size_t bodies_bytes_max = 64 << 20;
  size_t stream_bytes_max = 256 << 10;  // Of one stream's events that wait to be written.
  // A connection whose handler is busy, or whose stream stands, is never closed for another: at the bound the new one
  // is refused then. One address has at most three quarters of the connections, so it cannot shut out the others.
  bool keeps_busy = false;
  // Of each request before its body is read. An answer: the request is refused with it.
  std::function<std::optional<Response>(const Request&)> check = nullptr;
  // What the server refuses by itself, before a handler or `check` has seen the request: the answer, with this status.
  // nullptr: Refusal(status), in words. On the server's thread.
  std::function<Response(Status)> refusal = nullptr;
  // Of every answer.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Why the server has ended a connection.
enum class Closed : uint8_t {
  kIdle,     // No next request has come.
  kSlow,     // The request did not come in time, or the answer was not read in time.
  kCrowded,  // There were too many others, or too much that was not read.
  kTls,      // The handshake of TLS failed, or took too long.
  kCount
};
inline constexpr auto kClosed = static_cast<size_t>(Closed::kCount);
const char* ClosedName(Closed reason);

struct ServerFigures {
  uint64_t connections = 0;                   // Now.
  uint64_t sent_bytes = 0;                    // So far, of answers with their heads.
  std::array<uint64_t, kStatuses> answers{};  // So far, by Status.
  std::array<uint64_t, kClosed> closed{};     // So far, by reason.
};

class Server {
 public:
  // Listens, and answers each path of `resources`; any other is 404. The handlers' objects outlive
  // the server. UNAVAILABLE: the address cannot be listened on, with why.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       Resources resources);
  // Stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Accepts no more, and lets what is being written leave, for at most `grace`. Then ends all connections, whatever
  // they are about, and the thread. Waits for a handler that runs, and for nothing else. No handler is called
  // afterwards. Not the server's own thread.
  void Stop(Milliseconds grace = Milliseconds(0));

  // HOST:PORT as it is, with the port that was chosen.
  const std::string& address() const;
  // Any thread.
  ServerFigures figures() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace semaphored::http
