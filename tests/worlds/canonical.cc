// The canonical form of a world: a text of all that its future hangs on, in which clients with the same
// script, tokens, orders and revisions have no names of their own. Two worlds with one form behave
// alike. What the form leaves out can only hide states from the explorer, never invent one: each is
// reached by real steps.
#include <algorithm>
#include <map>
#include <numeric>

#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/intentions.h"
#include "tests/worlds/small_world.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace semaphored::worlds {

using simulation::StoredSemaphore;

// Numbers by their rank.
class Ranks {
 public:
  void Add(uint64_t number) { numbers_.push_back(number); }
  void Sort() {
    std::ranges::sort(numbers_);
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
  }
  uint64_t Of(uint64_t number) const {
    return static_cast<uint64_t>(std::ranges::lower_bound(numbers_, number) - numbers_.begin());
  }
  // The same, and neighbours stay neighbours: a lane can tell whether it missed one revision.
  uint64_t SpacedOf(uint64_t number) const {
    uint64_t rank = 0;
    for (size_t i = 0; i < numbers_.size() && numbers_[i] <= number; ++i)
      rank += i == 0 ? (numbers_[i] != 0) : std::min<uint64_t>(2, numbers_[i] - numbers_[i - 1]);
    return rank;
  }

 private:
  std::vector<uint64_t> numbers_;
};

class Canonizer {
 public:
  explicit Canonizer(const SmallWorld& world) : world_(world) { Rank(); }

  // The least over all ways to name the clients and the lanes.
  Hash Make() {
    std::vector<size_t> clients(world_.known_.size());
    std::iota(clients.begin(), clients.end(), 0);
    std::optional<Hash> least;
    do {
      if (!AreAlike(clients)) continue;
      names_ = clients;
      for (const bool turned : {false, true}) {
        if (turned && !LanesAreAlike()) continue;
        turned_ = turned;
        bytes_.clear();
        World();
        const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
        const Hash now{hash.high64, hash.low64};
        if (!least || now < *least) least = now;
      }
    } while (std::ranges::next_permutation(clients).found);
    return *least;
  }

 private:
  struct Numbers {
    Ranks revisions;
    Ranks orders;
  };

  bool AreAlike(const std::vector<size_t>& names) const {
    const WorldSpec& spec = *world_.spec_;
    for (size_t i = 0; i < names.size(); ++i) {
      if (spec.clients[i] != spec.clients[names[i]]) return false;
      if (!spec.every_lane && i % world_.lanes_.size() != names[i] % world_.lanes_.size())
        return false;
    }
    return true;
  }
  // Two daemons of one lane each.
  bool LanesAreAlike() const {
    return world_.spec_->every_lane && world_.nodes_.size() == 2 && world_.lanes_.size() == 2;
  }
  size_t Turned(size_t index) const { return turned_ ? 1 - index : index; }

  // ---- ranks ----

  template <typename Claims>
  void RankClaims(const Claims& claims, Numbers* numbers) {
    for (const auto& [id, claim] : claims) numbers->orders.Add(Row(claim).order);
  }
  template <typename Leases>
  void RankTokens(const Leases& leases) {
    for (const auto& [id, lease] : leases) tokens_.Add(Row(lease).token);
  }
  void RankRow(const SemaphoreRow& row, Numbers* numbers) {
    numbers->revisions.Add(row.revision);
    numbers->orders.Add(row.next_order);
    for (const ledger::Revocation& each : ledger::Decode(row.intentions).revocations)
      tokens_.Add(each.token_max);
  }
  template <typename Semaphore>
  void RankSemaphore(const Semaphore& semaphore) {
    Numbers& numbers = numbers_[semaphore.row.name];
    RankRow(semaphore.row, &numbers);
    RankClaims(semaphore.leases, &numbers);
    RankClaims(semaphore.waiters, &numbers);
    RankTokens(semaphore.leases);
  }
  void RankWrite(const std::shared_ptr<InFlight>& write) {
    if (!write) return;
    for (const ledger::SemaphoreDelta& delta : write->transaction.semaphores) {
      Numbers& numbers = numbers_[delta.name];
      if (delta.before) RankRow(*delta.before, &numbers);
      if (delta.after) RankRow(*delta.after, &numbers);
    }
  }

