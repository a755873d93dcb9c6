#include "adapters/dynamodb/commit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::dynamodb {

using ledger::CommitResult;
using ledger::Failed;
using ledger::SemaphoreDelta;
using ledger::Transaction;

namespace {

CommitResult LostFor(std::string name) {
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  result.stale.push_back(std::move(name));
  return result;
}

bool IsWon(const CommitResult& result) { return result.kind == CommitResult::Kind::kWon; }

}  // namespace

DynamoStore::Writer::Writer(DynamoStore* store)
    : store_(store),
      name_of_client_(
          [store](uint32_t number) -> const std::string& { return store->names_.NameOf(number); }),
      token_(RandomToken()),
      request_(store->table_) {}

void DynamoStore::Writer::Own(About about, const std::string& name, const Id& session) {
  while (owners_.size() < request_.size()) owners_.push_back({about, name, session});
}

DynamoStore::Writer::Planned* DynamoStore::Writer::Find(const std::string& name) {
  const auto found = std::ranges::find(planned_, name, &Planned::name);
  return found == planned_.end() ? nullptr : &*found;
}

CommitResult DynamoStore::Writer::Build(const Transaction& transaction) {
  transaction_ = &transaction;
  json lane = ItemWith(LaneKey(store_->options_.self, store_->options_.lane));
  SetNumber(&lane, "commits", store_->commits_ + 1);
  SetText(&lane, "last", token_);
  SetNumber(&lane, "generation", store_->requests_.generation());
  request_.Put(lane, Condition::Present()
                         .And("commits", store_->commits_)
                         .And("generation", store_->requests_.generation()));
  Own(About::kLane);
  planned_.reserve(transaction.semaphores.size());
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (CommitResult added = Add(delta); !IsWon(added)) return added;
  }
  AddHistory(transaction);
  for (size_t i = 0; i < planned_.size(); ++i) AddHead(transaction.semaphores[i], planned_[i]);
  AddFloors();
  AddSessions(transaction);
  AddReads(transaction);
  AddRequests(transaction);
  for (const auto& [key, item] : items_) {
    if (item) {
      request_.Put(*item);
    } else {
      request_.Delete(key);
    }
  }
  AddNotice(transaction);
  Own(About::kOther);
  if (request_.FitsDynamo() && tokens_.size() >> kTokenOrdinalBits == 0) return {};
  return Failed(absl::OutOfRangeError(
      absl::StrCat("dynamodb: this changes more at once than a transaction of DynamoDB takes (",
                   TransactionRequest::kItemsMax, " items, 4 MB, 400 KB for each)")));
}

void DynamoStore::Writer::PutOnce(const Key& key, json item) { items_[key] = std::move(item); }

// ---- semaphores ----

void DynamoStore::Writer::NumberGrants(const SemaphoreDelta& delta, uint64_t revision) {
  uint64_t ordinal = 0;
  for (const ledger::LeaseChange& change : delta.leases) {
    if (change.before) continue;
    tokens_[change.after->id] = TokenOf(store_->token_epoch_, revision, ++ordinal);
  }
}

uint64_t DynamoStore::Writer::TokenOfLease(const Lease& lease) const {
  const auto granted = tokens_.find(lease.id);
  return granted == tokens_.end() ? lease.token : granted->second;
}

CommitResult DynamoStore::Writer::Add(const SemaphoreDelta& delta) {
  Planned planned;
  planned.name = delta.name;
  const int floor = FloorOf(delta.name);
  if (delta.before) {
    const LaneMemory::Known* known = store_->memory_.Find(delta.name);
    if (known == nullptr) return LostFor(delta.name);
    if (!known->damage.ok()) return Failed(known->damage);
    if (known->revision != delta.before->revision) return LostFor(delta.name);
    planned.revision = delta.before->revision + 1;
    planned.head.digest = known->digest;
    planned.head.history_number = known->history_number;
  } else {
    floors_[floor].checked = true;
    planned.revision = store_->floors_[floor] + 1;
  }
  if (!delta.after) floors_[floor].raised_to = std::max(floors_[floor].raised_to, planned.revision);
  planned.stands = delta.after.has_value();
  if (planned.stands) {
    planned.head.row = *delta.after;
    planned.head.row.revision = planned.revision;
    planned.head.counts = delta.counts;
  }
  NumberGrants(delta, planned.revision);
  AddClaims(delta, &planned);
  AddTickets(delta, &planned);
  planned_.push_back(std::move(planned));
  return {};
}

