// Questions about semaphores: one with its rows, page by page, and lists of many.
#include <algorithm>
#include <utility>

#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/rules/steps.h"

namespace semaphored::ledger {
namespace {

// A session that moves takes its claims with it; they themselves say only where it was before.
template <class ClaimPtr>
void ShowHost(const LedgerState& state, ClaimPtr* claim) {
  const NodeRef host = HostOf(state, **claim);
  if (host.number == 0 || host == (*claim)->host) return;
  auto shown = std::make_shared<std::remove_const_t<typename ClaimPtr::element_type>>(**claim);
  shown->host = host;
  *claim = std::move(shown);
}

// Leases by their places in the list, from two sources: those that are shown at their lowest slot, and the
// few that are not.
class LeasePage {
 public:
  LeasePage(const Semaphore& semaphore, const AdminDescribe& act, SemaphoreInfo* info)
      : semaphore_(semaphore),
        rows_max_(act.rows_max),
        after_(act.leases_after.value_or(LeasePlace{})),
        apart_(semaphore.listed_apart.upper_bound(after_)),
        info_(info) {}

  void Fill() {
    bool has_room = true;
    semaphore_.slots.VisitFrom(after_.slot, [&](uint32_t first, const Id& id) {
      const LeasePtr lease = semaphore_.FindLease(id);
      // Of its runs the lowest stands for the lease.
      if (!lease || lease->listed_slot != 0 || lease->slots.front() != first) return true;
      const LeasePlace place{first, id};
      if (place <= after_) return true;
      has_room = AddApartBefore(&place) && Add(place, lease);
      return has_room;
    });
    if (has_room) AddApartBefore(nullptr);
  }

 private:
  // False: the page is full, and the list goes on.
  bool Add(const LeasePlace& place, const LeasePtr& lease) {
    if (info_->leases.size() == rows_max_) {
      info_->leases_next = last_;
      return false;
    }
    info_->leases.push_back(lease);
    last_ = place;
    return true;
  }

  // nullptr: all that are left.
  bool AddApartBefore(const LeasePlace* place) {
    for (; apart_ != semaphore_.listed_apart.end(); ++apart_) {
      if (place != nullptr && *place <= apart_->first) return true;
      if (!Add(apart_->first, apart_->second)) return false;
    }
    return true;
  }

  const Semaphore& semaphore_;
  const uint32_t rows_max_;
  const LeasePlace after_;
  absl::btree_map<LeasePlace, LeasePtr>::const_iterator apart_;
  LeasePlace last_;
  SemaphoreInfo* const info_;
};

void AddWaiters(const Semaphore& semaphore, const AdminDescribe& act, const Context& context,
                SemaphoreInfo* info) {
  const Queue& queue = semaphore.queue;
  auto at = act.waiters_after ? queue.upper_bound(*act.waiters_after) : queue.begin();
  if (at == queue.end()) return;
  Ahead ahead = Ahead::Of(at->first, semaphore, context.limits);
  for (; at != queue.end(); ++at) {
    if (info->waiters.size() == act.rows_max) {
      info->waiters_next = PlaceOf(*info->waiters.back().waiter);
      return;
    }
    const WaiterPtr& waiter = at->second;
    info->waiters.push_back(
        {semaphore.PositionOf(*waiter), waiter, ReasonOf(semaphore, *waiter, &ahead, context)});
  }
}

// Within one priority the first has waited the longest. At most so many priorities are looked at, so that a list costs the same
// whatever waits.
constexpr int kPrioritiesMax = 16;

// Null: none waits.
WaiterPtr LongestWaiterOf(const Semaphore& semaphore) {
  const Queue& queue = semaphore.queue;
  WaiterPtr longest;
  auto at = queue.begin();
  for (int i = 0; i < kPrioritiesMax && at != queue.end(); ++i) {
    if (longest == nullptr || at->second->order < longest->order) longest = at->second;
    at = queue.upper_bound({at->first.priority, UINT64_MAX});
  }
  return longest;
}

}  // namespace

SemaphoreInfo Describe(const Semaphore& semaphore) {
  SemaphoreInfo info;
  info.row = semaphore.row;
  info.held = semaphore.held + semaphore.held_elsewhere;
  info.waiting = semaphore.queue.size();
  info.offers = semaphore.offers.size();
  info.tickets = semaphore.ticket_counts;
  return info;
}

SemaphoreInfo DescribeListed(const Semaphore& semaphore) {
  SemaphoreInfo info = Describe(semaphore);
  if (WaiterPtr longest = LongestWaiterOf(semaphore))
    info.waiters.push_back({0, std::move(longest)});
  return info;
}

SemaphoreInfo DescribePage(const LedgerState& state, const Semaphore& semaphore,
                           const AdminDescribe& act, const Context& context) {
  SemaphoreInfo info = Describe(semaphore);
  if (act.rows_max == 0) return info;
  if (act.leases) LeasePage(semaphore, act, &info).Fill();
  if (act.waiters) AddWaiters(semaphore, act, context, &info);
  for (LeasePtr& lease : info.leases) ShowHost(state, &lease);
  for (WaiterInfo& each : info.waiters) ShowHost(state, &each.waiter);
  return info;
}

Outcome List(const LedgerState& state, const ListCommand& command) {
  Outcome outcome = Simply(OutcomeKind::kDone);
  outcome.report = std::make_unique<Report>();
  for (auto at = state.From(std::max(command.prefix, command.after)); at != state.end(); ++at) {
    const std::string& name = at->first;
    if (!name.starts_with(command.prefix)) break;
    if (name == command.after) continue;
    if (outcome.report->infos.size() == command.rows_max) {
      outcome.report->more = true;
      break;
    }
    outcome.report->infos.push_back(DescribeListed(*at->second));
  }
  return outcome;
}

}  // namespace semaphored::ledger
