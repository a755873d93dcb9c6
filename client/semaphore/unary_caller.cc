#include "client/semaphore/unary_caller.h"

#include <grpc/support/time.h>

#include <condition_variable>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/semaphore/backoff.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPauseFirst(50);
constexpr milliseconds kPauseMost(1'000);
// An attempt that lasted this long had reached a daemon, and waited there.
constexpr milliseconds kReached(1'000);

void Pause(std::chrono::nanoseconds pause, std::stop_token cancel) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock<std::mutex> lock(mutex);
  stopped.wait_for(lock, std::move(cancel), pause, [] { return false; });
}

grpc::Status CallOnce(const UnaryCaller::Attempt& attempt, v1::SemaphoreService::Stub& stub,
                      Transport& transport, milliseconds timeout, const std::stop_token& cancel) {
  grpc::ClientContext context;
  transport.Authorize(&context);
  if (timeout >= milliseconds(0)) {
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_millis(timeout.count(), GPR_TIMESPAN)));
  }
  const std::stop_callback on_cancel(cancel, [&context] { context.TryCancel(); });
  return attempt(stub, &context);
}

}  // namespace

UnaryCaller::UnaryCaller(std::vector<std::string> endpoints,
                         absl::StatusOr<std::shared_ptr<Transport>> transport,
                         milliseconds connect_timeout)
    : endpoints_(std::move(endpoints)),
      transport_(std::move(transport)),
      connect_timeout_(connect_timeout),
      stubs_(endpoints_.size()) {}

std::shared_ptr<v1::SemaphoreService::Stub> UnaryCaller::StubAt(std::size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stubs_[index] == nullptr) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(kPauseMost.count()));
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kPauseFirst.count()));
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kPauseFirst.count()));
    stubs_[index] =
        v1::SemaphoreService::NewStub((*transport_)->Connect(endpoints_[index], arguments));
  }
  return stubs_[index];
}

absl::Status UnaryCaller::Call(const Attempt& attempt, milliseconds timeout,
                               const std::stop_token& cancel) {
  if (!transport_.ok()) return transport_.status();
  Backoff backoff(kPauseFirst, kPauseMost);
  steady_clock::time_point reached = steady_clock::now();
  for (std::size_t attempts = 1;; ++attempts) {
    std::size_t index = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      index = current_;
    }
    const steady_clock::time_point begun = steady_clock::now();
    const grpc::Status status = CallOnce(attempt, *StubAt(index), **transport_, timeout, cancel);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return ToAbslStatus(status);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      current_ = (index + 1) % endpoints_.size();
    }
    const steady_clock::time_point now = steady_clock::now();
    if (now - begun >= kReached) reached = now;
    if (cancel.stop_requested()) return absl::CancelledError("given up");
    if (now - reached >= connect_timeout_) {
      absl::Status last = ToAbslStatus(status);
      if (!ErrorReason(last).empty()) return last;  // a daemon said why
      return MakeError(absl::StatusCode::kUnavailable,
                       absl::StrCat("no endpoint could be reached; ", endpoints_[index],
                                    " said: ", last.message()),
                       "UNREACHABLE");
    }
    if (attempts % endpoints_.size() == 0) Pause(backoff.Next(), cancel);
  }
}

}  // namespace semaphore
