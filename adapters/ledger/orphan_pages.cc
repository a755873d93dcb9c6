#include "adapters/ledger/orphan_pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::ledger {
namespace {

// A take-over that was given up leaves its list. One whose list is gone lists again, and goes on.
constexpr size_t kListsKept = 4;

// OrphansCommand::after: "s" and a session's id, or "n" and a semaphore's name: what is above.
constexpr char kSessionsAbove = 's';
constexpr char kNamesAbove = 'n';

}  // namespace

absl::StatusOr<OrphansPage> OrphanPages::Read(const OrphansCommand& command) {
  auto list = std::ranges::find(lists_, command.dead, &List::dead);
  if (command.after.empty() || list == lists_.end()) {
    absl::StatusOr<List> asked = Ask(command);
    if (!asked.ok()) return asked.status();
    if (list != lists_.end()) lists_.erase(list);
    if (lists_.size() >= kListsKept) lists_.erase(lists_.begin());
    lists_.push_back(*std::move(asked));
    list = std::prev(lists_.end());
  }
  OrphansPage page;
  const bool of_names = !command.after.empty() && command.after[0] == kNamesAbove;
  const std::string above = command.after.empty() ? std::string() : command.after.substr(1);
  size_t room = std::max<size_t>(command.rows_max, 1);
  if (!of_names) {
    const Id last = Id::FromHex(above).value_or(Id());
    auto session = std::ranges::upper_bound(list->sessions, last, {}, &Session::id);
    for (; room > 0 && session != list->sessions.end(); --room) page.sessions.push_back(*session++);
    if (session != list->sessions.end()) {
      page.next = absl::StrCat(std::string(1, kSessionsAbove), page.sessions.back()->id.Hex());
      return page;
    }
  }
  auto name = std::ranges::upper_bound(list->semaphores, of_names ? above : std::string());
  for (; room > 0 && name != list->semaphores.end(); --room) page.semaphores.push_back(*name++);
  if (name != list->semaphores.end()) {
    page.next = absl::StrCat(std::string(1, kNamesAbove),
                             page.semaphores.empty() ? "" : page.semaphores.back());
  } else {
    lists_.erase(list);
  }
  return page;
}

absl::StatusOr<OrphanPages::List> OrphanPages::Ask(const OrphansCommand& command) const {
  std::vector<NodeRef> dead = command.dead;
  dead.push_back({self_.number, self_.incarnation - 1});
  absl::StatusOr<SharedStore::Hosted> hosted = store_->HostedBy(dead);
  if (!hosted.ok()) return hosted.status();
  List list;
  list.dead = command.dead;
  for (std::string& name : hosted->semaphores) {
    if (LaneOf(name, command.lanes) == command.lane) list.semaphores.push_back(std::move(name));
  }
  std::ranges::sort(list.semaphores);
  if (command.lane == 0) list.sessions = std::move(hosted->sessions);
  std::ranges::sort(list.sessions, {}, &Session::id);
  return list;
}

}  // namespace semaphored::ledger
