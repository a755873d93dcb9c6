// Administration: create, resize, configure, destroy, pause, revoke, and questions.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules/intentions.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

void AddInfo(Outcome& outcome, const Semaphore& semaphore) {
  if (!outcome.report) outcome.report = std::make_unique<Report>();
  outcome.report->info = Describe(semaphore);
}

Outcome Refused(OutcomeKind kind, const Semaphore& semaphore) {
  Outcome outcome = Simply(kind);
  AddInfo(outcome, semaphore);
  return outcome;
}

Outcome Changed(bool changed, uint32_t affected = 0) {
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.changed = changed;
  outcome.detail = Outcome::Affected{affected};
  return outcome;
}

uint32_t CountOwn(const Semaphore& semaphore) {
  return static_cast<uint32_t>(std::ranges::count_if(
      semaphore.leases, [](const auto& each) { return !each.second->foreign; }));
}

// nullopt: below 0, or more than may be.
std::optional<uint32_t> LimitAfter(const AdminResize& act, const Semaphore& semaphore) {
  int64_t limit = act.amount;
  if (act.change == AdminResize::Change::kAdd) limit = int64_t{semaphore.row.limit} + act.amount;
  if (act.change == AdminResize::Change::kRemove) limit = int64_t{semaphore.row.limit} - act.amount;
  if (limit < 0 || limit > act.limit_max) return std::nullopt;
  return static_cast<uint32_t>(limit);
}

Outcome Create(Editor& editor, const AdminCommand& command, const AdminCreate& act,
               const Context& context) {
  if (Semaphore* semaphore = editor.Find(command.semaphore)) {
    if (semaphore->row.destroying) return Refused(OutcomeKind::kDestroyed, *semaphore);
    const bool same = semaphore->row.limit == act.limit && semaphore->row.settings == act.settings;
    return same ? Changed(false) : Refused(OutcomeKind::kAlreadyExists, *semaphore);
  }
  if (auto full = NoRoomFor(editor.state(), command, context.limits)) return std::move(*full);
  SemaphoreRow row;
  row.name = command.semaphore;
  row.owner = command.owner;
  row.limit = act.limit;
  row.settings = act.settings;
  row.created_at_unix_ms = context.now_unix_ms;
  editor.Create(std::move(row));
  return Changed(true);
}

Outcome Resize(Editor& editor, Semaphore* semaphore, const AdminResize& act,
               const Context& context) {
  const std::optional<uint32_t> limit = LimitAfter(act, *semaphore);
  if (!limit) return Refused(OutcomeKind::kOutOfRange, *semaphore);
  if (act.policy == ShrinkPolicy::kRefuse &&
      *limit < uint64_t{semaphore->held} + semaphore->held_elsewhere) {
    return Refused(OutcomeKind::kWouldOvershoot, *semaphore);
  }
  const bool changed = *limit != semaphore->row.limit;
  editor.ChangeRow(semaphore, [&](SemaphoreRow& row) { row.limit = *limit; });
  Intentions left = Decode(semaphore->row.intentions);
  left.dismiss = true;
  left.shrink_grace_ms.reset();  // This limit replaces the one before.
  uint32_t recalled = 0;
  if (act.policy == ShrinkPolicy::kRecall) {
    left.shrink_grace_ms = GraceOf(act.grace_ms, *semaphore);
    recalled = static_cast<uint32_t>(ExcessOver(*semaphore, *limit).leases.size());
  }
  CarryOn(editor, semaphore, std::move(left), context, /*act=*/true);
  return Changed(changed || recalled > 0, recalled);
}

