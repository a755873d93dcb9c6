// Called, sent, sent again, given up. What the daemon's answers do is in operation_answers.cc.
#include "client/semaphore/operations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// The daemon's own bound is 1000.
constexpr int kCommandsPerMessageMax = 1000;
// The daemon remembers a client's last 1024 answers; what is sent again must be among them.
constexpr std::uint64_t kWindow = 1000;
// A wait that the daemon should have ended is ended here after this much more.
constexpr milliseconds kWaitSlack(250);

}  // namespace

// ---- calls ----

std::uint64_t Operations::Add(Operation operation) {
  const std::uint64_t number = next_operation_++;
  if (operation.local_end != kNever) local_ends_.emplace(operation.local_end, number);
  operations_.emplace(number, std::move(operation));
  to_send_.push_back(number);
  return number;
}

std::uint64_t Operations::Acquire(AcquireCall call, TimePoint now) {
  Operation operation;
  operation.kind = Kind::kAcquire;
  operation.called_at = now;
  if (call.wait > milliseconds(0)) {
    operation.wait_end = now + std::min(call.wait, kLongest);
    operation.local_end = operation.wait_end + kWaitSlack;
  } else if (call.wait == milliseconds(0)) {
    operation.local_end = now + options_.connect_timeout;
  }
  operation.acquire = std::move(call);
  *operation.command.mutable_acquire() = operation.acquire.request;
  operation.command.mutable_acquire()->set_report_queued(true);
  if (closing_) {
    FinishAcquire(operation, absl::CancelledError("the client was destroyed"));
    Drop(std::move(operation.acquire));
    return 0;
  }
  if (operations_.size() >= options_.operations_max) {
    FinishAcquire(operation,
                  MakeError(absl::StatusCode::kResourceExhausted,
                            absl::StrCat("this client has operations_max (",
                                         options_.operations_max, ") requests under way"),
                            "LIMIT_REACHED"));
    Drop(std::move(operation.acquire));
    return 0;
  }
  keeper_.Want(now);
  return Add(std::move(operation));
}

void Operations::Cancel(std::uint64_t number, TimePoint now) {
  const auto operation = operations_.find(number);
  if (operation == operations_.end() || operation->second.abandoned) return;
  Abandon(operation,
          MakeError(absl::StatusCode::kCancelled, "the wait was given up", "WAIT_CANCELLED"), now);
}

void Operations::CancelAllAcquires(TimePoint now) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, operation] : operations_) {
    if (operation.kind == Kind::kAcquire) numbers.push_back(number);
  }
  for (const std::uint64_t number : numbers) Cancel(number, now);
}

void Operations::Release(const std::shared_ptr<LeaseState>& lease, ReleaseDone done,
                         TimePoint now) {
  Operation operation;
  operation.kind = Kind::kRelease;
  operation.called_at = now;
  operation.release_done = std::move(done);
  if (lease->lost.load()) {
    FinishRelease(operation, NotHeld(lease->GetLoss()));
  }
  if (keeper_.Find(lease->lease_id) != lease) {
    FinishRelease(operation, NotHeld(lease->GetLoss()));
    return;
  }
  if (keeper_.phase() == Phase::kOver) {
    FinishRelease(operation, absl::UnavailableError("the client was destroyed"));
    return;
  }
  operation.abandoned = operation.release_done == nullptr;
  operation.command.mutable_release()->set_lease_id(lease->lease_id);
  keeper_.Want(now);
  Add(std::move(operation));
}

void Operations::GiveBack(const std::string& lease_id, TimePoint now) {
  Operation operation;
  operation.kind = Kind::kRelease;
  operation.called_at = now;
  operation.abandoned = true;
  operation.command.mutable_release()->set_lease_id(lease_id);
  Add(std::move(operation));
}

void Operations::GiveBackUnclaimed(TimePoint now) {
  if (!claimants_.empty()) return;
  for (const std::string& lease_id : unclaimed_) GiveBack(lease_id, now);
  unclaimed_.clear();
}

