// Detached leases: each lives by a Renew of its own, every third of its TTL.
#include <deque>
#include <optional>

#include "proto/semaphore/v1/semaphore.grpc.pb.h"
#include "tests/bench/leases.h"
#include "tests/bench/loop.h"
#include "tests/bench/modes.h"

namespace semaphored::bench {
namespace {

namespace pb = ::semaphore::v1;

enum class Phase { kAcquire, kRenew, kRelease };

class Keeper;

// Carries one call at a time.
class Worker : public Tag {
 public:
  Worker(Keeper* keeper, pb::SemaphoreService::Stub* stub, grpc::CompletionQueue* queue)
      : keeper_(keeper), stub_(stub), queue_(queue) {}

  void Send(Phase phase, uint32_t lease);
  void Proceed(bool ok) override;
  void Cancel() {
    if (context_) context_->TryCancel();
  }

 private:
  Keeper* keeper_;
  pb::SemaphoreService::Stub* stub_;
  grpc::CompletionQueue* queue_;
  Phase phase_ = Phase::kAcquire;
  uint32_t lease_ = 0;
  TimePoint sent_;
  std::optional<grpc::ClientContext> context_;
  grpc::Status status_;
  pb::AcquireResponse acquired_;
  pb::RenewResponse renewed_;
  pb::ReleaseResponse released_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::AcquireResponse>> acquiring_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::RenewResponse>> renewing_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::ReleaseResponse>> releasing_;
};

// Deals out the calls: all acquires; then renewals, each lease when its turn has come; then all
// releases.
class Keeper {
 public:
  Keeper(const Options& options, Report* report)
      : options_(options),
        plan_(options, RunName()),
        report_(report),
        lease_ids_(plan_.leases),
        renewed_at_(plan_.leases) {
    channel_ = Connect(options.server, 0);
    stub_ = pb::SemaphoreService::NewStub(channel_);
    for (uint32_t i = 0; i < options.clients; ++i) {
      workers_.emplace_back(this, stub_.get(), loop_.queue());
      idle_.push_back(&workers_.back());
    }
  }

  void Run() {
    DaemonWatch watch(options_);
    const TimePoint begun = Clock::now();
    RunPhase(Phase::kAcquire, begun + 4 * kPatience);
    watch.Opened(begun, report_);
    const TimePoint until = Clock::now() + Seconds(options_.duration_s);
    phase_ = Phase::kRenew;
    next_ = 0;
    loop_.RunUntil(
        until, [] { return false; }, [this] { SendDue(); });
    watch.Held(report_);
    RunPhase(Phase::kRelease, Clock::now() + 4 * kPatience);
    report_->Figure("renewals", static_cast<double>(renew_.count()));
    report_->Latency("acquire", acquire_);
    report_->Latency("renew", renew_);
    report_->Latency("release", release_);
  }

  void Done(Worker* worker, Phase phase, uint32_t lease, TimePoint sent, const std::string& error,
            std::string lease_id) {
    const TimePoint now = Clock::now();
    Histogram& latency = phase == Phase::kAcquire ? acquire_
                         : phase == Phase::kRenew ? renew_
                                                  : release_;
    latency.Record(NanosBetween(sent, now));
    if (!error.empty()) report_->Error(error);
    if (phase == Phase::kAcquire) lease_ids_[lease] = std::move(lease_id);
    // The TTL counts from when the daemon got the call, so from the sending at the earliest.
    renewed_at_[lease] = sent;
    idle_.push_back(worker);
    SendDue();
  }

  const LeasesPlan& plan() const { return plan_; }
  const Options& options() const { return options_; }
  const std::string& lease_id(uint32_t lease) const { return lease_ids_[lease]; }

 private:
  void RunPhase(Phase phase, TimePoint deadline) {
    phase_ = phase;
    next_ = 0;
    SendDue();
    const auto idle = [this] { return next_ >= plan_.leases && idle_.size() == workers_.size(); };
    if (loop_.RunUntil(deadline, idle, [this] { SendDue(); })) return;
    report_->Error("some calls were never answered");
    for (Worker& worker : workers_) worker.Cancel();
    next_ = plan_.leases;
    loop_.RunUntil(Clock::now() + kPatience, idle);
  }

  void SendDue() {
    while (!idle_.empty()) {
      if (phase_ == Phase::kRenew) {
        const auto due = renewed_at_[next_] + std::chrono::milliseconds(options_.ttl_ms / 3);
        if (Clock::now() < due) return;
      } else if (next_ >= plan_.leases) {
        return;
      }
      Worker* worker = idle_.back();
      idle_.pop_back();
      const uint32_t lease = next_++;
      if (phase_ == Phase::kRenew) next_ %= plan_.leases;
      worker->Send(phase_, lease);
    }
  }

  Options options_;
  LeasesPlan plan_;
  Report* report_;
  std::vector<std::string> lease_ids_;
  std::vector<TimePoint> renewed_at_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::SemaphoreService::Stub> stub_;
  std::deque<Worker> workers_;
  std::vector<Worker*> idle_;
  Loop loop_;
  Phase phase_ = Phase::kAcquire;
  uint32_t next_ = 0;
  Histogram acquire_, renew_, release_;
};

void Worker::Send(Phase phase, uint32_t lease) {
  phase_ = phase;
  lease_ = lease;
  sent_ = Clock::now();
  // A reader lives in its call's memory, so it has to go before the call does.
  acquiring_.reset();
  renewing_.reset();
  releasing_.reset();
  context_.emplace();
  if (phase == Phase::kAcquire) {
    pb::AcquireRequest request;
    request.set_semaphore(keeper_->plan().SemaphoreOf(lease));
    request.set_limit(keeper_->plan().limit);
    request.set_ttl_ms(keeper_->options().ttl_ms);
    acquiring_ = stub_->AsyncAcquire(&*context_, request, queue_);
    acquiring_->Finish(&acquired_, &status_, this);
  } else if (phase == Phase::kRenew) {
    pb::RenewRequest request;
    request.set_lease_id(keeper_->lease_id(lease));
    renewing_ = stub_->AsyncRenew(&*context_, request, queue_);
    renewing_->Finish(&renewed_, &status_, this);
  } else {
    pb::ReleaseRequest request;
    request.set_lease_id(keeper_->lease_id(lease));
    releasing_ = stub_->AsyncRelease(&*context_, request, queue_);
    releasing_->Finish(&released_, &status_, this);
  }
}

void Worker::Proceed(bool /*ok*/) {
  std::string error;
  std::string lease_id;
  if (!status_.ok()) {
    error = Describe(status_);
  } else if (phase_ == Phase::kAcquire) {
    lease_id = acquired_.lease().lease_id();
  } else if (phase_ == Phase::kRelease && released_.released() != 1) {
    error = "a lease was not held at the end";
  }
  keeper_->Done(this, phase_, lease_, sent_, error, std::move(lease_id));
}

}  // namespace

Report RunDetachedLeases(const Options& options) {
  Report report;
  report.title = "detached leases";
  Keeper(options, &report).Run();
  return report;
}

Report RunLeases(const Options& options) {
  return options.via == "unary" ? RunDetachedLeases(options) : RunSessionLeases(options);
}

}  // namespace semaphored::bench
