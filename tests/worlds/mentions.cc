#include "tests/worlds/mentions.h"

#include <algorithm>
#include <utility>

namespace semaphored::worlds {

using simulation::StoredSemaphore;

namespace {

const Claim& ClaimRow(const Claim& row) { return row; }
const Claim& ClaimRow(const LeasePtr& row) { return *row; }
const Claim& ClaimRow(const WaiterPtr& row) { return *row; }

template <typename Numbers>
void SortOut(Numbers* numbers) {
  std::ranges::sort(*numbers);
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

}  // namespace

Mentions::Mentions(const SmallWorld* world) : world_(*world) {
  for (const auto& [name, stored] : world_.engine_.semaphores()) AddAllOf(stored);
  for (const auto& [id, session] : world_.engine_.sessions()) Add(id, session.epoch);
  for (const auto& [number, client] : world_.engine_.clients()) {
    for (const auto& [sequence, row] : client.requests) Add(row.claim);
  }
  for (size_t i = 0; i < world_.nodes_.size(); ++i) {
    if (!world_.IsDown(i)) AddAllOf(world_.nodes_[i]);
  }
  for (const auto& lane : world_.lanes_) {
    if (!lane.up) continue;
    copies_.try_emplace(&lane, ledger::LedgerProbe{*lane.ledger}, lane.store->in_flight().get());
    AddAllOf(lane);
  }
  for (const auto& write : world_.late_) {
    if (MayStillLand(*write)) AddAllOf(*write);
  }
  for (const auto& client : world_.known_) {
    for (const auto& known : client) {
      Add(known.claim);
      Add(known.claim, known.moving);
    }
  }
  SortOut(&claims_);
  for (auto& [id, epochs] : epochs_) SortOut(&epochs);
}

template <typename Semaphore>
void Mentions::AddAllOf(const Semaphore& semaphore) {
  const auto add = [this](const auto& claims) {
    for (const auto& [id, claim] : claims) {
      Add(id);
      Add(id, ClaimRow(claim).epoch);
    }
  };
  add(semaphore.leases);
  add(semaphore.waiters);
}

void Mentions::AddAllOf(const Command& command) {
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
    Add(acquire->claim);
    Add(acquire->session, acquire->epoch);
    Add(ClaimOf(acquire->requester), acquire->moved_epoch);
  }
  if (const auto* end = std::get_if<EndCommand>(&command)) {
    Add(end->claim);
    Add(end->session, end->epoch);
  }
  if (const auto* close = std::get_if<CloseSessionCommand>(&command))
    Add(close->session, close->epoch);
  if (const auto* adopt = std::get_if<AdoptCommand>(&command)) Add(adopt->claim);
  if (const auto* release = std::get_if<ReleaseCommand>(&command)) Add(release->claim);
}

void Mentions::AddAllOf(const InFlight& write) {
  for (const Command& command : write.commands) AddAllOf(command);
}

void Mentions::AddAllOf(const SmallWorld::Lane& lane) {
  const ledger::LedgerProbe probe{*lane.ledger};
  const LaneCopy& copy = CopyOf(lane);
  for (const auto& [name, semaphore] : copy.semaphores) AddAllOf(semaphore);
  for (const auto& [id, session] : copy.sessions) Add(id, session->epoch);
  for (const Event& event : probe.found_events()) {
    Add(event.claim);
    Add(event.claim, event.epoch);
  }
  for (const auto& sent : lane.in_doubt) AddAllOf(sent.command);
  if (const auto& write = lane.store->in_flight()) AddAllOf(*write);
  for (const auto& [claim, is] : lane.view.claims) Add(claim);
}

void Mentions::AddAllOf(const SmallWorld::Node& node) {
  for (const auto& [claim, hosted] : node.claims) {
    Add(claim);
    Add(hosted.session, hosted.epoch);
    Add(claim, hosted.claim_epoch);
  }
  for (const auto& [id, epoch] : node.sessions) Add(id, epoch);
}

uint64_t Mentions::AttemptOf(const Id& claim) const {
  const Id first{claim.high, claim.low & ~uint64_t{0xff}};
  return static_cast<uint64_t>(std::ranges::lower_bound(claims_, claim) -
                               std::ranges::lower_bound(claims_, first));
}

uint64_t Mentions::RankOf(const Id& id, uint32_t epoch) const {
  if (epoch == 0) return 0;
  const std::vector<uint32_t>& epochs = epochs_.at(id);
  uint64_t rank = 1;
  for (size_t i = 1; i < epochs.size() && epochs[i] <= epoch; ++i)
    rank += std::min(2u, epochs[i] - epochs[i - 1]);
  return rank;
}

Id Mentions::ClaimOf(const Requester& requester) const {
  for (const auto& [number, client] : world_.engine_.clients()) {
    if (client.client_id != requester.client_id) continue;
    const auto row = client.requests.find(requester.sequence);
    if (row != client.requests.end()) return row->second.claim;
  }
  return {};
}

uint64_t Mentions::RevisionOf(const std::string& semaphore) const {
  const StoredSemaphore* stored = world_.engine_.Find(semaphore);
  return stored == nullptr ? 0 : stored->row.revision;
}

bool Mentions::Stands(const ledger::Transaction& transaction) const {
  if (!world_.engine_.conditions.revision) return true;
  const auto is_as_before = [this](const ledger::SemaphoreDelta& delta) {
    return RevisionOf(delta.name) == (delta.before ? delta.before->revision : 0);
  };
  const auto is_as_read = [this](const ledger::ReadCondition& read) {
    return RevisionOf(read.semaphore) == read.revision;
  };
  return std::ranges::all_of(transaction.semaphores, is_as_before) &&
         std::ranges::all_of(transaction.reads, is_as_read);
}

bool Mentions::MayStillLand(const InFlight& write) const {
  const bool may_write =
      world_.engine_.MayWrite(write.transaction.node) || !world_.engine_.conditions.incarnation;
  return !write.result && write.fate == Fate::kLater && may_write && Stands(write.transaction);
}

}  // namespace semaphored::worlds