  void Rank() {
    for (const auto& [name, stored] : world_.engine_.semaphores()) RankSemaphore(stored);
    for (const auto& lane : world_.lanes_) {
      for (const auto& [name, cached] : ledger::LedgerProbe{*lane.ledger}.state())
        RankSemaphore(*cached);
      for (const auto& [name, notice] : lane.notices)
        numbers_[name].revisions.Add(notice.hint.revision);
      RankWrite(lane.store->in_flight());
    }
    for (const auto& write : world_.late_) RankWrite(write);
    for (auto& [name, numbers] : numbers_) {
      numbers.revisions.Sort();
      numbers.orders.Sort();
    }
    tokens_.Sort();
  }

  // ---- the text ----

  static const Lease& Row(const Lease& row) { return row; }
  static const Waiter& Row(const Waiter& row) { return row; }
  static const Lease& Row(const LeasePtr& row) { return *row; }
  static const Waiter& Row(const WaiterPtr& row) { return *row; }

  template <typename T>
  void Put(T value) {
    auto rest = static_cast<uint64_t>(value);
    // Most are small: one byte.
    if (rest < 0xff) return bytes_.push_back(static_cast<char>(rest));
    bytes_.push_back('\xff');
    for (int i = 0; i < 8; ++i, rest >>= 8) bytes_.push_back(static_cast<char>(rest & 0xff));
  }
  void Put(const std::string& text) {
    Put(text.size());
    bytes_ += text;
  }
  void Put(const NodeRef& node) {
    Put(node.number == 0 ? 0 : Turned(node.number - 1) + 1);
    const bool now = node.number != 0 && node == world_.nodes_.at(node.number - 1).ref;
    Put(now);
  }
  // A claim's or a session's, with the client's name in this form.
  Id Named(const Id& id) const {
    const uint64_t kind = id.high & ~uint64_t{0xff};
    return {kind + names_[id.high & 0xff], id.low};
  }
  void Put(const Id& id) {
    if (id.empty()) return Put(0);
    const Id named = Named(id);
    Put(named.high >> 8);
    Put(named.high & 0xff);
    Put(named.low >> 8);
    Put(named.low & 0xff);
  }
  size_t ClientOf(const std::string& client_id) const {
    return names_.at(static_cast<size_t>(client_id.back() - '0'));
  }

  // In the order of their names in this form.
  template <typename Map, typename Write>
  void PutSorted(const Map& map, Write&& write) {
    std::vector<std::pair<Id, const typename Map::value_type*>> sorted;
    for (const auto& each : map) sorted.emplace_back(Named(each.first), &each);
    std::ranges::sort(sorted, {}, [](const auto& each) { return each.first; });
    Put(sorted.size());
    for (const auto& [id, each] : sorted) {
      Put(each->first);
      write(each->second);
    }
  }

