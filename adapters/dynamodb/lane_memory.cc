#include "adapters/dynamodb/lane_memory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

namespace semaphored::dynamodb {
namespace {

constexpr size_t kSessionsKept = 200'000;

}  // namespace

// ---- semaphores ----

const LaneMemory::Known* LaneMemory::Find(const std::string& name) const {
  const auto found = known_.find(name);
  return found == known_.end() ? nullptr : &found->second;
}

void LaneMemory::Keep(const Folder& folder) {
  if (known_.size() >= known_max_ && !known_.contains(folder.name)) {
    // Those with waiters or leases of ours are counted.
    absl::erase_if(known_, [](const auto& each) { return each.second.own.empty(); });
    known_max_ = std::max(kSemaphoresKept, 2 * known_.size());
  }
  Semaphore& known = known_[folder.name];
  if (!folder.damage.ok()) {
    if (known.damage.ok()) spdlog::error("{}", std::string(folder.damage.message()));
    known.damage = folder.damage;
    return;
  }
  known.damage = absl::OkStatus();
  while (!known.own.empty()) Remove(&known, known.own.begin()->first);
  known.revision = folder.exists ? folder.head.row.revision : 0;
  known.digest = folder.head.digest;
  known.history_number = folder.head.history_number;
  for (const LeasePtr& lease : folder.leases) Add(&known, *lease, /*waits=*/false);
  for (const WaiterPtr& waiter : folder.waiters) Add(&known, *waiter, /*waits=*/true);
  for (const TicketPtr& ticket : folder.tickets) {
    if (Counts(*ticket)) AddCounted(&known, ticket->id);
  }
}

void LaneMemory::Keep(const std::string& name, const Written& written) {
  Semaphore& known = known_[name];
  for (const Id& id : written.gone) Remove(&known, id);
  for (const auto& [claim, waits] : written.came) Add(&known, *claim, waits);
  for (const Id& ticket : written.counted) AddCounted(&known, ticket);
  known.revision = written.revision;
  known.digest = written.revision == 0 ? 0 : written.digest;
  known.history_number = written.history_number;
}

bool LaneMemory::Follow(const std::string& name, uint64_t revision, const SentDetails& told) {
  const auto found = known_.find(name);
  if (found == known_.end()) return false;
  Semaphore& known = found->second;
  if (!known.damage.ok() || known.revision == 0 || known.revision + 1 != revision) return false;
  known.revision = revision;
  known.digest = told.digest;
  known.history_number = told.history_number;
  for (const Id& id : told.gone) Remove(&known, id);
  for (const Id& id : told.let_in) {
    const auto own = known.own.find(id);
    if (own == known.own.end() || !own->second.waits) continue;
    own->second.waits = false;
    if (!own->second.is_here) continue;
    --waiting_;
    ++holding_;
  }
  return true;
}

bool LaneMemory::MayHost(const std::string& name) const {
  const auto known = known_.find(name);
  return known == known_.end() || !known->second.damage.ok() ||
         std::ranges::any_of(known->second.own, [](const auto& own) { return own.second.hosted; });
}

bool LaneMemory::Counts(const Ticket& ticket) const {
  return ticket.state == TicketState::kDelayed && ticket.host.number == self_.number;
}

bool LaneMemory::IsHere(const Claim& claim) const {
  if (claim.detached()) return claim.host == self_;
  const auto session = sessions_.find(claim.session);
  // To ask for notices in vain costs less than to miss one.
  return session == sessions_.end() || session->second->host == self_;
}

void LaneMemory::Add(Semaphore* known, const Claim& claim, bool waits) {
  Remove(known, claim.id);
  const bool is_here = IsHere(claim);
  const bool of_node = claim.detached() && claim.host.number == self_.number;
  if (claim.detached() && !is_here && !of_node) return;
  known->own[claim.id] = {is_here, waits, of_node, claim.detached() ? Id{} : claim.session};
  if (is_here) ++(waits ? waiting_ : holding_);
}

void LaneMemory::Remove(Semaphore* known, const Id& claim) {
  const auto found = known->own.find(claim);
  if (found == known->own.end()) return;
  if (found->second.is_here) --(found->second.waits ? waiting_ : holding_);
  known->own.erase(found);
}

// ---- sessions ----

void LaneMemory::SeeSession(const Id& id, const ledger::SessionPtr& session,
                            const std::vector<std::string>& semaphores) {
  sessions_.erase(id);
  indexed_.erase(id);
  if (!session) return;
  sessions_[id] = session;
  indexed_[id].insert(semaphores.begin(), semaphores.end());
}

void LaneMemory::WriteSession(const ledger::SessionPtr& session) {
  sessions_[session->id] = session;
  const auto names = indexed_.find(session->id);
  if (names == indexed_.end()) return;
  const bool is_here = session->host == self_;
  for (const std::string& name : names->second) {
    const auto known = known_.find(name);
    if (known == known_.end()) continue;
    for (auto& [id, own] : known->second.own) {
      if (own.session != session->id || own.is_here == is_here) continue;
      own.is_here = is_here;
      size_t& count = own.waits ? waiting_ : holding_;
      if (is_here) ++count;
      if (!is_here) --count;
    }
  }
}

std::vector<std::string> LaneMemory::RemoveSession(const Id& id) {
  sessions_.erase(id);
  const auto indexed = indexed_.find(id);
  if (indexed == indexed_.end()) return {};
  std::vector<std::string> names(indexed->second.begin(), indexed->second.end());
  indexed_.erase(indexed);
  return names;
}

bool LaneMemory::IsIndexed(const Id& session, const std::string& semaphore) const {
  const auto known = indexed_.find(session);
  return known != indexed_.end() && known->second.contains(semaphore);
}

void LaneMemory::Index(const Id& session, const std::string& semaphore) {
  if (sessions_.contains(session)) indexed_[session].insert(semaphore);
}

void LaneMemory::ForgetSomeSessions() {
  if (sessions_.size() < kSessionsKept) return;
  sessions_.clear();
  indexed_.clear();
}

}  // namespace semaphored::dynamodb
