// The data of an adapter on the ledger's rules, whatever its engine: the state, and what is kept beside it. Applies or
// rolls back a batch in both. Used by one lane.
#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "adapters/adapter.h"
#include "adapters/ledger/ends.h"
#include "adapters/ledger/options.h"
#include "adapters/ledger/outbox.h"
#include "adapters/ledger/request_book.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/serving.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/ledger/ticket_payloads.h"

namespace semaphored::ledger {

// A batch that has been decided and carried out in the state, on its way to the store.
struct Decided {
  Transaction transaction;
  std::vector<Outcome> outcomes;
  // Outcomes that show a ticket with its payload, which is read when the batch has won.
  std::vector<PayloadWanted> payloads_wanted;
  // Only when its fate is unknown.
  std::vector<Submission> batch;
};

struct Core {
  // `guarantees` and `rows` outlive it. `is_shared`: other daemons write to the store.
  Core(const Guarantees& guarantees, RequestRows* rows, bool is_shared, LedgerOptions with);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // For a command, before its requester is known.
  Context NewContext() const;
  // Nothing is granted in the semaphore, whatever is free: see `withheld`; or no commit may touch it now.
  bool GrantsNothing(const std::string& semaphore) const;
  // Decides the command by its rule, and changes the state through the editor. A HistoryCommand is no rule's: kUnsupported.
  // A FlushCommand changes nothing: kDone.
  Outcome Execute(const Command& command, Editor& editor, const Context& context) const;
  // The commit of the batch has won: updates revisions, requests and recent ends, and puts its outcomes and all
  // reports into `result`. Not the payloads of tickets.
  void Win(Decided* decided, StepResult* result);
  // The commit of the batch has not won: restores the state.
  void RollBack(const Transaction& transaction);
  // Writes options.use. At the end of each Step.
  void ShowUse() const;

  const Guarantees& can;
  const bool shared;
  const LedgerOptions options;
  LedgerState state{options.owners};
  RecentEnds ends{65'536};
  Outbox outbox;
  Serving serving;
  bool withheld = false;  // The last answer of SharedStore::GrantsWithheld.
  // What was pruned in the engine, for the batch that is decided, by semaphore.
  absl::flat_hash_map<std::string, Pruned> pruned;
  // What the engine has for an AdminAdopt of the batch. No entry: no recipe is known on this engine, or the semaphore
  // existed.
  absl::flat_hash_map<const AdminAdopt*, Adoptable> adoptable;
  // nullptr: the command adopts nothing, or has no entry there.
  const Adoptable* AdoptableFor(const Command& command) const;
  // Why nothing of these semaphores can be read (Image::damaged). With each command about one of them,
  // and with each sweep, it is read again. Written by the view.
  absl::flat_hash_map<std::string, absl::Status> damaged;
  // The semaphores in which the sessions that this batch moves or closes have claims, by session.
  absl::flat_hash_map<Id, std::vector<std::string>> with_claims;
  // The pages of this batch's OrphansCommands. Empty, if the store is not shared.
  absl::flat_hash_map<const OrphansCommand*, OrphansPage> orphans;
  // The quarantines that were reported last, and whether the semaphore could not be read.
  absl::btree_map<std::string, bool> reported;
  RequestBook requests;
};

}  // namespace semaphored::ledger
