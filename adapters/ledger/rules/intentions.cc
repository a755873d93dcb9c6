#include "adapters/ledger/rules/intentions.h"

#include <algorithm>
#include <utility>

#include "adapters/ledger/rules/steps.h"
#include "nlohmann/json.hpp"

namespace semaphored::ledger {
namespace {

using nlohmann::json;

// Of one kind so many rows are looked at: one more than may be changed, so that it is seen that some are
// left.
size_t MaxOf(const Editor& editor, const Context& context) {
  const size_t left = editor.LeftToCarryOn(context.changes_max);
  return left == SIZE_MAX ? left : left + 1;
}

// Each of these returns true when nothing of its kind is left to do.

bool Dismiss(Editor& editor, Semaphore* semaphore, const Context& context) {
  if (!semaphore->row.destroying) return TellHopeless(editor, semaphore, context);
  return DismissWaiters(editor, semaphore, context);
}

bool Force(Editor& editor, Semaphore* semaphore, int64_t grace_ms, const Context& context,
           bool act) {
  const Recall recall{Recall::Reason::kDestroyed, grace_ms};
  if (grace_ms == Recall::kNow) {
    semaphore->held_elsewhere = 0;  // They go with the engine's own things.
  } else if (act && semaphore->held_elsewhere > 0 && context.tells_others) {
    editor.AskOthers({semaphore->row.name, {}, "", recall, 0});
  }
  const auto stands = [&](const LeasePtr& lease) { return !IsRecalledBy(*lease, recall); };
  for (const LeasePtr& lease : HighestFirst(*semaphore, MaxOf(editor, context), stands)) {
    if (!editor.MayCarryOn(context.changes_max)) return false;
    RecallLease(editor, semaphore, lease, recall, context);
  }
  std::vector<TicketPtr> tickets;
  for (const auto& [id, ticket] : semaphore->tickets) {
    if (ticket->state != TicketState::kAssigned) tickets.push_back(ticket);
  }
  const size_t count = std::min(MaxOf(editor, context), tickets.size());
  std::ranges::partial_sort(tickets, tickets.begin() + static_cast<ptrdiff_t>(count), {},
                            [](const TicketPtr& ticket) { return ticket->order; });
  tickets.resize(count);
  for (const TicketPtr& ticket : tickets) {
    if (!editor.MayCarryOn(context.changes_max)) return false;
    editor.Remove(semaphore, ticket);
  }
  return true;
}

bool Shrink(Editor& editor, Semaphore* semaphore, int64_t grace_ms, const Context& context,
            bool act) {
  const Excess excess = ExcessOver(*semaphore, semaphore->row.limit, MaxOf(editor, context));
  const Recall recall{Recall::Reason::kShrunk, grace_ms};
  if (act && excess.elsewhere > 0 && context.tells_others) {
    editor.AskOthers(
        {semaphore->row.name, {}, "", recall, static_cast<uint32_t>(excess.elsewhere)});
  }
  for (const LeasePtr& lease : excess.leases) {
    if (!editor.MayCarryOn(context.changes_max)) return false;
    RecallLease(editor, semaphore, lease, recall, context);
  }
  return true;
}

bool Revoke(Editor& editor, Semaphore* semaphore, const Revocation& revocation,
            const Context& context, bool act) {
  const Recall recall{Recall::Reason::kAdministrator, revocation.grace_ms};
  const auto matches = [&](const LeasePtr& lease) {
    const bool of_holder = revocation.holder.empty() || lease->holder == revocation.holder;
    return of_holder && !IsRecalledBy(*lease, recall);
  };
  const auto is_new = [&](const LeasePtr& lease) {
    return lease->token == 0 && context.permits == nullptr;
  };
  const auto stood = [&](const LeasePtr& lease) {
    return matches(lease) && !is_new(lease) && lease->token <= revocation.token_max;
  };
  if (act) {
    const auto granted_in_batch = [&](const LeasePtr& lease) {
      return is_new(lease) && matches(lease);
    };
    for (const LeasePtr& lease : HighestFirst(*semaphore, SIZE_MAX, granted_in_batch))
      RecallLease(editor, semaphore, lease, recall, context);
  }
  for (const LeasePtr& lease : HighestFirst(*semaphore, MaxOf(editor, context), stood)) {
    if (!editor.MayCarryOn(context.changes_max)) return false;
    RecallLease(editor, semaphore, lease, recall, context);
  }
  return true;
}

}  // namespace

std::string Encode(const Intentions& intentions) {
  if (intentions.empty()) return "";
  json text;
  text["node"] = {intentions.host.number, intentions.host.incarnation};
  if (intentions.dismiss) text["dismiss"] = true;
  if (intentions.force_grace_ms) text["force_grace_ms"] = *intentions.force_grace_ms;
  if (intentions.shrink_grace_ms) text["shrink_grace_ms"] = *intentions.shrink_grace_ms;
  for (const Revocation& each : intentions.revocations) {
    text["revoke"].push_back(
        {{"holder", each.holder}, {"grace_ms", each.grace_ms}, {"token_max", each.token_max}});
  }
  return text.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

Intentions Decode(const std::string& text) {
  if (text.empty()) return {};
  Intentions intentions;
  try {
    const json read = json::parse(text);
    intentions.host = {read.at("node").at(0).get<uint32_t>(),
                       read.at("node").at(1).get<uint32_t>()};
    intentions.dismiss = read.value("dismiss", false);
    if (read.contains("force_grace_ms"))
      intentions.force_grace_ms = read.at("force_grace_ms").get<int64_t>();
    if (read.contains("shrink_grace_ms"))
      intentions.shrink_grace_ms = read.at("shrink_grace_ms").get<int64_t>();
    for (const json& each : read.value("revoke", json::array())) {
      intentions.revocations.push_back({each.at("holder").get<std::string>(),
                                        each.at("grace_ms").get<int64_t>(),
                                        each.at("token_max").get<uint64_t>()});
    }
  } catch (const json::exception&) {
    return {};
  }
  return intentions;
}

void CarryOn(Editor& editor, Semaphore* semaphore, Intentions left, const Context& context,
             bool act) {
  if (left.dismiss && Dismiss(editor, semaphore, context)) left.dismiss = false;
  if (left.force_grace_ms && Force(editor, semaphore, *left.force_grace_ms, context, act))
    left.force_grace_ms.reset();
  if (left.shrink_grace_ms && Shrink(editor, semaphore, *left.shrink_grace_ms, context, act))
    left.shrink_grace_ms.reset();
  std::erase_if(left.revocations, [&](const Revocation& each) {
    return Revoke(editor, semaphore, each, context, act);
  });
  left.host = context.self;
  std::string text = Encode(left);
  if (!text.empty()) editor.AdvanceLater(*semaphore);
  if (text == semaphore->row.intentions) return;
  editor.ChangeRow(semaphore, [&](SemaphoreRow& row) { row.intentions = std::move(text); });
}

}  // namespace semaphored::ledger
