#include "adapters/ledger/one_shots.h"

#include "absl/container/flat_hash_set.h"

namespace semaphored::ledger {
namespace {

// In one commit. A batch brings fewer on average: what falls due is never left behind for long.
constexpr size_t kForgottenAtOnce = 1024;

}  // namespace

void OneShots::BeginBatch(size_t claims) {
  rows_ = ended_.size() + claims;
  new_ = 0;
  due_ = 0;
  if (ended_.empty()) return;
  const SteadyTime now = now_();
  while (due_ < ended_.size() && due_ < kForgottenAtOnce && now >= ended_[due_].since + retention_)
    ++due_;
}

void OneShots::Forget(Transaction* transaction) const {
  if (due_ == 0 || (transaction->empty() && rows_ < rows_max_)) return;
  // One that the engine had lost may be inserted by this very batch.
  absl::flat_hash_set<Id> written;
  for (const RequestChange& change : transaction->requests)
    written.insert(change.row.request.one_shot);
  for (size_t i = 0; i < due_; ++i) {
    if (!written.contains(ended_[i].one_shot))
      transaction->forgotten_requests.push_back(ended_[i].one_shot);
  }
}

void OneShots::Won(const Transaction& transaction) {
  // They are in the order of `ended_`; what is passed over has a newer row.
  for (const Id& forgotten : transaction.forgotten_requests) {
    while (!ended_.empty() && ended_.front().one_shot != forgotten) ended_.pop_front();
    if (!ended_.empty()) ended_.pop_front();
  }
  SteadyTime now{};
  for (const RequestChange& change : transaction.requests) {
    const bool ends = change.op != RequestChange::Op::kRemove && !change.row.pinned();
    if (change.row.request.one_shot.empty() || !ends) continue;
    if (now == SteadyTime{}) now = now_();
    ended_.push_back({change.row.request.one_shot, now});
  }
}

}  // namespace semaphored::ledger
