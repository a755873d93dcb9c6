#include "adapters/ledger/large_commands.h"

#include <utility>

#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

// Not of a claim that has moved to another session, or to a detached caller, since.
Command EndOf(const std::string& semaphore, const Id& claim, EndCause cause, const Id& session,
              uint32_t epoch) {
  EndCommand end;
  end.semaphore = semaphore;
  end.claim = claim;
  end.cause = cause;
  end.session = session;
  end.epoch = epoch;
  return end;
}

Command ActOf(const AdminCommand& command, decltype(AdminCommand::act) act) {
  AdminCommand part;
  part.semaphore = command.semaphore;
  part.act = std::move(act);
  return part;
}

// An act on all dead letters, one by one. The revision that it expects is its first part's condition.
template <typename Act>
Parts PartsOfAll(const AdminCommand& command, const Semaphore& semaphore) {
  if (!std::get<Act>(command.act).ticket.empty()) return {};
  Parts parts;
  for (const TicketPtr& ticket : DeadLetters(semaphore, {}))
    parts.before.push_back(ActOf(command, Act{ticket->id}));
  if (parts.before.empty()) return {};
  AdminCommand last = command;
  last.expected_revision = 0;
  last.act = std::get<AdminCommand>(parts.before.back()).act;
  parts.before.pop_back();
  parts.last = std::move(last);
  if (command.expected_revision == 0 || parts.before.empty()) return parts;
  AdminCommand first = std::get<AdminCommand>(parts.before.front());
  first.expected_revision = command.expected_revision;
  parts.before.erase(parts.before.begin());
  parts.first = std::move(first);
  return parts;
}

// First no more claims can land. So what the last part reads need not stand still, and what it does not
// change is no condition of it: that may be more than a commit of the engine tests.
Parts PartsOfClose(const CloseSessionCommand& command, const LedgerState& state) {
  const SessionPtr& session = state.FindSession(command.session);
  if (session == nullptr) return {};
  Parts parts;
  CloseSessionCommand mark = command;
  mark.marks_only = true;
  parts.first = mark;
  parts.last = command;
  const uint32_t epoch = session->epoch + (session->closing ? 0 : 1);
  // Its waits go first, so that none of them is let in by the end of a lease.
  for (const bool waits : {true, false}) {
    for (const auto& [claim, semaphore] : state.ClaimsOf(command.session)) {
      if ((semaphore->FindWaiter(claim) != nullptr) != waits) continue;
      const bool gives_up = waits && command.cause == EndCause::kReleased;
      parts.before.push_back(EndOf(semaphore->row.name, claim,
                                   gives_up ? EndCause::kCancelled : command.cause, command.session,
                                   epoch));
    }
  }
  return parts;
}

Parts PartsOfAct(const AdminCommand& command, const LedgerState& state) {
  Parts parts;
  parts.last = command;
  const Semaphore* semaphore = state.Find(command.semaphore);
  if (semaphore == nullptr) return parts;
  if (std::holds_alternative<AdminRequeue>(command.act))
    return PartsOfAll<AdminRequeue>(command, *semaphore);
  if (std::holds_alternative<AdminPurge>(command.act))
    return PartsOfAll<AdminPurge>(command, *semaphore);
  return parts;
}

}  // namespace

Parts PartsOf(const Command& command, const LedgerState& state) {
  if (const auto* close = std::get_if<CloseSessionCommand>(&command))
    return PartsOfClose(*close, state);
  if (const auto* admin = std::get_if<AdminCommand>(&command)) return PartsOfAct(*admin, state);
  return {};
}

bool IsCarriedOn(const Command& command) {
  const auto* admin = std::get_if<AdminCommand>(&command);
  return admin != nullptr && (std::holds_alternative<AdminResize>(admin->act) ||
                              std::holds_alternative<AdminConfigure>(admin->act) ||
                              std::holds_alternative<AdminRevoke>(admin->act) ||
                              std::holds_alternative<AdminDestroy>(admin->act));
}

}  // namespace semaphored::ledger
