// A model of the numbers in answers: what an administrative act concerns, and what a release returns and
// leaves. Part of Checks.
//
// The act's own commit decides, so the model looks at the semaphore as it was before that commit and
// predicts the row of the request (affected, changed) and what the commit must leave in the semaphore's
// own row (the limit, the pause, the settings). Each answer must then be that of the row, also when the
// request is repeated, at another daemon too.
//
// The prediction is exact where the commit has no other change that the number depends on. Otherwise only
// bounds are known:
//   other commands in the batch   They may have been decided before the act or after it. The changes of
//                                 leases (and of tickets) stand in the order in which they were decided, so
//                                 the number must be right at one of these moments.
//   requeue, purge of all         If they are larger than one commit, parts of them landed before, and so did
//                                 a part of an attempt that failed: the number lies between what this
//                                 commit has done and all that was done since the act was first asked for.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/memory_engine.h"
#include "tests/simulation/moment.h"
#include "tests/simulation/world.h"

namespace semaphored::simulation {

class CountChecks {
 public:
  CountChecks(const World* world, const MemoryEngine* engine) : world_(world), engine_(engine) {}

  // ---- what clients report ----
  // Before it is asked for the first time, and again with each repetition.
  void Administers(const std::string& client_id, const AdminCommand& command);
  void WasDone(const std::string& client_id, uint64_t sequence, uint32_t affected, bool changed);
  // Of a release that returned something.
  void WasReleased(const std::string& client_id, uint64_t sequence, uint32_t released,
                   uint32_t remaining);
  // An administrative answer shows a number of permits that are held, and of waiters; it was asked for
  // at `since_us`.
  void WasShown(const std::string& semaphore, uint32_t held, uint64_t waiting, uint32_t limit,
                int64_t since_us) const;

  // ---- when ----
  void OnLanded(const ledger::Transaction& transaction,
                const std::map<std::string, StoredSemaphore>& before);
  // Another client of the engine has changed what is held.
  void OnForeign(const std::string& semaphore);

  // Acts whose numbers were predicted exactly; all others have bounds.
  uint64_t exact() const { return exact_; }
  uint64_t bounded() const { return bounded_; }

 private:
  using Request = std::pair<std::string, uint64_t>;
  struct Numbers {
    uint32_t number = 0;
    uint32_t remaining = 0;
    bool changed = false;
  };
  struct Figures {
    int64_t at_us = 0;
    uint32_t held_least = 0;
    uint32_t held_most = 0;
    uint64_t waiting_least = 0;
    uint64_t waiting_most = 0;
    uint32_t limit_least = 0;
    uint32_t limit_most = 0;
  };
  struct Act {
    AdminCommand command;
    // Of dead letters, by commits without a request: parts of an act on all of them.
    uint32_t parts_done = 0;
  };
  // One act in one commit.
  struct Scene {
    const AdminCommand* command = nullptr;
    uint32_t parts_done = 0;
    const StoredSemaphore* before = nullptr;        // nullptr: there was none.
    const StoredSemaphore* after = nullptr;         // nullptr: it is gone.
    const ledger::SemaphoreDelta* delta = nullptr;  // nullptr: the commit does not touch it.
  };

  void CheckAct(const Scene& scene, const ledger::RequestRow& row);
  // What the act leaves in the semaphore's row. Empty, or what is wrong.
  static std::string CheckRow(const Scene& scene);
  // The numbers that may be right: one for each moment of the commit.
  std::set<uint32_t> Expected(const Scene& scene) const;
  static bool ExpectedChange(const Scene& scene, uint32_t number);
  void CheckRelease(const ledger::RequestRow& row, const ledger::SemaphoreDelta* delta);
  void NoteParts(const ledger::SemaphoreDelta& delta);
  void NoteFigures(const ledger::SemaphoreDelta& delta, const StoredSemaphore* before,
                   bool several_acts);
  Figures FiguresNow(const std::string& semaphore) const;
  void Keep(const std::string& semaphore, const Figures& figures);
  [[noreturn]] void Fail(const std::string& what) const { throw Violation{what}; }

  const World* world_;
  const MemoryEngine* engine_;
  std::map<Request, Act> acts_;
  std::map<Request, std::vector<Numbers>>
      done_;                // As the engine has it; more than once if forgotten.
  std::set<Request> open_;  // Acts that are not answered yet.
  // The last changes of each semaphore: what it had at some moment of each, and after it.
  std::map<std::string, std::deque<Figures>> figures_;
  uint64_t exact_ = 0;
  uint64_t bounded_ = 0;
};

}  // namespace semaphored::simulation
