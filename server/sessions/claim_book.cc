#include "server/sessions/claim_book.h"

#include <algorithm>

namespace semaphored {

ClaimRecord* ClaimBook::Add(const Id& id, const std::string& semaphore, SessionRecord* session) {
  auto& record = records_[id];
  record = std::make_unique<ClaimRecord>();
  record->id = id;
  record->semaphore = semaphore;
  record->session = session;
  if (session != nullptr) session->claims.insert(id);
  return record.get();
}

void ClaimBook::Remove(ClaimRecord* record) {
  if (SessionRecord* session = record->session; session != nullptr) {
    session->claims.erase(record->id);
    const auto found = session->by_tag.find(record->tag);
    if (found != session->by_tag.end() && found->second == record->id) session->by_tag.erase(found);
  }
  RemoveLeadTo(record);
  const Id id = record->id;  // The key must not lie in what is erased.
  records_.erase(id);
}

void ClaimBook::RemoveLeadTo(ClaimRecord* record) {
  if (!record->led_from.empty()) records_.erase(record->led_from);
}

std::vector<Id> ClaimBook::At(const std::string& semaphore) const {
  std::vector<Id> claims;
  for (const auto& [id, record] : records_) {
    if (record->semaphore == semaphore && record->leads_to.empty()) claims.push_back(id);
  }
  // In an order that does not hang on addresses, so that a simulation replays.
  std::ranges::sort(claims);
  return claims;
}

}  // namespace semaphored
