// One worker: what it works for, how many hands it has, and where it offers them. Decides only;
// its owner carries out what it decides. No time, no I/O: an offer is made, and what becomes of it
// is reported later.
//
//   Offer → OnStanding → (OnTaken | OnGone)      the hand waits there for a ticket
//         → OnTaken                              a ticket was there; the hand has it until OnFreed
//         → OnNothing | OnFailed                 nothing was left behind
//
// Rules:
//   * A semaphore that is named has as many offers as the worker has free hands, at most
//     kOffersPerSemaphore: whatever any client enqueues there later comes to one of them.
//   * One that is found under a prefix has them only while there are tickets. Of those found where
//     nothing is offered, the kIdleMax are kept whose turn comes first; a look-up finds the others.
//   * So there may be more offers than free hands. When all hands are full the others are
//     withdrawn; what is given to one all the same is turned away (OnTaken says false).
//   * New offers go round the semaphores in turn, so that none starves. As an offer may be answered
//     with a ticket at once, few are asked for together: as many as there are free hands, and more
//     with each that found nothing to do.
//
// Single-threaded. The actions must not call back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "adapters/adapter.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class Worker {
 public:
  static constexpr size_t kOffersPerSemaphore = 16;
  static constexpr size_t kOffersMax = 4096;  // Of one worker.
  static constexpr size_t kIdleMax = 1024;

  struct Actions {
    // Makes an offer, and gives its claim.
    std::function<Id(const std::string& semaphore, OfferKept keep)> offer;
    std::function<void(const std::string& semaphore, const Id& claim)> withdraw;
  };

  Worker(const WorkParams& params, Actions actions);

  // ---- what it has ----
  // A ticket that it had before it was resumed.
  void Has(const Id& claim) { in_hand_.insert(claim); }
  void SetHands(uint32_t hands) { hands_ = hands; }
  size_t free_hands() const { return hands_ > in_hand_.size() ? hands_ - in_hand_.size() : 0; }
  bool WorksFor(const std::string& semaphore) const;
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& prefixes() const { return prefixes_; }

  // ---- what has become of offers ----
  // False: it is not known, or was withdrawn meanwhile; it is to be ended.
  bool OnStanding(const Id& claim);
  // False: all hands are full, and the ticket is to be put back. An offer that was withdrawn
  // meanwhile is as good as any.
  bool OnTaken(const Id& claim);
  // There is no ticket to be had.
  void OnNothing(const Id& claim);
  // It could not be made: there is no such semaphore, or some limit. Tried again after a Sweep.
  void OnFailed(const Id& claim);
  // The offer has ended (by Withdraw, or with its semaphore), or the ticket is in the hand no more.
  void OnGone(const Id& claim);
  void OnFreed(const Id& claim) { in_hand_.erase(claim); }

  // ---- what is known of semaphores ----
  // There are tickets at a semaphore that it WorksFor, or none any more.
  void OnTickets(const std::string& semaphore, bool there_are);
  // A look-up of its prefixes may find work for it: it has a free hand, or has found more than it
  // keeps.
  bool needs_look_up() const { return free_hands() > 0 || found_more_; }
  // What has failed may be tried again; what was to be withdrawn and still stands is withdrawn
  // again.
  void Sweep();

  // Makes and withdraws offers, as the rules say. After any of the above.
  void Fill();

 private:
  enum class Stage : uint8_t { kAsked, kStanding, kWithdrawn };
  struct Place {
    bool named = false;
    bool found = false;   // By a prefix: there are tickets.
    bool failed = false;  // Not before the next sweep.
    absl::btree_set<Id> asked;
    absl::btree_set<Id> standing;
    size_t offers() const { return asked.size() + standing.size(); }
  };
  struct Offered {
    std::string semaphore;
    Stage stage = Stage::kAsked;
  };

  // As many as are right at this place now.
  size_t Wanted(const Place& place) const;
  bool Lacks(const Place& place) const { return !place.failed && place.offers() < Wanted(place); }
  void Withdraw(const std::string& semaphore, Place* place, size_t keep);
  void AskAt(const std::string& semaphore, Place* place);
  // There are tickets, and nothing is offered there.
  void AddIdle(const std::string& semaphore);
  // The place that lacks an offer, after the one asked last in turn; empty: none does. REQUIRES: a
  // free hand.
  std::string NextLacking() const;
  // Takes the offer out; its place, or nullptr if it is not known or withdrawn.
  Place* TakeOut(const Id& claim);

  std::vector<std::string> names_;
  std::vector<std::string> prefixes_;
  uint32_t hands_ = 1;
  Actions actions_;
  absl::btree_map<std::string, Place> places_;  // Named, or with offers; after a Fill no others.
  absl::btree_set<std::string> idle_;           // Found; not in places_.
  bool found_more_ = false;                     // Some were left out of idle_ once.
  absl::flat_hash_map<Id, Offered> offers_;
  absl::btree_set<Id> in_hand_;
  size_t asked_ = 0;
  size_t together_ = 1;  // How many may be asked for together, beyond free hands.
  std::string turn_;     // The place that was asked last.
};

}  // namespace semaphored
