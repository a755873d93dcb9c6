// What is counted of claims.
#include "server/core/sessions_impl.h"

namespace semaphored {
void SessionsImpl::CountFound(ClaimRecord* record) {
  if (!metrics_.on()) return;
  if (record->lease != nullptr) {
    metrics_.Found(record->semaphore, &record->figures, record->lease->permits);
  } else if (!record->offers) {
    metrics_.Waiting(record->semaphore, &record->figures);
  }
}

void SessionsImpl::CountEnd(ClaimRecord* record, EndCause cause) {
  metrics_.Ended(&record->figures, cause);
  if (record->lease == nullptr || cause == EndCause::kReleased) return;
  lease_log_.Lost(record->semaphore, *record->lease, cause, record->trace);
}

void SessionsImpl::Figures(SessionsFigures* out) {
  if (!metrics_.on()) return;
  metrics_.Snapshot(out);
  out->sessions = sessions_.size();
  out->sessions_open = by_listener_.size();
  // It may name some that have ended.
  for (const Id& id : workers_) {
    const SessionRecord* record = FindSession(id);
    out->workers += record != nullptr && record->worker != nullptr ? 1 : 0;
  }
}

}  // namespace semaphored
