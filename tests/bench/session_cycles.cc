#include "tests/bench/session_cycles.h"

#include <functional>
#include <utility>

#include "tests/bench/modes.h"

namespace semaphored::bench {

namespace pb = ::semaphore::v1;

// The clients that share one stream, and who of them each sequence number belongs to.
class SessionCycles::Stream : public SessionHandler {
 public:
  Stream(SessionCycles* cycles, int number)
      : cycles_(cycles), stream_(cycles->loop_, Connect(cycles->plan_.server, number), this) {
    stream_.Open(cycles->plan_.run + "/client/" + std::to_string(number), cycles->plan_.ttl_ms);
  }

  void OnOpened() override { open_ = true; }

  void OnResult(const pb::SessionResult& result, TimePoint now) override {
    const auto found = outstanding_.find(result.sequence());
    if (found == outstanding_.end()) {
      cycles_->report_->Error("a result that nobody asked for");
      return;
    }
    const uint32_t client = found->second;
    if (result.has_queued()) {
      cycles_->OnQueued();
      return;
    }
    outstanding_.erase(found);
    if (result.has_granted()) {
      cycles_->OnGranted(client, result.granted().lease_id(), now);
    } else if (result.has_released()) {
      cycles_->OnReleased(client, result.released().released(), now);
    } else if (!closing_) {
      cycles_->report_->Error("code " + std::to_string(result.error().code()) + ": " +
                              result.error().message());
      --cycles_->running_;
    }
  }

  void OnEvent(const pb::SessionEvent& event) override {
    cycles_->report_->Error("an unexpected event: " + event.ShortDebugString());
  }

  void OnEnded(const grpc::Status& status) override {
    ended_ = true;
    if (!status.ok() || !closing_) cycles_->report_->Error("stream ended, " + Describe(status));
  }

  pb::SessionCommand* Add(uint32_t client) {
    pb::SessionCommand* command = stream_.Add();
    outstanding_[command->sequence()] = client;
    return command;
  }

  void Close() {
    closing_ = true;
    stream_.Close();
  }

  SessionStream& stream() { return stream_; }
  bool open() const { return open_; }
  bool ended() const { return ended_; }

