#include "adapters/ledger/serving.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace semaphored::ledger {
namespace {

constexpr size_t kBusyRemembered = 1000;
constexpr size_t kTouchedInTurn = 16;  // As many as kTouchedByMove, for the same reason.

}  // namespace

Serving::Serving(const LedgerOptions& options)
    : now_(options.now),
      busy_pause_(options.busy_pause),
      quarantine_pause_(options.quarantine_pause),
      quarantine_pause_max_(options.quarantine_pause_max) {}

Serving::~Serving() = default;

void Serving::Add(const std::string& name) { names_.insert(name); }

bool Serving::Serves(const std::string& name) const {
  return (only_.empty() || only_ == name) && !IsBusy(name) && !IsQuarantined(name);
}

bool Serving::ServesAny() const {
  return std::ranges::any_of(names_, [&](const std::string& name) { return Serves(name); });
}

void Serving::Served() {
  absl::erase_if(names_, [&](const std::string& name) {
    if (!Serves(name)) return false;
    quarantined_.erase(name);
    touched_.erase(name);
    return true;
  });
  TouchNext();
}

bool Serving::LeaveAlone(const std::vector<std::string>& busy) {
  const SteadyTime now = now_();
  bool is_new = false;
  for (const std::string& name : busy) {
    SteadyTime& until = busy_[name];
    is_new = is_new || until <= now;
    until = now + busy_pause_;
  }
  return is_new;
}

bool Serving::IsTouched(const std::string& name) const {
  return touched_.contains(name) || quarantined_.contains(name);
}

bool Serving::IsBusy(const std::string& name) const {
  if (busy_.empty()) return false;
  const auto found = busy_.find(name);
  return found != busy_.end() && now_() < found->second;
}

void Serving::ForgetBusy() {
  if (busy_.size() > kBusyRemembered) busy_.clear();
}

std::chrono::milliseconds Serving::Quarantine(const std::string& name, const absl::Status& why) {
  Quarantined& entry = quarantined_[name];
  entry.pause = entry.pause.count() == 0 ? quarantine_pause_
                                         : std::min(2 * entry.pause, quarantine_pause_max_);
  entry.until = now_() + entry.pause;
  entry.why = why;
  return entry.pause;
}

SteadyTime Serving::NextAttempt(SteadyTime latest) const {
  for (const auto& [name, each] : quarantined_) {
    if (now_() < each.until) latest = std::min(latest, each.until);
  }
  return latest;
}

void Serving::Touch(const std::string& name) {
  touched_.insert(name);
  names_.insert(name);
}

void Serving::TouchInTurn(std::vector<std::string> names) {
  std::ranges::move(names, std::back_inserter(in_turn_));
  TouchNext();
}

void Serving::TouchNext() {
  while (!in_turn_.empty() && touched_.size() < kTouchedInTurn) {
    Touch(in_turn_.back());
    in_turn_.pop_back();
  }
}

bool Serving::IsQuarantined(const std::string& name) const {
  if (quarantined_.empty()) return false;
  const auto found = quarantined_.find(name);
  return found != quarantined_.end() && now_() < found->second.until;
}

}  // namespace semaphored::ledger
