// What must hold of a small world: of what lands, of each answer, of each state. The checks look at the
// engine's rows and at what was answered; they keep no state of a semaphore of their own.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter.h"
#include "tests/simulation/memory_engine.h"
#include "tests/worlds/choice_store.h"
#include "tests/worlds/probe.h"

namespace semaphored::worlds {

using simulation::Violation;

[[noreturn]] void Fail(const std::string& what);

// What a lane has reported of claims, in this life of its daemon.
struct LaneView {
  enum class Is : uint8_t { kWaiting, kHeld };
  std::map<Id, Is> claims;  // Those that it last reported to wait, or to be held.
  std::set<Id> granted;     // By an event.
  std::set<Id> ended;       // By an event.
};

// A claim from when it landed; kept after its end.
struct ClaimLife {
  uint32_t client = 0;  // The engine's number.
  uint64_t sequence = 0;
  std::string semaphore;
  bool waited = false;
  bool granted = false;
  bool over = false;
  EndCause cause = EndCause::kNone;
  uint64_t arrival = 0;
};

class Checks {
 public:
  // Outlives the checks.
  explicit Checks(const simulation::MemoryEngine* engine) : engine_(engine) {}

  // A write has landed. `before`: the touched semaphores as they were, absent if new.
  void Landed(const ledger::Transaction& transaction,
              const std::map<std::string, simulation::StoredSemaphore>& before,
              const std::vector<Command>& commands);
  // A step begins: what ends from here on may contradict its answers.
  void BeginStep(const std::vector<Command>& commands);
  // The answer to a command. `view`: the lane's, as it was before.
  void Answered(const Command& command, const Outcome& outcome, const LaneView& view);
  // The same of a command that was in doubt: it speaks of when it landed, which others may have followed.
  void Settled(const Command& command, const Outcome& outcome, const LaneView& view);
  // Records the event in `view`.
  void Heard(const Event& event, LaneView* view);
  // The engine's rows agree with each other.
  void Engine() const;
  // `reused`: clients use one id for two claims. A lane that has not heard of the first one's end then knows
  // both, and can find only one of them by the id.
  static void Lane(const Adapter& ledger, bool reused);
  // Nothing is left to do: nothing that could be granted waits, and the lane knows what the engine has.
  // Of a session whose host has died since it moved there, a lane need not have heard of the move.
  using IsUp = std::function<bool(const NodeRef&)>;
  void Quiet(const Adapter& ledger, const LaneView& view, const IsUp& is_up) const;

  const std::map<Id, ClaimLife>& lives() const { return lives_; }
  const simulation::StoredSemaphore* Semaphore(const std::string& name) const {
    return engine_->Find(name);
  }

 private:
  const Lease* FindLease(const std::string& semaphore, const Id& claim) const;
  const Waiter* FindWaiter(const std::string& semaphore, const Id& claim) const;
  const ledger::RequestRow* RowOf(const Requester& requester) const;
  bool EndedInStep(const Id& claim) const { return ended_in_step_.contains(claim); }

  void Begins(const std::string& name, const Claim& claim, bool waits);
  void Permits(const ledger::SemaphoreDelta& delta, const simulation::StoredSemaphore* before);
  void Grants(const ledger::SemaphoreDelta& delta, const simulation::StoredSemaphore* before);
  void Turn(const std::string& name, const Claim& granted,
            const simulation::StoredSemaphore* before) const;
  void Ends(const ledger::Transaction& transaction, const ledger::SemaphoreDelta& delta,
            const simulation::StoredSemaphore* before, const std::vector<Command>& commands);
  void Sessions(const ledger::Transaction& transaction);
  void Requests(const ledger::Transaction& transaction);
  void Limits(const ledger::Transaction& transaction,
              const std::map<std::string, simulation::StoredSemaphore>& before,
              const std::vector<Command>& commands) const;

  void AcquireAnswered(const AcquireCommand& command, const Outcome& outcome, const LaneView& view);
  void Held(const AcquireCommand& command, const Outcome& outcome) const;
  void Refused(const AcquireCommand& command, const Outcome& outcome) const;
  void ReleaseAnswered(const ReleaseCommand& command, const Outcome& outcome) const;
  void EndAnswered(const EndCommand& command, const Outcome& outcome) const;
  void VerifyAnswered(const VerifyCommand& command, const Outcome& outcome) const;
  void SameAnswer(const Requester& requester, const Id& claim);
  void Cached(const ledger::Semaphore& cached, const ledger::LedgerState& state,
              const IsUp& is_up) const;

  const simulation::MemoryEngine* engine_;
  std::map<Id, ClaimLife> lives_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> tokens_;  // The last of each slot.
  std::map<std::pair<uint32_t, uint64_t>, int> done_;            // Acts, by request.
  std::map<Id, uint32_t> epochs_;                                // Of sessions; 0: it has ended.
  std::map<std::pair<std::string, uint64_t>, Id> answered_;      // Claims, by request.
  // Fingerprints of the rows that requests had when the step began.
  std::map<std::pair<std::string, uint64_t>, Id> rows_before_;
  std::set<Id> ended_in_step_;
  int landed_in_step_ = 0;
  uint64_t arrivals_ = 0;
};

}  // namespace semaphored::worlds
