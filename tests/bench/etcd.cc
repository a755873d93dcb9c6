// The peer etcd: Lock and Unlock of its lock API, N cycles outstanding. Each client has a lease of
// its own, granted before the run and longer than it.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <deque>
#include <optional>

#include "tests/bench/loop.h"
#include "tests/bench/modes.h"
#include "tests/bench/peers/etcd.pb.h"

namespace semaphored::bench {
namespace {

template <typename Request, typename Response>
using Stub = grpc::TemplatedGenericStub<Request, Response>;

struct Shared {
  Loop* loop;
  Meter* meter;
  Report* report;
  uint32_t running = 0;
  uint32_t granting = 0;
};

class Client : public Tag {
 public:
  Client(Shared* shared, const std::shared_ptr<grpc::Channel>& channel, std::string lock)
      : shared_(shared), grants_(channel), locks_(channel), unlocks_(channel) {
    lock_.set_name(std::move(lock));
  }

  void GrantLease() {
    state_ = State::kGranting;
    ++shared_->granting;
    etcd::LeaseGrantRequest request;
    request.set_ttl(3600);
    NewCall();
    granting_ = grants_.PrepareUnaryCall(&*context_, "/etcdserverpb.Lease/LeaseGrant", request,
                                         shared_->loop->queue());
    granting_->StartCall();
    granting_->Finish(&granted_, &status_, this);
  }

  void Start(TimePoint now) {
    ++shared_->running;
    Lock(now);
  }

  void Proceed(bool /*ok*/) override {
    const TimePoint now = Clock::now();
    if (!status_.ok()) {
      shared_->report->Error(Describe(status_));
      --(state_ == State::kGranting ? shared_->granting : shared_->running);
    } else if (state_ == State::kGranting) {
      lock_.set_lease(granted_.id());
      --shared_->granting;
    } else if (state_ == State::kLocking) {
      shared_->meter->Acquired(sent_, now);
      Unlock(now);
    } else {
      shared_->meter->CycleDone(sent_, now);
      if (shared_->meter->Over(now)) {
        --shared_->running;
      } else {
        Lock(now);
      }
    }
  }

  void Cancel() { context_->TryCancel(); }

 private:
  enum class State { kGranting, kLocking, kUnlocking };

  void Lock(TimePoint now) {
    state_ = State::kLocking;
    sent_ = now;
    NewCall();
    locking_ =
        locks_.PrepareUnaryCall(&*context_, "/v3lockpb.Lock/Lock", lock_, shared_->loop->queue());
    locking_->StartCall();
    locking_->Finish(&locked_, &status_, this);
  }

  void Unlock(TimePoint now) {
    state_ = State::kUnlocking;
    shared_->meter->ReleaseSent(now);
    unlock_.set_key(locked_.key());
    NewCall();
    unlocking_ = unlocks_.PrepareUnaryCall(&*context_, "/v3lockpb.Lock/Unlock", unlock_,
                                           shared_->loop->queue());
    unlocking_->StartCall();
    unlocking_->Finish(&unlocked_, &status_, this);
  }

  // A reader lives in its call's memory, so it has to go before the call does.
  void NewCall() {
    granting_.reset();
    locking_.reset();
    unlocking_.reset();
    context_.emplace();
  }

  Shared* shared_;
  Stub<etcd::LeaseGrantRequest, etcd::LeaseGrantResponse> grants_;
  Stub<etcd::LockRequest, etcd::LockResponse> locks_;
  Stub<etcd::UnlockRequest, etcd::UnlockResponse> unlocks_;
  State state_ = State::kGranting;
  etcd::LockRequest lock_;
  etcd::LockResponse locked_;
  etcd::UnlockRequest unlock_;
  etcd::UnlockResponse unlocked_;
  etcd::LeaseGrantResponse granted_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<etcd::LeaseGrantResponse>> granting_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<etcd::LockResponse>> locking_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<etcd::UnlockResponse>> unlocking_;
  grpc::Status status_;
  TimePoint sent_;
};

}  // namespace

Report RunEtcd(const Options& options) {
  Report report;
  report.title = options.contended ? "contended etcd lock" : "etcd lock";
  Meter meter(options);
  std::deque<Client> clients;
  Loop loop;
  Shared shared{&loop, &meter, &report};
  const std::string run = RunName();
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (uint32_t i = 0; i < options.streams; ++i) {
    channels.push_back(Connect(options.server, static_cast<int>(i)));
  }
  for (uint32_t i = 0; i < options.clients; ++i) {
    clients.emplace_back(&shared, channels[i % channels.size()],
                         run + "/" + std::to_string(options.contended ? 0 : i));
  }
  for (Client& client : clients) client.GrantLease();
  const auto granted = [&] { return shared.granting == 0; };
  const auto done = [&] { return shared.running == 0; };
  if (!loop.RunUntil(Clock::now() + kPatience, granted)) report.Error("no leases were granted");
  if (report.errors == 0) {
    const TimePoint now = Clock::now();
    meter.Begin(now);
    for (Client& client : clients) client.Start(now);
    if (!loop.RunUntil(meter.until() + kPatience, done)) report.Error("calls never answered");
  }
  if (!granted() || !done()) {
    for (Client& client : clients) client.Cancel();
    loop.RunUntil(Clock::now() + kPatience, [&] { return granted() && done(); });
  }
  meter.Fill(options.contended, &report);
  return report;
}

}  // namespace semaphored::bench
