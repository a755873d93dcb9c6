#include "tests/simulation/count_checks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {

using ledger::LeaseChange;
using ledger::RequestChange;
using ledger::SemaphoreDelta;
using ledger::TicketChange;

namespace {

constexpr size_t kFiguresKept = 200;

uint32_t LimitAfter(const AdminResize& act, uint32_t limit) {
  switch (act.change) {
    case AdminResize::Change::kSet:
      return act.amount;
    case AdminResize::Change::kAdd:
      return limit + act.amount;
    case AdminResize::Change::kRemove:
      return limit - act.amount;
  }
  return limit;
}

// How many leases a limit recalls: from the highest slots down, until what is neither recalled nor
// another client's fits.
uint32_t Recalled(const std::map<Id, Lease>& leases, uint32_t limit) {
  uint64_t staying = 0;
  std::vector<const Lease*> ours;
  for (const auto& [id, lease] : leases) {
    if (lease.recall.pending()) continue;
    staying += lease.permits;
    if (!lease.foreign) ours.push_back(&lease);
  }
  std::ranges::sort(ours, [](const Lease* a, const Lease* b) {
    return std::ranges::max(a->slots) > std::ranges::max(b->slots);
  });
  uint32_t recalled = 0;
  for (const Lease* lease : ours) {
    if (staying <= limit) break;
    staying -= lease->permits;
    ++recalled;
  }
  return recalled;
}

uint32_t Ours(const std::map<Id, Lease>& leases) {
  return static_cast<uint32_t>(
      std::ranges::count_if(leases, [](const auto& each) { return !each.second.foreign; }));
}

uint32_t Meant(const std::map<Id, Lease>& leases, const AdminRevoke& act) {
  return static_cast<uint32_t>(std::ranges::count_if(leases, [&](const auto& each) {
    const Lease& lease = each.second;
    return !lease.foreign && (act.claim.empty() || lease.id == act.claim) &&
           (act.holder.empty() || lease.holder == act.holder);
  }));
}

// How many leases the act concerns, as they stand; nullopt: it is about something else.
std::optional<uint32_t> Concerned(const AdminCommand& command, const std::map<Id, Lease>& leases,
                                  uint32_t limit_after) {
  if (const auto* resize = std::get_if<AdminResize>(&command.act))
    return resize->policy == ShrinkPolicy::kRecall ? Recalled(leases, limit_after) : 0;
  if (const auto* revoke = std::get_if<AdminRevoke>(&command.act)) return Meant(leases, *revoke);
  if (const auto* destroy = std::get_if<AdminDestroy>(&command.act))
    return destroy->policy == DestroyPolicy::kForce ? Ours(leases) : 0;
  return std::nullopt;
}

// The same of tickets.
std::optional<uint32_t> Concerned(const AdminCommand& command,
                                  const std::map<Id, Ticket>& tickets) {
  const auto dead = [](const auto& each) { return each.second.state == TicketState::kDead; };
  const auto all = [&] { return static_cast<uint32_t>(std::ranges::count_if(tickets, dead)); };
  if (const auto* requeue = std::get_if<AdminRequeue>(&command.act))
    return requeue->ticket.empty() ? all() : 1;
  if (const auto* purge = std::get_if<AdminPurge>(&command.act))
    return purge->ticket.empty() ? all() : 1;
  if (std::holds_alternative<AdminCancelTicket>(command.act)) return 1;
  if (const auto* moved = std::get_if<AdminPrioritizeTicket>(&command.act)) {
    const auto found = tickets.find(moved->ticket);
    return found != tickets.end() && found->second.priority != moved->priority ? 1 : 0;
  }
  return std::nullopt;
}

// Dead letters that were put back, or removed.
uint32_t DeadLettersMoved(const SemaphoreDelta& delta) {
  return static_cast<uint32_t>(std::ranges::count_if(delta.tickets, [](const TicketChange& change) {
    return change.before && change.before->state == TicketState::kDead &&
           (!change.after || change.after->state == TicketState::kQueued);
  }));
}

bool IsOnAllDeadLetters(const AdminCommand& command) {
  const auto* requeue = std::get_if<AdminRequeue>(&command.act);
  const auto* purge = std::get_if<AdminPurge>(&command.act);
  return (requeue != nullptr && requeue->ticket.empty()) ||
         (purge != nullptr && purge->ticket.empty());
}

bool IsAct(const RequestChange& change, const std::string& semaphore) {
  // (The id may be that of a wait that the same batch has given up: then the row is there.)
  return change.op != RequestChange::Op::kRemove && change.row.claim.empty() &&
         change.row.state == ledger::RequestRow::State::kDone && change.row.semaphore == semaphore;
}

}  // namespace

// ---- what clients report ----

