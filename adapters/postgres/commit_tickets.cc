#include "adapters/postgres/commit_tickets.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::postgres {

using ledger::SemaphoreDelta;
using nlohmann::json;

std::string WriteReasons(const std::vector<TicketReason>& reasons) {
  json list = json::array();
  for (const TicketReason& reason : reasons) {
    // jsonb holds no zero byte.
    const std::string text =
        absl::StrReplaceAll(reason.text, {{absl::string_view("\0", 1), "\xef\xbf\xbd"}});
    list.push_back({{"attempt", reason.attempt}, {"text", text}, {"at", reason.at_unix_ms}});
  }
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<TicketReason> ReadReasons(const std::string& text) {
  std::vector<TicketReason> reasons;
  const json list = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return reasons;
  for (const json& each : list) {
    try {
      reasons.push_back({each.at("attempt").get<uint32_t>(), each.at("text").get<std::string>(),
                         each.at("at").get<int64_t>()});
    } catch (const json::exception&) {
      continue;
    }
  }
  return reasons;
}

void AddTickets(const SemaphoreDelta& delta, CommitRows* commit) {
  if (delta.tickets.empty()) return;
  const uint64_t revision = delta.before ? delta.before->revision + 1 : 0;
  for (const auto& net : ledger::NetChanges(delta.tickets)) {
    const TicketPtr& before = net.before;
    const TicketPtr& after = net.after;
    if (before && after) {
      // (They may be new to the database though this batch did not add to them: see GivenBack.)
      std::optional<std::string> reasons;
      if (!before->reasons.empty() || !after->reasons.empty())
        reasons = WriteReasons(after->reasons);
      AddTicketChange(delta.name, *after, revision, reasons, &commit->tickets_changed);
    } else if (before) {
      AddTicketPlace(delta.name, *before, &commit->tickets_gone);
    } else if (after) {
      AddTicket(delta.name, *after, revision, net.steps.front()->payload, commit);
    }
  }
}

}  // namespace semaphored::postgres
