// Leases under sessions: they live by the pings of their streams.
#include <absl/container/flat_hash_map.h>

#include "tests/bench/leases.h"
#include "tests/bench/modes.h"
#include "tests/bench/session_stream.h"

namespace semaphored::bench {
namespace {

namespace pb = ::semaphore::v1;

// One session and its share of the leases.
class Bundle : public SessionHandler {
 public:
  Bundle(Loop* loop, const Options& options, const LeasesPlan& plan, uint32_t number,
         Report* report)
      : plan_(plan),
        report_(report),
        stream_(loop, Connect(options.server, static_cast<int>(number)), this) {
    for (uint32_t i = number; i < plan.leases; i += options.streams) numbers_.push_back(i);
    stream_.Open(plan.run + "/client/" + std::to_string(number), options.ttl_ms);
  }

  void OnOpened() override { SendMore(); }

  void OnResult(const pb::SessionResult& result, TimePoint now) override {
    --outstanding_;
    if (result.has_granted()) {
      lease_ids_.push_back(result.granted().lease_id());
    } else if (result.has_verified()) {
      ++verified_;
      verify_.Record(NanosBetween(verify_sent_, now));
      if (!result.verified().held()) report_->Error("a lease was not held at the end");
    } else {
      report_->Error("code " + std::to_string(result.error().code()) + ": " +
                     result.error().message());
    }
    SendMore();
  }

  void OnEvent(const pb::SessionEvent& event) override {
    report_->Error("an unexpected event: " + event.ShortDebugString());
  }

  void OnEnded(const grpc::Status& status) override {
    ended_ = true;
    if (!status.ok() || !closing_) report_->Error("stream ended, " + Describe(status));
  }

  void StartVerify() {
    verifying_ = true;
    verify_sent_ = Clock::now();
    SendMore();
    stream_.Flush();
  }

  void Close() {
    closing_ = true;
    stream_.Close();
  }

  bool opened() const { return lease_ids_.size() == numbers_.size() || ended_; }
  bool verified() const { return verified_ == lease_ids_.size() || ended_; }
  bool ended() const { return ended_; }
  SessionStream& stream() { return stream_; }
  const Histogram& verify_latency() const { return verify_; }

 private:
  // Commands under way at once, so that neither side has to keep them all.
  static constexpr uint32_t kOutstanding = 2000;

  void SendMore() {
    while (outstanding_ < kOutstanding) {
      if (verifying_ && next_verify_ < lease_ids_.size()) {
        stream_.Add()->mutable_verify()->set_lease_id(lease_ids_[next_verify_++]);
      } else if (!verifying_ && next_acquire_ < numbers_.size()) {
        pb::SessionAcquire* acquire = stream_.Add()->mutable_acquire();
        acquire->set_semaphore(plan_.SemaphoreOf(numbers_[next_acquire_++]));
        acquire->set_limit(plan_.limit);
      } else {
        return;
      }
      ++outstanding_;
    }
  }

  const LeasesPlan& plan_;
  Report* report_;
  SessionStream stream_;
  std::vector<uint32_t> numbers_;
  std::vector<std::string> lease_ids_;
  size_t next_acquire_ = 0;
  size_t next_verify_ = 0;
  size_t verified_ = 0;
  uint32_t outstanding_ = 0;
  Histogram verify_;
  TimePoint verify_sent_;
  bool verifying_ = false;
  bool closing_ = false;
  bool ended_ = false;
};

}  // namespace

Report RunSessionLeases(const Options& options) {
  Report report;
  report.title = "leases over sessions";
  const LeasesPlan plan(options, RunName());
  std::vector<std::unique_ptr<Bundle>> bundles;
  Loop loop;
  DaemonWatch watch(options);
  const TimePoint begun = Clock::now();
  for (uint32_t i = 0; i < options.streams; ++i) {
    bundles.push_back(std::make_unique<Bundle>(&loop, options, plan, i, &report));
  }
  const auto run_until = [&](TimePoint deadline, auto condition) {
    return loop.RunUntil(
        deadline,
        [&] {
          return std::all_of(bundles.begin(), bundles.end(),
                             [&](const auto& bundle) { return condition(*bundle); });
        },
        [&] {
          for (const auto& bundle : bundles) bundle->stream().Tick(Clock::now());
        });
  };
  if (!run_until(begun + 4 * kPatience, [](const Bundle& b) { return b.opened(); })) {
    report.Error("not all leases were granted");
  }
  watch.Opened(begun, &report);
  run_until(Clock::now() + Seconds(options.duration_s), [](const Bundle& b) { return b.ended(); });
  watch.Held(&report);
  for (const auto& bundle : bundles) bundle->StartVerify();
  if (!run_until(Clock::now() + 4 * kPatience, [](const Bundle& b) { return b.verified(); })) {
    report.Error("not all leases were verified");
  }
  uint64_t pongs = 0;
  for (const auto& bundle : bundles) {
    pongs += bundle->stream().pongs();
    bundle->Close();
  }
  report.Figure("pongs", static_cast<double>(pongs));
  if (!run_until(Clock::now() + kPatience, [](const Bundle& b) { return b.ended(); })) {
    report.Error("the streams did not end when they were closed");
    for (const auto& bundle : bundles) bundle->stream().Cancel();
    run_until(Clock::now() + kPatience, [](const Bundle& b) { return b.ended(); });
  }
  return report;
}

}  // namespace semaphored::bench
