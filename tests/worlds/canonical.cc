// The canonical form of a world: a text of all that its future hangs on. Clients with the same script, lanes
// that are alike, claims, orders, tokens and revisions have no names of their own in it, but only what they are
// compared with. Two worlds with one form behave alike. What the form leaves out can only hide states from the
// explorer, never invent one: each is reached by real steps.
//
// What is left out, and why nothing depends on it:
//   * How far a lane's copy of a semaphore is behind the engine's, beyond one commit: its commits are lost, and
//     notices do not help it; it reads.
//   * Notices of what the lane knows already: it ignores them.
//   * Tokens and orders, but for which leases a revocation covers, the order of the waiters of a copy, and that
//     of one session's claims. That a copy has those of the engine is in the form.
//   * Epochs, but for their ranks among those of one claim or session that something speaks of.
//   * What a daemon knows that does not go on.
//   * Commits whose daemon is gone and that cannot land any more: a condition of theirs never holds again.
//   * Claims that ended and that no row, lane, host or client speaks of any more, and how often a client has
//     asked again after it gave up: each time with a new claim.
//   * The causes of ends that a lane remembers: they are reported, and decide nothing.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/intentions.h"
#include "tests/worlds/mentions.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace semaphored::worlds {

using simulation::StoredSemaphore;

class Canonizer {
 public:
  explicit Canonizer(const SmallWorld& world) : world_(world), mentions_(&world) {}

  // The least over all ways to name the clients and the lanes. `known`: forms that were made before.
  Hash Make(KnownForms* known) {
    names_.resize(world_.known_.size());
    std::iota(names_.begin(), names_.end(), 0);
    const Hash first = HashOfForm();
    if (known != nullptr) {
      if (const Hash* least = known->Find(first)) return *least;
    }
    Hash least = first;
    do {
      if (!AreAlike()) continue;
      for (const bool turned : {false, true}) {
        if (turned && !LanesAreAlike()) continue;
        turned_ = turned;
        least = std::min(least, HashOfForm());
      }
    } while (std::ranges::next_permutation(names_).found);
    if (known != nullptr) known->Add(first, least);
    return least;
  }

 private:
  Hash HashOfForm() {
    end_ = text_.data();
    World();
    const XXH128_hash_t hash = XXH3_128bits(text_.data(), static_cast<size_t>(end_ - text_.data()));
    return {hash.high64, hash.low64};
  }

