#include "server/rpc/server.h"

#include <grpc/support/time.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"

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

std::shared_ptr<grpc::Channel> Server::ChannelWithin() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // What this daemon answers is its own measure.
  return server_->InProcessChannel(arguments);
}

void Server::Serve(Host* host, Sessions* sessions) {
  environment_.reactor = reactor_.get();
  environment_.host = host;
  environment_.sessions = sessions;
  environment_.service = &service_;
  environment_.standard = &standard_;
  environment_.limits = options_.limits;
  environment_.access.policy = options_.access;
  environment_.access.audit = options_.audit;
  environment_.access.inside_key = options_.inside_key;
  environment_.access.clock = &reactor_->clock();
  environment_.access.client_retention = options_.client_retention;
  environment_.adapter = host->guarantees().adapter;
  environment_.node_id = options_.node_id;
  environment_.instance = host->NewId().Hex();
  reactor_->SetDriver([sessions] { return sessions->OnTimer(); });
  reactor_->AtTurnEnd([this] { FlushDirty(); });
}

void Server::SetAccess(std::shared_ptr<const AccessPolicy> access) {
  reactor_->Post([this, access = std::move(access)] {
    environment_.access.policy = access;
    if (access == nullptr) return;
    environment_.access.tenants.Renew(*access);
    absl::flat_hash_map<std::string_view, const Identity*> identities;
    for (const auto& each : access->identities()) identities.emplace(each->name(), each.get());
    environment_.sessions->Recheck(
        [&](std::string_view owner, const std::string& semaphore, bool held) {
          const auto found = identities.find(owner);
          return found != identities.end() &&
                 found->second->May(held ? kHolds : Verb::kAcquire, semaphore);
        });
    // Their answers come later.
    for (WaitingAct* const act : environment_.waiting_acts) act->OnRulesChanged();
  });
}

void Server::OnVouchChange() {
  reactor_->Post([this] {
    environment_.sessions->OnVouchChange();
    OnHealthChange(&environment_);
  });
}

void Server::Run() {
  thread_ = std::thread([this] { reactor_->Run(); });
}

void Server::SetLimits(const ServiceLimits& limits) {
  reactor_->Post([this, limits] { environment_.limits = limits; });
}

void Server::SetArguments(grpc::ServerBuilder* builder) const {
  builder->SetMaxReceiveMessageSize(options_.message_bytes_max);
  builder->SetResourceQuota(
      grpc::ResourceQuota("connections").Resize(options_.connections_bytes_max));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.connection_calls_max);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(options_.handshake_timeout_ms));
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

absl::Status Server::Bind() {
  ListenerOptions listening;
  listening.listen = options_.listen;
  listening.connections_max = options_.connections_max;
  listening.other_descriptors = options_.other_descriptors;
  listening.unacknowledged_max_ms = options_.keepalive_timeout_ms;
  if (guarded()) listening.descriptors_each = guard::Guard::kDescriptorsEach;
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Open(&reactor_->clock(), listening);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  return absl::OkStatus();
}

absl::Status Server::Listen() {
  if (listener_ == nullptr) {
    if (absl::Status status = Bind(); !status.ok()) return status;
  }
  SetArguments(&builder_);
  builder_.RegisterService(&service_);
  builder_.RegisterAsyncGenericService(&standard_.generic);
  using Experimental = grpc::ServerBuilder::experimental_type;
  connections_ = builder_.experimental().AddExternalConnectionAcceptor(
      Experimental::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  server_ = builder_.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC's server cannot be started");
  const auto join = [this](int descriptor) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = descriptor;
    connections_->HandleNewConnection(&connection);
  };
  if (guarded()) {
    guard::DoorOptions guarding;
    guarding.clock = &reactor_->clock();
    guarding.tls = options_.tls;
    guarding.handshake_timeout = Milliseconds(options_.handshake_timeout_ms);
    guarding.connections_max = static_cast<int64_t>(listener_->connections_max());
    guard_ = std::make_unique<guard::Guard>(guarding, join);
  }
  reactor_->Post([this] {
    // Before the first call is asked for: it may be known by its certificate.
    if (guard_ != nullptr) environment_.access.peers = &guard_->peers();
    StartAccepting();
  });
  if (guard_ == nullptr) {
    listener_->Start(join);
  } else {
    listener_->Start([this](int descriptor) { guard_->Take(descriptor); });
  }
  return absl::OkStatus();
}

GuardFigures Server::guard_figures() const {
  return guard_ == nullptr ? guard::NoFigures() : guard_->figures();
}

ConnectionLimit Server::connection_limit() const {
  ConnectionLimit limit;
  limit.most = listener_->connections_max();
  limit.other_descriptors = listener_->descriptors_before();
  if (guarded()) limit.descriptors_each = guard::Guard::kDescriptorsEach;
  return limit;
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
  accept(AcceptDescribeDaemon(&environment_), kSlowSlots);
  accept(AcceptStandard(&environment_), kSlowSlots);
  SetServing(&environment_, true);
}

void Server::FlushDirty() {
  flushing_.swap(environment_.dirty);
  for (Flushable* each : flushing_) each->Flush();
  flushing_.clear();
  const size_t standard_calls =
      environment_.standard_calls.size() + environment_.standard_calls_left;
  if (environment_.stopping && environment_.calls + environment_.streams + standard_calls == 0) {
    if (auto ended = std::exchange(all_ended_, nullptr)) ended->set_value();
  }
}

void Server::Stop(Milliseconds grace, const std::function<void()>& before_cut) {
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
    if (before_cut) before_cut();
    listener_->Stop();
    if (guard_ != nullptr) guard_->TakeNoMore();
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                   gpr_time_from_millis(hang_up.count(), GPR_TIMESPAN)));
    server_->Wait();
    if (guard_ != nullptr) guard_->Stop(hang_up);
  }
  reactor_->Post([this] { reactor_->Close(); });
  thread_.join();
}

}  // namespace semaphored
