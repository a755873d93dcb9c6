// Commands that are about more claims than the engine takes at once: most of it is done claim by
// claim, and the command itself with what is left.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {
namespace {

constexpr size_t kPartsAtOnce = 16;

Command EndOf(const std::string& semaphore, const Id& claim, EndCause cause, uint32_t epoch,
              bool only_waiting) {
  EndCommand end;
  end.semaphore = semaphore;
  end.claim = claim;
  end.cause = cause;
  end.epoch = epoch;
  end.only_waiting = only_waiting;
  return end;
}

Command ActOf(const AdminCommand& command, decltype(AdminCommand::act) act) {
  AdminCommand part;
  part.semaphore = command.semaphore;
  part.act = std::move(act);
  return part;
}

// Claims that ended, or were asked back.
uint32_t CountAffected(const std::vector<Submission>& batch, const std::vector<Outcome>& outcomes) {
  uint32_t affected = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto* admin = std::get_if<AdminCommand>(&batch[i].command);
    if (admin != nullptr && std::holds_alternative<AdminCancelTicket>(admin->act)) continue;
    const auto* end = std::get_if<EndCommand>(&batch[i].command);
    const bool is_lease = end == nullptr ? outcomes[i].affected() > 0 : !end->only_waiting;
    if (outcomes[i].kind == OutcomeKind::kDone && is_lease) ++affected;
  }
  return affected;
}

}  // namespace

// An act on all dead letters, one by one.
template <typename Act>
LedgerAdapter::Parts LedgerAdapter::PartsOfAll(const AdminCommand& command,
                                               const Semaphore& semaphore) {
  if (!std::get<Act>(command.act).ticket.empty()) return {};
  Parts parts;
  for (const TicketPtr& ticket : DeadLetters(semaphore, {}))
    parts.before.push_back(ActOf(command, Act{ticket->id}));
  if (parts.before.empty()) return {};
  // The last one has the request's id, so that all is one request.
  AdminCommand last = command;
  last.expected_revision = 0;
  last.act = std::get<AdminCommand>(parts.before.back()).act;
  parts.before.pop_back();
  parts.last = std::move(last);
  return parts;
}

LedgerAdapter::Parts LedgerAdapter::PartsOf(const CloseSessionCommand& command) const {
  Parts parts;
  parts.last = command;
  // Its waits go first, so that none of them is let in by the end of a lease.
  for (const bool waits : {true, false}) {
    for (const auto& [claim, semaphore] : state_.ClaimsOf(command.session)) {
      if ((semaphore->FindWaiter(claim) != nullptr) != waits) continue;
      const bool gives_up = waits && command.cause == EndCause::kReleased;
      parts.before.push_back(EndOf(semaphore->row.name, claim,
                                   gives_up ? EndCause::kCancelled : command.cause, command.epoch,
                                   /*only_waiting=*/false));
    }
  }
  return parts;
}

LedgerAdapter::Parts LedgerAdapter::PartsOf(const AdminCommand& command) const {
  Parts parts;
  parts.last = command;
  const Semaphore* semaphore = state_.Find(command.semaphore);
  if (semaphore == nullptr) return parts;
  if (std::holds_alternative<AdminRequeue>(command.act))
    return PartsOfAll<AdminRequeue>(command, *semaphore);
  if (std::holds_alternative<AdminPurge>(command.act))
    return PartsOfAll<AdminPurge>(command, *semaphore);
  return parts;
}

absl::StatusOr<uint32_t> LedgerAdapter::RunParts(const std::vector<Command>& parts,
                                                 SteadyTime deadline, StepResult* result) {
  uint32_t affected = 0;
  size_t at_once = kPartsAtOnce;
  for (size_t done = 0; done < parts.size();) {
    std::vector<Submission> batch;
    for (size_t i = done; i < std::min(parts.size(), done + at_once); ++i)
      batch.push_back({0, parts[i]});
    StepResult part;
    const absl::Status status = Run(batch, deadline, &part);
    if (absl::IsOutOfRange(status) && at_once > 1) {
      at_once /= 2;
      continue;
    }
    if (!status.ok()) return status;
    std::ranges::move(part.events, std::back_inserter(result->events));
    std::ranges::move(part.changes, std::back_inserter(result->changes));
    std::ranges::move(part.delayed, std::back_inserter(result->delayed));
    if (unknown_ != nullptr) {
      // Nobody waits for it but us; the whole is to be asked for again.
      unknown_->batch.clear();
      return absl::UnavailableError("a part of it is not settled yet; try again");
    }
    affected += CountAffected(batch, part.outcomes);
    done += batch.size();
  }
  return affected;
}

absl::Status LedgerAdapter::RunLarge(const Submission& submission, SteadyTime deadline,
                                     StepResult* result) {
  Parts parts;
  if (const auto* close = std::get_if<CloseSessionCommand>(&submission.command))
    parts = PartsOf(*close);
  const auto* admin = std::get_if<AdminCommand>(&submission.command);
  if (admin != nullptr) parts = PartsOf(*admin);
  if (parts.before.empty()) return absl::OutOfRangeError("it has no parts");
  const absl::StatusOr<uint32_t> affected = RunParts(parts.before, deadline, result);
  absl::Status status = affected.status();
  StepResult last;
  const Submission whole{submission.number, parts.last};
  if (admin != nullptr) fingerprint_of_whole_ = FingerprintOf(submission.command);
  if (status.ok()) status = Run({&whole, 1}, deadline, &last);
  if (unknown_ == nullptr) fingerprint_of_whole_ = {};
  std::ranges::move(last.events, std::back_inserter(result->events));
  std::ranges::move(last.changes, std::back_inserter(result->changes));
  if (!status.ok()) {
    // What was done is told all the same, with the next result.
    found_events_.insert(found_events_.end(), result->events.begin(), result->events.end());
    found_changes_.insert(found_changes_.end(), result->changes.begin(), result->changes.end());
    result->events.clear();
    result->changes.clear();
    return status;
  }
  if (admin != nullptr) {
    last.outcomes.front().detail = Outcome::Affected{last.outcomes.front().affected() + *affected};
    last.outcomes.front().changed = last.outcomes.front().changed || *affected > 0;
  }
  std::ranges::move(last.outcomes, std::back_inserter(result->outcomes));
  return absl::OkStatus();
}

}  // namespace semaphored::ledger
