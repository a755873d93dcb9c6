// One permit that goes round over several daemons on one store: the clients stand in the queue one
// behind the other, each at another daemon than the one before it. A hand-off is the time from the
// Release that one client sends to the grant that the next is told, at another daemon. Each comes
// back at once, so that new waiters and hand-offs get in each other's way; or, with --laps, when
// all have had their turn.
#include <absl/strings/str_split.h>
#include <grpcpp/alarm.h>

#include <memory>
#include <vector>

#include "tests/bench/modes.h"
#include "tests/bench/session_stream.h"

namespace semaphored::bench {
namespace {

namespace pb = ::semaphore::v1;

class Ring;

// One client with a session of its own.
class Member : public SessionHandler, public Tag {
 public:
  Member(Ring* ring, uint32_t number, uint32_t daemon, const std::string& server);

  void OnOpened() override;
  void OnResult(const pb::SessionResult& result, TimePoint now) override;
  void OnEvent(const pb::SessionEvent& event) override;
  void OnEnded(const grpc::Status& status) override;
  // The time for which it holds is over.
  void Proceed(bool ok) override;

  void Acquire(bool report_queued);
  void HoldThenRelease();
  void Release(TimePoint now);
  void Close() {
    closing_ = true;
    stream_.Close();
  }

  uint32_t daemon() const { return daemon_; }
  bool ended() const { return ended_; }
  SessionStream& stream() { return stream_; }

 private:
  Ring* ring_;
  uint32_t number_;
  uint32_t daemon_;
  SessionStream stream_;
  std::unique_ptr<grpc::Alarm> alarm_;
  std::string lease_id_;
  TimePoint release_sent_;
  bool closing_ = false;
  bool ended_ = false;
};

class Ring {
 public:
  Ring(const Options& options, Loop* loop, Report* report)
      : options_(options), loop_(loop), report_(report), meter_(options), run_(RunName()) {
    const std::vector<std::string> servers = absl::StrSplit(options.server, ',');
    for (uint32_t i = 0; i < options.clients; ++i) {
      const auto daemon = static_cast<uint32_t>(i % servers.size());
      members_.push_back(std::make_unique<Member>(this, i, daemon, servers[daemon]));
    }
  }

  void Run() {
    if (!RunUntil(Clock::now() + kPatience, [&] { return opened_ == members_.size(); }))
      report_->Error("the sessions did not open");
    // One after the other, so that the queue is in the order of the members.
    if (report_->errors == 0) members_.front()->Acquire(/*report_queued=*/true);
    if (!RunUntil(Clock::now() + kPatience, [&] { return going_round_; }))
      report_->Error("the clients did not all queue");
    RunUntil(meter_.until() + kPatience, [&] { return meter_.Over(Clock::now()); });
    closing_ = true;
    for (const auto& member : members_) member->Close();
    const auto ended = [&] {
      for (const auto& member : members_) {
        if (!member->ended()) return false;
      }
      return true;
    };
    if (!loop_->RunUntil(Clock::now() + kPatience, ended)) {
      report_->Error("the streams did not end when they were closed");
      for (const auto& member : members_) member->stream().Cancel();
      loop_->RunUntil(Clock::now() + kPatience, ended);
    }
    const double seconds = options_.duration_s;
    report_->Figure("clients", options_.clients);
    report_->Figure("hold_ms", options_.hold_ms);
    report_->Figure("duration_s", seconds);
    report_->Figure("cycles_per_s",
                    static_cast<double>(between_.count() + within_.count()) / seconds);
    report_->Latency("hand_off", between_);
    // Where two took each other's turn: from one client to the next at the same daemon.
    report_->Latency("hand_off_within", within_);
    report_->Latency("release", release_);
  }

  void Opened() { ++opened_; }

  void Queued(uint32_t number) { TakeNextIn(number); }

  void Granted(uint32_t number, TimePoint now) {
    if (!going_round_) {
      TakeNextIn(number);
      return;
    }
    if (meter_.Measures(now)) {
      Histogram& way = members_[number]->daemon() == releasing_daemon_ ? within_ : between_;
      way.Record(NanosBetween(release_sent_, now));
    }
    if (!closing_) members_[number]->HoldThenRelease();
  }

  void ReleaseSent(uint32_t daemon, TimePoint now) {
    release_sent_ = now;
    releasing_daemon_ = daemon;
  }

