// One small world: real lanes over one engine held in memory, and what their clients and hosts know. It
// does what the explorer chooses, and nothing else: there is no clock but the lanes' own, and no chance.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/mutants.h"
#include "tests/worlds/checks.h"
#include "tests/worlds/choice_store.h"
#include "tests/worlds/probe.h"
#include "tests/worlds/spec.h"

namespace semaphored::worlds {

struct Action {
  enum class Kind : uint8_t {
    kSubmit,        // `client` sends its request `request` to `lane`; `variant`: as whom.
    kSubmitPair,    // The same, and in the same batch its next request, or another client's.
    kExpire,        // The host at `lane` ends the claim, as it knows it.
    kCancel,        // The host gives up the wait; variant 1: a lease too.
    kAdoptClaim,    // A detached claim moves to `lane`.
    kAdoptSession,  // The client's session moves to `lane`.
    kCloseSession,  // The host at `lane` closes the client's session, as it knows it.
    kMoveOver,      // The repeat that says that the move of a lease is over.
    kSweep,         // The lane's sweep is due; its notices are lost.
    kHear,          // The lane's notices arrive.
    kSettle,        // The lane finds out what became of its commit.
    kLandLate,      // A commit whose daemon is gone, or that is in doubt, reaches the engine.
    kRestart,       // All lanes of the lane's daemon start again, in a new incarnation.
    kDeclareDead,   // The lane's node is declared dead.
    kTakeOver,      // The lane looks for what nodes that are dead have left.
  };
  Kind kind = Kind::kSubmit;
  uint8_t lane = 0;
  uint8_t client = 0;
  uint8_t request = 0;
  uint8_t variant = 0;
  uint8_t attempt = 0;  // Of the claim: see ClaimId.
  // kSubmitPair: the second one.
  uint8_t second_client = 0;
  uint8_t second_request = 0;
  int8_t commit = -1;  // The commit that has `fate`; -1: all land.
  Fate fate = Fate::kLands;
};

// What is planted, to see whether the checks find it.
struct Planted {
  std::string name;
  simulation::Mutant mutant = simulation::Mutant::kNone;
  StoreFaults store = {};
  bool ignore_epoch = false;        // Commits ignore the epochs of sessions.
  bool ignore_session_row = false;  // Commits ignore the rows of sessions.
};

// The claim that the client's request makes, if it is a new one, at the given attempt.
Id ClaimId(size_t client, size_t request, size_t attempt);
Id SessionId(size_t client);

std::string Describe(const WorldSpec& spec, const Action& action);

struct Hash {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const Hash&, const Hash&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Hash& hash) {
    return H::combine(std::move(h), hash.high, hash.low);
  }
};

// The canonical forms of states that were seen of late, by the forms that the same states have with the names
// that they happen to have: most acts lead to a state that is known.
class KnownForms {
 public:
  const Hash* Find(const Hash& form) const {
    const auto& [known, least] = EntryOf(form);
    return known == form ? &least : nullptr;
  }
  void Add(const Hash& form, const Hash& least) { EntryOf(form) = {form, least}; }

 private:
  using Entries = std::vector<std::pair<Hash, Hash>>;
  const Entries::value_type& EntryOf(const Hash& form) const {
    return entries_[form.low % entries_.size()];
  }
  Entries::value_type& EntryOf(const Hash& form) { return entries_[form.low % entries_.size()]; }

  Entries entries_ = Entries(size_t{1} << 19);
};

// How often what is counted has happened. The less of it, the more may still happen.
struct Spent {
  int losses = 0;
  int restarts = 0;
  int deaths = 0;
};

class SmallWorld {
 public:
  // Both outlive the world.
  SmallWorld(const WorldSpec* spec, const Planted* planted);
  SmallWorld(const SmallWorld&) = delete;
  SmallWorld& operator=(const SmallWorld&) = delete;

