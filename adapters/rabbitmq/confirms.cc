#include "adapters/rabbitmq/confirms.h"

namespace semaphored::rabbitmq {

void Confirms::Settle(uint64_t sequence, bool multiple, Confirm confirm) {
  for (size_t i = 0; i < answers_.size(); ++i) {
    const uint64_t each = first_ + i;
    if (multiple ? each > sequence : each != sequence) continue;
    Answer& answer = answers_[i];
    if (answer.is_settled) continue;
    answer.is_settled = true;
    --left_;
    // What was returned is confirmed as well, and is in no queue.
    if (answer.confirm == Confirm::kUnknown) answer.confirm = confirm;
  }
}

void Confirms::Return(const std::string& key) {
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (answers_[i].confirm != Confirm::kUnknown || keys_[i] != key) continue;
    answers_[i].confirm = Confirm::kNoQueue;
    return;
  }
}

std::vector<Confirm> Confirms::Answers() const {
  std::vector<Confirm> confirms;
  confirms.reserve(answers_.size());
  for (const Answer& answer : answers_) confirms.push_back(answer.confirm);
  return confirms;
}

}  // namespace semaphored::rabbitmq
