#include "tests/service/service_world.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <future>
#include <stdexcept>
#include <thread>

#include "adapters/steady_clock.h"

namespace semaphored::test {
namespace {

// What cannot fail in a test unless the test is broken.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

ledger::LedgerOptions LaneOptionsOf(NodeRef self, const Clock* clock, Host* host) {
  ledger::LedgerOptions options;
  options.self = self;
  options.now_unix_ms = [clock] { return clock->NowUnixMs(); };
  options.now = [clock] { return clock->Now(); };
  options.watched = host->watched();
  return options;
}

const char* CodeName(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return "OK";
    case grpc::StatusCode::CANCELLED:
      return "CANCELLED";
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case grpc::StatusCode::NOT_FOUND:
      return "NOT_FOUND";
    case grpc::StatusCode::ALREADY_EXISTS:
      return "ALREADY_EXISTS";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case grpc::StatusCode::FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case grpc::StatusCode::ABORTED:
      return "ABORTED";
    case grpc::StatusCode::UNAVAILABLE:
      return "UNAVAILABLE";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    default:
      return "another code";
  }
}

}  // namespace

World::World(ServerOptions options, const Wrap& wrap) {
  engine_ = Must(OpenEngine("sqlite::memory:"));
  const NodeRef self = Must(engine_->nodes().Join("test"));
  options.listen = "127.0.0.1:0";
  server_ = std::make_unique<Server>(&clock_, options);
  Host::Options host;
  host.guarantees = engine_->guarantees();
  host.vouch_until = [this] { return vouch_ ? SteadyTime::max() : SteadyTime::min(); };
  host_ = std::make_unique<Host>(server_->reactor(), std::move(host));
  std::unique_ptr<Adapter> adapter =
      Must(engine_->OpenLane(LaneOptionsOf(self, &clock_, host_.get())));
  host_->AddLane(wrap ? wrap(std::move(adapter)) : std::move(adapter));
  sessions_ = MakeSessions(host_.get(), SessionsOptions{});
  host_->SetSessions(sessions_.get());
  server_->Serve(host_.get(), sessions_.get());
  server_->Run();
  if (absl::Status status = server_->Listen(); !status.ok())
    throw std::runtime_error(status.ToString());
  channel_ = Connect();
  stub_ = pb::SemaphoreService::NewStub(channel_);
}

World::~World() {
  server_->Stop(Milliseconds(0));
  host_->StopLanes();
  sessions_.reset();
  host_.reset();
}

std::shared_ptr<grpc::Channel> World::Connect() const {
  grpc::ChannelArguments arguments;
  // A pool of its own: otherwise all channels of the process share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

void World::Leap(Milliseconds by) {
  clock_.Leap(by);
  server_->reactor()->Post([] {});
}

void World::SetAccess(std::shared_ptr<const AccessPolicy> access) {
  server_->SetAccess(std::move(access));
  std::promise<void> in_force;
  server_->reactor()->Post([&in_force] { in_force.set_value(); });
  in_force.get_future().wait();
}

void World::Vouch(bool vouch) {
  vouch_ = vouch;
  server_->OnVouchChange();
}

pb::AcquireRequest World::Request(const std::string& semaphore, uint32_t limit, int64_t wait_ms) {
  pb::AcquireRequest request;
  request.set_semaphore(semaphore);
  request.set_limit(limit);
  request.set_wait_forever(wait_ms < 0);
  if (wait_ms > 0) request.set_wait_ms(static_cast<uint32_t>(wait_ms));
  return request;
}

pb::Lease World::MustAcquire(const std::string& semaphore, uint32_t limit) {
  Context context;
  pb::AcquireResponse response;
  const grpc::Status status = stub_->Acquire(&context, Request(semaphore, limit), &response);
  if (!status.ok()) throw std::runtime_error("acquire: " + status.error_message());
  return response.lease();
}

uint32_t World::Release(const pb::Lease& lease) {
  Context context;
  pb::ReleaseRequest request;
  request.set_lease_id(lease.lease_id());
  pb::ReleaseResponse response;
  const grpc::Status status = stub_->Release(&context, request, &response);
  if (!status.ok()) throw std::runtime_error("release: " + status.error_message());
  return response.released();
}

grpc::Status World::Administer(const pb::AdministerRequest& request,
                               pb::AdministerResponse* response) {
  Context context;
  response->Clear();
  return stub_->Administer(&context, request, response);
}

pb::DescribeSemaphoreResult World::DescribeAll(const std::string& semaphore) {
  pb::AdministerRequest request;
  request.set_semaphore(semaphore);
  request.mutable_describe();
  pb::AdministerResponse response;
  const grpc::Status status = Administer(request, &response);
  if (!status.ok()) throw std::runtime_error("describe: " + status.error_message());
  return response.describe();
}

pb::SemaphoreInfo World::Describe(const std::string& semaphore) {
  return DescribeAll(semaphore).semaphore();
}

bool World::Becomes(const std::string& semaphore,
                    const std::function<bool(const pb::SemaphoreInfo&)>& holds) {
  const auto until = SteadyClock::now() + kPatience;
  while (SteadyClock::now() < until) {
    if (holds(Describe(semaphore))) return true;
    std::this_thread::yield();
  }
  return false;
}

Error ErrorOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return {};
  return ErrorOf(details);
}

Error ErrorOf(const google::rpc::Status& details) {
  google::rpc::ErrorInfo info;
  if (details.details_size() < 1 || !details.details(0).UnpackTo(&info)) return {};
  const auto value = [&](const char* key) {
    const auto found = info.metadata().find(key);
    return found == info.metadata().end() ? std::string() : found->second;
  };
  Error error{info.reason(), info.domain(), value("semaphore"), value("adapter")};
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&bad)) error.field = bad.field_violations(0).field();
    if (detail.UnpackTo(&retry))
      error.retry_ms =
          retry.retry_delay().seconds() * 1'000 + retry.retry_delay().nanos() / 1'000'000;
  }
  return error;
}

std::string Say(const grpc::Status& status) {
  const std::string reason = ErrorOf(status).reason;
  return reason.empty() ? CodeName(status.error_code())
                        : CodeName(status.error_code()) + (" " + reason);
}

}  // namespace semaphored::test