  bool AreAlike() const {
    const WorldSpec& spec = *world_.spec_;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (spec.clients[i] != spec.clients[names_[i]]) return false;
      if (!spec.every_lane && i % world_.lanes_.size() != names_[i] % world_.lanes_.size())
        return false;
    }
    return true;
  }
  // Two daemons of one lane each, or one of two lanes.
  bool LanesAreAlike() const { return world_.spec_->every_lane && world_.lanes_.size() == 2; }
  size_t Turned(size_t index) const { return turned_ ? 1 - index : index; }
  size_t TurnedNode(size_t index) const {
    return world_.nodes_.size() == 2 ? Turned(index) : index;
  }

  // ---- the text ----

  static const Lease& Row(const Lease& row) { return row; }
  static const Waiter& Row(const Waiter& row) { return row; }
  static const Lease& Row(const LeasePtr& row) { return *row; }
  static const Waiter& Row(const WaiterPtr& row) { return *row; }

  template <typename T>
  void Put(T value) {
    if (text_.data() + text_.size() - end_ < 16) Fail("the canonical form is too long");
    auto rest = static_cast<uint64_t>(value);
    // Most are small: one byte.
    if (rest < 0xff) {
      *end_++ = static_cast<char>(rest);
      return;
    }
    *end_++ = '\xff';
    for (int i = 0; i < 8; ++i, rest >>= 8) *end_++ = static_cast<char>(rest & 0xff);
  }
  void Put(const std::string& text) {
    Put(text.size());
    for (const char each : text) Put(static_cast<uint8_t>(each));
  }
  void Put(const NodeRef& node) {
    Put(node.number == 0 ? 0 : TurnedNode(node.number - 1) + 1);
    const bool now = node.number != 0 && node == world_.nodes_.at(node.number - 1).ref;
    Put(now);
  }
  // A claim's or a session's, with the client's name in this form.
  Id Named(const Id& id) const {
    const uint64_t kind = id.high & ~uint64_t{0xff};
    const Id named{kind + names_[id.high & 0xff], id.low};
    if (kind != ClaimId(0, 0, 0).high) return named;
    return {named.high, (id.low & ~uint64_t{0xff}) + mentions_.AttemptOf(id)};
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
      write(*each);
    }
  }

  void PutClaim(const Claim& claim, uint64_t rank) {
    Put(claim.session);
    Put(claim.host);
    PutEpoch(claim.id, claim.epoch);
    Put(claim.permits);
    Put(claim.priority + 100);
    Put(rank);
  }
  void PutRow(const SemaphoreRow& row, const ledger::Intentions& left) {
    Put(row.limit);
    Put(row.paused * 4 + row.destroying * 2 + row.made_on_use);
    Put(left.dismiss * 4 + left.force_grace_ms.has_value() * 2 + left.shrink_grace_ms.has_value());
    Put(left.shrink_grace_ms.value_or(0));
    Put(left.force_grace_ms.value_or(0));
    if (!row.intentions.empty()) Put(left.host);
    Put(left.revocations.size());
    for (const ledger::Revocation& each : left.revocations) Put(each.grace_ms);
  }
  template <typename Semaphore>
  void PutSemaphore(const Semaphore& semaphore) {
    Put(semaphore.row.name);
    const ledger::Intentions left = ledger::Decode(semaphore.row.intentions);
    PutRow(semaphore.row, left);
    const auto before = [](const auto& claims, const Claim& claim, auto&& counts) {
      return static_cast<uint64_t>(std::ranges::count_if(claims, [&](const auto& each) {
        const Claim& other = Row(each.second);
        return other.order < claim.order && counts(other);
      }));
    };
    PutSorted(semaphore.leases, [&](const auto& each) {
      const Lease& lease = Row(each.second);
      PutClaim(lease, before(semaphore.leases, lease,
                             [&](const Claim& other) { return other.session == lease.session; }));
      Put(lease.slots.size());
      for (const uint32_t slot : lease.slots) Put(slot);
      Put(lease.token == 0);
      for (const ledger::Revocation& revocation : left.revocations)
        Put(lease.token <= revocation.token_max);
      Put(static_cast<int>(lease.recall.reason));
      Put(lease.recall.grace_ms);
      Put(lease.moved_from == 0 ? 0 : TurnedNode(lease.moved_from - 1) + 1);
    });
    PutSorted(semaphore.waiters, [&](const auto& each) {
      const Waiter& waiter = Row(each.second);
      PutClaim(waiter, before(semaphore.waiters, waiter, [](const Claim&) { return true; }));
    });
  }
  void PutSession(const Session& session) {
    Put(session.host);
    PutEpoch(session.id, session.epoch);
    Put(session.closing);
  }

  void PutEpoch(const Id& id, uint32_t epoch) { Put(mentions_.RankOf(id, epoch)); }

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
    Put(names_.size());  // The name of no client.
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
      PutEpoch(acquire->session, acquire->epoch);
      PutEpoch(mentions_.ClaimOf(acquire->requester), acquire->moved_epoch);
    }
    if (const auto* end = std::get_if<EndCommand>(&command)) {
      Put(end->claim);
      Put(end->session);
      PutEpoch(end->session, end->epoch);
      Put(static_cast<int>(end->cause) * 2 + end->only_waiting);
    }
    if (const auto* close = std::get_if<CloseSessionCommand>(&command)) {
      Put(close->session);
      PutEpoch(close->session, close->epoch);
    }
    if (const auto* adopt = std::get_if<AdoptSessionCommand>(&command)) Put(adopt->session);
    if (const auto* adopt = std::get_if<AdoptCommand>(&command)) Put(adopt->claim);
    // One id can stand for two acts.
    if (std::holds_alternative<AdminCommand>(command)) Put(ledger::FingerprintOf(command).low);
  }

  // What it does follows from its commands and the rows that it rests upon: the engine's, while it stands.
  void PutWrite(const InFlight& write) {
    Put(static_cast<int>(write.fate));
    Put(write.result ? static_cast<int>(write.result->kind) + 1 : 0);
    Put(write.transaction.node);
    Put(write.result || mentions_.Stands(write.transaction));
    Put(write.commands.size());
    for (const Command& command : write.commands) PutCommand(command);
    for (const ledger::SemaphoreDelta& delta : write.transaction.semaphores) {
      Put(delta.name);
      Put(delta.before.has_value() * 2 + delta.after.has_value());
      if (delta.after) PutRow(*delta.after, ledger::Decode(delta.after->intentions));
      PutChanges(delta.leases);
      PutChanges(delta.waiters);
    }
    Put(write.transaction.requests.size());
    for (const ledger::RequestChange& change : write.transaction.requests) {
      Put(static_cast<int>(change.op));
      Put(change.row.request.sequence);
      Put(static_cast<int>(change.row.state));
      Put(change.row.claim);
    }
    Put(write.transaction.absent_requests.size());
  }
  // Their order is that of the commit, which the claims' names in a hash table may decide.
  template <typename Changes>
  void PutChanges(const Changes& changes) {
    std::map<Id, int> kinds;
    for (const auto& change : changes) {
      if (change.before) kinds[change.before->id] += 1;
      if (change.after) kinds[change.after->id] += 16;
    }
    PutSorted(kinds, [&](const auto& each) { Put(each.second); });
  }

  void PutLane(const SmallWorld::Lane& lane) {
    Put(lane.up);
    if (!lane.up) return;
    const ledger::LedgerProbe probe{*lane.ledger};
    for (const Initial& initial : world_.spec_->semaphores)
      PutKnown(lane, probe, initial.semaphore);
    PutSorted(mentions_.CopyOf(lane).sessions, [&](const auto& each) { PutSession(*each.second); });
    PutHighest(probe);
    // The order among claims is that of a hash table.
    std::vector<Event> events = probe.found_events();
    std::ranges::stable_sort(events, {}, [&](const Event& event) { return Named(event.claim); });
    Put(events.size());
    for (const Event& event : events) {
      Put(static_cast<int>(event.kind));
      Put(event.claim);
      Put(event.session);
      PutEpoch(event.claim, event.epoch);
      Put(static_cast<int>(event.cause));
    }
    Put(probe.in_doubt());
    Put(lane.store->in_flight() != nullptr);
    if (const auto& write = lane.store->in_flight()) PutWrite(*write);
    Put(lane.in_doubt.size());
    for (const auto& sent : lane.in_doubt) PutCommand(sent.command);
    PutSorted(lane.view.claims, [&](const auto& each) { Put(static_cast<int>(each.second)); });
  }
  // By no commit, by one, by more.
  static int Behind(uint64_t revision, uint64_t newest) {
    return revision == newest ? 0 : revision + 1 == newest ? 1 : 2;
  }
  void PutKnown(const SmallWorld::Lane& lane, const ledger::LedgerProbe& probe,
                const std::string& name) {
    const SemaphoreCopy* cached = mentions_.CopyOf(lane).Find(name);
    const uint64_t known = cached == nullptr ? 0 : cached->row.revision;
    const uint64_t stored = mentions_.RevisionOf(name);
    Put(probe.Loaded(name) * 8 + probe.ToServe(name) * 4 + probe.IsTouched(name) * 2 +
        probe.StoodStill(name));
    Put(Behind(known, stored));
    const uint64_t seen = probe.IntentionSeen(name);
    Put(seen != 0 && seen == (cached == nullptr ? stored : known));
    const auto notice = lane.notices.find(name);
    const bool is_notice = probe.Loaded(name) && notice != lane.notices.end() &&
                           (known == 0 ? stored != 0 : notice->second.notice.revision > known);
    Put(is_notice);
    if (is_notice) {
      const uint64_t revision = notice->second.notice.revision;
      Put(notice->second.details.has_value() && known + 1 == revision);
      Put(revision == stored);
    }
    Put(cached != nullptr);
    if (cached == nullptr) return;
    PutSemaphore(*cached);
    Put(Agrees(*cached));
  }
  // The copy has the tokens and orders of the engine, and its row, if it is of this revision.
  bool Agrees(const SemaphoreCopy& cached) const {
    const StoredSemaphore* stored = world_.engine_.Find(cached.row.name);
    if (stored == nullptr) return true;
    if (cached.row.revision == stored->row.revision && cached.row != stored->row) return false;
    return std::ranges::all_of(cached.leases,
                               [&](const auto& each) {
                                 const auto lease = stored->leases.find(each.first);
                                 return lease == stored->leases.end() ||
                                        (lease->second.token == each.second->token &&
                                         lease->second.order == each.second->order);
                               }) &&
           std::ranges::all_of(cached.waiters, [&](const auto& each) {
             const auto waiter = stored->waiters.find(each.first);
             return waiter == stored->waiters.end() || waiter->second.order == each.second->order;
           });
  }
  // The highest sequence numbers that the lane knows of.
  void PutHighest(const ledger::LedgerProbe& probe) {
    std::vector<uint64_t> high(names_.size());
    for (size_t i = 0; i < names_.size(); ++i)
      high[names_[i]] = probe.SequenceHigh("client" + std::to_string(i)).value_or(0);
    for (const uint64_t each : high) Put(each);
  }

  void World() {
    Put(world_.engine_.semaphores().size());
    for (const auto& [name, stored] : world_.engine_.semaphores()) PutSemaphore(stored);
    PutSorted(world_.engine_.sessions(), [&](const auto& each) { PutSession(each.second); });
    PutRequests();
    std::map<Id, const ClaimLife*> lives;
    for (const Id& claim : mentions_.claims()) {
      const auto life = world_.checks_.lives().find(claim);
      if (life != world_.checks_.lives().end()) lives[claim] = &life->second;
    }
    PutSorted(lives, [&](const auto& each) {
      const ClaimLife& life = *each.second;
      Put(life.over * 4 + life.granted * 2 + life.waited);
      Put(static_cast<int>(life.cause));
    });
    for (size_t i = 0; i < world_.nodes_.size(); ++i) {
      const auto& node = world_.nodes_[TurnedNode(i)];
      Put(node.dead);
      if (world_.IsDown(TurnedNode(i))) continue;
      PutSorted(node.claims, [&](const auto& each) {
        Put(each.second.session);
        PutEpoch(each.second.session, each.second.epoch);
        PutEpoch(each.first, each.second.claim_epoch);
      });
      PutSorted(node.sessions, [&](const auto& each) { PutEpoch(each.first, each.second); });
    }
    for (size_t i = 0; i < world_.lanes_.size(); ++i) PutLane(world_.lanes_[Turned(i)]);
    const auto may_land = [this](const auto& write) { return mentions_.MayStillLand(*write); };
    Put(std::ranges::count_if(world_.late_, may_land));
    for (const auto& write : world_.late_) {
      if (may_land(write)) PutWrite(*write);
    }
    std::vector<const std::vector<SmallWorld::Known>*> known(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) known[names_[i]] = &world_.known_[i];
    for (const auto* client : known) {
      for (const auto& each : *client) {
        Put(each.claim);
        PutEpoch(each.claim, each.moving);
      }
    }
  }

  const SmallWorld& world_;
  const Mentions mentions_;
  std::vector<size_t> names_;
  bool turned_ = false;  // The two lanes have changed places.
  std::array<char, 32768> text_;
  char* end_ = nullptr;
};

Hash SmallWorld::Canonical(KnownForms* known) const { return Canonizer(*this).Make(known); }

}  // namespace semaphored::worlds
