// The daemon's gRPC side in one process on an embedded store in memory, and what the tests say to
// it through real stubs.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "adapters/open.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "proto/semaphore/v1/semaphore.grpc.pb.h"
#include "server/rpc/host.h"
#include "server/rpc/server.h"
#include "server/sessions/sessions.h"

namespace semaphored::test {

namespace pb = ::semaphore::v1;

// No test waits longer than this for anything; what it waits for comes in milliseconds.
inline constexpr std::chrono::seconds kPatience{20};

// The machine's clock, but for what it has leapt.
class LeapingClock : public Clock {
 public:
  SteadyTime Now() const override { return SystemClock().Now() + Milliseconds(ahead_ms_.load()); }
  int64_t NowUnixMs() const override { return SystemClock().NowUnixMs(); }
  void Leap(Milliseconds by) { ahead_ms_ += by.count(); }

 private:
  std::atomic<int64_t> ahead_ms_{0};
};

class World {
 public:
  using Wrap = std::function<std::unique_ptr<Adapter>(std::unique_ptr<Adapter>)>;
  // `wrap`, if it is given, may put another adapter before the store's.
  explicit World(ServerOptions options = {}, const Wrap& wrap = nullptr);
  ~World();

  pb::SemaphoreService::Stub& stub() { return *stub_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }
  // Another connection.
  std::shared_ptr<grpc::Channel> Connect() const;
  const std::string& address() const { return server_->address(); }

  // So much time passes for the daemon at once.
  void Leap(Milliseconds by);
  // The same, as if the machine were suspended meanwhile: nothing wakes the daemon.
  void Suspend(Milliseconds by) { clock_.Leap(by); }
  // Whether this daemon may vouch for leases from now on.
  void Vouch(bool vouch);
  // Returns when it is in force.
  void SetAccess(std::shared_ptr<const AccessPolicy> access);
  void Stop(Milliseconds grace) { server_->Stop(grace); }

  // ---- calls, in short ----
  // `wait_ms` -1: for ever.
  pb::AcquireRequest Request(const std::string& semaphore, uint32_t limit, int64_t wait_ms = 0);
  pb::Lease MustAcquire(const std::string& semaphore, uint32_t limit);
  uint32_t Release(const pb::Lease& lease);
  grpc::Status Administer(const pb::AdministerRequest& request, pb::AdministerResponse* response);
  // With the first page of its leases and waiters.
  pb::DescribeSemaphoreResult DescribeAll(const std::string& semaphore);
  pb::SemaphoreInfo Describe(const std::string& semaphore);
  // Asks again until `holds` does.
  bool Becomes(const std::string& semaphore,
               const std::function<bool(const pb::SemaphoreInfo&)>& holds);

 private:
  LeapingClock clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Sessions> sessions_;
  std::atomic<bool> vouch_{true};
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::SemaphoreService::Stub> stub_;
};

// An engine that does not answer while it is held.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;  // Guarded by mutex.
  void Hold(bool hold) {
    std::lock_guard lock(mutex);
    held = hold;
    changed.notify_all();
  }
};

class GatedAdapter final : public Adapter {
 public:
  GatedAdapter(std::unique_ptr<Adapter> adapter, Gate* gate)
      : adapter_(std::move(adapter)), gate_(gate) {}
  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    if (!batch.empty()) {
      std::unique_lock lock(gate_->mutex);
      gate_->changed.wait(lock, [&] { return !gate_->held; });
    }
    return adapter_->Step(batch, deadline);
  }
  void Wake() override { adapter_->Wake(); }

 private:
  std::unique_ptr<Adapter> adapter_;
  Gate* gate_;
};

// With a deadline of kPatience.
struct Context : grpc::ClientContext {
  Context() { set_deadline(std::chrono::system_clock::now() + kPatience); }
};

struct Error {
  std::string reason;
  std::string domain;
  std::string semaphore;
  std::string adapter;
  std::string field = {};  // The first of BadRequest.
  int64_t retry_ms = 0;    // Of RetryInfo.
};
// What the details of a status say; empty strings if they say nothing.
Error ErrorOf(const grpc::Status& status);
Error ErrorOf(const google::rpc::Status& status);  // Of a result in a stream.

// "RESOURCE_EXHAUSTED FULL": the code and the reason; "OK".
std::string Say(const grpc::Status& status);

}  // namespace semaphored::test
