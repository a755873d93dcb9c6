#include "adapters/consul/document.h"

namespace semaphored::consul {

uint32_t Document::Held() const {
  uint32_t held = 0;
  for (const auto& [id, lease] : leases) held += lease->permits;
  return held;
}

void Document::ListBoundPlaces() {
  places.clear();
  for (const auto& [id, each] : bound)
    places.insert(places.end(), each.sessions.begin(), each.sessions.end());
  for (const BoundPlaces& each : spares)
    places.insert(places.end(), each.sessions.begin(), each.sessions.end());
}

void Document::RemoveWaiter(const Id& id) {
  if (waiters.erase(id) != 0) return;
  for (auto& [number, page] : pages) {
    for (size_t i = 0; i < page.waiters.size(); ++i) {
      if (page.waiters[i]->id == id && !page.HasGone(i))
        page.gone.push_back(static_cast<uint32_t>(i));
    }
  }
}

}  // namespace semaphored::consul
