#include "adapters/ledger/capabilities.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

struct ConcernsTickets {
  bool operator()(const EnqueueCommand&) const { return true; }
  bool operator()(const TakeCommand&) const { return true; }
  bool operator()(const FinishCommand&) const { return true; }
  bool operator()(const RipenCommand&) const { return true; }
  bool operator()(const AdminListTickets&) const { return true; }
  bool operator()(const AdminShowTicket&) const { return true; }
  bool operator()(const AdminCancelTicket&) const { return true; }
  bool operator()(const AdminPrioritizeTicket&) const { return true; }
  bool operator()(const AdminRequeue&) const { return true; }
  bool operator()(const AdminPurge&) const { return true; }
  bool operator()(const AdminCommand& command) const { return std::visit(*this, command.act); }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
};

// More than the engine gives; what is more than the daemon gives is refused as on every engine.
bool TooManyAfter(const AdminResize& resize, const Semaphore* semaphore, uint32_t limit_max) {
  if (resize.change == AdminResize::Change::kRemove) return false;
  int64_t limit = resize.amount;
  if (semaphore != nullptr && resize.change == AdminResize::Change::kAdd)
    limit += semaphore->row.limit;
  return limit > limit_max && limit <= resize.limit_max;
}

}  // namespace

Outcome RefusedBy(const Guarantees& can, std::string_view what) {
  Outcome outcome = Simply(OutcomeKind::kUnsupported);
  outcome.message = absl::StrCat("the adapter ", can.adapter, " ", std::string(what));
  return outcome;
}

std::optional<Outcome> ExcludedRequest(const Guarantees& can, const Command& command) {
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  if (acquire == nullptr) return std::nullopt;
  if (acquire->limit > can.limit_max)
    return RefusedBy(can, absl::StrCat("gives at most ", can.limit_max, " permits"));
  if (acquire->permits > can.permits_per_request_max) {
    return RefusedBy(
        can, absl::StrCat("gives one request at most ", can.permits_per_request_max, " permits"));
  }
  return std::nullopt;
}

std::optional<Outcome> ExcludedTicket(const Guarantees& can, const Command& command) {
  if (can.durable_tickets || !std::visit(ConcernsTickets{}, command)) return std::nullopt;
  return RefusedBy(can, "keeps no tickets");
}

std::optional<Outcome> ExcludedAct(const Guarantees& can, const LedgerState& state,
                                   const Command& command) {
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr) return std::nullopt;
  if (admin->expected_revision != 0 && !can.revisions)
    return RefusedBy(can, "keeps no revision: expected_revision cannot be checked");
  const auto* create = std::get_if<AdminCreate>(&admin->act);
  const auto* configure = std::get_if<AdminConfigure>(&admin->act);
  const auto* resize = std::get_if<AdminResize>(&admin->act);
  if ((create != nullptr && create->limit > can.limit_max) ||
      (resize != nullptr && TooManyAfter(*resize, state.Find(admin->semaphore), can.limit_max)))
    return RefusedBy(can, absl::StrCat("gives at most ", can.limit_max, " permits"));
  const Settings* settings = create != nullptr      ? &create->settings
                             : configure != nullptr ? &configure->settings
                                                    : nullptr;
  if (settings != nullptr && settings->permits_per_holder != 0 && !can.holder_cap)
    return RefusedBy(can, "cannot keep to permits_per_holder: it does not know what others hold");
  if (settings != nullptr && *settings != Settings{} && !can.settings)
    return RefusedBy(can, "keeps a limit and no other settings");
  if (std::holds_alternative<AdminPause>(admin->act) && !can.settings)
    return RefusedBy(can, "keeps no pauses");
  return std::nullopt;
}

std::optional<Outcome> ExcludedAdoption(const Core& core, const Command& command) {
  const auto* admin = std::get_if<AdminCommand>(&command);
  if (admin == nullptr || !std::holds_alternative<AdminAdopt>(admin->act)) return std::nullopt;
  if (core.state.Find(admin->semaphore) != nullptr || core.AdoptableFor(command) != nullptr)
    return std::nullopt;
  return RefusedBy(core.can, "knows no recipe that could be adopted: create the semaphore");
}

std::optional<Outcome> ExcludedHistory(const Guarantees& can) {
  if (can.history) return std::nullopt;
  return RefusedBy(can, "keeps no history as it is configured");
}

}  // namespace semaphored::ledger
