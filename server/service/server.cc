#include "server/service/server.h"

#include <grpc/support/time.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <future>
#include <utility>

#include "server/service/calls.h"

namespace semaphored {
namespace {

// Calls that are asked for before they come: as many as are likely to come in one turn.
constexpr int kFastSlots = 64;
constexpr int kSlowSlots = 8;

// Clients may ping as often as this, with or without calls.
constexpr int kClientPingLeastMs = 500;

// When all calls have ended, clients have so long to close their connections, which are cut then. A
// client with no call under way need not notice that it has been asked to.
constexpr Milliseconds kHangUp(100);

}  // namespace

Server::Server(const Clock* clock, ServerOptions options) : options_(std::move(options)) {
  // Ours is in standard_call.cc: gRPC's own would bring a poller of its own.
  grpc::EnableDefaultHealthCheckService(false);
  standard_.health = options_.health;
  standard_.reflection = options_.reflection;
  reactor_ = std::make_unique<Reactor>(clock, builder_.AddCompletionQueue());
}

Server::~Server() {
  if (thread_.joinable()) Stop(Milliseconds(0));
}

void Server::Serve(Host* host, Sessions* sessions) {
  environment_.reactor = reactor_.get();
  environment_.host = host;
  environment_.sessions = sessions;
  environment_.service = &service_;
  environment_.standard = &standard_;
  environment_.limits = options_.limits;
  environment_.adapter = host->guarantees().adapter;
  reactor_->SetDriver([sessions] { return sessions->OnTimer(); });
  reactor_->AtTurnEnd([this] { FlushDirty(); });
}

void Server::Run() {
  thread_ = std::thread([this] { reactor_->Run(); });
}

void Server::SetLimits(const ServiceLimits& limits) {
  reactor_->Post([this, limits] { environment_.limits = limits; });
}

void Server::SetArguments(grpc::ServerBuilder* builder) const {
  builder->SetMaxReceiveMessageSize(options_.message_bytes_max);
  // Two daemons on one port would each get some of the connections.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.connection_streams_max);
  // Half-open connections are found by pings of ours …
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                              static_cast<int>(options_.keepalive_interval_ms));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              static_cast<int>(options_.keepalive_timeout_ms));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // … and clients may find out by theirs.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kClientPingLeastMs);
}

absl::Status Server::Listen() {
  SetArguments(&builder_);
  builder_.RegisterService(&service_);
  builder_.RegisterAsyncGenericService(&standard_.generic);
  int port = 0;
  builder_.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
  server_ = builder_.BuildAndStart();
  const bool unix_socket = options_.listen.starts_with("unix:");
  if (server_ == nullptr || (port == 0 && !unix_socket)) {
    return absl::UnavailableError(
        "cannot listen on " + options_.listen +
        ": the address is in use, or not this machine's, or not permitted");
  }
  address_ = options_.listen;
  if (!unix_socket)
    address_.replace(address_.rfind(':') + 1, std::string::npos, std::to_string(port));
  reactor_->Post([this] { StartAccepting(); });
  return absl::OkStatus();
}

void Server::StartAccepting() {
  const auto accept = [this](std::unique_ptr<AnyAcceptor> acceptor, int slots) {
    acceptor->Start(slots);
    acceptors_.push_back(std::move(acceptor));
  };
  accept(AcceptAcquire(&environment_), kFastSlots);
  accept(AcceptRelease(&environment_), kFastSlots);
  accept(AcceptRenew(&environment_), kFastSlots);
  accept(AcceptVerify(&environment_), kFastSlots);
  accept(AcceptSession(&environment_), kSlowSlots);
  accept(AcceptEnqueue(&environment_), kFastSlots);
  accept(AcceptWork(&environment_), kSlowSlots);
  accept(AcceptHold(&environment_), kSlowSlots);
  accept(AcceptWatch(&environment_), kSlowSlots);
  accept(AcceptAdminister(&environment_), kSlowSlots);
  accept(AcceptStandard(&environment_), kSlowSlots);
  SetServing(&environment_, true);
}

void Server::FlushDirty() {
  flushing_.swap(environment_.dirty);
  for (Flushable* each : flushing_) each->Flush();
  flushing_.clear();
  if (environment_.stopping && environment_.calls == 0 && environment_.streams == 0) {
    if (auto ended = std::exchange(all_ended_, nullptr)) ended->set_value();
  }
}

void Server::Stop(Milliseconds grace) {
  if (!thread_.joinable()) return;
  const auto all_ended = std::make_shared<std::promise<void>>();
  reactor_->Post([this, all_ended] {
    environment_.stopping = true;
    SetServing(&environment_, false);
    environment_.sessions->Shutdown();
    all_ended_ = all_ended;
  });
  if (server_ != nullptr) {
    const bool ended = all_ended->get_future().wait_for(grace) == std::future_status::ready;
    const Milliseconds hang_up = ended ? std::min(kHangUp, grace) : Milliseconds(0);
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                   gpr_time_from_millis(hang_up.count(), GPR_TIMESPAN)));
    server_->Wait();
  }
  reactor_->Post([this] { reactor_->Close(); });
  thread_.join();
}

}  // namespace semaphored
