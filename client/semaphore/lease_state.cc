#include "client/semaphore/lease_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {

TimePoint GoodUntil(TimePoint made, std::chrono::milliseconds valid_for,
                    std::chrono::milliseconds margin) {
  return made + valid_for - std::max(margin, valid_for / 100);
}

LeaseState::LeaseState(std::string semaphore, std::string lease_id,
                       std::vector<std::uint32_t> slots, std::uint64_t token,
                       std::shared_ptr<SharedDeadline> session_deadline)
    : semaphore(std::move(semaphore)),
      lease_id(std::move(lease_id)),
      slots(std::move(slots)),
      token(token),
      session_deadline(std::move(session_deadline)) {}

TimePoint LeaseState::GoodUntil() const {
  return std::min(session_deadline->get(), recall_deadline.get());
}

bool LeaseState::Held(TimePoint now) const { return !lost.load() && now < GoodUntil(); }

void LeaseState::AddLossCallback(std::function<void(const Loss&)> callback) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!told_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(loss_);  // written once, before told_
}

bool LeaseState::MarkLost(LossCause cause, std::string message) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (lost.load()) return false;
  loss_ = Loss{cause, std::move(message)};
  lost.store(true);
  return true;
}

void LeaseState::TellLoss() {
  std::vector<std::function<void(const Loss&)>> callbacks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    told_ = true;
    callbacks.swap(callbacks_);
  }
  stop_.request_stop();
  for (const std::function<void(const Loss&)>& callback : callbacks) callback(loss_);
}

Loss LeaseState::GetLoss() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return loss_;
}

bool LeaseState::HasCallbacks() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return on_recall != nullptr || !callbacks_.empty();
}

absl::string_view ToString(LossCause cause) {
  switch (cause) {
    case LossCause::kNoContact:
      return "no contact with a daemon";
    case LossCause::kExpired:
      return "expired";
    case LossCause::kRevoked:
      return "revoked";
    case LossCause::kRecalled:
      return "recalled and not given back in time";
    case LossCause::kDestroyed:
      return "the semaphore was destroyed";
    case LossCause::kDisconnected:
      return "the connection broke";
    case LossCause::kEngineLost:
      return "taken back by the engine";
    case LossCause::kMoved:
      return "moved to another session";
    case LossCause::kUnknown:
      return "not known to the daemon";
  }
  return "not known to the daemon";
}

std::vector<std::uint32_t> SlotsOf(
    const google::protobuf::RepeatedPtrField<::semaphore::v1::SlotRange>& ranges) {
  std::vector<std::uint32_t> slots;
  for (const ::semaphore::v1::SlotRange& range : ranges) {
    for (std::uint64_t slot = range.first(); slot <= range.last(); ++slot)
      slots.push_back(static_cast<std::uint32_t>(slot));
  }
  return slots;
}

absl::Status NotHeld(const Loss& loss) {
  return MakeError(absl::StatusCode::kNotFound,
                   absl::StrCat("the permits were lost before they were given back: ",
                                loss.message.empty() ? ToString(loss.cause) : loss.message),
                   "NOT_HELD");
}

}  // namespace semaphore
