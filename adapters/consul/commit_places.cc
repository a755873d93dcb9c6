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
// Of leases that ended with their daemon: each may have a ticket.
constexpr size_t kLeasesMendedAtOnce = 20;
// Made or taken away by a transaction of their own, which also writes the document.
constexpr size_t kPlacesAtOnce = 60;

}  // namespace

// They are not counted any more, and not used again.
void ConsulStore::Writer::DropLost(Folder* folder) {
  const auto is_lost = [&](const std::string& place) {
    return folder->lost_places.contains(place);
  };
  std::erase_if(folder->document.places, is_lost);
  for (BoundPlaces& spare : folder->document.spares) std::erase_if(spare.sessions, is_lost);
  for (const std::string& place : folder->lost_places) store_->places_.Forget(place);
  folder->lost_places.clear();
}

// As many places as permits, and a few to spare.
absl::Status ConsulStore::Writer::PlanPlaces(Planned* planned) {
  Folder& folder = planned->folder;
  std::vector<std::string>& places = folder.document.places;
  DropLost(&folder);
  const size_t held = folder.document.Held();
  if (store_->url_.ends_with_daemon) return PlanBoundPlaces(planned);
  folder.document.bound.clear();
  folder.document.spares.clear();
  if (places.size() < held) {
    NodeRef host;
    std::vector<std::string> more;
    if (absl::Status status = AddPlaces(&folder, &host, held - places.size(), &more); !status.ok())
      return status;
    std::ranges::move(more, std::back_inserter(places));
  }
  while (places.size() > held + kSparePlacesMax && TakeRoom()) {
    request_.Delete(store_->keys_.Folder(folder.name) + places.back());
    places.pop_back();
  }
  Own(About::kSemaphore, folder.name);
  return absl::OkStatus();
}

// Makes the entries, and adds their sessions to `places`; they are not yet among the document's.
absl::Status ConsulStore::Writer::AddPlaces(Folder* folder, NodeRef* host, size_t count,
                                            std::vector<std::string>* places) {
  if (count > new_places_ + room_) {
    // Without a document there is nothing to write them down in.
    if (folder->has_document()) lacking_ = {folder->name, *host, count};
    return absl::OutOfRangeError("consul: that is more permits than a transaction of Consul gives");
  }
  const size_t reserved = std::min(count, new_places_);
  new_places_ -= reserved;
  room_ -= count - reserved;
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
  std::vector<BoundPlaces> free = std::move(document.spares);
  document.spares.clear();
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
    if (absl::Status status = GivePlaces(&folder, *lease, &free); !status.ok()) return status;
  }
  document.spares = std::move(free);
  TakeAway(&folder);
  document.ListBoundPlaces();
  return absl::OkStatus();
}

// What the lease lacks: from those that are free, and new ones.
absl::Status ConsulStore::Writer::GivePlaces(Folder* folder, const Lease& lease,
                                             std::vector<BoundPlaces>* free) {
  BoundPlaces& places = folder->document.bound[lease.id];
  if (places.sessions.size() == lease.permits) return absl::OkStatus();
  NodeRef host = places.host;
  if (places.sessions.empty()) {
    const NodeRef wanted = transaction_ != nullptr ? HostOf(lease) : store_->self_;
    const absl::StatusOr<NodeRef> found = store_->places_.HostFor(wanted);
    if (!found.ok()) return found.status();
    host = *found;
  }
  for (BoundPlaces& spare : *free) {
    while (spare.host == host && !spare.sessions.empty() &&
           places.sessions.size() < lease.permits) {
      places.sessions.push_back(std::move(spare.sessions.back()));
      spare.sessions.pop_back();
    }
  }
  const size_t missing = lease.permits - places.sessions.size();
  if (missing > 0) {
    if (absl::Status status = AddPlaces(folder, &host, missing, &places.sessions); !status.ok())
      return status;
    folder->document.places.insert(folder->document.places.end(),
                                   places.sessions.end() - static_cast<ptrdiff_t>(missing),
                                   places.sessions.end());
  }
  places.host = host;
  return absl::OkStatus();
}