// Answers the caller now. If the daemon may know of the acquire, the operation stays until the
// daemon has answered it.
void Operations::Abandon(Table::iterator operation, const absl::Status& status, TimePoint now) {
  Operation& abandoned = operation->second;
  FinishAcquire(abandoned, status);
  const std::uint64_t sequence = abandoned.command.sequence();
  if (sequence == 0) {
    Erase(operation);
    return;
  }
  abandoned.abandoned = true;
  // Before the cancel, which then ends what it asks for.
  if (retries_.erase({abandoned.retry_at, operation->first}) > 0)
    to_send_.push_back(operation->first);
  if (abandoned.local_end != kNever) local_ends_.erase({abandoned.local_end, operation->first});
  Operation cancel;
  cancel.kind = Kind::kCancel;
  cancel.called_at = now;
  cancel.abandoned = true;
  cancel.command.set_cancel(sequence);
  Add(std::move(cancel));
}

void Operations::Erase(Table::iterator operation) {
  ForgetSequence(operation->second.command.sequence());
  if (operation->second.local_end != kNever) {
    local_ends_.erase({operation->second.local_end, operation->first});
  }
  Drop(std::move(operation->second.acquire));
  operations_.erase(operation);
}

void Operations::Drop(AcquireCall call) {
  if (call.on_queued || call.on_lost || call.on_recall)
    effects_.dropped_calls.push_back(std::move(call));
}

// 0: nothing happens.
void Operations::ForgetSequence(std::uint64_t sequence) {
  by_sequence_.erase(sequence);
  in_flight_.erase(sequence);
  claimants_.erase(sequence);
}

void Operations::FinishAcquire(Operation& operation,
                               absl::StatusOr<std::shared_ptr<LeaseState>> result) {
  if (operation.acquire.done == nullptr) return;
  effects_.results.emplace_back(
      [done = std::move(operation.acquire.done), result = std::move(result)]() mutable {
        done(std::move(result));
      });
  operation.acquire.done = nullptr;
}

void Operations::FinishRelease(Operation& operation, absl::Status status) {
  if (operation.release_done == nullptr) return;
  effects_.results.emplace_back(
      [done = std::move(operation.release_done), status]() mutable { done(std::move(status)); });
  operation.release_done = nullptr;
  operation.abandoned = true;
}

void Operations::FailAcquires(const absl::Status& status) {
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    const auto current = operation++;
    if (current->second.kind != Kind::kAcquire) continue;
    FinishAcquire(current->second, status);
    Erase(current);
  }
}

void Operations::Close() {
  closing_ = true;
  FailAcquires(absl::CancelledError("the client was destroyed"));
}

void Operations::Finish(const absl::Status& status) {
  for (auto& [number, operation] : operations_) {
    if (operation.kind == Kind::kRelease) FinishRelease(operation, status);
    Drop(std::move(operation.acquire));
  }
  operations_.clear();
}

// ---- sending ----

namespace {

// Negative: for ever. So is what the field cannot say; that wait ends here.
void SetWait(milliseconds wait, v1::SessionAcquire* acquire) {
  const bool forever = wait < milliseconds(0) || wait > milliseconds(UINT32_MAX);
  acquire->set_wait_forever(forever);
  acquire->set_wait_ms(forever ? 0 : static_cast<std::uint32_t>(wait.count()));
}

}  // namespace

bool Operations::MayGiveSequence() const {
  return in_flight_.empty() || next_sequence_ - *in_flight_.begin() < kWindow;
}

void Operations::AddTo(v1::SessionRequest* message, TimePoint now) {
  while (!to_send_.empty() && message->commands_size() < kCommandsPerMessageMax) {
    const auto found = operations_.find(to_send_.front());
    if (found == operations_.end()) {
      to_send_.pop_front();
      continue;
    }
    Operation& operation = found->second;
    if (operation.command.sequence() == 0) {
      if (!MayGiveSequence()) return;
      operation.command.set_sequence(next_sequence_++);
      by_sequence_.emplace(operation.command.sequence(), found->first);
      if (operation.kind == Kind::kAcquire) {
        // Now, and never again: what is sent once more with this number must be the same.
        milliseconds wait = operation.acquire.wait;
        if (operation.wait_end != kNever) {
          wait = std::max(duration_cast<milliseconds>(operation.wait_end - now), milliseconds(1));
        }
        SetWait(wait, operation.command.mutable_acquire());
      }
    }
    if (!operation.queued) in_flight_.insert(operation.command.sequence());
    *message->add_commands() = operation.command;
    to_send_.pop_front();
  }
}

