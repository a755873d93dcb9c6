// Tickets: enqueued by unary calls, carried out on Work streams, N of them on their way at any
// time. A cycle begins when Enqueue is sent and ends when the answer to "done" has come; each of
// its three steps is on disk by then. What the meter calls "acquire" ends when the worker is told.
#include <absl/container/flat_hash_map.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/modes.h"
#include "tests/bench/work_stream.h"

namespace semaphored::bench {
namespace {

namespace pb = ::semaphore::v1;

constexpr size_t kPayloadBytes = 64;

class TicketCycles {
 public:
  TicketCycles(const Options& options, Loop* loop, Meter* meter, Report* report);

  // Until the time is over and all that was enqueued is done.
  void Run();
  const Histogram& enqueue() const { return enqueue_; }

 private:
  class Client;
  class Stream;

  bool AllOpen() const;
  bool AnyEnded() const;
  bool AllEnded() const;
  void Tick();
  void End();

  const Options options_;
  const std::string run_ = RunName();
  Loop* loop_;
  Meter* meter_;
  Report* report_;
  std::deque<Client> clients_;
  std::deque<Stream> streams_;
  absl::flat_hash_map<std::string, Client*> by_payload_;
  uint32_t running_ = 0;
  Histogram enqueue_;
};

// Has one ticket on its way at any time.
class TicketCycles::Client : public Tag {
 public:
  Client(TicketCycles* cycles, std::shared_ptr<grpc::Channel> channel, std::string semaphore,
         uint32_t number)
      : cycles_(cycles), stub_(pb::SemaphoreService::NewStub(std::move(channel))) {
    request_.set_semaphore(std::move(semaphore));
    request_.set_limit(cycles->options_.limit);
    request_.mutable_request_id()->mutable_numbered()->set_client_id(cycles->run_ + "/" +
                                                                     std::to_string(number));
    std::string payload = std::to_string(number);
    payload.resize(kPayloadBytes, '.');
    request_.set_payload(payload);
    cycles->by_payload_[payload] = this;
  }

  void Start(TimePoint now) {
    sent_ = now;
    answered_ = done_ = false;
    request_.mutable_request_id()->mutable_numbered()->set_sequence(++sequence_);
    call_.reset();  // A reader lives in its call's memory.
    context_.emplace();
    call_ = stub_->AsyncEnqueue(&*context_, request_, cycles_->loop_->queue());
    call_->Finish(&response_, &status_, this);
  }

  // The answer to Enqueue.
  void Proceed(bool /*ok*/) override {
    const TimePoint now = Clock::now();
    if (!status_.ok()) {
      cycles_->report_->Error("enqueue: " + Describe(status_));
      --cycles_->running_;
      return;
    }
    if (cycles_->meter_->Measures(now)) cycles_->enqueue_.Record(NanosBetween(sent_, now));
    answered_ = true;
    Next(now);
  }

  void Assigned(TimePoint now) { cycles_->meter_->Acquired(sent_, now); }

  void Done(TimePoint now) {
    cycles_->meter_->CycleDone(sent_, now);
    done_ = true;
    Next(now);
  }

  void Cancel() { context_->TryCancel(); }

 private:
  // The worker may be faster than the answer.
  void Next(TimePoint now) {
    if (!answered_ || !done_) return;
    if (cycles_->meter_->Over(now)) {
      --cycles_->running_;
    } else {
      Start(now);
    }
  }

  TicketCycles* cycles_;
  std::unique_ptr<pb::SemaphoreService::Stub> stub_;
  pb::EnqueueRequest request_;
  pb::EnqueueResponse response_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::EnqueueResponse>> call_;
  grpc::Status status_;
  uint64_t sequence_ = 0;
  TimePoint sent_;
  bool answered_ = false;
  bool done_ = false;
};

class TicketCycles::Stream : public WorkHandler {
 public:
  Stream(TicketCycles* cycles, int number)
      : cycles_(cycles), stream_(cycles->loop_, Connect(cycles->options_.server, number), this) {}

  void Open(int number, pb::OpenWork open) {
    stream_.Open(cycles_->run_ + "/worker/" + std::to_string(number), cycles_->options_.ttl_ms,
                 std::move(open));
  }

  void OnOpened() override { open_ = true; }

  void OnAssigned(const pb::TicketAssignment& assignment, TimePoint now) override {
    const auto client = cycles_->by_payload_.find(assignment.payload());
    if (client == cycles_->by_payload_.end() || assignment.attempt() != 1)
      return cycles_->report_->Error("an assignment that nobody enqueued, or a second attempt");
    client->second->Assigned(now);
    finishing_[stream_.AddDone(assignment.lease().lease_id())] = client->second;
  }