void CountChecks::Administers(const std::string& client_id, const AdminCommand& command) {
  const Request request{client_id, command.requester.sequence};
  if (acts_.try_emplace(request, Act{command}).second) open_.insert(request);
}

void CountChecks::WasDone(const std::string& client_id, uint64_t sequence, uint32_t affected,
                          bool changed) {
  const auto found = done_.find({client_id, sequence});
  if (found == done_.end())
    Fail(absl::StrCat("act ", sequence, " of ", client_id, " is said to be done, and is not"));
  const auto same = [&](const Numbers& each) {
    return each.number == affected && each.changed == changed;
  };
  if (std::ranges::none_of(found->second, same)) {
    Fail(absl::StrCat("act ", sequence, " of ", client_id, " concerned ",
                      found->second.back().number, found->second.back().changed ? ", changed" : "",
                      "; its answer says ", affected, changed ? ", changed" : ""));
  }
  open_.erase(found->first);
}

void CountChecks::WasReleased(const std::string& client_id, uint64_t sequence, uint32_t released,
                              uint32_t remaining) {
  const auto found = done_.find({client_id, sequence});
  const auto same = [&](const Numbers& each) {
    return each.number == released && each.remaining == remaining;
  };
  if (found != done_.end() && std::ranges::any_of(found->second, same)) return;
  Fail(absl::StrCat("release ", sequence, " of ", client_id, " is said to have returned ", released,
                    " and left ", remaining, ", and it has not"));
}

void CountChecks::WasShown(const std::string& semaphore, uint32_t held, uint64_t waiting,
                           uint32_t limit, int64_t since_us) const {
  const auto found = figures_.find(semaphore);
  if (found == figures_.end()) Fail(absl::StrCat(semaphore, " is shown, and never was there"));
  const std::deque<Figures>& all = found->second;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    const bool fits = at->held_least <= held && held <= at->held_most &&
                      at->waiting_least <= waiting && waiting <= at->waiting_most &&
                      at->limit_least <= limit && limit <= at->limit_most;
    if (fits) return;
    if (at->at_us <= since_us) break;
  }
  if (all.front().at_us > since_us) return;  // What was before is not kept.
  Fail(absl::StrCat(semaphore, " is shown with ", held, " of ", limit, " permits held and ",
                    waiting, " waiters, as it was at no moment since it was asked for"));
}

// ---- what lands ----

void CountChecks::OnLanded(const ledger::Transaction& transaction,
                           const std::map<std::string, StoredSemaphore>& before) {
  const auto delta_of = [&](const std::string& name) -> const SemaphoreDelta* {
    const auto found = std::ranges::find(transaction.semaphores, name, &SemaphoreDelta::name);
    return found == transaction.semaphores.end() ? nullptr : &*found;
  };
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    const auto found = before.find(delta.name);
    const auto acts = std::ranges::count_if(transaction.requests, [&](const RequestChange& change) {
      return IsAct(change, delta.name);
    });
    NoteFigures(delta, found == before.end() ? nullptr : &found->second, acts > 1);
    if (acts > 0) continue;
    NoteParts(delta);
    if (found == before.end() || !delta.after) continue;
    const SemaphoreRow& was = found->second.row;
    const SemaphoreRow& is = *delta.after;
    if (IsRemade(was, is)) continue;
    if (is.limit != was.limit || is.paused != was.paused || is.settings != was.settings ||
        is.destroying != was.destroying)
      Fail(absl::StrCat(delta.name, ": its row has changed, and no act has done it"));
  }
  for (const RequestChange& change : transaction.requests) {
    const ledger::RequestRow& row = change.row;
    if (change.op == RequestChange::Op::kRemove || row.state != ledger::RequestRow::State::kDone)
      continue;
    const Request request{engine_->NameOf(row.request.client), row.request.sequence};
    done_[request].push_back({row.number, row.remaining, row.changed});
    const SemaphoreDelta* delta = delta_of(row.semaphore);
    if (!row.claim.empty()) {
      CheckRelease(row, delta);
      continue;
    }
    const auto act = acts_.find(request);
    if (act == acts_.end()) continue;  // Of a client that is none of ours.
    Scene scene{&act->second.command, act->second.parts_done, nullptr, nullptr, delta};
    scene.after = engine_->Find(row.semaphore);
    const auto found = before.find(row.semaphore);
    scene.before = found != before.end() ? &found->second
                   : delta == nullptr    ? scene.after
                                         : nullptr;
    // Of two acts on one semaphore in one commit it is not known which was first.
    const auto acts = std::ranges::count_if(
        transaction.requests, [&](const auto& each) { return IsAct(each, row.semaphore); });
    if (acts == 1) CheckAct(scene, row);
  }
}

