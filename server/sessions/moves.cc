#include "server/sessions/moves.h"

#include <algorithm>
#include <utility>

#include "server/sessions/refusals.h"

namespace semaphored {

bool Moves::Begin(ClaimRecord* record, SteadyTime over_at) {
  if (record->move != nullptr) return false;
  record->move = std::make_unique<Move>();
  record->move->over_at = over_at;
  ++count_;
  return true;
}

void Moves::SetRequester(ClaimRecord* record, Requester requester) {
  ForgetRequester(*record);
  by_requester_[requester] = record->id;
  record->move->requester = std::move(requester);
}

void Moves::End(ClaimRecord* record) {
  if (record->move == nullptr) return;
  --count_;
  ForgetRequester(*record);
  record->move = nullptr;
}

void Moves::ForgetRequester(const ClaimRecord& record) {
  const auto found = by_requester_.find(record.move->requester);
  if (found != by_requester_.end() && found->second == record.id) by_requester_.erase(found);
}

void Moves::FillIn(const ClaimRecord& record, AcquireCommand* command) const {
  if (by_requester_.empty()) return;
  const auto found = by_requester_.find(command->requester);
  const ClaimRecord* claim = found == by_requester_.end() ? nullptr : claims_->Find(found->second);
  if (claim == nullptr || claim->move == nullptr || claim->session != record.session ||
      claim->semaphore != record.semaphore)
    return;
  command->moved_is_over = claim->move->over_at <= clock_->Now();
  command->moved_epoch = claim->life.epoch;
}

SteadyTime Moves::OverAt(const SessionRecord& session) const {
  SteadyTime over_at = SteadyTime::min();
  if (count_ == 0) return over_at;
  for (const Id& id : session.claims) {
    const ClaimRecord* claim = claims_->Find(id);
    if (claim != nullptr && claim->move != nullptr)
      over_at = std::max(over_at, claim->move->over_at);
  }
  return over_at;
}

Refusal Moves::RefusalOf(const ClaimRecord& record) const {
  const SteadyTime::duration left = record.move->over_at - clock_->Now();
  const auto left_ms = std::chrono::ceil<Milliseconds>(left).count();
  return MovingRefusal(record.semaphore, std::max<int64_t>(left_ms, 0));
}

}  // namespace semaphored
