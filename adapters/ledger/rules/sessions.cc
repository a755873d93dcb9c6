// Sessions, and what a dead node leaves behind.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/node_lives.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

ClaimInfo InfoOf(const Semaphore& semaphore, const Id& claim) {
  const LeasePtr lease = semaphore.FindLease(claim);
  return {semaphore.row.name, lease, semaphore.FindWaiter(claim),
          lease && !lease->ticket.empty() ? semaphore.FindTicket(lease->ticket) : nullptr};
}

uint64_t OrderOf(const ClaimInfo& info) {
  return info.lease ? info.lease->order : info.waiter->order;
}

// By semaphore; within one, in the order in which they asked.
void SortByAge(std::vector<ClaimInfo>* claims) {
  std::ranges::sort(*claims, [](const ClaimInfo& a, const ClaimInfo& b) {
    if (a.semaphore != b.semaphore) return a.semaphore < b.semaphore;
    // An immediate grant has the order of the waiter that comes next, so the lease is the earlier
    // one.
    if (OrderOf(a) != OrderOf(b)) return OrderOf(a) < OrderOf(b);
    if ((a.lease != nullptr) != (b.lease != nullptr)) return a.lease != nullptr;
    return a.lease != nullptr && a.lease->token < b.lease->token;
  });
}

}  // namespace

std::vector<ClaimInfo> ClaimsOf(const LedgerState& state, const Id& session) {
  std::vector<ClaimInfo> claims;
  for (const auto& [claim, semaphore] : state.ClaimsOf(session))
    claims.push_back(InfoOf(*semaphore, claim));
  SortByAge(&claims);
  return claims;
}

namespace {

bool IsUnusable(const std::string& semaphore, const Context& context) {
  return context.unusable != nullptr && context.unusable->contains(semaphore);
}

// The row says that no daemon may go on with the session, and by the new epoch no commit lands that rests
// upon the former one.
SessionPtr MarkClosing(Editor& editor, const SessionPtr& session) {
  if (session->closing) return session;
  auto closing = std::make_shared<Session>(*session);
  closing->closing = true;
  ++closing->epoch;
  editor.ChangeSession(session, closing);
  return closing;
}

// Some of its claims cannot be ended now.
Outcome KeepClosing(Editor& editor, const SessionPtr& session, const Context& context) {
  Outcome outcome = Simply(OutcomeKind::kDamaged);
  outcome.detail = Outcome::Closing{MarkClosing(editor, session)->epoch};
  outcome.message = context.unusable->begin()->second;
  return outcome;
}

}  // namespace

Outcome OpenSession(Editor& editor, const OpenSessionCommand& command, const Context& context) {
  if (editor.state().FindSession(command.session)) return Simply(OutcomeKind::kDone);
  if (editor.state().session_count() >= context.limits.sessions_max) {
    return LimitReached(
        absl::StrCat("sessions_max (", context.limits.sessions_max, ") is reached"));
  }
  auto session = std::make_shared<Session>();
  session->id = command.session;
  session->host = context.self;
  session->ttl_ms = command.ttl_ms;
  session->client = context.client;
  session->release_on_disconnect = command.release_on_disconnect;
  session->holder = command.holder;
  session->owner = command.owner;
  editor.ChangeSession(nullptr, std::move(session));
  return Simply(OutcomeKind::kDone);
}

Outcome AdoptSession(Editor& editor, const AdoptSessionCommand& command, const Context& context) {
  const SessionPtr before = editor.state().FindSession(command.session);
  if (!before || IsAnothers(before->owner, command.caller))
    return Simply(OutcomeKind::kSessionLost);
  if (before->closing) {
    Outcome lost = Simply(OutcomeKind::kSessionLost);
    lost.changed = true;
    return lost;
  }
  if (command.epoch != 0 && before->epoch != command.epoch) return Simply(OutcomeKind::kStale);
  if (before->host != context.self) {
    auto after = std::make_shared<Session>(*before);
    after->host = context.self;
    ++after->epoch;
    editor.ChangeSession(before, std::move(after));
  }
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.changed = before->host != context.self;
  outcome.report = std::make_unique<Report>();
  outcome.report->session = *editor.state().FindSession(command.session);
  outcome.report->claims = ClaimsOf(editor.state(), command.session);
  // Its old host may not know that it has left, and looks at semaphores only. It learns it from any
  // of them; those that this commit does not touch are touched by the next ones.
  if (outcome.changed && context.shared) {
    const std::vector<ClaimInfo>& claims = outcome.report->claims;
    for (size_t i = 0; i < std::min(claims.size(), kTouchedByMove); ++i) {
      if (IsUnusable(claims[i].semaphore, context)) continue;
      editor.Touch(editor.Find(claims[i].semaphore));
    }
  }
  return outcome;
}

