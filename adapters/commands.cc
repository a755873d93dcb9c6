#include "adapters/commands.h"

namespace semaphored {
namespace {

struct ReadOnly {
  bool operator()(const VerifyCommand&) const { return true; }
  bool operator()(const OrphansCommand&) const { return true; }
  bool operator()(const ListCommand&) const { return true; }
  bool operator()(const HistoryCommand&) const { return true; }
  bool operator()(const FlushCommand&) const { return true; }
  bool operator()(const AdminCommand& command) const {
    const auto* adopt = std::get_if<AdminAdopt>(&command.act);
    if (adopt != nullptr) return adopt->limit == 0;
    return std::holds_alternative<AdminDescribe>(command.act) ||
           std::holds_alternative<AdminListTickets>(command.act) ||
           std::holds_alternative<AdminShowTicket>(command.act);
  }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
};

}  // namespace

bool IsReadOnly(const Command& command) { return std::visit(ReadOnly{}, command); }

std::string_view SemaphoreOf(const Command& command) {
  return std::visit(
      [](const auto& each) -> std::string_view {
        if constexpr (requires { each.semaphore; }) return each.semaphore;
        return {};
      },
      command);
}

}  // namespace semaphored