 private:
  SessionCycles* cycles_;
  SessionStream stream_;
  absl::flat_hash_map<uint64_t, uint32_t> outstanding_;
  bool open_ = false;
  bool closing_ = false;
  bool ended_ = false;
};

SessionCycles::SessionCycles(const CyclesPlan& plan, Loop* loop, Meter* meter, Report* report)
    : plan_(plan), loop_(loop), meter_(meter), report_(report), gated_(plan.gate) {
  for (const std::string& semaphore : plan_.semaphores) clients_.push_back({&semaphore, {}, {}});
  for (uint32_t i = 0; i < plan_.streams; ++i) {
    streams_.push_back(std::make_unique<Stream>(this, static_cast<int>(i)));
  }
}

SessionCycles::~SessionCycles() = default;

void SessionCycles::SendAcquire(uint32_t client, TimePoint now, bool report_queued) {
  Client& it = clients_[client];
  it.sent = now;
  pb::SessionAcquire* acquire = streams_[client % streams_.size()]->Add(client)->mutable_acquire();
  acquire->set_semaphore(*it.semaphore);
  acquire->set_limit(plan_.limit);
  acquire->set_wait_forever(true);
  if (report_queued) acquire->set_report_queued(true);
}

void SessionCycles::SendRelease(uint32_t client, TimePoint now) {
  meter_->ReleaseSent(now);
  streams_[client % streams_.size()]->Add(client)->mutable_release()->set_lease_id(
      clients_[client].lease_id);
}

void SessionCycles::OnGranted(uint32_t client, const std::string& lease_id, TimePoint now) {
  clients_[client].lease_id = lease_id;
  meter_->Acquired(clients_[client].sent, now);
  if (gated_) {
    gate_keeper_ = client;
    return;
  }
  SendRelease(client, now);
}

void SessionCycles::OnQueued() {
  ++queued_;
  if (gated_ && gate_keeper_ >= 0 && queued_ + 1 == clients_.size()) OpenGate();
}

void SessionCycles::OpenGate() {
  gated_ = false;
  const TimePoint now = Clock::now();
  meter_->Begin(now);
  const auto keeper = static_cast<uint32_t>(gate_keeper_);
  SendRelease(keeper, now);
  streams_[keeper % streams_.size()]->stream().Flush();
}

void SessionCycles::OnReleased(uint32_t client, uint32_t released, TimePoint now) {
  if (released != 1) report_->Error("a release gave back " + std::to_string(released));
  meter_->CycleDone(clients_[client].sent, now);
  if (meter_->Over(now)) {
    --running_;
  } else {
    SendAcquire(client, now, false);
  }
}

void SessionCycles::Tick() {
  const TimePoint now = Clock::now();
  for (const auto& stream : streams_) stream->stream().Tick(now);
  if (!measuring_ && !gated_ && now >= meter_->from()) {
    measuring_ = true;
    if (on_measure_begin) on_measure_begin();
  }
}

template <typename Done>
bool SessionCycles::RunUntil(TimePoint deadline, Done done) {
  return loop_->RunUntil(deadline, done, [this] { Tick(); });
}

void SessionCycles::Run(bool drain) {
  const auto all = [this](auto condition) {
    for (const auto& stream : streams_) {
      if (!condition(*stream)) return false;
    }
    return true;
  };
  const auto any_ended = [&] { return !all([](const Stream& s) { return !s.ended(); }); };
  const auto opened = [&] { return all([](const Stream& s) { return s.open(); }); };
  if (!RunUntil(Clock::now() + kPatience, [&] { return opened() || any_ended(); })) {
    report_->Error("the sessions did not open");
  }
  const TimePoint now = Clock::now();
  meter_->Begin(now);
  running_ = static_cast<uint32_t>(clients_.size());
  for (uint32_t i = 0; i < clients_.size(); ++i) SendAcquire(i, now, gated_);
  for (const auto& stream : streams_) stream->stream().Flush();
  if (gated_ && !RunUntil(now + 4 * kPatience, [&] { return !gated_ || any_ended(); })) {
    report_->Error("the clients did not all queue");
  }
  RunUntil(meter_->until(), [&] { return any_ended() || running_ == 0; });
  if (on_measure_end) on_measure_end();
  if (drain && !RunUntil(Clock::now() + kPatience, [&] { return any_ended() || running_ == 0; })) {
    report_->Error(std::to_string(running_) + " commands were never answered");
  }
  const auto ended = [&] { return all([](const Stream& s) { return s.ended(); }); };
  for (const auto& stream : streams_) stream->Close();
  if (RunUntil(Clock::now() + kPatience, ended)) return;
  report_->Error("the streams did not end when they were closed");
  for (const auto& stream : streams_) stream->stream().Cancel();
  RunUntil(Clock::now() + kPatience, ended);
}

Report RunSession(const Options& options) {
  Report report;
  report.title = options.semaphores == 1 ? "contended session" : "session";
  Meter meter(options);
  CyclesPlan plan;
  plan.limit = options.limit;
  plan.streams = options.streams;
  plan.server = options.server;
  plan.run = RunName();
  plan.ttl_ms = options.ttl_ms;
  for (uint32_t i = 0; i < options.clients; ++i) {
    const uint32_t semaphore = options.semaphores == 0 ? i : i % options.semaphores;
    plan.semaphores.push_back(plan.run + "/" + std::to_string(semaphore));
  }
  auto loop = std::make_unique<Loop>();
  SessionCycles cycles(plan, loop.get(), &meter, &report);
  cycles.Run(/*drain=*/true);
  loop.reset();
  meter.Fill(options.semaphores == 1 && options.limit == 1, &report);
  return report;
}

}  // namespace semaphored::bench