Outcome CloseSession(Editor& editor, const CloseSessionCommand& command, const Context& context) {
  const SessionPtr session = editor.state().FindSession(command.session);
  if (!session) return Simply(OutcomeKind::kSessionLost);
  if (!IsEpochOf(*session, command.epoch)) return Simply(OutcomeKind::kStale);
  if (command.marks_only) {
    MarkClosing(editor, session);
    return Simply(OutcomeKind::kDone);
  }
  // Who waits goes first: what the leases leave behind, room or a ticket, is not for a session that
  // ends.
  std::vector<ClaimInfo> claims = ClaimsOf(editor.state(), command.session);
  std::stable_partition(claims.begin(), claims.end(),
                        [](const ClaimInfo& info) { return !info.lease; });
  for (const ClaimInfo& info : claims) {
    if (IsUnusable(info.semaphore, context)) continue;
    EndCommand end;
    end.semaphore = info.semaphore;
    end.claim = info.lease ? info.lease->id : info.waiter->id;
    end.cause =
        info.waiter && command.cause == EndCause::kReleased ? EndCause::kCancelled : command.cause;
    End(editor, end, context);
  }
  if (context.unusable != nullptr) return KeepClosing(editor, session, context);
  editor.ChangeSession(session, nullptr);
  return Simply(OutcomeKind::kDone);
}

namespace {

// What dead hosts left, as it is found: each session once, with those of its claims that are found.
class OrphansFound {
 public:
  // `gone`: the host is dead. `replaced`: it was an earlier life of this node.
  using Test = std::function<bool(const NodeRef& host)>;
  OrphansFound(const LedgerState& state, Test gone, Test replaced, Report* report)
      : state_(state), gone_(std::move(gone)), replaced_(std::move(replaced)), report_(report) {}

  // nullptr: its host lives.
  Orphan* Add(const Session& session) {
    if (!gone_(session.host)) return nullptr;
    const auto [at, is_new] = at_.try_emplace(session.id, report_->orphans.size());
    if (is_new)
      report_->orphans.push_back(
          {session.id, session.epoch, session.ttl_ms, session.owner, {}, replaced_(session.host)});
    return &report_->orphans[at->second];
  }

  void Add(const Semaphore& semaphore) {
    for (const auto& [id, lease] : semaphore.leases) {
      if (!lease->foreign) Add(semaphore, *lease);
    }
    for (const auto& [id, waiter] : semaphore.waiters) Add(semaphore, *waiter);
    if (semaphore.ticket_counts.delayed == 0) return;
    for (const auto& [id, ticket] : semaphore.tickets) {
      if (ticket->state == TicketState::kDelayed && gone_(ticket->host))
        report_->delayed.push_back({semaphore.row.name, ticket});
    }
  }

 private:
  void Add(const Semaphore& semaphore, const Claim& claim) {
    if (!claim.detached()) {
      const SessionPtr& session = state_.FindSession(claim.session);
      if (!session) return;
      if (Orphan* orphan = Add(*session)) orphan->claims.push_back(InfoOf(semaphore, claim.id));
    } else if (gone_(claim.host)) {
      report_->orphans.push_back({claim.id,
                                  claim.epoch,
                                  claim.ttl_ms,
                                  claim.owner,
                                  {InfoOf(semaphore, claim.id)},
                                  replaced_(claim.host)});
    }
  }

  const LedgerState& state_;
  const Test gone_;
  const Test replaced_;
  Report* const report_;
  absl::flat_hash_map<Id, size_t> at_;  // Sessions, in report_->orphans.
};

}  // namespace

Outcome Orphans(const LedgerState& state, const OrphansCommand& command, const Context& context,
                bool exclusive) {
  const NodeLives dead(command.dead);
  const auto gone = [&](const NodeRef& host) {
    if (host == context.self) return false;
    return exclusive || host.number == context.self.number || dead.Contain(host);
  };
  const auto replaced = [&](const NodeRef& host) {
    return !exclusive && host.number == context.self.number;
  };
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  OrphansFound found(state, gone, replaced, outcome.report.get());
  size_t read = 0;
  const auto look_at = [&](const Semaphore& semaphore) {
    read += semaphore.leases.size() + semaphore.waiters.size() + semaphore.tickets.size();
    found.Add(semaphore);
  };
  if (context.page != nullptr) {
    for (const SessionPtr& listed : context.page->sessions) {
      // It may have moved since it was listed.
      const SessionPtr& known = state.FindSession(listed->id);
      found.Add(known && known->epoch > listed->epoch ? *known : *listed);
    }
    for (const std::string& name : context.page->semaphores) {
      if (const Semaphore* semaphore = state.Find(name)) look_at(*semaphore);
    }
    outcome.report->next = context.page->next;
  } else {
    for (const auto& [id, session] : state.sessions()) found.Add(*session);
    for (const auto& [name, semaphore] : state) look_at(*semaphore);
  }
  for (Orphan& orphan : outcome.report->orphans) SortByAge(&orphan.claims);
  outcome.detail = Outcome::Affected{static_cast<uint32_t>(read)};
  return outcome;
}

}  // namespace semaphored::ledger