// Permits that ended with their daemon, or its check. The rows of their requests are left as they are:
// whose claim is gone says so (claim_states.h).
void ConsulStore::Writer::EndLost(Planned* planned) {
  Folder* folder = &planned->folder;
  if (folder->lost_places.empty()) return;
  Document& document = folder->document;
  std::vector<Id> ended;
  for (const auto& [id, places] : document.bound) {
    if (ended.size() == kLeasesMendedAtOnce) break;
    if (std::ranges::any_of(places.sessions, [&](const std::string& session) {
          return folder->lost_places.contains(session);
        }))
      ended.push_back(id);
  }
  if (ended.empty()) return;
  for (const Id& id : ended) {
    document.leases.erase(id);
    std::erase_if(document.bound.at(id).sessions, [&](const std::string& session) {
      return folder->lost_places.contains(session);
    });
  }
  ++document.changes;
  for (const Id& ticket :
       ReturnTickets(folder, kEndedWithDaemon, store_->now_unix_ms_(), kLeasesMendedAtOnce))
    planned->tickets[ticket] = {folder->tickets.at(ticket).index, nullptr, nullptr};
}

absl::Status ConsulStore::Writer::BuildMending(const Folder& folder) {
  Planned planned;
  planned.folder = folder;
  if (store_->url_.ends_with_daemon) EndLost(&planned);
  room_ = TransactionRequest::kOperationsMax - 2 - planned.tickets.size();
  const size_t places = folder.document.places.size();
  const size_t held = folder.document.Held();
  planned.writes_document =
      !folder.lost_places.empty() || places < held || places > held + kSparePlacesMax;
  if (absl::Status status = Write(&planned); !status.ok()) return status;
  if (!request_.FitsConsul())
    return absl::OutOfRangeError("consul: that is more to mend than a transaction of Consul takes");
  folders_.push_back(std::move(planned));
  return absl::OkStatus();
}

absl::Status ConsulStore::Writer::BuildPlaces(const Folder& folder, const Lacking& lacking) {
  Planned planned;
  planned.folder = folder;
  Document& document = planned.folder.document;
  const bool bound = store_->url_.ends_with_daemon;
  if (!bound) DropLost(&planned.folder);
  if (lacking.count != 0) {
    NodeRef host = lacking.host;
    BoundPlaces made;
    new_places_ = std::min(lacking.count, kPlacesAtOnce);
    absl::Status status = AddPlaces(&planned.folder, &host, new_places_, &made.sessions);
    if (!status.ok()) return status;
    made.host = host;
    document.places.insert(document.places.end(), made.sessions.begin(), made.sessions.end());
    if (bound) document.spares.push_back(std::move(made));
  } else {
    room_ = kPlacesAtOnce;
    TakeAway(&planned.folder);
  }
  if (bound) document.ListBoundPlaces();
  WriteOwnDocument(&planned);
  if (!request_.FitsConsul())
    return absl::OutOfRangeError("consul: that is more than a transaction of Consul takes");
  folders_.push_back(std::move(planned));
  return absl::OkStatus();
}

// Places that no permit of ours needs, as long as there is room.
void ConsulStore::Writer::TakeAway(Folder* folder) {
  Document& document = folder->document;
  const std::string under = store_->keys_.Folder(folder->name);
  const auto take = [&](std::vector<std::string>& sessions) {
    request_.Delete(under + sessions.back());
    sessions.pop_back();
  };
  if (!store_->url_.ends_with_daemon) {
    const size_t held = document.Held();
    while (document.places.size() > held && TakeRoom()) take(document.places);
  }
  for (BoundPlaces& spare : document.spares) {
    while (!spare.sessions.empty() && TakeRoom()) take(spare.sessions);
  }
  std::erase_if(document.spares, [](const BoundPlaces& each) { return each.sessions.empty(); });
  Own(About::kSemaphore, folder->name);
}

}  // namespace semaphored::consul
