#include "adapters/postgres/commit.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/client_names.h"
#include "adapters/ledger/state/net_changes.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/commit_rows.h"
#include "adapters/postgres/commit_tickets.h"
#include "adapters/postgres/message.h"

namespace semaphored::postgres {
namespace {

using ledger::NetChanges;
using ledger::SemaphoreDelta;
using ledger::SessionPtr;
using ledger::Transaction;

using NetLease = ledger::NetChange<ledger::LeaseChange>;

// What may change of a lease in place.
bool Same(const Lease& a, const Lease& b) {
  return a.session == b.session && a.host == b.host && a.epoch == b.epoch && a.ttl_ms == b.ttl_ms &&
         a.moved_from == b.moved_from && a.recall == b.recall;
}

class Builder {
 public:
  Builder(const Transaction& transaction,
          const std::function<const std::string&(uint32_t)>& client_id)
      : transaction_(transaction), client_id_(client_id) {
    for (const HistoryRow& row : transaction.history) ended_[row.lease->id] = &row;
  }

  // Good as long as the builder.
  CommitRows& Build();

 private:
  void Add(const SemaphoreDelta& delta);
  void AddRow(const SemaphoreDelta& delta);
  void Add(const SemaphoreDelta& delta, const NetLease& net);
  void Grant(const SemaphoreDelta& delta, const NetLease& net);
  bool MustWaitFor(const Session& before, const SessionPtr& after) const;
  void AddSessions();
  void AddRequests();
  void AddForgotten();
  void AddConditions();
  void AddConcerns();

  // Good as long as the builder.
  const std::string& NameOf(const RequestKey& request) {
    if (request.one_shot.empty()) return client_id_(request.client);
    return one_shots_.emplace_back(ledger::NameOfOneShot(request.one_shot));
  }

  const Transaction& transaction_;
  const std::function<const std::string&(uint32_t)>& client_id_;
  std::deque<std::string> one_shots_;  // The names of those that were written.
  absl::flat_hash_map<Id, const HistoryRow*> ended_;
  absl::flat_hash_map<Id, size_t> granted_;  // By their place, from 1.

