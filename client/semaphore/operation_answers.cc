// What becomes of an operation when the daemon answers it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/operations.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;

// Between attempts of a command that the daemon cannot carry out now.
constexpr milliseconds kRetryPause(200);

}  // namespace

void Operations::OnResult(const v1::SessionResult& result, TimePoint now) {
  // A waiter holds no listed lease. An acquire that is to be sent again may: see Erase.
  if (result.has_queued()) claimants_.erase(result.sequence());
  const auto number = by_sequence_.find(result.sequence());
  if (number == by_sequence_.end()) {
    // An acquire that failed for its caller long ago; or the second report of a grant whose lease
    // is in use.
    if (result.has_granted() && keeper_.Find(result.granted().lease_id()) == nullptr) {
      unclaimed_.erase(result.granted().lease_id());
      GiveBack(result.granted().lease_id(), now);
    }
  } else {
    const auto operation = operations_.find(number->second);
    switch (operation->second.kind) {
      case Kind::kAcquire:
        OnAcquireResult(operation, result, now);
        break;
      case Kind::kRelease:
        OnReleaseResult(operation, result, now);
        break;
      case Kind::kCancel:
        Erase(operation);
        break;
    }
  }
  if (!unclaimed_.empty()) GiveBackUnclaimed(now);
}

void Operations::OnAcquireResult(Table::iterator operation, const v1::SessionResult& result,
                                 TimePoint now) {
  Operation& acquire = operation->second;
  if (result.has_queued()) {
    acquire.queued = true;
    acquire.unavailable_since = kNever;
    in_flight_.erase(result.sequence());
    if (acquire.acquire.on_queued && !acquire.abandoned) {
      QueuePlace place;
      place.position = result.queued().position();
      // A reason that a newer daemon has added is none that is known.
      if (result.queued().reason() != v1::WAIT_REASON_UNSPECIFIED &&
          v1::WaitReason_IsValid(result.queued().reason()))
        place.reason =
            v1::WaitReason_Name(result.queued().reason()).substr(sizeof("WAIT_REASON_") - 1);
      if (result.queued().has_expected_wait_ms())
        place.expected_wait = milliseconds(result.queued().expected_wait_ms());
      effects_.results.emplace_back([tell = acquire.acquire.on_queued, place] { tell(place); });
    }
    return;
  }
  if (result.has_granted()) {
    OnGranted(operation, result.granted(), now);
    return;
  }
  const absl::Status error =
      result.has_error() ? ToAbslStatus(result.error())
                         : absl::InternalError("the daemon's answer is not one to an acquire");
  if (!acquire.abandoned && RetryAfterError(operation, error, now)) return;
  FinishAcquire(acquire, error);
  Erase(operation);
}

void Operations::OnGranted(Table::iterator operation, const v1::Lease& granted, TimePoint now) {
  unclaimed_.erase(granted.lease_id());
  Operation& acquire = operation->second;
  if (acquire.abandoned) {
    Erase(operation);
    GiveBack(granted.lease_id(), now);
    return;
  }
  LeaseKeeper::LeasePtr lease = keeper_.MakeLease(granted);
  lease->on_recall = std::move(acquire.acquire.on_recall);
  if (acquire.acquire.on_lost) lease->AddLossCallback(std::move(acquire.acquire.on_lost));
  keeper_.Keep(lease, granted);
  FinishAcquire(acquire, std::move(lease));
  Erase(operation);
}

void Operations::OnReleaseResult(Table::iterator operation, const v1::SessionResult& result,
                                 TimePoint now) {
  Operation& release = operation->second;
  absl::Status answer;
  if (result.has_error()) {
    answer = ToAbslStatus(result.error());
    if (RetryAfterError(operation, answer, now)) return;
  } else if (!result.has_released()) {
    answer = absl::InternalError("the daemon's answer is not one to a release");
  } else if (result.released().released() == 0 && !release.reissued) {
    answer =
        NotHeld({LossCause::kUnknown,
                 absl::StrCat("the daemon says ", v1::EndCause_Name(result.released().ended()))});
  }
  FinishRelease(release, answer);
  keeper_.Forget(release.command.release().lease_id());
  if (EndsGivingBack(answer)) return Erase(operation);
  GiveBackLater(operation, now);
}

// Its caller has an error, and the daemon still holds the lease. Under a new number each time: an old one would hold up
// the window.
void Operations::GiveBackLater(Table::iterator operation, TimePoint now) {
  Operation& release = operation->second;
  release.pause = std::clamp(release.pause * 2, kRetryPause, kGiveBackPauseMost);
  Renumber(release);
  RetryAt(operation, now + release.pause);
}

void Operations::RetryAt(Table::iterator operation, TimePoint at) {
  operation->second.retry_at = at;
  retries_.emplace(at, operation->first);
}

// True if the command will be sent again.
bool Operations::RetryAfterError(Table::iterator operation, const absl::Status& error,
                                 TimePoint now) {
  Operation& failed = operation->second;
  if (!failed.reissued && ErrorReason(error) == "REQUEST_TOO_OLD") {
    Reissue(operation, now);
    return true;
  }
  if (!absl::IsUnavailable(error)) return false;
  // Nothing is known to have been done: the same again, until the caller has waited long enough.
  failed.unavailable_since = std::min(failed.unavailable_since, now);
  if (now - failed.unavailable_since >= options_.reconnect_timeout) return false;
  RetryAt(operation, now + kRetryPause);
  return true;
}

// It gets its next number when it is sent.
void Operations::Renumber(Operation& operation) {
  ForgetSequence(operation.command.sequence());
  operation.command.set_sequence(0);
  operation.queued = false;
  operation.reissued = true;
}

// The daemon has forgotten the number, and so whether it carried the command out. The client cancels the old wait and
// sends the command under a new number. A grant that still comes under the old number is given back.
void Operations::Reissue(Table::iterator operation, TimePoint now) {
  Operation& renewed = operation->second;
  const std::uint64_t old_sequence = renewed.command.sequence();
  Renumber(renewed);
  if (renewed.kind == Kind::kAcquire) {
    Operation cancel;
    cancel.kind = Kind::kCancel;
    cancel.called_at = now;
    cancel.abandoned = true;
    cancel.command.set_cancel(old_sequence);
    Add(std::move(cancel));
  }
  to_send_.push_back(operation->first);
}

}  // namespace semaphore
