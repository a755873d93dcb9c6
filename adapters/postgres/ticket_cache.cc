#include "adapters/postgres/ticket_cache.h"

#include <utility>

namespace semaphored::postgres {

uint64_t TicketCache::Known(const std::string& semaphore) const {
  const auto found = semaphores_.find(semaphore);
  return found == semaphores_.end() ? 0 : found->second.revision;
}

std::optional<std::vector<TicketPtr>> TicketCache::Update(
    const std::string& semaphore, uint64_t revision, std::vector<TicketPtr> changed,
    const std::optional<std::vector<int64_t>>& places) {
  if (!places) {
    if (changed.size() < tickets_min_) {
      Forget(semaphore);
      return changed;
    }
    Queue queue{revision, age_, {}};
    for (const TicketPtr& ticket : changed) queue.tickets[ticket->order] = ticket;
    semaphores_[semaphore] = std::move(queue);
    return changed;
  }
  const auto found = semaphores_.find(semaphore);
  if (found == semaphores_.end()) return std::nullopt;
  Queue& queue = found->second;
  for (TicketPtr& ticket : changed) {
    const uint64_t place = ticket->order;
    queue.tickets[place] = std::move(ticket);
  }
  std::vector<TicketPtr> all;
  all.reserve(places->size());
  for (const int64_t place : *places) {
    const auto ticket = queue.tickets.find(static_cast<uint64_t>(place));
    if (ticket != queue.tickets.end()) all.push_back(ticket->second);
  }
  if (all.size() != places->size() || revision < queue.revision) {
    semaphores_.erase(found);
    return std::nullopt;
  }
  if (queue.tickets.size() != all.size()) {
    queue.tickets.clear();
    for (const TicketPtr& ticket : all) queue.tickets[ticket->order] = ticket;
  }
  queue.revision = revision;
  queue.used_at = age_;
  return all;
}

void TicketCache::Age() {
  ++age_;
  absl::erase_if(semaphores_,
                 [this](const auto& each) { return age_ - each.second.used_at > idle_max_; });
}

}  // namespace semaphored::postgres