  CommitRows rows_;
};

void Builder::Grant(const SemaphoreDelta& delta, const NetLease& net) {
  const ledger::LeaseChange& last = *net.steps.back();
  const Lease& lease = net.after ? *net.after : *last.before;
  const auto ended = ended_.find(lease.id);
  AddGrant(delta.name, lease, NameOf(lease.request), net.after ? EndCause::kNone : last.cause,
           ended == ended_.end() ? lease.granted_at_unix_ms : ended->second->ended_at_unix_ms,
           &rows_.leases_granted);
  granted_[lease.id] = rows_.leases_granted.size();
}

void Builder::Add(const SemaphoreDelta& delta, const NetLease& net) {
  if (!net.before) return Grant(delta, net);
  const Lease& before = *net.before;
  const auto ended = ended_.find(before.id);
  const bool history = ended != ended_.end();
  // Without a history row: the database's own time.
  const int64_t now = history ? ended->second->ended_at_unix_ms : 0;
  // Given back while the rest stayed.
  for (const ledger::LeaseChange* step : net.steps) {
    if (step->before && step->after && step->after->slots.size() < step->before->slots.size())
      AddEnd(delta.name,
             {before, step->before->slots.Without(step->after->slots), EndCause::kReleased,
              /*history=*/false, now},
             &rows_.leases_ended);
  }
  if (!net.after) {
    const ledger::LeaseChange& end = *net.steps.back();
    AddEnd(delta.name, {before, end.before->slots, end.cause, history, now}, &rows_.leases_ended);
  } else if (!Same(before, *net.after)) {
    AddLeaseChange(delta.name, *net.after, &rows_.leases_changed);
  }
}

void Builder::AddRow(const SemaphoreDelta& delta) {
  const uint64_t next_order = delta.after ? delta.after->next_order : 1;
  if (delta.before) {
    AddTouch(delta.name, delta.before->revision, next_order, &rows_.semaphores_touched);
  } else {
    AddStart(delta.name, next_order, /*passing=*/!delta.after, &rows_.semaphores_made);
  }
  if (!delta.after) {
    if (delta.before) AddRevision(delta.name, delta.before->revision, &rows_.semaphores_destroyed);
    return;
  }
  SemaphoreRow same = delta.before ? *delta.before : SemaphoreRow();
  same.next_order = delta.after->next_order;
  same.revision = delta.after->revision;
  if (same != *delta.after) AddSemaphore(*delta.after, &rows_.semaphores_written);
}

void Builder::Add(const SemaphoreDelta& delta) {
  AddRow(delta);
  for (const NetLease& lease : NetChanges(delta.leases)) Add(delta, lease);
  AddTickets(delta, &rows_);
  for (const auto& waiter : NetChanges(delta.waiters)) {
    if (waiter.before) AddWaiterPlace(delta.name, *waiter.before, &rows_.waiters_gone);
    if (waiter.after)
      AddWaiter(delta.name, *waiter.after, NameOf(waiter.after->request), &rows_.waiters_new);
  }
}

// From this commit on no commit lands that rests upon the session's former epoch: those that are
// under way at its host, which read the epoch without a lock, are waited for.
bool Builder::MustWaitFor(const Session& before, const SessionPtr& after) const {
  if (after && after->closing && !before.closing) return true;
  const bool moves = !after || after->host != before.host;
  return moves && before.host.number != transaction_.node.number;
}

void Builder::AddSessions() {
  absl::flat_hash_set<Id> changed;
  for (const auto& session : NetChanges(transaction_.sessions)) {
    changed.insert(session.id);
    if (!session.before && !session.after) continue;  // Opened and closed in one batch.
    if (session.before) {
      AddBefore(session.id, session.before->epoch, session.before->host, &rows_.sessions_before);
    } else {
      AddBefore(session.id, /*epoch=*/0, NodeRef{}, &rows_.sessions_before);
    }
    if (session.before && MustWaitFor(*session.before, session.after))
      rows_.hosts.Add(session.before->host.number);
    if (session.after) {
      AddSession(*session.after, client_id_(session.after->client), &rows_.sessions_written);
    } else {
      rows_.sessions_gone.Add(session.id);
    }
  }
  absl::flat_hash_set<Id> conditions;
  for (const ledger::EpochCondition& condition : transaction_.epochs) {
    // What this batch itself makes of a session is looked at by the condition on its row.
    if (changed.contains(condition.session)) continue;
    if (conditions.insert(condition.session).second) AddEpoch(condition, &rows_.session_epochs);
  }
}

void Builder::AddRequests() {
  using Op = ledger::RequestChange::Op;
  using ByName = std::pair<std::pair<std::string_view, uint64_t>, const ledger::RequestChange*>;
  std::vector<ByName> changes;
  changes.reserve(transaction_.requests.size());
  for (const ledger::RequestChange& change : transaction_.requests) {
    const RequestKey& request = change.row.request;
    changes.push_back({{NameOf(request), request.sequence}, &change});
  }
  std::ranges::sort(changes, {}, &ByName::first);
  for (const auto& [name, change] : changes) {
    const auto& [client_id, sequence] = name;
    switch (change->op) {
      case Op::kInsert:
        AddRequest(change->row, client_id, &rows_.requests_new);
        break;
      case Op::kUpdate:
        AddRequestChange(change->row, client_id, &rows_.requests_changed);
        break;
      case Op::kRemove:
        AddKey(client_id, sequence, &rows_.requests_gone);
        break;
    }
  }
}

void Builder::AddForgotten() {
  std::map<std::string_view, uint64_t> floors;
  for (const ledger::RequestFloor& floor : transaction_.request_floors) {
    uint64_t& below = floors[client_id_(floor.client)];
    below = std::max(below, floor.below);
  }
  for (const auto& [client_id, below] : floors) AddFloor(client_id, below, &rows_.request_floors);
  for (const uint32_t client : transaction_.forgotten_clients)
    rows_.clients_forgotten.Add(client_id_(client));
  // Each is all that there is of its client.
  for (const Id& one_shot : transaction_.forgotten_requests)
    rows_.clients_forgotten.Add(NameOf({0, 0, one_shot}));
}

void Builder::AddConditions() {
  for (const ledger::ReadCondition& read : transaction_.reads)
    AddRevision(read.semaphore, read.revision, &rows_.semaphores_read);
  for (const ledger::NamedRequest& absent : transaction_.absent_requests)
    AddKey(ledger::WrittenClient(absent), absent.request.sequence, &rows_.requests_absent);
  AddConcerns();
}

void Builder::AddConcerns() {
  struct Message {
    std::string text;
    std::string details;
  };
  absl::flat_hash_map<std::string_view, const ledger::SemaphoreDelta*> deltas;
  for (const ledger::SemaphoreDelta& delta : transaction_.semaphores) deltas[delta.name] = &delta;
  absl::flat_hash_map<std::string, Message> messages;
  for (const auto& [node, semaphore] : transaction_.concerns) {
    const auto [at, is_new] = messages.try_emplace(semaphore);
    Message& message = at->second;
    if (is_new) {
      const auto delta = deltas.find(semaphore);
      message.text = semaphore;
      if (delta != deltas.end() && delta->second->before) {
        absl::StrAppend(&message.text, " ", delta->second->before->revision + 1);
        message.details = WriteDetails(transaction_, *delta->second, granted_);
      }
    }
    AddNotice(node, message.text, message.details, &rows_.notices);
  }
}

CommitRows& Builder::Build() {
  std::vector<const SemaphoreDelta*> deltas;
  for (const SemaphoreDelta& delta : transaction_.semaphores) deltas.push_back(&delta);
  std::ranges::sort(deltas, {},
                    [](const SemaphoreDelta* delta) -> const std::string& { return delta->name; });
  for (const SemaphoreDelta* delta : deltas) Add(*delta);
  AddSessions();
  AddRequests();
  AddForgotten();
  AddConditions();
  return rows_;
}

}  // namespace

Arguments ArgumentsFor(const Transaction& transaction, const CommitPlace& place,
                       const std::function<const std::string&(uint32_t)>& client_id) {
  Arguments arguments = {std::to_string(place.node.number), std::to_string(place.node.incarnation),
                         std::to_string(place.lane), std::to_string(place.number),
                         place.row.empty() ? std::nullopt : std::optional(place.row)};
  Builder builder(transaction, client_id);
  builder.Build().Take(&arguments);
  return arguments;
}

void TakeGiven(const std::string& tokens, const std::string& revisions, Transaction* transaction) {
  const std::vector<int64_t> token = ReadNumbers(tokens);
  const std::vector<int64_t> revision = ReadNumbers(revisions);
  std::vector<SemaphoreDelta*> deltas;  // As they were sent.
  for (SemaphoreDelta& delta : transaction->semaphores) deltas.push_back(&delta);
  std::ranges::sort(deltas, {},
                    [](const SemaphoreDelta* delta) -> const std::string& { return delta->name; });
  absl::flat_hash_map<Id, uint64_t> given;
  size_t next_token = 0;
  size_t next_revision = 0;
  for (SemaphoreDelta* delta : deltas) {
    if (!delta->before) {
      const int64_t number = next_revision < revision.size() ? revision[next_revision++] : 0;
      delta->revision = static_cast<uint64_t>(number);
    }
    for (const ledger::LeaseChange& change : delta->leases) {
      if (change.before || next_token == token.size()) continue;
      given[change.after->id] = static_cast<uint64_t>(token[next_token++]);
    }
  }
  ledger::SetTokens(given, transaction);
}

}  // namespace semaphored::postgres
