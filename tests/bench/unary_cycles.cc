// Acquire and Release as unary calls, N cycles outstanding; with one semaphore, the contended mode.
#include <deque>
#include <optional>

#include "proto/semaphore/v1/semaphore.grpc.pb.h"
#include "tests/bench/loop.h"
#include "tests/bench/modes.h"

namespace semaphored::bench {
namespace {

namespace pb = ::semaphore::v1;

struct Shared {
  Loop* loop;
  Meter* meter;
  Report* report;
  uint32_t running = 0;
};

// One client: it acquires, releases, and begins again until the time is over.
class Client : public Tag {
 public:
  Client(Shared* shared, std::shared_ptr<grpc::Channel> channel, std::string semaphore,
         std::string client_id, const Options& options)
      : shared_(shared), stub_(pb::SemaphoreService::NewStub(std::move(channel))) {
    acquire_.set_semaphore(std::move(semaphore));
    acquire_.set_limit(options.limit);
    acquire_.set_wait_forever(true);
    acquire_.set_ttl_ms(options.ttl_ms);
    acquire_.mutable_request_id()->mutable_numbered()->set_client_id(client_id);
    release_.mutable_request_id()->mutable_numbered()->set_client_id(std::move(client_id));
  }

  void Start(TimePoint now) {
    ++shared_->running;
    SendAcquire(now);
  }

  void Proceed(bool /*ok*/) override {
    const TimePoint now = Clock::now();
    if (!status_.ok()) {
      shared_->report->Error((holding_ ? "release: " : "acquire: ") + Describe(status_));
      --shared_->running;
      return;
    }
    if (!holding_) {
      shared_->meter->Acquired(sent_, now);
      SendRelease(now);
      return;
    }
    if (released_.released() != 1) {
      shared_->report->Error("a release gave back " + std::to_string(released_.released()));
    }
    shared_->meter->CycleDone(sent_, now);
    if (shared_->meter->Over(now)) {
      --shared_->running;
    } else {
      SendAcquire(now);
    }
  }

  void Cancel() { context_->TryCancel(); }

 private:
  void SendAcquire(TimePoint now) {
    holding_ = false;
    sent_ = now;
    acquire_.mutable_request_id()->mutable_numbered()->set_sequence(++sequence_);
    NewCall();
    acquiring_ = stub_->AsyncAcquire(&*context_, acquire_, shared_->loop->queue());
    acquiring_->Finish(&acquired_, &status_, this);
  }

  void SendRelease(TimePoint now) {
    holding_ = true;
    shared_->meter->ReleaseSent(now);
    release_.set_lease_id(acquired_.lease().lease_id());
    release_.mutable_request_id()->mutable_numbered()->set_sequence(++sequence_);
    NewCall();
    releasing_ = stub_->AsyncRelease(&*context_, release_, shared_->loop->queue());
    releasing_->Finish(&released_, &status_, this);
  }

  // A reader lives in its call's memory, so it has to go before the call does.
  void NewCall() {
    acquiring_.reset();
    releasing_.reset();
    context_.emplace();
  }

  Shared* shared_;
  std::unique_ptr<pb::SemaphoreService::Stub> stub_;
  pb::AcquireRequest acquire_;
  pb::AcquireResponse acquired_;
  pb::ReleaseRequest release_;
  pb::ReleaseResponse released_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::AcquireResponse>> acquiring_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::ReleaseResponse>> releasing_;
  grpc::Status status_;
  uint64_t sequence_ = 0;
  TimePoint sent_;
  bool holding_ = false;
};

}  // namespace

Report RunUnary(const Options& options) {
  Report report;
  report.title = options.semaphores == 1 ? "contended unary" : "unary";
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
    const uint32_t semaphore = options.semaphores == 0 ? i : i % options.semaphores;
    clients.emplace_back(&shared, channels[i % channels.size()],
                         run + "/" + std::to_string(semaphore),
                         run + "/client/" + std::to_string(i), options);
  }
  const TimePoint now = Clock::now();
  meter.Begin(now);
  for (Client& client : clients) client.Start(now);
  const auto done = [&] { return shared.running == 0; };
  if (!loop.RunUntil(meter.until() + kPatience, done)) {
    report.Error(std::to_string(shared.running) + " calls were never answered");
    for (Client& client : clients) client.Cancel();
    loop.RunUntil(Clock::now() + kPatience, done);
  }
  meter.Fill(options.semaphores == 1 && options.limit == 1, &report);
  return report;
}

}  // namespace semaphored::bench
