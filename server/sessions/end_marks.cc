#include "server/sessions/end_marks.h"

namespace semaphored {

void EndMarks::Add(const Id& claim, EndCause cause) {
  if (marks_.size() < kMarksMax) {
    marks_[claim] = {cause, round_};
  } else {
    left_out_ = round_;
  }
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
  if ((marks_.empty() && has_all()) || lanes_asked_ > 0) return;
  absl::erase_if(marks_, [this](const auto& mark) { return mark.second.round < round_; });
  if (left_out_ && *left_out_ < round_) left_out_.reset();
  if ((!marks_.empty() || !has_all()) && go_on) AskLanes();
}

}  // namespace semaphored
