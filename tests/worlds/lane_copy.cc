#include "tests/worlds/lane_copy.h"

#include <ranges>

namespace semaphored::worlds {
namespace {

template <typename Rows, typename Changes>
void RollBack(const Changes& changes, Rows* rows) {
  for (const auto& change : std::views::reverse(changes)) {
    if (change.after) rows->erase(change.after->id);
    if (change.before) (*rows)[change.before->id] = change.before;
  }
}

}  // namespace

LaneCopy::LaneCopy(const ledger::LedgerProbe& probe, const InFlight* write) {
  for (const auto& [name, known] : probe.state()) {
    semaphores[name] = {known->row,
                        {known->leases.begin(), known->leases.end()},
                        {known->waiters.begin(), known->waiters.end()}};
  }
  sessions.insert(probe.state().sessions().begin(), probe.state().sessions().end());
  if (!probe.in_doubt() || write == nullptr) return;
  const bool landed = write->result && write->result->kind == ledger::CommitResult::Kind::kWon;
  if (!landed) RollBack(write->transaction.sessions, &sessions);
  for (const ledger::SemaphoreDelta& delta : write->transaction.semaphores) {
    if (landed && delta.after) {
      semaphores[delta.name].row.revision = delta.revision;
    } else if (!landed && !delta.before) {
      semaphores.erase(delta.name);
    } else if (!landed) {
      SemaphoreCopy& copy = semaphores[delta.name];
      RollBack(delta.leases, &copy.leases);
      RollBack(delta.waiters, &copy.waiters);
      copy.row = *delta.before;
    }
  }
}

}  // namespace semaphored::worlds
