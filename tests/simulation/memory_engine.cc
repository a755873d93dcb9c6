#include "tests/simulation/memory_engine.h"

#include <algorithm>
#include <memory>

#include "adapters/common/client_names.h"

namespace semaphored::simulation {

using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::SessionChange;
using ledger::Transaction;
using ledger::WaiterChange;

namespace {

// Copies each row once, however often the transaction shows it.
class RowCopier {
 public:
  template <typename T>
  std::shared_ptr<T> Copy(const std::shared_ptr<T>& row) {
    if (!row) return nullptr;
    std::shared_ptr<void>& copy = copies_[row.get()];
    if (!copy) copy = std::make_shared<T>(*row);
    return std::static_pointer_cast<T>(copy);
  }

 private:
  std::map<const void*, std::shared_ptr<void>> copies_;
};

bool SameSession(const Session& a, const Session& b) {
  return a.id == b.id && a.host == b.host && a.epoch == b.epoch && a.ttl_ms == b.ttl_ms &&
         a.closing == b.closing;
}

}  // namespace

uint32_t StoredSemaphore::held() const {
  uint32_t held = 0;
  for (const auto& [id, lease] : leases) held += lease.permits;
  return held;
}

std::vector<const Waiter*> StoredSemaphore::Queue() const {
  std::vector<const Waiter*> queue;
  for (const auto& [id, waiter] : waiters) {
    if (!waiter.works) queue.push_back(&waiter);
  }
  std::ranges::sort(queue, [](const Waiter* a, const Waiter* b) {
    return ledger::PlaceOf(*a) < ledger::PlaceOf(*b);
  });
  return queue;
}

const Ticket* StoredSemaphore::NextTicket() const {
  const auto works = [](const auto& entry) { return entry.second.works; };
  if (tickets.empty() || std::ranges::none_of(waiters, works)) return nullptr;
  const Ticket* next = nullptr;
  for (const auto& [id, ticket] : tickets) {
    if (ticket.state != TicketState::kQueued) continue;
    if (next == nullptr || ledger::PlaceOf(ticket) < ledger::PlaceOf(*next)) next = &ticket;
  }
  return next;
}

Transaction DeepCopy(const Transaction& transaction) {
  Transaction copy = transaction;
  RowCopier copier;
  for (SemaphoreDelta& delta : copy.semaphores) {
    for (LeaseChange& change : delta.leases) {
      change.before = copier.Copy(change.before);
      change.after = copier.Copy(change.after);
    }
    for (WaiterChange& change : delta.waiters) {
      change.before = copier.Copy(change.before);
      change.after = copier.Copy(change.after);
    }
  }
  for (SessionChange& change : copy.sessions) {
    change.before = copier.Copy(change.before);
    change.after = copier.Copy(change.after);
  }
  for (HistoryRow& row : copy.history) row.lease = copier.Copy(row.lease);
  return copy;
}

// ---- landing ----

MemoryEngine::Landing MemoryEngine::Land(Write& write) {
  Transaction& transaction = write.transaction;
  Landing landing;
  if (const auto found = landed_.find(write.id); found != landed_.end()) {
    ledger::SetTokens(found->second.tokens, &transaction);
    for (SemaphoreDelta& delta : transaction.semaphores)
      delta.revision = found->second.revisions[delta.name];
    landing.landed = true;
    return landing;
  }
  if (conditions.incarnation && !MayWrite(transaction.node)) {
    landing.status =
        absl::FailedPreconditionError("memory: this node was replaced or declared dead");
    return landing;
  }
  const bool refused = Refuses(write);
  if (IsUnwritable(transaction)) {
    landing.status = absl::DataLossError("memory: a row is damaged");
    return landing;
  }
  bool stands = SemaphoresStand(transaction, &landing.stale);
  landing.requests_lost = !RequestsStand(transaction);
  if (!SessionsStand(transaction) || landing.requests_lost) {
    stands = false;
    landing.stale.clear();
    for (const SemaphoreDelta& delta : transaction.semaphores) landing.stale.push_back(delta.name);
  }
  if (stands && refused) landing.status = absl::DataLossError("memory: a row was damaged");
  if (!stands || refused) return landing;
  Carry(transaction);
  Given& given = landed_[write.id];
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    given.revisions[delta.name] = delta.revision;
    for (const LeaseChange& change : delta.leases) {
      if (!change.before) given.tokens[change.after->id] = change.after->token;
    }
  }
  landing.landed = true;
  return landing;
}

