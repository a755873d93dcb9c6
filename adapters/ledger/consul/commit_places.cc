// The contenders' entries by which foreign clients count our permits: which are made, and which go.
#include <algorithm>
#include <iterator>
#include <utility>

#include "adapters/consul/commit.h"
#include "adapters/consul/folder_tickets.h"

namespace semaphored::consul {

namespace {

constexpr char kEndedWithDaemon[] = "its permit ended with its daemon, or the daemon's check";
constexpr char kPlaceValue[] = "{\"by\":\"semaphored\"}";

}  // namespace

// As many places as permits, and a few to spare.
absl::Status ConsulStore::Writer::PlanPlaces(Planned* planned) {
  Folder& folder = planned->folder;
  std::vector<std::string>& places = folder.document.places;
  const std::string under = store_->keys_.Folder(folder.name);
  std::erase_if(places,
                [&](const std::string& place) { return folder.lost_places.contains(place); });
  for (const std::string& place : folder.lost_places) store_->places_.Forget(place);
  folder.lost_places.clear();
  const size_t held = folder.document.Held();
  if (store_->url_.ends_with_daemon) return PlanBoundPlaces(planned);
  folder.document.bound.clear();
  if (places.size() < held) {
    NodeRef host;
    std::vector<std::string> more;
    if (absl::Status status = AddPlaces(&folder, &host, held - places.size(), &more); !status.ok())
      return status;
    std::ranges::move(more, std::back_inserter(places));
  }
  while (places.size() > held + kSparePlacesMax) {
    request_.Delete(under + places.back());
    places.pop_back();
  }
  Own(About::kSemaphore, folder.name);
  return absl::OkStatus();
}

// Makes the entries, and adds their sessions to `places`; they are not yet among the document's.
absl::Status ConsulStore::Writer::AddPlaces(Folder* folder, NodeRef* host, size_t count,
                                            std::vector<std::string>* places) {
  std::set<std::string> taken;
  for (const auto& [session, index] : folder->contenders) taken.insert(session);
  taken.insert(folder->document.places.begin(), folder->document.places.end());
  absl::StatusOr<Places::Taken> more = store_->places_.Take(*host, count, taken);
  if (!more.ok()) return more.status();
  *host = more->host;
  for (std::string& place : more->sessions) {
    request_.Lock(store_->keys_.Folder(folder->name) + place, kPlaceValue, place);
    Own(About::kPlace, place);
    places->push_back(std::move(place));
  }
  return absl::OkStatus();
}

NodeRef ConsulStore::Writer::HostOf(const Lease& lease) const {
  if (lease.detached()) return lease.host;
  for (auto change = transaction_->sessions.rbegin(); change != transaction_->sessions.rend();
       ++change) {
    if (change->after && change->after->id == lease.session) return change->after->host;
  }
  const auto known = store_->sessions_.find(lease.session);
  return known == store_->sessions_.end() ? store_->self_ : known->second.session->host;
}

// Each lease has places of the daemon that it is with; one that is given back passes to the next
// lease of the same daemon.
absl::Status ConsulStore::Writer::PlanBoundPlaces(Planned* planned) {
  Folder& folder = planned->folder;
  Document& document = folder.document;
  std::vector<BoundPlaces> free;
  const auto give = [&](BoundPlaces& from, size_t keep) {
    BoundPlaces more{from.host,
                     {from.sessions.begin() + static_cast<ptrdiff_t>(keep), from.sessions.end()}};
    from.sessions.resize(keep);
    if (!more.sessions.empty()) free.push_back(std::move(more));
  };
  for (auto& [id, places] : document.bound) {
    const auto lease = document.leases.find(id);
    if (lease == document.leases.end() ||
        (transaction_ != nullptr && places.host != HostOf(*lease->second))) {
      give(places, 0);
    } else if (places.sessions.size() > lease->second->permits) {
      give(places, lease->second->permits);
    }
  }
  absl::erase_if(document.bound, [](const auto& each) { return each.second.sessions.empty(); });
  for (const auto& [id, lease] : document.leases) {
    BoundPlaces& places = document.bound[id];
    if (places.sessions.size() == lease->permits) continue;
    NodeRef host = places.sessions.empty() && transaction_ != nullptr ? HostOf(*lease)
                   : places.sessions.empty()                          ? store_->self_
                                                                      : places.host;
    for (BoundPlaces& spare : free) {
      while (spare.host == host && !spare.sessions.empty() &&
             places.sessions.size() < lease->permits) {
        places.sessions.push_back(std::move(spare.sessions.back()));
        spare.sessions.pop_back();
      }
    }
    const size_t missing = lease->permits - places.sessions.size();
    if (missing > 0) {
      if (absl::Status status = AddPlaces(&folder, &host, missing, &places.sessions); !status.ok())
        return status;
      document.places.insert(document.places.end(),
                             places.sessions.end() - static_cast<ptrdiff_t>(missing),
                             places.sessions.end());
    }
    places.host = host;
  }
  for (const BoundPlaces& spare : free) {
    for (const std::string& place : spare.sessions)
      request_.Delete(store_->keys_.Folder(folder.name) + place);
  }
  document.places.clear();
  for (const auto& [id, places] : document.bound)
    document.places.insert(document.places.end(), places.sessions.begin(), places.sessions.end());
  Own(About::kSemaphore, folder.name);
  return absl::OkStatus();
}

// Permits that ended with their daemon, or its check.
void ConsulStore::Writer::EndLost(Planned* planned) {
  Folder* folder = &planned->folder;
  Document& document = folder->document;
  absl::erase_if(document.leases, [&](const auto& each) {
    const auto bound = document.bound.find(each.first);
    return bound != document.bound.end() &&
           std::ranges::any_of(bound->second.sessions, [&](const std::string& session) {
             return folder->lost_places.contains(session);
           });
  });
  for (auto& [id, places] : document.bound) {
    std::erase_if(places.sessions, [&](const std::string& session) {
      return folder->lost_places.contains(session);
    });
  }
  if (folder->lost_places.empty()) return;
  ++document.changes;
  for (const Id& ticket : ReturnTickets(folder, kEndedWithDaemon, store_->now_unix_ms_()))
    planned->tickets[ticket] = {folder->tickets.at(ticket).index, nullptr, nullptr};
}

}  // namespace semaphored::consul
