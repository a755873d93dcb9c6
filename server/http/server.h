// A small HTTP/1.1 server for what is read of the daemon beside its API. It answers GET and HEAD,
// takes no bodies, and has neither encryption nor authentication.
//
// One thread moves the bytes of all connections, so one that is silent, half done or does not read
// keeps no other waiting. All that a client can make it keep has a bound (ServerOptions). At the
// bound it is an old connection that goes, so that a new client always gets in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/http/message.h"

namespace semaphored::http {

// Sends the answer. Once; from any thread, at any time, without blocking: where the connection or
// the server has gone, it has no effect. A request that is never answered ends its connection after
// ServerOptions::answer_timeout.
using Reply = absl::AnyInvocable<void(Response)>;
// Called on the server's thread, so it must not block. The reply may be called within.
using Handler = std::function<void(const Request& request, Reply reply)>;

struct ServerOptions {
  std::string listen;            // HOST:PORT or [HOST]:PORT, HOST a number. Port 0: any free one.
  const Clock* clock = nullptr;  // Outlives the server.
  // At the bound the connection that has been silent the longest is closed; of the address that has
  // the most connections.
  size_t connections_max = 256;
  Milliseconds request_timeout{
      5'000};                         // For the whole head, from the connection or its first byte.
  Milliseconds idle_timeout{60'000};  // From an answer to the next request.
  Milliseconds answer_timeout{30'000};  // For the handler; and then for the client to read it all.
  Milliseconds stall_timeout{5'000};    // For the client to read some of it.
  // Bodies that are being sent, all together. Beyond it the one that has moved the least lately is
  // given up, but never the last.
  size_t unread_bytes_max = 64 << 20;
};

// Why the server has ended a connection.
enum class Closed : uint8_t {
  kIdle,     // No next request has come.
  kSlow,     // The head did not come in time, or the answer was not read in time.
  kCrowded,  // There were too many others, or too much that was not read.
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
  // Listens, and answers each path of `handlers`; any other is 404. The handlers' objects outlive
  // the server. UNAVAILABLE: the address cannot be listened on, with why.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       std::map<std::string, Handler> handlers);
  // Stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Ends all connections, whatever they are about, and the thread. Waits for a handler that runs,
  // and for nothing else. No handler is called afterwards. Not the server's own thread.
  void Stop();

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