bool MemoryEngine::SemaphoresStand(const Transaction& transaction,
                                   std::vector<std::string>* stale) const {
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (unreadable.contains(delta.name)) stale->push_back(delta.name);
  }
  if (!conditions.revision) return stale->empty();
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    const StoredSemaphore* stored = Find(delta.name);
    const uint64_t expected = delta.before ? delta.before->revision : 0;
    if ((stored == nullptr ? 0 : stored->row.revision) != expected) stale->push_back(delta.name);
  }
  for (const ledger::ReadCondition& read : transaction.reads) {
    const StoredSemaphore* stored = Find(read.semaphore);
    if ((stored == nullptr ? 0 : stored->row.revision) != read.revision)
      stale->push_back(read.semaphore);
  }
  return stale->empty();
}

bool MemoryEngine::Refuses(const Write& write) {
  const bool damaged =
      std::ranges::any_of(write.transaction.semaphores, [&](const SemaphoreDelta& delta) {
        return unwritable.contains(delta.name) || unreadable.contains(delta.name);
      });
  if (damaged) refused_.insert(write.id);
  return refused_.contains(write.id);
}

bool MemoryEngine::IsUnwritable(const Transaction& transaction) const {
  return std::ranges::any_of(transaction.semaphores, [&](const SemaphoreDelta& delta) {
    return unwritable.contains(delta.name);
  });
}

bool MemoryEngine::SessionsStand(const Transaction& transaction) const {
  for (const SessionChange& change : transaction.sessions) {
    if (!conditions.session_row) break;
    // Within one batch the later change starts from what the earlier one made.
    const Id& id = change.before ? change.before->id : change.after->id;
    const auto first = std::ranges::find_if(transaction.sessions, [&](const SessionChange& each) {
      return (each.before ? each.before->id : each.after->id) == id;
    });
    if (&*first != &change) continue;
    const auto found = sessions_.find(id);
    if ((found == sessions_.end()) != (change.before == nullptr)) return false;
    if (change.before && !SameSession(found->second, *change.before)) return false;
  }
  for (const ledger::EpochCondition& condition : transaction.epochs) {
    if (!conditions.epoch) break;
    const auto found = sessions_.find(condition.session);
    if (found != sessions_.end() && found->second.epoch == condition.epoch) continue;
    const bool made_here =
        std::ranges::any_of(transaction.sessions, [&](const SessionChange& change) {
          return change.after && change.after->id == condition.session &&
                 change.after->epoch == condition.epoch;
        });
    if (!made_here) return false;
  }
  return true;
}

bool MemoryEngine::RequestsStand(const Transaction& transaction) const {
  if (!conditions.request) return true;
  const auto absent = [&](const RequestKey& request) {
    const StoredClient& client = clients_.at(request.client);
    return request.sequence >= client.floor && !client.requests.contains(request.sequence);
  };
  return std::ranges::all_of(transaction.requests,
                             [&](const ledger::RequestChange& change) {
                               return change.op != ledger::RequestChange::Op::kInsert ||
                                      absent(change.row.request);
                             }) &&
         std::ranges::all_of(transaction.absent_requests, absent, &ledger::NamedRequest::request);
}