void Operations::OnOpened(std::set<std::string> unknown, TimePoint now) {
  unclaimed_ = std::move(unknown);
  ResendAll();
  GiveBackUnclaimed(now);
}

// After the stream was opened again: sends all unanswered commands, in the old order.
void Operations::ResendAll() {
  to_send_.clear();
  retries_.clear();
  claimants_.clear();
  for (const auto& [number, operation] : operations_) {
    to_send_.push_back(number);
    if (operation.kind == Kind::kAcquire && operation.command.sequence() != 0) {
      claimants_.insert(operation.command.sequence());
    }
    if (operation.kind == Kind::kRelease) unclaimed_.erase(operation.command.release().lease_id());
  }
}

void Operations::ForgetSession() {
  next_sequence_ = 1;
  by_sequence_.clear();
  in_flight_.clear();
  unclaimed_.clear();
  claimants_.clear();
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    const auto current = operation++;
    Operation& forgotten = current->second;
    if (forgotten.kind == Kind::kAcquire && !forgotten.abandoned) {
      forgotten.command.set_sequence(0);
      forgotten.queued = false;
      continue;
    }
    if (forgotten.kind == Kind::kRelease) {
      FinishRelease(forgotten, NotHeld({LossCause::kExpired, "its session expired at the daemon"}));
    }
    Erase(current);
  }
}

// ---- time ----

TimePoint Operations::GiveUpAt(const Operation& operation) const {
  return std::max(operation.called_at, keeper_.silent_since()) +
         (keeper_.ever_open() ? options_.reconnect_timeout : options_.connect_timeout);
}

absl::Status Operations::Unreachable() const {
  return MakeError(
      absl::StatusCode::kUnavailable,
      absl::StrCat("no daemon could be reached; the last endpoint said: ",
                   keeper_.last_error().ok() ? "nothing yet" : keeper_.last_error().message()),
      "UNREACHABLE");
}

void Operations::GiveUpUnreachable(TimePoint now) {
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    const auto current = operation++;
    if (current->second.abandoned) continue;
    if (now < GiveUpAt(current->second)) return;
    if (current->second.kind == Kind::kAcquire) {
      Abandon(current, Unreachable(), now);
    } else {
      FinishRelease(current->second, Unreachable());
    }
  }
}

void Operations::GiveUpNotWaiting(TimePoint now) {
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    const auto current = operation++;
    const bool waits = current->second.acquire.wait != milliseconds(0);
    if (current->second.kind != Kind::kAcquire || current->second.abandoned || waits) continue;
    Abandon(current, Unreachable(), now);
  }
}

void Operations::Tick(TimePoint now) {
  while (!retries_.empty() && retries_.begin()->first <= now) {
    to_send_.push_back(retries_.begin()->second);
    retries_.erase(retries_.begin());
  }
  while (!local_ends_.empty() && local_ends_.begin()->first <= now) {
    const auto operation = operations_.find(local_ends_.begin()->second);
    local_ends_.erase(local_ends_.begin());
    if (operation == operations_.end() || operation->second.abandoned) continue;
    const bool was_sent = operation->second.command.sequence() != 0;
    const bool waited = operation->second.acquire.wait > milliseconds(0);
    Abandon(
        operation,
        was_sent && waited
            ? MakeError(absl::StatusCode::kDeadlineExceeded,
                        "the permits did not come free in time", "WAIT_EXPIRED")
            : MakeError(absl::StatusCode::kUnavailable,
                        absl::StrCat(
                            "no daemon answered in time; the last one said: ",
                            keeper_.last_error().ok() ? "nothing" : keeper_.last_error().message()),
                        "UNREACHABLE"),
        now);
  }
}

TimePoint Operations::NextDue() const {
  TimePoint due = kNever;
  if (!local_ends_.empty()) due = std::min(due, local_ends_.begin()->first);
  if (!retries_.empty()) due = std::min(due, retries_.begin()->first);
  if (keeper_.phase() != Phase::kOpening && keeper_.phase() != Phase::kWaiting) return due;
  for (const auto& [number, operation] : operations_) {
    if (operation.abandoned) continue;
    return std::min(due, GiveUpAt(operation));  // those after it were called later
  }
  return due;
}

}  // namespace semaphore
