// The thinnest lease, N at a time: a Hold stream is opened, granted, its lease released, and the
// stream ends.
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

// One client. Its stream and its Release call both have to end before it begins again.
class Holder {
 public:
  Holder(Shared* shared, std::shared_ptr<grpc::Channel> channel, std::string semaphore,
         std::string client_id, const Options& options)
      : shared_(shared), stub_(pb::SemaphoreService::NewStub(std::move(channel))) {
    pb::AcquireRequest* acquire = request_.mutable_acquire();
    acquire->set_semaphore(std::move(semaphore));
    acquire->set_limit(options.limit);
    acquire->set_wait_forever(true);
    acquire->set_ttl_ms(options.ttl_ms);
    acquire->mutable_request_id()->mutable_numbered()->set_client_id(client_id);
    release_.mutable_request_id()->mutable_numbered()->set_client_id(std::move(client_id));
  }

  void Start(TimePoint now) {
    ++shared_->running;
    Begin(now);
  }

  void Cancel() {
    stream_context_->TryCancel();
    if (release_context_) release_context_->TryCancel();
  }

 private:
  class Step : public Tag {
   public:
    Step(Holder* holder, void (Holder::*member)(bool)) : holder_(holder), member_(member) {}
    void Proceed(bool ok) override { (holder_->*member_)(ok); }

   private:
    Holder* holder_;
    void (Holder::*member_)(bool);
  };

  void Begin(TimePoint now) {
    sent_ = now;
    granted_ = false;
    open_calls_ = 1;
    request_.mutable_acquire()->mutable_request_id()->mutable_numbered()->set_sequence(++sequence_);
    // Readers live in the memory of their calls, so they have to go before those do.
    stream_.reset();
    releasing_.reset();
    stream_context_.emplace();
    release_context_.reset();
    stream_ = stub_->AsyncHold(&*stream_context_, request_, shared_->loop->queue(), &started_);
  }

  void OnStarted(bool /*ok*/) { stream_->Read(&event_, &read_); }

  void OnRead(bool ok) {
    if (!ok) {
      stream_->Finish(&stream_status_, &finished_);
      return;
    }
    if (event_.has_granted() && !granted_) {
      granted_ = true;
      const TimePoint now = Clock::now();
      shared_->meter->Acquired(sent_, now);
      shared_->meter->ReleaseSent(now);
      release_.set_lease_id(event_.granted().lease().lease_id());
      release_.mutable_request_id()->mutable_numbered()->set_sequence(++sequence_);
      release_context_.emplace();
      ++open_calls_;
      releasing_ = stub_->AsyncRelease(&*release_context_, release_, shared_->loop->queue());
      releasing_->Finish(&released_, &release_status_, &release_done_);
    }
    stream_->Read(&event_, &read_);
  }

  void OnFinished(bool /*ok*/) {
    if (!stream_status_.ok() || !granted_) Fail("hold: " + Describe(stream_status_));
    CallEnded();
  }

  void OnReleased(bool /*ok*/) {
    if (!release_status_.ok() || released_.released() != 1) {
      Fail("release: " + Describe(release_status_));
    }
    CallEnded();
  }

  void Fail(const std::string& text) {
    failed_ = true;
    shared_->report->Error(text);
  }

  void CallEnded() {
    if (--open_calls_ > 0) return;
    const TimePoint now = Clock::now();
    if (!failed_) shared_->meter->CycleDone(sent_, now);
    if (failed_ || shared_->meter->Over(now)) {
      --shared_->running;
    } else {
      Begin(now);
    }
  }

  Shared* shared_;
  std::unique_ptr<pb::SemaphoreService::Stub> stub_;
  Step started_{this, &Holder::OnStarted};
  Step read_{this, &Holder::OnRead};
  Step finished_{this, &Holder::OnFinished};
  Step release_done_{this, &Holder::OnReleased};
  pb::HoldRequest request_;
  pb::HoldResponse event_;
  pb::ReleaseRequest release_;
  pb::ReleaseResponse released_;
  std::optional<grpc::ClientContext> stream_context_;
  std::optional<grpc::ClientContext> release_context_;
  std::unique_ptr<grpc::ClientAsyncReader<pb::HoldResponse>> stream_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<pb::ReleaseResponse>> releasing_;
  grpc::Status stream_status_;
  grpc::Status release_status_;
  uint64_t sequence_ = 0;
  TimePoint sent_;
  int open_calls_ = 0;
  bool granted_ = false;
  bool failed_ = false;
};

}  // namespace

Report RunHold(const Options& options) {
  Report report;
  report.title = "hold";
  Meter meter(options);
  std::deque<Holder> holders;
  Loop loop;
  Shared shared{&loop, &meter, &report};
  const std::string run = RunName();
  const auto channel = Connect(options.server, 0);
  for (uint32_t i = 0; i < options.clients; ++i) {
    const uint32_t semaphore = options.semaphores == 0 ? i : i % options.semaphores;
    holders.emplace_back(&shared, channel, run + "/" + std::to_string(semaphore),
                         run + "/client/" + std::to_string(i), options);
  }
  const TimePoint now = Clock::now();
  meter.Begin(now);
  for (Holder& holder : holders) holder.Start(now);
  const auto done = [&] { return shared.running == 0; };
  if (!loop.RunUntil(meter.until() + kPatience, done)) {
    report.Error(std::to_string(shared.running) + " holders never ended");
    for (Holder& holder : holders) holder.Cancel();
    loop.RunUntil(Clock::now() + kPatience, done);
  }
  meter.Fill(options.semaphores == 1 && options.limit == 1, &report);
  return report;
}

}  // namespace semaphored::bench