void MemoryEngine::WriteRequests(const Transaction& transaction) {
  for (const ledger::RequestChange& change : transaction.requests) {
    const RequestKey& request = change.row.request;
    StoredClient& client = clients_.at(request.client);
    client.high = std::max(client.high, request.sequence);
    auto& rows = client.requests;
    if (change.op == ledger::RequestChange::Op::kRemove) {
      rows.erase(request.sequence);
    } else {
      rows.insert_or_assign(request.sequence, change.row);
    }
  }
  for (const Id& one_shot : transaction.forgotten_requests) {
    auto& rows = clients_.at(NumberOf(ledger::NameOfOneShot(one_shot))).requests;
    std::erase_if(rows, [](const auto& row) { return !row.second.pinned(); });
  }
  for (const ledger::RequestFloor& floor : transaction.request_floors) {
    StoredClient& client = clients_.at(floor.client);
    client.floor = std::max(client.floor, floor.below);
    std::erase_if(client.requests, [&](const auto& row) {
      return row.first < client.floor && !row.second.pinned();
    });
  }
}

void MemoryEngine::Forget(const Transaction& transaction) {
  if (!may_forget) return;
  for (const uint32_t number : transaction.forgotten_clients) {
    if (number == 0 || !may_forget(transaction, number)) continue;
    StoredClient& client = clients_.at(number);
    client.requests.clear();
    client.floor = client.high = 0;
  }
}

void MemoryEngine::SetTokens(Transaction& transaction) {
  absl::flat_hash_map<Id, uint64_t> tokens;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (tokens_repeat && !delta.before) last_token_ = 0;
    for (const LeaseChange& change : delta.leases) {
      if (!change.before) tokens[change.after->id] = ++last_token_;
    }
  }
  ledger::SetTokens(tokens, &transaction);
}

void MemoryEngine::Carry(Transaction& transaction) {
  std::map<std::string, StoredSemaphore> before;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (const StoredSemaphore* stored = Find(delta.name)) before[delta.name] = *stored;
  }
  SetTokens(transaction);
  for (SemaphoreDelta& delta : transaction.semaphores) WriteSemaphore(delta);
  for (const SessionChange& change : transaction.sessions) {
    if (change.after) {
      sessions_[change.after->id] = *change.after;
    } else {
      sessions_.erase(change.before->id);
    }
  }
  WriteRequests(transaction);
  for (const HistoryRow& row : transaction.history) {
    history_.push_back(
        {history_.size() + 1, row.semaphore, *row.lease, row.ended_at_unix_ms, row.cause});
  }
  if (on_landed) on_landed(transaction, before);
  Forget(transaction);
}

void MemoryEngine::WriteSemaphore(SemaphoreDelta& delta) {
  const bool existed = semaphores_.contains(delta.name);
  if (!existed && !delta.after) return;  // Made and destroyed in one batch.
  StoredSemaphore& stored = semaphores_[delta.name];
  delta.revision = existed ? stored.row.revision + 1 : last_revision_ + 1;
  last_revision_ = std::max(last_revision_, delta.revision);
  for (const LeaseChange& change : delta.leases) {
    if (change.before) stored.leases.erase(change.before->id);
    if (change.after) stored.leases[change.after->id] = *change.after;
  }
  for (const WaiterChange& change : delta.waiters) {
    if (change.before) stored.waiters.erase(change.before->id);
    if (!change.after) continue;
    stored.waiters[change.after->id] = *change.after;
    if (lifo && !change.before) stored.waiters[change.after->id].order = ~change.after->order;
  }
  for (const ledger::TicketChange& change : delta.tickets) {
    const Id& id = change.before ? change.before->id : change.after->id;
    if (!change.before) stored.payloads[id] = change.payload ? *change.payload : "";
    if (change.after) stored.tickets.insert_or_assign(id, *change.after);
    if (change.after) continue;
    stored.tickets.erase(id);
    stored.payloads.erase(id);
  }
  if (!delta.after) {
    semaphores_.erase(delta.name);
    return;
  }
  stored.row = *delta.after;
  stored.row.revision = delta.revision;
}

// ---- other clients of the engine ----

