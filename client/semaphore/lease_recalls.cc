#include "client/semaphore/lease_recalls.h"

#include <cstddef>

namespace semaphore {
namespace {

using std::chrono::milliseconds;

// In one message: the daemon's own bound.
constexpr std::size_t kAcknowledgementsMost = 1'000;
constexpr std::size_t kEarlyMost = 10'000;

}  // namespace

void LeaseRecalls::EndStream() {
  acknowledgements_.clear();
  early_.clear();
}

void LeaseRecalls::Add(const LeasePtr& lease, const Sent& sent) {
  if (lease->lost.load()) return;
  const v1::LeaseRecall& recall = sent.recall;
  const milliseconds grace(recall.grace_ms());
  const TimePoint made = sent.sent + milliseconds(recall.elapsed_ms());
  const TimePoint deadline = GoodUntil(made, grace, margin_);
  if (deadline < lease->recall_deadline.get()) {
    lease->recall_deadline.set(deadline);
    graces_.emplace(deadline, lease);
  }
  const std::pair name(stream_, recall.recall_id());
  if (recall.recall_id() != 0 && name == lease->last_recall) return;  // The same once more.
  lease->last_recall = name;
  recalled_.push_back(
      {lease, {grace, recall.reason(), lease->recall_deadline.get()}, name.second, name.first});
}

void LeaseRecalls::AddEarly(const std::string& lease_id, Sent recall) {
  if (early_.size() >= kEarlyMost) early_.erase(early_.begin());
  early_.insert_or_assign(lease_id, std::move(recall));
}

std::optional<LeaseRecalls::Sent> LeaseRecalls::TakeEarly(const std::string& lease_id) {
  auto early = early_.extract(lease_id);
  if (early.empty()) return std::nullopt;
  return std::move(early.mapped());
}

void LeaseRecalls::Acknowledge(const Recalled& recalled) {
  if (recalled.stream != stream_ || recalled.recall_id == 0) return;
  v1::RecallAcknowledgement& acknowledgement = acknowledgements_.emplace_back();
  acknowledgement.set_lease_id(recalled.lease->lease_id);
  acknowledgement.set_recall_id(recalled.recall_id);
}

std::vector<v1::RecallAcknowledgement> LeaseRecalls::TakeAcknowledgements() {
  if (acknowledgements_.size() <= kAcknowledgementsMost)
    return std::exchange(acknowledgements_, {});
  const auto end = acknowledgements_.begin() + kAcknowledgementsMost;
  std::vector<v1::RecallAcknowledgement> taken(acknowledgements_.begin(), end);
  acknowledgements_.erase(acknowledgements_.begin(), end);
  return taken;
}

std::optional<LeaseRecalls::LeasePtr> LeaseRecalls::TakeOver(TimePoint now) {
  if (graces_.empty() || graces_.begin()->first > now) return std::nullopt;
  LeasePtr lease = graces_.begin()->second.lock();
  graces_.erase(graces_.begin());
  return lease;
}

}  // namespace semaphore