  void PutClaim(const Claim& claim, const Numbers& numbers) {
    Put(claim.session);
    Put(claim.host);
    Put(claim.epoch);
    Put(claim.permits);
    Put(claim.priority + 100);
    Put(numbers.orders.Of(claim.order));
  }
  void PutRow(const SemaphoreRow& row, const Numbers& numbers) {
    Put(row.limit);
    Put(row.paused * 4 + row.destroying * 2 + row.made_on_use);
    Put(numbers.orders.Of(row.next_order));
    Put(numbers.revisions.SpacedOf(row.revision));
    const ledger::Intentions left = ledger::Decode(row.intentions);
    Put(left.dismiss * 4 + left.force_grace_ms.has_value() * 2 + left.shrink_grace_ms.has_value());
    Put(left.shrink_grace_ms.value_or(0));
    Put(left.force_grace_ms.value_or(0));
    if (!row.intentions.empty()) Put(left.host);
    for (const ledger::Revocation& each : left.revocations) {
      Put(each.grace_ms);
      Put(tokens_.Of(each.token_max));
    }
  }
  template <typename Semaphore>
  void PutSemaphore(const Semaphore& semaphore) {
    const Numbers& numbers = numbers_.at(semaphore.row.name);
    Put(semaphore.row.name);
    PutRow(semaphore.row, numbers);
    PutSorted(semaphore.leases, [&](const auto& each) {
      const Lease& lease = Row(each);
      PutClaim(lease, numbers);
      Put(lease.slots.size());
      for (const uint32_t slot : lease.slots) Put(slot);
      Put(tokens_.Of(lease.token));
      Put(static_cast<int>(lease.recall.reason));
      Put(lease.recall.grace_ms);
      Put(lease.moved_from == 0 ? 0 : Turned(lease.moved_from - 1) + 1);
    });
    PutSorted(semaphore.waiters, [&](const auto& each) { PutClaim(Row(each), numbers); });
  }
  void PutSession(const Session& session) {
    Put(session.host);
    Put(session.epoch);
    Put(session.closing);
  }

  void PutRequests() {
    std::map<size_t, const simulation::StoredClient*> sorted;
    for (const auto& [number, client] : world_.engine_.clients())
      sorted[ClientOf(client.client_id)] = &client;
    for (const auto& [name, client] : sorted) {
      // A client that has no row is as one that never was.
      if (client->requests.empty()) continue;
      Put(name);
      Put(client->requests.size());
      for (const auto& [sequence, row] : client->requests) {
        Put(sequence);
        Put(static_cast<int>(row.state));
        Put(row.claim);
        // What makes a claim, or ends one, is known by the claim.
        Put(row.claim.empty() ? row.fingerprint.low : 0);
        Put(static_cast<int>(row.cause));
        Put(row.number * 2 + row.changed);
      }
    }
  }

