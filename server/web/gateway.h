// Calls of the daemon's own API from within the daemon: what HTTP asks for goes to the handlers that gRPC has, by
// gRPC's channel within a process. So there is one of each handler, check, limit, count and line of the audit log.
//
// A loop of its own, one thread, carries the calls; JSON is read and written on it, not where the handlers run.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/access/access.h"
#include "server/base/clock.h"
#include "server/rpc/reactor.h"

namespace semaphored::web {

// Who calls, and from where: what the handlers find out of a call of gRPC by itself.
struct Visitor {
  std::string peer;  // "ipv4:192.0.2.1:4711".
  // Of the connection, as TLS has verified it; null: none was shown.
  std::shared_ptr<const CertificateNames> certificate = nullptr;
  std::vector<std::string> authorization = {};  // "Bearer …"; of a request that shows none: empty.
  std::string traceparent = {};                 // May be empty.
  std::string cookie = {};                      // Stands for the token; empty: none does.
};

// A call that is under way.
class GatewayCall {
 public:
  virtual ~GatewayCall() = default;
  // Its client has gone: it ends soon, with CANCELLED. Any thread.
  virtual void Cancel() = 0;
  // Of a stream: its last message has been dealt with, and the next one, or its end, is to be read. Without effect while
  // that is being read. The gateway's thread.
  virtual void ReadOn() {}
};
using GatewayCallPtr = std::shared_ptr<GatewayCall>;

class Gateway {
 public:
  using OnAnswer = std::function<void(const grpc::Status&, grpc::ByteBuffer)>;
  struct StreamEvents {
    // One more message. The next is read once ReadOn() has been called.
    std::function<void(grpc::ByteBuffer)> on_message;
    std::function<void(const grpc::Status&)> on_end;  // Once, at last.
  };

  // `inside_key`: AccessControl::inside_key of the server that is to be called. The clock outlives it.
  Gateway(const Clock* clock, std::string inside_key);
  // Stop().
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // The server accepts calls, by this channel.
  void Open(std::shared_ptr<grpc::Channel> channel);
  // False: it does not accept calls yet, or no more.
  bool is_open() const;
  // Begins no more calls from when this returns; those under way go on. Not on the gateway's thread.
  void Close();
  // Cancels what is under way, waits for its end, and ends the thread.
  void Stop();

  // Any thread: the task runs on the gateway's, in the order of posting.
  void Post(Reactor::Task task) { reactor_.Post(std::move(task)); }
  Reactor* reactor() { return &reactor_; }

  // On the gateway's thread; what is called back is, too, never within. `method`: "Acquire". `timeout`: of the whole call.
  // Null: it is not open, and nothing is called back.
  GatewayCallPtr Call(const std::string& method, const Visitor& visitor,
                      std::optional<Milliseconds> timeout, const grpc::ByteBuffer& request,
                      OnAnswer on_answer);
  GatewayCallPtr CallStream(const std::string& method, const Visitor& visitor,
                            std::optional<Milliseconds> timeout, const grpc::ByteBuffer& request,
                            StreamEvents events);

 private:
  class Unary;
  class Streaming;

  bool IsReady();
  void Fill(const Visitor& visitor, std::optional<Milliseconds> timeout,
            grpc::ClientContext* context) const;
  void Began(GatewayCallPtr call);
  void Ended(const GatewayCall* call);

  const std::string inside_key_;
  Reactor reactor_;
  mutable std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;                         // Guarded by mutex_.
  std::unique_ptr<grpc::GenericStub> stub_;                        // The thread's.
  absl::flat_hash_map<const GatewayCall*, GatewayCallPtr> calls_;  // Under way; the thread's.
  bool stopping_ = false;                                          // The thread's.
  std::thread thread_;
};

}  // namespace semaphored::web
