// The gRPC side of the daemon: one reactor thread, a port, and the calls that come in.
//
//   Server server(…); server.Bind(); build Host and Sessions on server.reactor(); server.Run(); …
//   server.Listen(); … server.Stop(…)
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/guard/guard.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/environment.h"
#include "server/rpc/listener.h"
#include "server/rpc/standard_call.h"

namespace semaphored {

struct ServerOptions {
  std::string listen =
      "127.0.0.1:7420";  // HOST:PORT, [HOST]:PORT or unix:PATH. Port 0: any free one.
  std::string node_id;   // Shown to clients that ask.
  bool health = true;
  bool reflection = true;
  int64_t keepalive_interval_ms = 10'000;
  int64_t keepalive_timeout_ms = 5'000;
  int message_bytes_max = 4 << 20;
  // Connections at once; see ListenerOptions.
  size_t connections_max = 100'000;
  size_t other_descriptors = 256;
  int connection_calls_max = 100'000;  // Calls and streams at once on one connection.
  // For a new connection to become one of HTTP/2, by which the handshake of TLS has to be done.
  int64_t handshake_timeout_ms = 10'000;
  // What gRPC keeps of connections and calls, messages half received among them. Near it, gRPC
  // takes in more slowly and cuts off calls.
  uint64_t connections_bytes_max = 1 << 30;
  // Connections pass a guard before gRPC sees them; always so with TLS.
  bool guard = false;
  const guard::Tls* tls = nullptr;  // Null: connections are not encrypted. It outlives the server.
  std::shared_ptr<const AccessPolicy> access;  // Null: all may do all.
  AuditLog* audit = nullptr;                   // Null: none. It outlives the server.
  std::string inside_key;                      // AccessControl::inside_key.
  Milliseconds client_retention{3'600'000};    // For how long the engine remembers client ids.
  ServiceLimits limits;
};

// Used by one thread, but for what says otherwise.
class Server {
 public:
  // The clock outlives it.
  Server(const Clock* clock, ServerOptions options);
  // REQUIRES: Stop() has been called, if Run() was.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Reactor* reactor() { return reactor_.get(); }

  // The way to this server from within the process. Between Listen() and Stop().
  std::shared_ptr<grpc::Channel> ChannelWithin();

  // Both outlive the server's Stop(). Before Run().
  void Serve(Host* host, Sessions* sessions);

  // Starts the reactor's thread.
  void Run();

  // Opens the port, so that no other process has it, and closes what comes in. UNAVAILABLE: the
  // address cannot be listened on.
  absl::Status Bind();
  // Begins to accept calls; opens the port unless Bind() has. Errors: Bind()'s. After Run().
  absl::Status Listen();
  // What the calls have counted. On the reactor's thread, after Serve().
  Environment& environment() { return environment_; }

  // Checks callers by this policy from now on, also on open streams. Any thread, until Stop().
  // Vouching has ended or begun again: Sessions, and the watchers of health, learn of it. Any thread.
  void OnVouchChange();
  void SetAccess(std::shared_ptr<const AccessPolicy> access);

  // HOST:PORT as it is, with the port that was chosen. After Bind().
  const std::string& address() const { return listener_->address(); }
  // Zeros: there is no guard. Any thread, between Listen() and Stop().
  GuardFigures guard_figures() const;
  // Any thread, between Bind() and Stop().
  ConnectionLimit connection_limit() const;

  // For requests from now on. Those under way, and connections, keep what they began with. Any
  // thread, between Run() and Stop().
  void SetLimits(const ServiceLimits& limits);

  // Health becomes NOT_SERVING, and Sessions shuts down, which ends the streams. Calls under way are finished for at most
  // `grace`, and then cut off. Returns when the reactor's thread has ended: at most a little after `grace`. `before_cut`
  // runs on the calling thread before calls are cut off: once it has returned, no call may begin by
  // InProcessChannel(): gRPC would call a null pointer.
  void Stop(Milliseconds grace, const std::function<void()>& before_cut = nullptr);

 private:
  void SetArguments(grpc::ServerBuilder* builder) const;
  void StartAccepting();
  bool guarded() const { return options_.guard || options_.tls != nullptr; }
  void FlushDirty();

  ServerOptions options_;
  grpc::ServerBuilder builder_;
  std::unique_ptr<Reactor> reactor_;
  AsyncService service_;
  StandardServices standard_;
  Environment environment_;
  std::vector<Flushable*> flushing_;
  std::vector<std::unique_ptr<AnyAcceptor>> acceptors_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
  // Where connections go, by way of the guard if there is one.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<guard::Guard> guard_;
  std::shared_ptr<std::promise<void>> all_ended_;  // The reactor's, while the server is stopping.
  std::thread thread_;
};

}  // namespace semaphored