void DynamoStore::Writer::AddClaims(const SemaphoreDelta& delta, Planned* planned) {
  uint64_t& digest = planned->head.digest;
  const auto leases = ledger::NetChanges(delta.leases);
  const auto waiters = ledger::NetChanges(delta.waiters);
  absl::flat_hash_map<Id, const Claim*> before;
  for (const auto& lease : leases) {
    if (lease.before) before[lease.before->id] = lease.before.get();
  }
  for (const auto& waiter : waiters) {
    if (waiter.before) before[waiter.before->id] = waiter.before.get();
  }
  const auto stood = [&](const Claim& claim) {
    const auto found = before.find(claim.id);
    return found == before.end() ? nullptr : found->second;
  };
  // What goes first: a place in the queue may be taken by another.
  for (const auto& lease : leases) {
    if (!lease.before) continue;
    digest ^= DigestOf(*lease.before, lease.before->token);
    if (lease.after) continue;
    items_[LeaseKey(delta.name, *lease.before)] = std::nullopt;
    planned->written.gone.push_back(lease.before->id);
  }
  for (const auto& waiter : waiters) {
    if (!waiter.before) continue;
    digest ^= DigestOf(*waiter.before);
    if (waiter.after &&
        WaiterKey(delta.name, *waiter.after) == WaiterKey(delta.name, *waiter.before))
      continue;
    items_[WaiterKey(delta.name, *waiter.before)] = std::nullopt;
    if (!waiter.after) planned->written.gone.push_back(waiter.before->id);
  }
  for (const auto& lease : leases) {
    if (!lease.after) continue;
    const uint64_t token = TokenOfLease(*lease.after);
    const uint64_t own = DigestOf(*lease.after, token);
    digest ^= own;
    planned->written.came.emplace_back(lease.after.get(), false);
    if (lease.before && DigestOf(*lease.before, lease.before->token) == own) continue;
    const Key key = LeaseKey(delta.name, *lease.after);
    PutOnce(key, WriteLease(key, *lease.after, token, name_of_client_));
    IndexClaim(delta.name, *lease.after, stood(*lease.after));
  }
  for (const auto& waiter : waiters) {
    if (!waiter.after) continue;
    digest ^= DigestOf(*waiter.after);
    planned->written.came.emplace_back(waiter.after.get(), true);
    const Key key = WaiterKey(delta.name, *waiter.after);
    PutOnce(key, WriteWaiter(key, *waiter.after, name_of_client_));
    IndexClaim(delta.name, *waiter.after, stood(*waiter.after));
  }
}

// So that a daemon that looks for the claims of a session, or of a node, finds the semaphore.
void DynamoStore::Writer::IndexClaim(const std::string& semaphore, const Claim& claim,
                                     const Claim* before) {
  const bool stays = before != nullptr && before->session == claim.session &&
                     (!claim.detached() || before->host == claim.host);
  if (stays) return;
  if (claim.detached()) {
    // A claim comes to a node only by a commit of that node's.
    if (claim.host.number == store_->options_.self.number) IndexHosted(semaphore);
    return;
  }
  if (store_->memory_.IsIndexed(claim.session, semaphore)) return;
  const Key key = SessionAtKey(claim.session, semaphore);
  PutOnce(key, ItemWith(key));
  indexed_.emplace_back(claim.session, semaphore);
}

void DynamoStore::Writer::IndexHosted(const std::string& semaphore) {
  if (store_->hosted_.Has(semaphore)) return;
  const Key key = HostAtKey(store_->options_.self.number, semaphore);
  json item = ItemWith(key);
  SetText(&item, "stamp", Stamp());
  PutOnce(key, std::move(item));
  hosted_at_.push_back(semaphore);
}

void DynamoStore::Writer::AddHead(const SemaphoreDelta& delta, const Planned& planned) {
  const Key key = HeadKey(delta.name);
  const Condition as_known =
      delta.before ? Condition::Is("revision", delta.before->revision) : Condition::Absent();
  if (planned.stands) {
    request_.Put(WriteHead(planned.head), as_known);
  } else if (delta.before) {
    request_.Delete(key, as_known);
  } else {
    request_.Check(key, as_known);  // Made and destroyed again.
  }
  Own(About::kSemaphore, delta.name);
  const Key name = NameKey(delta.name);
  if (planned.stands && (!delta.before || delta.before->limit != delta.after->limit)) {
    json item = ItemWith(name);
    SetNumber(&item, "permits", delta.after->limit);
    PutOnce(name, std::move(item));
  } else if (!planned.stands && delta.before) {
    items_[name] = std::nullopt;
  }
}

void DynamoStore::Writer::AddFloors() {
  for (const auto& [floor, use] : floors_) {
    const uint64_t known = store_->floors_[floor];
    const Condition as_known = Condition::Is("below", known);
    if (use.raised_to > known) {
      Change raise;
      raise.set.emplace_back("below", Number(use.raised_to));
      request_.Update(FloorKey(floor), raise,
                      use.checked ? as_known : Condition::Below("below", use.raised_to));
    } else if (use.checked) {
      request_.Check(FloorKey(floor), as_known);
    }
  }
  Own(About::kFloor);
}

// ---- won ----

void DynamoStore::Writer::Win(Transaction* transaction) {
  ledger::SetTokens(tokens_, transaction);
  LaneMemory& memory = store_->memory_;
  for (auto& [id, session] : sessions_) {
    if (session) {
      memory.WriteSession(session);
      continue;
    }
    for (const std::string& name : memory.RemoveSession(id))
      store_->leftovers_.push_back(SessionAtKey(id, name));
  }
  for (const auto& [session, name] : indexed_) memory.Index(session, name);
  for (const std::string& name : hosted_at_) store_->hosted_.Add(name, Stamp());
  for (const auto& [floor, use] : floors_)
    store_->floors_[floor] = std::max(store_->floors_[floor], use.raised_to);
  for (size_t i = 0; i < planned_.size(); ++i) {
    Planned& planned = planned_[i];
    planned.written.revision = planned.stands ? planned.revision : 0;
    planned.written.digest = planned.head.digest;
    planned.written.history_number = planned.head.history_number;
    memory.Keep(planned.name, planned.written);
    transaction->semaphores[i].revision = planned.revision;
  }
  RunUpkeep(&store_->client_, late_notices_, UpkeepWork::kNotices, store_->options_.upkeep.get(),
            store_->Deadline());
}

}  // namespace semaphored::dynamodb
