#include "client/semaphore/unary_caller.h"

#include <grpc/support/time.h>

#include <algorithm>
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

// How often it is looked whether the caller has given up.
constexpr milliseconds kLook(100);

gpr_timespec In(milliseconds time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(time.count(), GPR_TIMESPAN));
}

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
  if (timeout >= milliseconds(0)) context.set_deadline(In(timeout));
  const std::stop_callback on_cancel(cancel, [&context] { context.TryCancel(); });
  return attempt(stub, &context);
}

}  // namespace

UnaryCaller::UnaryCaller(std::vector<std::string> endpoints,
                         absl::StatusOr<std::shared_ptr<Transport>> transport,
                         milliseconds connect_timeout, bool once)
    : endpoints_(std::move(endpoints)),
      transport_(std::move(transport)),
      connect_timeout_(connect_timeout),
      once_(once),
      made_(endpoints_.size()) {}

UnaryCaller::Endpoint UnaryCaller::At(std::size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (made_[index].stub == nullptr) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(kPauseMost.count()));
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kPauseFirst.count()));
    // How long one attempt to connect may take, despite its name.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kPauseMost.count()));
    made_[index].channel = (*transport_)->Connect(endpoints_[index], arguments);
    made_[index].stub = v1::SemaphoreService::NewStub(made_[index].channel);
  }
  return made_[index];
}

// False if the connection is still being made when its time is over: a call would wait for it, and
// an address that answers nothing takes TCP minutes. True also if it failed, which the call then says.
bool UnaryCaller::AwaitConnection(grpc::Channel& channel, const std::stop_token& cancel) const {
  const milliseconds share = connect_timeout_ / static_cast<int64_t>(endpoints_.size());
  const steady_clock::time_point until = steady_clock::now() + share;
  while (true) {
    const grpc_connectivity_state state = channel.GetState(true);
    if (state != GRPC_CHANNEL_IDLE && state != GRPC_CHANNEL_CONNECTING) return true;
    if (steady_clock::now() >= until || cancel.stop_requested()) return false;
    channel.WaitForStateChange(state, In(kLook));
  }
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
    const Endpoint endpoint = At(index);
    const bool connected = AwaitConnection(*endpoint.channel, cancel);
    const grpc::Status status =
        connected ? CallOnce(attempt, *endpoint.stub, **transport_, timeout, cancel)
                  : grpc::Status(grpc::StatusCode::UNAVAILABLE, "nothing answers there");
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return ToAbslStatus(status);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      current_ = (index + 1) % endpoints_.size();
    }
    const steady_clock::time_point now = steady_clock::now();
    if (connected && now - begun >= kReached) reached = now;
    if (cancel.stop_requested()) return absl::CancelledError("given up");
    if (now - reached >= connect_timeout_ || (once_ && attempts >= endpoints_.size())) {
      absl::Status last = ToAbslStatus(status);
      if (!ErrorReason(last).empty()) return last;  // a daemon said why
      return MakeError(absl::StatusCode::kUnavailable,
                       absl::StrCat("no daemon could be reached; ", endpoints_[index],
                                    " said: ", last.message()),
                       "UNREACHABLE");
    }
    if (attempts % endpoints_.size() == 0) {
      Pause(std::min<std::chrono::nanoseconds>(backoff.Next(), reached + connect_timeout_ - now),
            cancel);
    }
  }
}

}  // namespace semaphore
