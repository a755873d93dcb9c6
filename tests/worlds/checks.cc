// What lands, and the engine's rows.
#include "tests/worlds/checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/requests.h"

namespace semaphored::worlds {

using ledger::LeaseChange;
using ledger::RequestChange;
using ledger::RequestRow;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using ledger::WaiterChange;
using simulation::StoredSemaphore;

namespace {

// A request whose wait ended so is forgotten, and may be made again.
bool IsForgotten(const ClaimLife& life) {
  return life.over && !life.granted && life.cause != EndCause::kWaitExpired &&
         life.cause != EndCause::kExceedsLimit && life.cause != EndCause::kDestroyed;
}

uint32_t EpochBefore(const simulation::MemoryEngine& engine, const Transaction& transaction,
                     const Claim& claim) {
  if (claim.detached()) return claim.epoch;
  for (const ledger::SessionChange& change : transaction.sessions) {
    if (change.before && change.before->id == claim.session) return change.before->epoch;
  }
  const auto found = engine.sessions().find(claim.session);
  return found == engine.sessions().end() ? 0 : found->second.epoch;
}

// One of the commands says that the claim is to end so.
class Cause {
 public:
  Cause(EndCause cause, const Claim& claim, uint32_t epoch, const SemaphoreRow& row)
      : cause_(cause), claim_(claim), epoch_(epoch), row_(row) {}

  bool IsExplainedBy(const std::vector<Command>& commands) const {
    const bool carried_on = !row_.intentions.empty() || row_.destroying;
    const bool of_intention = cause_ == EndCause::kRevoked || cause_ == EndCause::kRecalled ||
                              cause_ == EndCause::kDestroyed || cause_ == EndCause::kExceedsLimit;
    if (carried_on && of_intention) return true;
    return std::ranges::any_of(commands, [this](const Command& command) {
      return std::visit([this](const auto& each) { return Explains(each); }, command);
    });
  }

 private:
  bool Explains(const ReleaseCommand& command) const {
    return cause_ == EndCause::kReleased && command.claim == claim_.id;
  }
  bool Explains(const EndCommand& command) const {
    if (command.claim != claim_.id) return false;
    if (!command.session.empty() && command.session != claim_.session) return false;
    if (command.epoch != 0 && command.epoch != epoch_) return false;
    return command.cause == cause_ ||
           (command.cause == EndCause::kCancelled && cause_ == EndCause::kDisconnected);
  }
  bool Explains(const CloseSessionCommand& command) const {
    if (command.session != claim_.session) return false;
    if (command.epoch != 0 && command.epoch != epoch_) return false;
    return command.cause == cause_ ||
           (command.cause == EndCause::kReleased && cause_ == EndCause::kCancelled);
  }
  bool Explains(const AdminCommand& command) const {
    if (std::holds_alternative<AdminResize>(command.act))
      return cause_ == EndCause::kRecalled || cause_ == EndCause::kExceedsLimit;
    if (std::holds_alternative<AdminRevoke>(command.act)) return cause_ == EndCause::kRevoked;
    return std::holds_alternative<AdminDestroy>(command.act) && cause_ == EndCause::kDestroyed;
  }
  template <typename Other>
  bool Explains(const Other&) const {
    return false;
  }

  const EndCause cause_;
  const Claim& claim_;
  const uint32_t epoch_;
  const SemaphoreRow& row_;
};

const RequestRow* Inserted(const Transaction& transaction, const simulation::MemoryEngine& engine,
                           const Requester& requester) {
  for (const RequestChange& change : transaction.requests) {
    if (change.op == RequestChange::Op::kInsert &&
        change.row.request.sequence == requester.sequence &&
        engine.NameOf(change.row.request.client) == requester.client_id)
      return &change.row;
  }
  return nullptr;
}

}  // namespace

void Fail(const std::string& what) { throw Violation{what}; }

const Lease* Checks::FindLease(const std::string& semaphore, const Id& claim) const {
  const StoredSemaphore* stored = engine_->Find(semaphore);
  if (stored == nullptr) return nullptr;
  const auto found = stored->leases.find(claim);
  return found == stored->leases.end() ? nullptr : &found->second;
}

const Waiter* Checks::FindWaiter(const std::string& semaphore, const Id& claim) const {
  const StoredSemaphore* stored = engine_->Find(semaphore);
  if (stored == nullptr) return nullptr;
  const auto found = stored->waiters.find(claim);
  return found == stored->waiters.end() ? nullptr : &found->second;
}

const RequestRow* Checks::RowOf(const Requester& requester) const {
  for (const auto& [number, client] : engine_->clients()) {
    if (client.client_id != requester.client_id) continue;
    const auto found = client.requests.find(requester.sequence);
    if (found != client.requests.end()) return &found->second;
  }
  return nullptr;
}

void Checks::BeginStep(const std::vector<Command>& commands) {
  ended_in_step_.clear();
  landed_in_step_ = 0;
  rows_before_.clear();
  for (const Command& command : commands) {
    const Requester* requester = ledger::RequesterOf(command);
    if (requester == nullptr) continue;
    if (const RequestRow* row = RowOf(*requester))
      rows_before_[{requester->client_id, requester->sequence}] = row->fingerprint;
  }
}

// ---- what lands ----

void Checks::Landed(const Transaction& transaction,
                    const std::map<std::string, StoredSemaphore>& before,
                    const std::vector<Command>& commands) {
  ++landed_in_step_;
  if (!engine_->MayWrite(transaction.node)) Fail("a node that is dead or was replaced has written");
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    const auto found = before.find(delta.name);
    const StoredSemaphore* was = found == before.end() ? nullptr : &found->second;
    for (const WaiterChange& change : delta.waiters) {
      if (!change.before) Begins(delta.name, *change.after, /*waits=*/true);
    }
    Grants(delta, was);
    Permits(delta, was);
    Ends(transaction, delta, was, commands);
  }
  Sessions(transaction);
  Requests(transaction);
  Limits(transaction, before, commands);
}

