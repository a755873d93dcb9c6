#include "server/core/end_marks.h"

namespace semaphored {

void EndMarks::Add(const Id& claim, EndCause cause) {
  if (marks_.size() >= kMarksMax) return;
  marks_[claim] = {cause, round_};
  if (lanes_asked_ == 0) AskLanes();
}

void EndMarks::AskLanes() {
  ++round_;
  lanes_asked_ = host_->lane_count();
  for (size_t lane = 0; lane < host_->lane_count(); ++lane) {
    host_->Submit(lane,
                  Job{FlushCommand{}, [this](const absl::StatusOr<Outcome>&) { --lanes_asked_; }});
  }
}

void EndMarks::Age(bool go_on) {
  if (marks_.empty() || lanes_asked_ > 0) return;
  absl::erase_if(marks_, [this](const auto& mark) { return mark.second.round < round_; });
  if (!marks_.empty() && go_on) AskLanes();
}

}  // namespace semaphored
