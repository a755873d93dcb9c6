#include "adapters/sqlite/spare_pages.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace semaphored::sqlite {
namespace {

using std::chrono::milliseconds;

// Pages, and shares of the file.
constexpr int64_t kTooManyMin = 512;
constexpr int64_t kTooManyShare = 4;
constexpr int64_t kKeptMin = 256;
constexpr int64_t kKeptShare = 8;

// SQLite searches its list of free pages for each one that goes: the longer the list, the fewer go
// in this time. Fewer than the least would spend it on the sync alone.
constexpr milliseconds kStepTime(5);
constexpr int kPagesAtOnceMin = 16;
constexpr int kPagesAtOnceMax = 256;

// Of the commits' time a twentieth.
constexpr milliseconds kBetweenSteps(100);

}  // namespace

void SparePages::Look() {
  const bool begun = std::exchange(surplus_, 0) > 0;
  if (!database_->can_shrink()) return;
  const absl::StatusOr<Database::Pages> pages = database_->CountPages();
  if (!pages.ok()) return upkeep_->Failed(UpkeepWork::kSpace, pages.status());
  if (!begun && pages->free <= std::max(kTooManyMin, pages->all / kTooManyShare)) return;
  surplus_ = std::max<int64_t>(pages->free - std::max(kKeptMin, pages->all / kKeptShare), 0);
}

void SparePages::Step() {
  const SteadyTime began = SteadyClock::now();
  const auto pages = static_cast<int>(std::min<int64_t>(surplus_, pages_at_once_));
  const absl::Status status = database_->GiveBack(pages);
  Adapt(began);
  upkeep_->Note(UpkeepWork::kSpace, status);
  if (status.ok()) {
    Look();
  } else {
    surplus_ = 0;
  }
}

void SparePages::StepBetweenCommits() {
  if (too_many() && SteadyClock::now() - last_step_ >= kBetweenSteps) Step();
}

void SparePages::Adapt(SteadyTime began) {
  last_step_ = SteadyClock::now();
  if (last_step_ - began > kStepTime) {
    pages_at_once_ = std::max(pages_at_once_ / 2, kPagesAtOnceMin);
  } else if (last_step_ - began < kStepTime / 2) {
    pages_at_once_ = std::min(pages_at_once_ * 2, kPagesAtOnceMax);
  }
}

}  // namespace semaphored::sqlite