bool MemoryEngine::TakeForeign(const std::string& name, const Id& id, uint32_t permits) {
  const auto found = semaphores_.find(name);
  if (found == semaphores_.end() || unreadable.contains(name) || unwritable.contains(name))
    return false;
  StoredSemaphore& stored = found->second;
  if (stored.row.destroying || stored.held() + permits > stored.row.limit) return false;
  std::set<uint32_t> taken;
  for (const auto& [each, lease] : stored.leases)
    taken.insert(lease.slots.begin(), lease.slots.end());
  Lease lease;
  lease.id = lease.session = id;
  lease.permits = permits;
  lease.holder = "a foreign client";
  lease.foreign = true;
  for (uint32_t slot = 1; lease.slots.size() < permits; ++slot) {
    if (!taken.contains(slot)) lease.slots.Append({slot, slot});
  }
  stored.leases[id] = std::move(lease);
  ++stored.row.revision;
  last_revision_ = std::max(last_revision_, stored.row.revision);
  if (on_foreign) on_foreign(name);
  return true;
}

bool MemoryEngine::ReturnForeign(const std::string& name, const Id& id) {
  const auto found = semaphores_.find(name);
  if (found == semaphores_.end() || unreadable.contains(name) || unwritable.contains(name))
    return false;
  StoredSemaphore& stored = found->second;
  if (stored.leases.erase(id) == 0) return false;
  left_behind_.erase(id);
  ++stored.row.revision;
  last_revision_ = std::max(last_revision_, stored.row.revision);
  if (on_foreign) on_foreign(name);
  return true;
}

// ---- nodes ----

NodeRef MemoryEngine::Join(const std::string& node_id, const std::string& daemon) {
  for (NodeStore::Node& node : nodes_) {
    if (node.node_id != node_id) continue;
    ++node.ref.incarnation;
    ++node.counter;
    node.dead = false;
    node.stopped = false;
    node.daemon = daemon;
    if (on_heartbeat) on_heartbeat(node);
    return node.ref;
  }
  NodeStore::Node node;
  node.ref = {static_cast<uint32_t>(nodes_.size()) + 1, 1};
  node.node_id = node_id;
  node.daemon = daemon;
  nodes_.push_back(node);
  if (on_heartbeat) on_heartbeat(node);
  return node.ref;
}

bool MemoryEngine::MayWrite(const NodeRef& node) const {
  const NodeStore::Node& row = nodes_.at(node.number - 1);
  return row.ref == node && !row.dead;
}

bool MemoryEngine::Heartbeat(const NodeRef& node, const BeatCounter& counter) {
  NodeStore::Node& row = nodes_.at(node.number - 1);
  if (conditions.incarnation && (!MayWrite(node) || !counter.MayBe(row.counter))) return false;
  row.counter = counter.next();
  if (on_heartbeat) on_heartbeat(row);
  return true;
}

bool MemoryEngine::Leave(const NodeRef& node) {
  if (!MayWrite(node)) return false;
  nodes_.at(node.number - 1).stopped = true;
  return true;
}

void MemoryEngine::AddToCounter(const std::string& node_id, int by) {
  for (NodeStore::Node& node : nodes_) {
    if (node.node_id == node_id) node.counter += static_cast<uint64_t>(by);
  }
}

std::vector<NodeStore::Node> MemoryEngine::Nodes() const { return nodes_; }

bool MemoryEngine::DeclareDead(const NodeStore::Node& seen) {
  NodeStore::Node& row = nodes_.at(seen.ref.number - 1);
  if (row.ref != seen.ref || row.counter != seen.counter || row.dead) return false;
  row.dead = true;
  if (on_declared_dead) on_declared_dead(row);
  return true;
}

// ---- what there is ----

const StoredSemaphore* MemoryEngine::Find(const std::string& name) const {
  const auto found = semaphores_.find(name);
  return found == semaphores_.end() ? nullptr : &found->second;
}

uint32_t MemoryEngine::NumberOf(const std::string& client_id) {
  const auto [at, is_new] =
      client_numbers_.try_emplace(client_id, static_cast<uint32_t>(client_numbers_.size()) + 1);
  if (is_new) clients_[at->second].client_id = client_id;
  return at->second;
}

}  // namespace semaphored::simulation