  // What may be done now, with all commits landing.
  std::vector<Action> Enabled() const;
  // An answer may still be lost.
  bool MayLose() const { return spent_.losses < spec_->losses; }
  // Throws Violation. Returns how many commits were sent.
  int Do(const Action& action);
  // Every invariant that holds in each state. Throws Violation.
  void CheckState();
  // Asks each lane for each claim, lets the lanes do what is left to do, and checks what must hold when
  // nothing is left. The world is of no use afterwards. Throws Violation.
  void CheckQuiescence();
  // The same for states that differ only in names, and in what is spent: see canonical.cc.
  Hash Canonical(KnownForms* known = nullptr) const;
  const Spent& spent() const { return spent_; }

 private:
  friend class Canonizer;
  friend class ActionList;
  friend class Mentions;

  // What a host knows of a claim that it keeps alive.
  struct Hosted {
    Id session;
    uint32_t epoch = 0;        // Of what it hangs on.
    uint32_t claim_epoch = 0;  // Its own.
    friend bool operator==(const Hosted&, const Hosted&) = default;
  };
  struct Node {
    NodeRef ref;
    bool dead = false;
    std::map<Id, Hosted> claims;
    std::map<Id, uint32_t> sessions;  // To epochs.
  };
  // A command that was submitted, and for which of the clients' requests.
  struct Sent {
    Command command;
    uint64_t number = 0;
    int client = -1;
    size_t request = 0;
  };
  struct Lane {
    size_t node = 0;
    bool up = true;  // False: its node is dead or replaced, and it must not go on.
    SteadyTime now{std::chrono::hours(1)};
    ChoiceStore* store = nullptr;
    const Adapter* ledger = nullptr;
    std::unique_ptr<Adapter> adapter;
    std::vector<Sent> in_doubt;
    std::map<std::string, Notice> notices;  // Under way, by semaphore: the latest.
    LaneView view;
  };
  struct Known {
    Id claim;             // Empty: none.
    uint32_t moving = 0;  // The epoch of a move that is not over; 0: none.
    uint8_t asked = 0;    // So often; each time with a claim of its own.
  };

  void Start(Lane& lane, size_t index);
  void Setup();
  void Act(const Action& action);
  void Restart(size_t lane);
  void TakeOver(size_t lane);
  Sent Submission(const Action& action, size_t client, size_t request);
  Command EndOf(const Action& action, EndCause cause) const;
  // False: it failed, as it may.
  bool Step(size_t lane, std::vector<Sent> sent);
  bool MayFail(const Lane& lane, const absl::Status& status);
  void See(size_t lane, const Sent& sent, const Outcome& outcome, bool settled);
  void LearnClaim(size_t lane, const Id& claim, const Hosted& hosted, bool held);
  void LearnAcquired(size_t lane, const Sent& sent, const Outcome& outcome);
  void LearnReport(size_t lane, const Report& report);
  void Hear(size_t lane, const Event& event);
  void OnLanded(const ledger::Transaction& transaction,
                const std::map<std::string, simulation::StoredSemaphore>& before);
  void AskForEachClaim(size_t lane);
  void Settle(size_t lane);
  void Hear(size_t lane);
  void Sweep(size_t lane);
  bool InDoubt(size_t lane) const;
  // The lane's host has the client's session, and does not close it: it takes no request in one that it closes.
  bool IsOpenAt(size_t lane, size_t client) const;
  // No lane of it goes on.
  bool IsDown(size_t node) const {
    return std::ranges::none_of(lanes_,
                                [&](const Lane& lane) { return lane.node == node && lane.up; });
  }
  Node& NodeOf(size_t lane) { return nodes_[lanes_[lane].node]; }
  const Node& NodeOf(size_t lane) const { return nodes_[lanes_[lane].node]; }

  const WorldSpec* spec_;
  const Planted* planted_;
  simulation::World time_{/*seed=*/1, /*tracing=*/false};
  simulation::Faults faults_;
  simulation::MemoryEngine engine_;
  simulation::Notifier notifier_{&time_, &faults_};
  std::vector<Node> nodes_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<Known>> known_;        // By client and request.
  std::vector<std::shared_ptr<InFlight>> late_;  // Their daemons are gone.
  Author author_;
  Checks checks_;
  bool reuses_ = false;  // A client uses one id for two effects.
  uint64_t next_number_ = 1;
  Spent spent_;
  int64_t landed_ = 0;  // Commits.
};

}  // namespace semaphored::worlds