Outcome Destroy(Editor& editor, Semaphore* semaphore, const AdminDestroy& act,
                const Context& context) {
  const bool in_use =
      !semaphore->leases.empty() || !semaphore->waiters.empty() || semaphore->held_elsewhere > 0;
  if (act.policy == DestroyPolicy::kRefuse && in_use)
    return Refused(OutcomeKind::kInUse, *semaphore);
  if (act.policy != DestroyPolicy::kForce && !semaphore->tickets.empty()) {
    Outcome outcome = Refused(OutcomeKind::kInUse, *semaphore);
    outcome.message = absl::StrCat("there are ", semaphore->tickets.size(),
                                   " tickets, which only force takes along");
    return outcome;
  }
  const bool by_force = act.policy == DestroyPolicy::kForce;
  const uint32_t meant = by_force ? CountOwn(*semaphore) : 0;
  editor.ChangeRow(semaphore, [](SemaphoreRow& row) { row.destroying = true; });
  Intentions left;  // All others are void.
  left.dismiss = true;
  left.force_grace_ms = Decode(semaphore->row.intentions).force_grace_ms;
  if (by_force) left.force_grace_ms = GraceOf(act.grace_ms, *semaphore);
  CarryOn(editor, semaphore, std::move(left), context, /*act=*/true);
  return Changed(true, meant);
}

Outcome Revoke(Editor& editor, Semaphore* semaphore, const AdminRevoke& act,
               const Context& context) {
  uint32_t affected = 0;
  const Recall recall{Recall::Reason::kAdministrator, GraceOf(act.grace_ms, *semaphore)};
  Revocation revocation{act.holder, recall.grace_ms, 0};
  for (const auto& [id, lease] : semaphore->leases) {
    if (lease->foreign) continue;
    if (!act.claim.empty() && id != act.claim) continue;
    if (!act.holder.empty() && lease->holder != act.holder) continue;
    revocation.token_max = std::max(revocation.token_max, lease->token);
    ++affected;
  }
  if (affected > 0 && !act.claim.empty()) {
    RecallLease(editor, semaphore, semaphore->FindLease(act.claim), recall, context);
  } else if (affected > 0) {
    Intentions left = Decode(semaphore->row.intentions);
    if (left.revocations.size() >= kRevocationsMax) {
      return LimitReached(
          absl::StrCat("as many revocations of this semaphore are under way as may (",
                       kRevocationsMax, "); try again when one is done"));
    }
    left.revocations.push_back(std::move(revocation));
    CarryOn(editor, semaphore, std::move(left), context, /*act=*/true);
  }
  const bool found = !act.claim.empty() && affected > 0;
  if (!found && semaphore->held_elsewhere > 0 && context.tells_others)
    editor.AskOthers({semaphore->row.name, act.claim, act.holder, recall, 0});
  return Changed(affected > 0, affected);
}

// Of a semaphore that exists: it was adopted just now, or before, or has never been a recipe's.
Outcome AdoptExisting(const Semaphore& semaphore, const AdminAdopt& act, const Context& context) {
  if (semaphore.row.destroying) return Refused(OutcomeKind::kDestroyed, semaphore);
  if (act.limit != 0 && act.limit == semaphore.row.limit)
    return Changed(context.adoptable != nullptr && context.adoptable->made, act.limit);
  Outcome outcome = Refused(OutcomeKind::kAlreadyExists, semaphore);
  outcome.message = "the semaphore exists: there is nothing to adopt";
  return outcome;
}

// The engine has carried the act out before, if it could.
Outcome AdoptRecipe(const Semaphore* semaphore, const AdminAdopt& act, const Context& context) {
  if (semaphore != nullptr) return AdoptExisting(*semaphore, act, context);
  if (context.adoptable == nullptr) return Simply(OutcomeKind::kUnsupported);
  const Adoptable& found = *context.adoptable;
  if (!found.refusal.empty()) {
    Outcome outcome = Simply(found.clients > 0 ? OutcomeKind::kInUse : OutcomeKind::kUnusable);
    outcome.message = found.refusal;
    return outcome;
  }
  if (act.limit == 0) {
    Outcome outcome = Changed(false, found.limit);
    outcome.message = found.changes;
    return outcome;
  }
  Outcome outcome = Simply(OutcomeKind::kInUse);
  outcome.message = absl::StrCat("it has ", found.limit, " permits by now, and not ", act.limit,
                                 ": look at it again");
  return outcome;
}

struct Act {
  Editor& editor;
  Semaphore* semaphore;
  const Context& context;

