// The semaphores that the next serving commit (a commit without commands) is about: those where there may be room for
// waiters, and those with intentions. And those that no commit touches for a time: another client of the engine keeps
// them locked (busy), or no commit to them succeeds (quarantine). Single-threaded.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "adapters/ledger/options.h"

namespace semaphored::ledger {

class Serving {
 public:
  explicit Serving(const LedgerOptions& options);
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  void Add(const std::string& name);
  template <typename Names>
  void AddAll(const Names& names) {
    names_.insert(names.begin(), names.end());
  }
  // All that were added and not yet served, in alphabetical order.
  const absl::btree_set<std::string>& names() const { return names_; }
  // True: the next serving commit is about the semaphore, if it was added.
  bool Serves(const std::string& name) const;
  // True: the next serving commit is about some semaphore.
  bool ServesAny() const;
  // A serving commit has won: the semaphores that it was about are served.
  void Served();
  // Serving commits are about this semaphore alone, until the next call. Empty: about all of them.
  void ServeOnly(std::string name) { only_ = std::move(name); }

  // Notes these as locked, for LedgerOptions::busy_pause. True: one of them was not noted before.
  bool LeaveAlone(const std::vector<std::string>& busy);
  bool IsBusy(const std::string& name) const;
  // Frees the memory of those that are no longer busy, if there are many.
  void ForgetBusy();

  // No commit touches it for a pause, which doubles each time. Returns the pause.
  std::chrono::milliseconds Quarantine(const std::string& name, const absl::Status& why);
  bool IsQuarantined(const std::string& name) const;
  struct Quarantined {
    absl::Status why;
    SteadyTime until{};
    std::chrono::milliseconds pause{0};
  };
  // Those in quarantine, by name, and those whose pause is over and that are not yet served.
  const absl::flat_hash_map<std::string, Quarantined>& quarantined() const { return quarantined_; }
  // When the first of those in quarantine is to be tried again, if that is before `latest`.
  SteadyTime NextAttempt(SteadyTime latest) const;

  // The next serving commit writes it, even without a change: to find out whether the semaphore is the reason why a
  // command failed alone; or so that other daemons read it again.
  void Touch(const std::string& name);
  // The same, a few with each serving commit from the next one on, so that none is larger than an engine takes.
  void TouchInTurn(std::vector<std::string> names);
  // The next serving commit touches it.
  bool IsTouched(const std::string& name) const;

 private:
  void TouchNext();

  const std::function<SteadyTime()> now_;
  const std::chrono::milliseconds busy_pause_;
  const std::chrono::milliseconds quarantine_pause_;
  const std::chrono::milliseconds quarantine_pause_max_;
  absl::btree_set<std::string> names_;
  std::string only_;
  absl::flat_hash_map<std::string, SteadyTime> busy_;  // Until when.
  absl::flat_hash_map<std::string, Quarantined> quarantined_;
  absl::flat_hash_set<std::string> touched_;
  std::vector<std::string> in_turn_;  // To be touched; the last ones first.
};

}  // namespace semaphored::ledger