void Checks::Begins(const std::string& name, const Claim& claim, bool waits) {
  for (const auto& [id, life] : lives_) {
    if (id == claim.id) Fail(absl::StrCat("the claim ", id.Hex(), " begins twice"));
    if (claim.request.remembered() && life.client == claim.request.client &&
        life.sequence == claim.request.sequence && !IsForgotten(life))
      Fail(absl::StrCat("one request has two claims, ", id.Hex(), " and ", claim.id.Hex()));
  }
  ClaimLife& life = lives_[claim.id];
  life.client = claim.request.client;
  life.sequence = claim.request.sequence;
  life.semaphore = name;
  life.waited = waits;
  life.arrival = ++arrivals_;
}

void Checks::Grants(const SemaphoreDelta& delta, const StoredSemaphore* before) {
  uint32_t limit = delta.after ? delta.after->limit : 0;
  if (before != nullptr) limit = std::max(limit, before->row.limit);
  for (const LeaseChange& change : delta.leases) {
    if (change.before) continue;
    const Lease& lease = *change.after;
    if (!lives_.contains(lease.id)) Begins(delta.name, lease, /*waits=*/false);
    lives_[lease.id].granted = true;
    if (lease.slots.size() != lease.permits) Fail("a lease has more or fewer slots than permits");
    for (const uint32_t slot : lease.slots) {
      if (slot == 0 || slot > limit)
        Fail(absl::StrCat("slot ", slot, " was granted of ", delta.name, " with limit ", limit));
      uint64_t& last = tokens_[{delta.name, slot}];
      if (lease.token <= last)
        Fail(absl::StrCat("slot ", slot, " of ", delta.name, " had token ", last, " before ",
                          lease.token));
      last = lease.token;
    }
    Turn(delta.name, lease, before);
  }
}

// No claim that came before, and still waits, was passed over.
void Checks::Turn(const std::string& name, const Claim& granted,
                  const StoredSemaphore* before) const {
  if (before == nullptr) return;
  for (const auto& [id, waiter] : before->waiters) {
    if (id == granted.id || FindWaiter(name, id) == nullptr) continue;
    const bool earlier = lives_.at(id).arrival < lives_.at(granted.id).arrival;
    if (waiter.priority > granted.priority || (waiter.priority == granted.priority && earlier))
      Fail(absl::StrCat(granted.id.Hex(), " was granted before ", id.Hex(), ", whose turn it was"));
  }
}

void Checks::Permits(const SemaphoreDelta& delta, const StoredSemaphore* before) {
  const StoredSemaphore* after = engine_->Find(delta.name);
  if (after == nullptr) return;
  const uint32_t held_before = before == nullptr ? 0 : before->held();
  if (after->held() > after->row.limit && after->held() > held_before)
    Fail(absl::StrCat(delta.name, " has limit ", after->row.limit, " and ", after->held(),
                      " permits are held, before it was ", held_before));
  std::set<uint32_t> slots;
  for (const auto& [id, lease] : after->leases) {
    for (const uint32_t slot : lease.slots) {
      if (!slots.insert(slot).second)
        Fail(absl::StrCat("slot ", slot, " of ", delta.name, " belongs to two leases"));
    }
  }
}

void Checks::Ends(const Transaction& transaction, const SemaphoreDelta& delta,
                  const StoredSemaphore* before, const std::vector<Command>& commands) {
  const SemaphoreRow row = before == nullptr ? SemaphoreRow{} : before->row;
  const auto ends = [&](const Claim& claim, EndCause cause) {
    ClaimLife& life = lives_.at(claim.id);
    if (life.over) Fail(absl::StrCat(claim.id.Hex(), " ends twice"));
    life.over = true;
    life.cause = cause;
    ended_in_step_.insert(claim.id);
    const uint32_t epoch = EpochBefore(*engine_, transaction, claim);
    if (!Cause(cause, claim, epoch, row).IsExplainedBy(commands))
      Fail(absl::StrCat(claim.id.Hex(), " of epoch ", epoch, " ended by cause ",
                        static_cast<int>(cause), ", and no command says so"));
  };
  for (const WaiterChange& change : delta.waiters) {
    if (change.before && !change.after && change.cause != EndCause::kNone)
      ends(*change.before, change.cause);
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.before && !change.after) ends(*change.before, change.cause);
  }
  if (before == nullptr) return;
  const auto is_lost = [&](const Id& id) {
    return FindLease(delta.name, id) == nullptr && FindWaiter(delta.name, id) == nullptr &&
           !lives_.at(id).over;
  };
  for (const auto& [id, lease] : before->leases) {
    if (is_lost(id)) Fail(absl::StrCat("the lease ", id.Hex(), " is gone, and did not end"));
  }
  for (const auto& [id, waiter] : before->waiters) {
    if (is_lost(id)) Fail(absl::StrCat("the waiter ", id.Hex(), " is gone, and did not end"));
  }
}

