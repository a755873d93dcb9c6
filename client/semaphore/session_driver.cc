#include "client/semaphore/session_driver.h"

#include <cstdio>
#include <random>
#include <utility>

namespace semaphore {
namespace {

// Longer than the machine's own bound: only met if its clock is a test's and stands still.
constexpr std::chrono::milliseconds kCloseSlack(1'000);

// 128 random bits, as a UUID writes them.
std::string MakeClientId() {
  std::random_device device;
  char text[40];
  std::snprintf(text, sizeof(text), "%08x-%04x-4%03x-%04x-%04x%08x", device(), device() & 0xffff,
                device() & 0xfff, (device() & 0x3fff) | 0x8000, device() & 0xffff, device());
  return text;
}

}  // namespace

std::shared_ptr<SessionDriver> SessionDriver::Start(const ClientOptions& options,
                                                    std::shared_ptr<Transport> transport) {
  std::shared_ptr<SessionDriver> driver(new SessionDriver(options, std::move(transport)));
  driver->timers_ = std::thread([driver] { driver->RunTimers(); });
  return driver;
}

SessionDriver::SessionDriver(const ClientOptions& options, std::shared_ptr<Transport> transport)
    : options_(options),
      transport_(std::move(transport)),
      clock_(options.clock != nullptr ? *options.clock : Clock::Real()),
      machine_(options, MakeClientId) {}

std::uint64_t SessionDriver::Acquire(AcquireCall call) {
  std::unique_lock<std::mutex> lock(mutex_);
  const std::uint64_t operation = machine_.Acquire(std::move(call), clock_.Now());
  Flush(lock);
  return operation;
}

void SessionDriver::Cancel(std::uint64_t operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  machine_.Cancel(operation, clock_.Now());
  Flush(lock);
}

void SessionDriver::CancelAllAcquires() {
  std::unique_lock<std::mutex> lock(mutex_);
  machine_.CancelAllAcquires(clock_.Now());
  Flush(lock);
}

void SessionDriver::Release(const std::shared_ptr<LeaseState>& lease, ReleaseDone done) {
  std::unique_lock<std::mutex> lock(mutex_);
  machine_.Release(lease, std::move(done), clock_.Now());
  Flush(lock);
}

void SessionDriver::Acknowledge(const LeaseKeeper::Recalled& recalled) {
  std::unique_lock<std::mutex> lock(mutex_);
  machine_.Acknowledge(recalled);
  Flush(lock);
}

void SessionDriver::OnStreamMessage(SessionStream* stream, const v1::SessionResponse& message) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stream != stream_.get()) return;
  machine_.OnMessage(message, clock_.Now());
  Flush(lock);
}

void SessionDriver::OnStreamWritten(SessionStream* stream) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stream != stream_.get()) return;
  writing_ = false;
  Flush(lock);
}

void SessionDriver::OnStreamEnd(std::shared_ptr<SessionStream> stream, const absl::Status& status) {
  std::unique_lock<std::mutex> lock(mutex_);
  --streams_alive_;
  if (stream == stream_) {
    stream_ = nullptr;
    machine_.OnStreamEnd(status, clock_.Now());
  }
  ended_.push_back(std::move(stream));
  changed_.notify_all();
  Flush(lock);
}

void SessionDriver::Flush(std::unique_lock<std::mutex>& lock) {
  const TimePoint now = clock_.Now();
  Effects effects = machine_.TakeEffects();
  std::shared_ptr<SessionStream> dropped;
  if (effects.drop_stream) dropped = std::move(stream_);
  std::size_t endpoint = 0;
  const bool connect = machine_.StartConnecting(&endpoint, now);
  if (connect) {
    stream_ =
        SessionStream::Create(options_.endpoints[endpoint], *transport_, loop_, shared_from_this());
    ++streams_alive_;
    writing_ = false;
  }
  const std::shared_ptr<SessionStream> stream = stream_;
  bool write = false;
  if (stream != nullptr && !writing_) {
    write = machine_.NextMessage(stream->request(), now);
    writing_ = write;
  }
  if (machine_.NextDue(stream != nullptr && !writing_) < waiting_until_ || machine_.closed()) {
    changed_.notify_all();
  }
  lock.unlock();

  if (dropped != nullptr) dropped->Cancel();
  if (connect) stream->Start();
  if (write) stream->Write();
  for (LeaseKeeper::Recalled& recalled : effects.recalls) {
    losses_.Post([driver = shared_from_this(), recalled = std::move(recalled)] {
      recalled.lease->on_recall(recalled.notice);
      driver->Acknowledge(recalled);
    });
  }
  for (Closure& loss : effects.losses) losses_.Post(std::move(loss));
  for (Closure& result : effects.results) result();
  if (effects.dropped_calls.empty() && effects.dropped_leases.empty()) return;
  results_.Post(
      [calls = std::move(effects.dropped_calls), leases = std::move(effects.dropped_leases)] {});
}

void SessionDriver::RunTimers() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    waiting_until_ = TimePoint{};
    machine_.Tick(clock_.Now());
    Flush(lock);
    lock.lock();
    if (!ended_.empty()) {
      std::vector<std::shared_ptr<SessionStream>> ended = std::move(ended_);
      ended_.clear();
      lock.unlock();
      ended.clear();
      lock.lock();
      continue;
    }
    if (machine_.closed() && streams_alive_ == 0) break;
    waiting_until_ = machine_.closed() ? kNever : machine_.NextDue(stream_ != nullptr && !writing_);
    clock_.WaitUntil(changed_, lock, waiting_until_);
  }
  lock.unlock();
  loop_.Stop();
}

bool SessionDriver::OnOwnThread() const {
  return results_.IsCurrentThread() || losses_.IsCurrentThread() || loop_.IsCurrentThread() ||
         timers_.get_id() == std::this_thread::get_id();
}

void SessionDriver::Close() {
  std::unique_lock<std::mutex> lock(mutex_);
  machine_.Close(clock_.Now());
  Flush(lock);
  if (OnOwnThread()) {
    timers_.detach();  // the threads keep us alive until they have ended
    return;
  }
  lock.lock();
  const auto done = [this] { return machine_.closed() && streams_alive_ == 0; };
  if (!changed_.wait_for(lock, options_.release_timeout + kCloseSlack, done)) {
    machine_.Tick(kNever);  // all its time is over
    Flush(lock);
    lock.lock();
    changed_.wait_for(lock, kCloseSlack, done);
  }
  changed_.notify_all();
  lock.unlock();
  timers_.join();
  losses_.Stop();
  results_.Stop();
}

}  // namespace semaphore