void CountChecks::CheckAct(const Scene& scene, const ledger::RequestRow& row) {
  const auto what = [&] {
    return absl::StrCat(row.semaphore, ": act ", row.request.sequence, " of ",
                        engine_->NameOf(row.request.client), " (", scene.command->act.index(),
                        ") ");
  };
  // Made by another command of the batch, or destroyed and made again: it is not known which one is meant.
  const bool is_create = std::holds_alternative<AdminCreate>(scene.command->act);
  const bool remade = scene.before != nullptr && scene.after != nullptr &&
                      IsRemade(scene.before->row, scene.after->row);
  const bool others =
      scene.delta != nullptr && !(scene.delta->leases.empty() && scene.delta->waiters.empty() &&
                                  scene.delta->tickets.empty());
  if (remade || (scene.before == nullptr && scene.delta != nullptr && (!is_create || others)))
    return;
  if (const std::string wrong = CheckRow(scene); !wrong.empty()) Fail(what() + wrong);
  const uint64_t revision = scene.command->expected_revision;
  if (revision != 0 && (scene.before == nullptr || scene.before->row.revision != revision))
    Fail(absl::StrCat(what(), "was done at another revision than ", revision));
  const std::set<uint32_t> expected = Expected(scene);
  if (scene.parts_done > 0 && scene.delta != nullptr) {
    const uint32_t least = DeadLettersMoved(*scene.delta);
    ++bounded_;
    if (row.number < least || row.number > least + scene.parts_done) {
      Fail(absl::StrCat(what(), "concerned ", row.number, "; this commit has done ", least,
                        ", and earlier ones ", scene.parts_done));
    }
    return;
  }
  ++(expected.size() == 1 ? exact_ : bounded_);
  if (!expected.contains(row.number)) {
    Fail(absl::StrCat(what(), "concerned ", row.number, ", and should have concerned ",
                      *expected.begin(), " to ", *expected.rbegin()));
  }
  if (row.changed != ExpectedChange(scene, row.number))
    Fail(absl::StrCat(what(), row.changed ? "has" : "has not", " changed something, as it says"));
}

std::string CountChecks::CheckRow(const Scene& scene) {
  const auto& act = scene.command->act;
  if (std::holds_alternative<AdminPrune>(act)) return "";
  if (scene.before == nullptr && !std::holds_alternative<AdminCreate>(act))
    return "was done where there is no semaphore";
  if (scene.after == nullptr) return "";
  const SemaphoreRow& row = scene.after->row;
  if (const auto* create = std::get_if<AdminCreate>(&act))
    return row.limit == create->limit && row.settings == create->settings ? "" : "made another one";
  if (const auto* resize = std::get_if<AdminResize>(&act)) {
    const uint32_t limit = LimitAfter(*resize, scene.before->row.limit);
    return row.limit == limit ? "" : absl::StrCat("left the limit ", row.limit, ", not ", limit);
  }
  if (const auto* pause = std::get_if<AdminPause>(&act))
    return row.paused == pause->paused ? "" : "left the pause as it was not to be";
  if (const auto* configure = std::get_if<AdminConfigure>(&act))
    return row.settings == configure->settings ? "" : "left other settings";
  if (std::holds_alternative<AdminDestroy>(act)) return row.destroying ? "" : "destroys nothing";
  return "";
}

std::set<uint32_t> CountChecks::Expected(const Scene& scene) const {
  static const std::map<Id, Lease> kNoLeases;
  static const std::map<Id, Ticket> kNoTickets;
  const uint32_t limit = scene.after != nullptr ? scene.after->row.limit : 0;
  std::set<uint32_t> expected;
  std::map<Id, Lease> leases = scene.before == nullptr ? kNoLeases : scene.before->leases;
  std::map<Id, Ticket> tickets = scene.before == nullptr ? kNoTickets : scene.before->tickets;
  const auto look = [&] {
    if (const auto count = Concerned(*scene.command, leases, limit)) {
      expected.insert(*count);
    } else {
      expected.insert(Concerned(*scene.command, tickets).value_or(0));
    }
  };
  look();
  if (scene.delta == nullptr) return expected;
  for (const LeaseChange& change : scene.delta->leases) {
    if (change.before) leases.erase(change.before->id);
    if (change.after) leases.insert_or_assign(change.after->id, *change.after);
    // What the act itself has ended or recalled it has counted before. (A lease that was recalled
    // earlier may have ended before the act, by the end of its grace.)
    const bool grace_ended = !change.after && change.before && change.before->recall.pending();
    const bool acted =
        change.cause == EndCause::kRevoked || change.cause == EndCause::kRecalled ||
        change.cause == EndCause::kDestroyed ||
        (change.before && change.after && change.before->recall != change.after->recall);
    if (!acted || grace_ended) look();
  }
  for (const TicketChange& change : scene.delta->tickets) {
    if (change.before) tickets.erase(change.before->id);
    if (change.after) tickets.insert_or_assign(change.after->id, *change.after);
    const bool acted = change.before && change.before->state == TicketState::kDead;
    if (!acted && !std::holds_alternative<AdminPrioritizeTicket>(scene.command->act)) look();
  }
  return expected;
}