  void Released(uint32_t number, TimePoint sent, TimePoint now) {
    if (meter_.Measures(now)) release_.Record(NanosBetween(sent, now));
    if (closing_) return;
    if (!options_.laps) {
      members_[number]->Acquire(/*report_queued=*/false);
    } else if (++released_ == members_.size()) {
      released_ = 0;
      going_round_ = false;
      members_.front()->Acquire(/*report_queued=*/true);
    }
  }

  const Options& options() const { return options_; }
  const std::string& run() const { return run_; }
  Loop* loop() { return loop_; }
  Report* report() { return report_; }
  bool closing() const { return closing_; }

 private:
  // Who has been served, or stands in the queue, is followed by the next; after the last the permit
  // begins to go round.
  void TakeNextIn(uint32_t number) {
    if (number + 1 < members_.size()) {
      members_[number + 1]->Acquire(/*report_queued=*/true);
      return;
    }
    going_round_ = true;
    if (!began_) meter_.Begin(Clock::now());
    began_ = true;
    members_.front()->HoldThenRelease();
  }

  template <typename Done>
  bool RunUntil(TimePoint deadline, Done done) {
    const auto done_or_broken = [&] { return done() || report_->errors > 0; };
    return loop_->RunUntil(deadline, done_or_broken, [this] {
      const TimePoint now = Clock::now();
      for (const auto& member : members_) member->stream().Tick(now);
    });
  }

  Options options_;
  Loop* loop_;
  Report* report_;
  Meter meter_;
  std::string run_;
  std::vector<std::unique_ptr<Member>> members_;
  size_t opened_ = 0;
  bool going_round_ = false;
  bool began_ = false;
  size_t released_ = 0;  // In this lap.
  bool closing_ = false;
  TimePoint release_sent_;
  uint32_t releasing_daemon_ = 0;
  Histogram between_, within_, release_;
};

Member::Member(Ring* ring, uint32_t number, uint32_t daemon, const std::string& server)
    : ring_(ring),
      number_(number),
      daemon_(daemon),
      stream_(ring->loop(), Connect(server, static_cast<int>(number)), this) {
  stream_.Open(ring->run() + "/client/" + std::to_string(number), ring->options().ttl_ms);
}

void Member::OnOpened() { ring_->Opened(); }

void Member::OnResult(const pb::SessionResult& result, TimePoint now) {
  if (result.has_queued()) {
    ring_->Queued(number_);
  } else if (result.has_granted()) {
    lease_id_ = result.granted().lease_id();
    ring_->Granted(number_, now);
  } else if (result.has_released()) {
    if (result.released().released() != 1) ring_->report()->Error("a release gave back nothing");
    ring_->Released(number_, release_sent_, now);
  } else if (!ring_->closing()) {
    ring_->report()->Error("code " + std::to_string(result.error().code()) + ": " +
                           result.error().message());
  }
}

void Member::OnEvent(const pb::SessionEvent& event) {
  ring_->report()->Error("an unexpected event: " + event.ShortDebugString());
}

void Member::OnEnded(const grpc::Status& status) {
  ended_ = true;
  if (!status.ok() || !closing_) ring_->report()->Error("stream ended, " + Describe(status));
}

void Member::Acquire(bool report_queued) {
  pb::SessionAcquire* acquire = stream_.Add()->mutable_acquire();
  acquire->set_semaphore(ring_->run());
  acquire->set_limit(1);
  acquire->set_wait_forever(true);
  if (report_queued) acquire->set_report_queued(true);
  stream_.Flush();
}

void Member::HoldThenRelease() {
  if (ring_->options().hold_ms <= 0) {
    Release(Clock::now());
    return;
  }
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(ring_->loop()->queue(),
              std::chrono::system_clock::now() +
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(
                      std::chrono::duration<double, std::milli>(ring_->options().hold_ms)),
              static_cast<Tag*>(this));
}

void Member::Proceed(bool ok) {
  if (ok && !closing_) Release(Clock::now());
}

void Member::Release(TimePoint now) {
  release_sent_ = now;
  ring_->ReleaseSent(daemon_, now);
  stream_.Add()->mutable_release()->set_lease_id(lease_id_);
  stream_.Flush();
}

}  // namespace

Report RunHandOff(const Options& options) {
  Report report;
  report.title = "hand-off";
  auto loop = std::make_unique<Loop>();
  Ring ring(options, loop.get(), &report);
  ring.Run();
  loop.reset();
  return report;
}

}  // namespace semaphored::bench