  Outcome operator()(const AdminCreate&) const {
    return Simply(OutcomeKind::kUnsupported);
  }  // Handled before.
  Outcome operator()(const AdminResize& act) const {
    return Resize(editor, semaphore, act, context);
  }
  Outcome operator()(const AdminConfigure& act) const {
    const bool changed = semaphore->row.settings != act.settings;
    editor.ChangeRow(semaphore, [&](SemaphoreRow& row) { row.settings = act.settings; });
    Intentions left = Decode(semaphore->row.intentions);
    left.dismiss = true;
    CarryOn(editor, semaphore, std::move(left), context, /*act=*/true);
    return Changed(changed);
  }
  Outcome operator()(const AdminDestroy& act) const {
    return Destroy(editor, semaphore, act, context);
  }
  Outcome operator()(const AdminPause& act) const {
    const bool changed = semaphore->row.paused != act.paused;
    editor.ChangeRow(semaphore, [&](SemaphoreRow& row) { row.paused = act.paused; });
    return Changed(changed);
  }
  Outcome operator()(const AdminRevoke& act) const {
    return Revoke(editor, semaphore, act, context);
  }
  // A ledger keeps nothing that could be left behind: the rows are the truth.
  Outcome operator()(const AdminPrune&) const {
    if (context.pruned == nullptr) return Changed(false);
    const Pruned& pruned = *context.pruned;
    if (pruned.unresolved > 0) {
      Outcome outcome = Simply(OutcomeKind::kInUse);
      if (semaphore != nullptr) AddInfo(outcome, *semaphore);
      outcome.message = pruned.message;
      return outcome;
    }
    const uint32_t affected = pruned.removed + pruned.added;
    return Changed(affected > 0, affected);
  }
  Outcome operator()(const AdminDescribe& act) const {
    Outcome outcome = Changed(false);
    outcome.report = std::make_unique<Report>();
    outcome.report->info = DescribePage(editor.state(), *semaphore, act, context);
    return outcome;
  }
  Outcome operator()(const AdminListTickets& act) const { return ListTickets(*semaphore, act); }
  Outcome operator()(const AdminShowTicket& act) const { return ShowTicket(*semaphore, act); }
  Outcome operator()(const AdminCancelTicket& act) const {
    Outcome outcome = CancelTicket(editor, semaphore, act, context);
    if (outcome.kind == OutcomeKind::kInUse) AddInfo(outcome, *semaphore);
    return outcome;
  }
  Outcome operator()(const AdminPrioritizeTicket& act) const {
    return PrioritizeTicket(editor, semaphore, act);
  }
  Outcome operator()(const AdminRequeue& act) const {
    return Requeue(editor, semaphore, act, context);
  }
  Outcome operator()(const AdminPurge& act) const { return Purge(editor, semaphore, act); }
  Outcome operator()(const AdminAdopt& act) const { return AdoptRecipe(semaphore, act, context); }
};

bool IsQuestion(const AdminCommand& command) {
  const auto* adopt = std::get_if<AdminAdopt>(&command.act);
  if (adopt != nullptr) return adopt->limit == 0;
  return std::holds_alternative<AdminDescribe>(command.act) ||
         std::holds_alternative<AdminListTickets>(command.act) ||
         std::holds_alternative<AdminShowTicket>(command.act);
}

// From then on the semaphore is meant to be there, used or not.
bool MakesLasting(const AdminCommand& command) {
  return std::holds_alternative<AdminCreate>(command.act) ||
         std::holds_alternative<AdminResize>(command.act) ||
         std::holds_alternative<AdminConfigure>(command.act) ||
         std::holds_alternative<AdminPause>(command.act);
}

}  // namespace

std::optional<Outcome> NoRoomFor(const LedgerState& state, const AdminCommand& command,
                                 const Limits& limits) {
  if (state.semaphore_count() >= limits.semaphores_max)
    return LimitReached(absl::StrCat("semaphores_max (", limits.semaphores_max, ") is reached"));
  return OverQuota(state, command.owner, command.quotas, {.semaphores = 1});
}