bool CountChecks::ExpectedChange(const Scene& scene, uint32_t number) {
  const auto& act = scene.command->act;
  if (std::holds_alternative<AdminDestroy>(act)) return true;
  if (std::holds_alternative<AdminCreate>(act)) return scene.before == nullptr;
  if (scene.before == nullptr) return number > 0;
  const SemaphoreRow& before = scene.before->row;
  if (const auto* resize = std::get_if<AdminResize>(&act))
    return number > 0 || LimitAfter(*resize, before.limit) != before.limit;
  if (const auto* pause = std::get_if<AdminPause>(&act)) return pause->paused != before.paused;
  if (const auto* configure = std::get_if<AdminConfigure>(&act))
    return configure->settings != before.settings;
  return number > 0;
}

// A release takes away from its lease what it says, in this very commit.
void CountChecks::CheckRelease(const ledger::RequestRow& row, const SemaphoreDelta* delta) {
  if (delta == nullptr) Fail(absl::StrCat(row.semaphore, ": a release has changed nothing"));
  const auto is_it = [&](const LeaseChange& change) {
    return change.before && change.before->id == row.claim &&
           change.before->permits - (change.after ? change.after->permits : 0) == row.number &&
           (change.after ? change.after->permits : 0) == row.remaining;
  };
  // Of an enqueue, the claim is a ticket.
  const auto comes = [&](const TicketChange& change) {
    return !change.before && change.after->id == row.claim;
  };
  if (std::ranges::any_of(delta->leases, is_it) || std::ranges::any_of(delta->tickets, comes))
    return;
  Fail(absl::StrCat(row.semaphore, ": a release says that it returned ", row.number, " and left ",
                    row.remaining, ", and no lease was changed like that"));
}

void CountChecks::NoteParts(const SemaphoreDelta& delta) {
  const uint32_t moved = DeadLettersMoved(delta);
  if (moved == 0) return;
  for (const Request& request : open_) {
    Act& act = acts_.at(request);
    if (act.command.semaphore == delta.name && IsOnAllDeadLetters(act.command))
      act.parts_done += moved;
  }
}

// ---- what is shown ----

CountChecks::Figures CountChecks::FiguresNow(const std::string& semaphore) const {
  Figures now;
  now.at_us = world_->now();
  const StoredSemaphore* stored = engine_->Find(semaphore);
  if (stored == nullptr) return now;
  now.held_least = now.held_most = stored->held();
  now.waiting_least = now.waiting_most = stored->Queue().size();
  now.limit_least = now.limit_most = stored->row.limit;
  return now;
}

void CountChecks::Keep(const std::string& semaphore, const Figures& figures) {
  std::deque<Figures>& all = figures_[semaphore];
  all.push_back(figures);
  if (all.size() > kFiguresKept) all.pop_front();
}

void CountChecks::OnForeign(const std::string& semaphore) {
  Keep(semaphore, FiguresNow(semaphore));
}

void CountChecks::NoteFigures(const SemaphoreDelta& delta, const StoredSemaphore* before,
                              bool several_acts) {
  const Figures now = FiguresNow(delta.name);
  Figures within = now;
  Moment moment(before);
  uint64_t waiting = before == nullptr ? 0 : before->Queue().size();
  const auto look = [&] {
    within.held_least = std::min(within.held_least, moment.held());
    within.held_most = std::max(within.held_most, moment.held());
    within.waiting_least = std::min(within.waiting_least, waiting);
    within.waiting_most = std::max(within.waiting_most, waiting);
  };
  look();
  for (const LeaseChange& change : delta.leases) {
    moment.Apply(change);
    look();
  }
  for (const ledger::WaiterChange& change : delta.waiters) {
    if ((change.after ? change.after : change.before)->works) continue;
    if (change.before) --waiting;
    if (change.after) ++waiting;
    look();
  }
  if (before != nullptr) {
    within.limit_least = std::min(within.limit_least, before->row.limit);
    within.limit_most = std::max(within.limit_most, before->row.limit);
  }
  // Between two acts the limit was one that neither state has.
  if (several_acts) {
    within.limit_least = 0;
    within.limit_most = std::numeric_limits<uint32_t>::max();
  }
  // The act may have been decided before other commands of its batch.
  if (!delta.leases.empty() || !delta.waiters.empty()) Keep(delta.name, within);
  Keep(delta.name, now);
}

}  // namespace semaphored::simulation