  void PutCommand(const Command& command) {
    Put(command.index());
    if (const Requester* requester = ledger::RequesterOf(command);
        requester != nullptr && !requester->client_id.empty()) {
      Put(ClientOf(requester->client_id));
      Put(requester->sequence);
    }
    if (const auto* acquire = std::get_if<AcquireCommand>(&command)) {
      Put(acquire->claim);
      Put(acquire->session);
      Put(acquire->epoch);
      Put(acquire->moved_epoch);
    }
    if (const auto* end = std::get_if<EndCommand>(&command)) {
      Put(end->claim);
      Put(end->session);
      Put(end->epoch);
      Put(static_cast<int>(end->cause) * 2 + end->only_waiting);
    }
    if (const auto* close = std::get_if<CloseSessionCommand>(&command)) {
      Put(close->session);
      Put(close->epoch);
    }
    if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) Put(adopt->session);
    if (const auto* adopt = std::get_if<AdoptCommand>(&command)) Put(adopt->claim);
  }

  void PutWrite(const std::shared_ptr<InFlight>& write) {
    Put(write != nullptr);
    if (!write) return;
    Put(static_cast<int>(write->fate));
    Put(write->result ? static_cast<int>(write->result->kind) + 1 : 0);
    Put(write->transaction.node);
    Put(write->commands.size());
    for (const Command& command : write->commands) PutCommand(command);
    for (const ledger::SemaphoreDelta& delta : write->transaction.semaphores) {
      const Numbers& numbers = numbers_.at(delta.name);
      Put(delta.name);
      Put(delta.before.has_value() * 2 + delta.after.has_value());
      if (delta.before) PutRow(*delta.before, numbers);
      if (delta.after) PutRow(*delta.after, numbers);
      Put(delta.leases.size());
      Put(delta.waiters.size());
    }
  }

  void PutLane(const SmallWorld::Lane& lane) {
    Put(lane.up);
    if (!lane.up) return;
    const ledger::LedgerProbe probe{*lane.ledger};
    for (const Initial& initial : world_.spec_->semaphores) {
      const std::string& name = initial.semaphore;
      Put(probe.Loaded(name) * 4 + probe.ToServe(name) * 2 + probe.StoodStill(name));
      const uint64_t seen = probe.IntentionSeen(name);
      Put(seen == 0 ? 0 : numbers_[name].revisions.SpacedOf(seen) + 1);
    }
    for (const auto& [name, cached] : probe.state()) PutSemaphore(*cached);
    PutSorted(probe.state().sessions(), [&](const auto& each) { PutSession(*each); });
    PutNames(probe);
    // The order among claims is that of a hash table.
    std::vector<Event> events = probe.found_events();
    std::ranges::stable_sort(events, {}, [&](const Event& event) { return Named(event.claim); });
    for (const Event& event : events) {
      Put(static_cast<int>(event.kind));
      Put(event.claim);
      Put(static_cast<int>(event.cause));
    }
    Put(probe.in_doubt());
    PutWrite(lane.store->in_flight());
    for (const auto& sent : lane.in_doubt) PutCommand(sent.command);
    for (const auto& [name, notice] : lane.notices) {
      Put(name);
      Put(numbers_.at(name).revisions.SpacedOf(notice.hint.revision) * 2 + notice.news.has_value());
    }
    PutSorted(lane.view.claims, [&](LaneView::Is is) { Put(static_cast<int>(is)); });
  }
  // What the lane knows by name: requests, ends.
  void PutNames(const ledger::LedgerProbe& probe) {
    std::vector<uint64_t> high(names_.size());
    for (size_t i = 0; i < names_.size(); ++i)
      high[names_[i]] = probe.SequenceHigh("client" + std::to_string(i)).value_or(0);
    for (const uint64_t each : high) Put(each);
    std::map<Id, EndCause> ends;
    for (const auto& [id, life] : world_.checks_.lives()) ends[id] = probe.EndOf(id);
    PutSorted(ends, [&](EndCause cause) { Put(static_cast<int>(cause)); });
  }

  void World() {
    for (const auto& [name, stored] : world_.engine_.semaphores()) PutSemaphore(stored);
    PutSorted(world_.engine_.sessions(), [&](const Session& session) { PutSession(session); });
    PutRequests();
    PutSorted(world_.checks_.lives(), [&](const ClaimLife& life) {
      Put(life.over * 4 + life.granted * 2 + life.waited);
      Put(static_cast<int>(life.cause));
    });
    for (size_t i = 0; i < world_.nodes_.size(); ++i) {
      const auto& node = world_.nodes_[Turned(i)];
      Put(node.dead);
      PutSorted(node.claims, [&](const auto& hosted) {
        Put(hosted.session);
        Put(hosted.epoch);
      });
      PutSorted(node.sessions, [&](uint32_t epoch) { Put(epoch); });
    }
    for (size_t i = 0; i < world_.lanes_.size(); ++i) PutLane(world_.lanes_[Turned(i)]);
    Put(world_.late_.size());
    for (const auto& write : world_.late_) PutWrite(write);
    std::vector<const std::vector<SmallWorld::Known>*> known(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) known[names_[i]] = &world_.known_[i];
    for (const auto* client : known) {
      for (const auto& each : *client) {
        Put(each.claim);
        Put(each.moving);
      }
    }
    Put(world_.losses_);
    Put(world_.restarts_);
    Put(world_.deaths_);
  }

  const SmallWorld& world_;
  std::map<std::string, Numbers> numbers_;
  Ranks tokens_;
  std::vector<size_t> names_;
  bool turned_ = false;  // The two lanes have changed places.
  std::string bytes_;
};

Hash SmallWorld::Canonical() const { return Canonizer(*this).Make(); }

}  // namespace semaphored::worlds