  void OnResult(const pb::FinishTicketResult& result, TimePoint now) override {
    const auto found = finishing_.find(result.sequence());
    if (found == finishing_.end() || result.has_error())
      return cycles_->report_->Error("done: " + result.ShortDebugString());
    Client* client = found->second;
    finishing_.erase(found);
    client->Done(now);
  }

  void OnEvent(const pb::SessionEvent& event) override {
    cycles_->report_->Error("an unexpected event: " + event.ShortDebugString());
  }

  void OnEnded(const grpc::Status& status) override {
    ended_ = true;
    if (!status.ok() || !closing_) {
      cycles_->report_->Error("stream ended, " + Describe(status));
    }
  }

  void Close() {
    closing_ = true;
    stream_.Close();
  }

  WorkStream& stream() { return stream_; }
  bool open() const { return open_; }
  bool ended() const { return ended_; }

 private:
  TicketCycles* cycles_;
  WorkStream stream_;
  absl::flat_hash_map<uint64_t, Client*> finishing_;
  bool open_ = false;
  bool closing_ = false;
  bool ended_ = false;
};

TicketCycles::TicketCycles(const Options& options, Loop* loop, Meter* meter, Report* report)
    : options_(options), loop_(loop), meter_(meter), report_(report) {
  const uint32_t semaphores = options.semaphores == 0 ? options.clients : options.semaphores;
  const auto channel = Connect(options.server, -1);
  for (uint32_t i = 0; i < options.clients; ++i) {
    clients_.emplace_back(this, channel, run_ + "/" + std::to_string(i % semaphores), i);
  }
  const uint32_t hands = (options.clients + options.streams - 1) / options.streams;
  for (uint32_t i = 0; i < options.streams; ++i) {
    pb::OpenWork open;
    open.set_tickets_max(hands);
    if (options.by_prefix) {
      open.add_prefixes(run_ + "/");
    } else {
      for (uint32_t each = i; each < semaphores; each += options.streams)
        open.add_semaphores(run_ + "/" + std::to_string(each));
      // More workers than semaphores: several at one.
      if (open.semaphores().empty()) {
        open.add_semaphores(run_ + "/" + std::to_string(i % semaphores));
      }
    }
    streams_.emplace_back(this, static_cast<int>(i));
    streams_.back().Open(static_cast<int>(i), std::move(open));
  }
}

bool TicketCycles::AllOpen() const {
  for (const Stream& stream : streams_) {
    if (!stream.open()) return false;
  }
  return true;
}

bool TicketCycles::AnyEnded() const {
  for (const Stream& stream : streams_) {
    if (stream.ended()) return true;
  }
  return false;
}

bool TicketCycles::AllEnded() const {
  for (const Stream& stream : streams_) {
    if (!stream.ended()) return false;
  }
  return true;
}

void TicketCycles::Tick() {
  const TimePoint now = Clock::now();
  for (Stream& stream : streams_) stream.stream().Tick(now);
}

void TicketCycles::Run() {
  const auto tick = [this] { Tick(); };
  if (!loop_->RunUntil(
          Clock::now() + kPatience, [this] { return AllOpen() || AnyEnded(); }, tick))
    report_->Error("the workers did not open");
  const TimePoint now = Clock::now();
  meter_->Begin(now);
  running_ = options_.clients;
  for (Client& client : clients_) client.Start(now);
  const TimePoint patience = meter_->until() + kPatience;
  if (!loop_->RunUntil(
          patience, [this] { return running_ == 0 || AnyEnded(); }, tick)) {
    report_->Error(std::to_string(running_) + " tickets were never done");
    for (Client& client : clients_) client.Cancel();
  }
  End();
}

void TicketCycles::End() {
  const auto ended = [this] { return AllEnded(); };
  for (Stream& stream : streams_) stream.Close();
  if (loop_->RunUntil(Clock::now() + kPatience, ended)) return;
  report_->Error("the streams did not end when they were closed");
  for (Stream& stream : streams_) stream.stream().Cancel();
  loop_->RunUntil(Clock::now() + kPatience, ended);
}

}  // namespace

Report RunTickets(const Options& options) {
  Report report;
  report.title = "tickets";
  Meter meter(options);
  auto loop = std::make_unique<Loop>();
  TicketCycles cycles(options, loop.get(), &meter, &report);
  cycles.Run();
  loop.reset();
  meter.Fill(/*one_permit=*/false, &report);
  report.Latency("enqueue", cycles.enqueue());
  return report;
}

}  // namespace semaphored::bench