// Ours first; what others hold is in the way all the same.
Excess ExcessOver(const Semaphore& semaphore, uint32_t limit, size_t leases_max) {
  uint64_t staying = uint64_t{semaphore.held} + semaphore.held_elsewhere;
  for (const auto& [id, lease] : semaphore.leases) {
    if (lease->recall.pending()) staying -= lease->permits;
  }
  Excess excess;
  if (staying <= limit) return excess;
  const auto stays = [](const LeasePtr& lease) { return !lease->recall.pending(); };
  for (LeasePtr& lease : HighestFirst(semaphore, leases_max, stays)) {
    if (staying <= limit) break;
    staying -= lease->permits;
    excess.leases.push_back(std::move(lease));
  }
  if (staying > limit) excess.elsewhere = staying - limit;
  return excess;
}

bool TellHopeless(Editor& editor, Semaphore* semaphore, const Context& context) {
  const SemaphoreRow& row = semaphore->row;
  const uint32_t cap = row.settings.permits_per_holder;
  std::vector<WaiterPtr> hopeless;
  for (const auto& [place, waiter] : semaphore->queue) {
    if (waiter->foreign) continue;
    if (waiter->permits > row.limit || (cap != 0 && waiter->permits > cap))
      hopeless.push_back(waiter);
  }
  for (const WaiterPtr& waiter : hopeless) {
    if (!editor.MayCarryOn(context.changes_max)) return false;
    editor.Leave(semaphore, waiter, EndCause::kExceedsLimit);
  }
  return true;
}

bool DismissWaiters(Editor& editor, Semaphore* semaphore, const Context& context) {
  std::vector<WaiterPtr> waiters;
  for (const auto& [place, waiter] : semaphore->queue) waiters.push_back(waiter);
  for (const auto& [place, offer] : semaphore->offers) waiters.push_back(offer);
  for (const WaiterPtr& waiter : waiters) {
    if (!editor.MayCarryOn(context.changes_max)) return false;
    editor.Leave(semaphore, waiter, EndCause::kDestroyed);
  }
  return true;
}

// Something was found, and perhaps put away, under the name of a semaphore that does not exist; or is looked for.
bool NeedsNone(const AdminCommand& command, const Context& context) {
  if (std::holds_alternative<AdminAdopt>(command.act)) return true;
  return std::holds_alternative<AdminPrune>(command.act) && context.pruned != nullptr &&
         context.pruned->removed + context.pruned->unresolved > 0;
}

Outcome Administer(Editor& editor, const AdminCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const auto* create = std::get_if<AdminCreate>(&command.act);
  if (semaphore == nullptr && create == nullptr && !NeedsNone(command, context))
    return Simply(OutcomeKind::kNoSuchSemaphore);
  if (command.expected_revision != 0) {
    const bool stands = semaphore != nullptr && !editor.Touched(*semaphore) &&
                        semaphore->row.revision == command.expected_revision;
    if (!stands && semaphore == nullptr) return Simply(OutcomeKind::kRevisionMismatch);
    if (!stands) return Refused(OutcomeKind::kRevisionMismatch, *semaphore);
  }
  const size_t asked = editor.transaction().asked_recalls.size();
  Outcome outcome = create != nullptr ? Create(editor, command, *create, context)
                                      : std::visit(Act{editor, semaphore, context}, command.act);
  if (outcome.kind != OutcomeKind::kDone || IsQuestion(command)) return outcome;
  if (context.affected_before > 0) {
    outcome.detail = Outcome::Affected{outcome.affected() + context.affected_before};
    outcome.changed = true;
  }

  if (semaphore != nullptr && semaphore->row.made_on_use && MakesLasting(command))
    editor.ChangeRow(semaphore, [](SemaphoreRow& row) { row.made_on_use = false; });
  if (semaphore != nullptr && outcome.changed) AfterRoom(editor, semaphore, context);
  if (Semaphore* after = editor.Find(command.semaphore)) AddInfo(outcome, *after);
  if (outcome.report)
    outcome.report->others_asked = editor.transaction().asked_recalls.size() > asked;
  RequestRow done = DoneBy(command.requester, command.semaphore, context);
  done.number = outcome.affected();
  done.changed = outcome.changed;
  editor.Remember(std::move(done));
  return outcome;
}

}  // namespace semaphored::ledger