// A session's epoch rises with each move, and what has ended does not come back.
void Checks::Sessions(const Transaction& transaction) {
  for (const ledger::SessionChange& change : transaction.sessions) {
    const Id& id = (change.before ? change.before : change.after)->id;
    const auto [at, is_new] = epochs_.try_emplace(id, 0);
    if (!is_new && at->second == 0) Fail("a session that has ended was written");
    const bool moves = change.before && change.after && change.before->host != change.after->host;
    if (moves && change.after->epoch <= at->second) Fail("a session moved without a new epoch");
    at->second = change.after ? change.after->epoch : 0;
  }
}

void Checks::Requests(const Transaction& transaction) {
  for (const RequestChange& change : transaction.requests) {
    if (change.op != RequestChange::Op::kInsert || change.row.state != RequestRow::State::kDone)
      continue;
    const RequestKey& request = change.row.request;
    if (++done_[{request.client, request.sequence}] > 1)
      Fail(absl::StrCat("request ", request.sequence, " of client ", request.client,
                        " was carried out twice"));
  }
}

// The limit has changed by those resizes whose requests land with it, each once.
void Checks::Limits(const Transaction& transaction,
                    const std::map<std::string, StoredSemaphore>& before,
                    const std::vector<Command>& commands) const {
  for (const auto& [name, was] : before) {
    const StoredSemaphore* now = engine_->Find(name);
    if (now == nullptr) continue;
    int64_t limit = was.row.limit;
    std::set<const RequestRow*> counted;
    for (const Command& command : commands) {
      const auto* admin = std::get_if<AdminCommand>(&command);
      if (admin == nullptr || admin->semaphore != name) continue;
      const RequestRow* row = Inserted(transaction, *engine_, admin->requester);
      if (row == nullptr || !counted.insert(row).second) continue;
      const auto* resize = std::get_if<AdminResize>(&admin->act);
      if (resize == nullptr) continue;
      const int64_t amount = resize->amount;
      if (resize->change == AdminResize::Change::kSet) limit = amount;
      if (resize->change == AdminResize::Change::kAdd) limit += amount;
      if (resize->change == AdminResize::Change::kRemove) limit -= amount;
    }
    if (now->row.limit != limit)
      Fail(absl::StrCat("the limit of ", name, " is ", now->row.limit, " instead of ", limit));
  }
}

// ---- the engine's rows ----

void Checks::Engine() const {
  const auto row_of = [&](const Claim& claim) -> const RequestRow* {
    const auto& rows = engine_->clients().at(claim.request.client).requests;
    const auto found = rows.find(claim.request.sequence);
    return found == rows.end() ? nullptr : &found->second;
  };
  for (const auto& [name, stored] : engine_->semaphores()) {
    const auto check = [&](const Claim& claim, RequestRow::State state) {
      if (!claim.detached() && !engine_->sessions().contains(claim.session))
        Fail(absl::StrCat(claim.id.Hex(), " belongs to a session that is gone"));
      if (!claim.request.remembered()) return;
      const RequestRow* row = row_of(claim);
      if (row == nullptr || row->state != state || row->claim != claim.id ||
          row->semaphore != name || row->fingerprint != claim.fingerprint)
        Fail(absl::StrCat(claim.id.Hex(), " has no request row that agrees with it"));
    };
    for (const auto& [id, lease] : stored.leases) check(lease, RequestRow::State::kGranted);
    for (const auto& [id, waiter] : stored.waiters) check(waiter, RequestRow::State::kWaiting);
  }
  for (const auto& [number, client] : engine_->clients()) {
    for (const auto& [sequence, row] : client.requests) {
      const bool waits = row.state == RequestRow::State::kWaiting;
      if (!row.pinned()) continue;
      if (waits ? FindWaiter(row.semaphore, row.claim) == nullptr
                : FindLease(row.semaphore, row.claim) == nullptr)
        Fail(absl::StrCat("the row of request ", sequence, " of ", client.client_id,
                          " speaks of a claim that is not there"));
    }
  }
}

void Checks::Lane(const Adapter& ledger, bool reused) {
  const std::string wrong = ledger::LedgerProbe{ledger}.state().CheckInvariants();
  if (reused && wrong.ends_with("requests are filed wrongly")) return;
  if (!wrong.empty()) Fail("a lane's state: " + wrong);
}

}  // namespace semaphored::worlds
