#include "adapters/postgres/commit.h"

#include <algorithm>
#include <array>
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
#include "adapters/postgres/commit_tickets.h"
#include "adapters/postgres/message.h"

namespace semaphored::postgres {
namespace {

using ledger::NetChanges;
using ledger::SemaphoreDelta;
using ledger::SessionPtr;
using ledger::Transaction;

constexpr size_t kNumbers = 5;  // Arguments of commit_1 that are no arrays; they come first.
constexpr size_t kArrays = 69;

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

  Arguments Build(const CommitPlace& place);

 private:
  void Add(const SemaphoreDelta& delta);
  void Add(const SemaphoreDelta& delta, const NetLease& net);
  void Grant(const SemaphoreDelta& delta, const NetLease& net);
  bool MustWaitFor(const Session& before, const SessionPtr& after) const;
  void AddSessions();
  void AddRequests();
  void AddForgotten();
  void AddConditions();
  void AddConcerns();

  // Slots that are given back, of a lease that stood before this batch.
  void EndSlots(const std::string& semaphore, const Id& claim, const Slots& slots, EndCause cause,
                bool history, int64_t at) {
    e_semaphore_.Add(semaphore);
    e_claim_.Add(claim);
    AddAll(&e_number_, {static_cast<int64_t>(cause), history, at});
    AddSlots(slots, e_claim_, &e_of_, &e_slot_);
  }
  static void AddAll(Array* array, std::initializer_list<int64_t> numbers) {
    for (const int64_t number : numbers) array->Add(number);
  }
  static void AddSlots(const Slots& slots, const Array& leases, Array* of, Array* slot) {
    for (const uint32_t each : slots) {
      of->Add(static_cast<int64_t>(leases.size()));
      slot->Add(each);
    }
  }
  // Good as long as the builder.
  const std::string& NameOf(const RequestKey& request) {
    if (request.one_shot.empty()) return client_id_(request.client);
    return one_shots_.emplace_back(ledger::NameOfOneShot(request.one_shot));
  }
  static int64_t Signed(uint64_t number) { return static_cast<int64_t>(number); }

  const Transaction& transaction_;
  const std::function<const std::string&(uint32_t)>& client_id_;
  std::deque<std::string> one_shots_;  // The names of those that were written.
  absl::flat_hash_map<Id, const HistoryRow*> ended_;
  absl::flat_hash_map<Id, size_t> granted_;  // By their place, from 1.

  Array m_node_;
  Array s_name_, s_revision_, s_kind_, s_next_order_;
  Array w_name_, w_intentions_, w_owner_, w_number_;
  Array r_name_, r_revision_;
  Array c_session_, c_epoch_;
  Array q_client_, q_sequence_;
  Array e_semaphore_, e_claim_, e_number_, e_of_, e_slot_;
  Array u_semaphore_, u_claim_, u_session_, u_number_, u_of_, u_slot_;
  Array g_semaphore_, g_claim_, g_holder_, g_owner_, g_session_, g_client_, g_fingerprint_,
      g_number_, g_of_, g_slot_;
  Array d_semaphore_, d_order_;
  Array n_semaphore_, n_claim_, n_holder_, n_owner_, n_session_, n_client_, n_fingerprint_,
      n_number_;
  Array o_id_, o_number_;
  Array x_id_;
  Array y_id_, y_client_, y_holder_, y_owner_, y_number_;
  Array a_client_, a_semaphore_, a_claim_, a_fingerprint_, a_number_;
  Array b_client_, b_number_;
  Array l_client_, l_sequence_;
  Array f_client_, f_below_, forgotten_;
  Array t_node_, t_message_, t_news_;
  TicketArguments tickets_;
};

void Builder::Grant(const SemaphoreDelta& delta, const NetLease& net) {
  const ledger::LeaseChange& last = *net.steps.back();
  const Lease& lease = net.after ? *net.after : *last.before;
  const auto ended = ended_.find(lease.id);
  const bool is_ended = !net.after;
  g_semaphore_.Add(delta.name);
  g_claim_.Add(lease.id);
  granted_[lease.id] = g_claim_.size();
  AddSlots(lease.slots, g_claim_, &g_of_, &g_slot_);
  g_holder_.Add(lease.holder);
  g_owner_.Add(lease.owner);
  g_session_.Add(lease.session);
  g_client_.Add(NameOf(lease.request));
  g_fingerprint_.Add(lease.fingerprint);
  AddAll(&g_number_,
         {Signed(lease.request.sequence), lease.host.number, lease.host.incarnation, lease.epoch,
          lease.ttl_ms, lease.priority, Signed(lease.order),
          static_cast<int64_t>(lease.recall.reason), lease.recall.grace_ms, lease.moved_from,
          lease.granted_at_unix_ms, is_ended ? static_cast<int64_t>(last.cause) : 0,
          ended == ended_.end() ? lease.granted_at_unix_ms : ended->second->ended_at_unix_ms});
}

void Builder::Add(const SemaphoreDelta& delta, const NetLease& net) {
  if (!net.before) return Grant(delta, net);
  const Lease& before = *net.before;
  const auto ended = ended_.find(before.id);
  // Without a history row: the database's own time.
  const int64_t now = ended == ended_.end() ? 0 : ended->second->ended_at_unix_ms;
  // Given back while the rest stayed.
  for (const ledger::LeaseChange* step : net.steps) {
    if (step->before && step->after && step->after->slots.size() < step->before->slots.size())
      EndSlots(delta.name, before.id, step->before->slots.Without(step->after->slots),
               EndCause::kReleased, /*history=*/false, now);
  }
  if (!net.after) {
    const ledger::LeaseChange& end = *net.steps.back();
    EndSlots(delta.name, before.id, end.before->slots, end.cause, ended != ended_.end(), now);
    return;
  }
  const Lease& after = *net.after;
  if (Same(before, after)) return;
  u_semaphore_.Add(delta.name);
  u_claim_.Add(after.id);
  u_session_.Add(after.session);
  AddSlots(after.slots, u_claim_, &u_of_, &u_slot_);
  AddAll(&u_number_,
         {after.host.number, after.host.incarnation, after.epoch, after.ttl_ms,
          static_cast<int64_t>(after.recall.reason), after.recall.grace_ms, after.moved_from});
}

void Builder::Add(const SemaphoreDelta& delta) {
  enum Kind : int64_t { kTouched = 0, kWritten = 1, kDestroyed = 2, kPassing = 3 };
  Kind kind = kTouched;
  if (!delta.after) {
    kind = delta.before ? kDestroyed : kPassing;
  } else {
    SemaphoreRow same = delta.before ? *delta.before : SemaphoreRow();
    same.next_order = delta.after->next_order;
    same.revision = delta.after->revision;
    if (same != *delta.after) kind = kWritten;
  }
  s_name_.Add(delta.name);
  s_revision_.Add(Signed(delta.before ? delta.before->revision : 0));
  s_kind_.Add(kind);
  s_next_order_.Add(Signed(delta.after ? delta.after->next_order : 1));
  if (kind == kWritten) {
    const SemaphoreRow& row = *delta.after;
    const Settings& settings = row.settings;
    w_name_.Add(row.name);
    w_intentions_.Add(row.intentions);
    w_owner_.Add(row.owner);
    AddAll(&w_number_, {row.limit, settings.backfill, settings.longest_hold_ms,
                        settings.recall_grace_ms, settings.permits_per_holder, settings.waiters_max,
                        row.paused, row.destroying, row.created_at_unix_ms, row.made_on_use});
  }
  for (const NetLease& lease : NetChanges(delta.leases)) Add(delta, lease);
  tickets_.AddTickets(delta);
  for (const auto& waiter : NetChanges(delta.waiters)) {
    if (waiter.before) {
      d_semaphore_.Add(delta.name);
      d_order_.Add(Signed(waiter.before->order));
    }
    if (!waiter.after) continue;
    const Waiter& row = *waiter.after;
    n_semaphore_.Add(delta.name);
    n_claim_.Add(row.id);
    n_holder_.Add(row.holder);
    n_owner_.Add(row.owner);
    n_session_.Add(row.session);
    n_client_.Add(NameOf(row.request));
    n_fingerprint_.Add(row.fingerprint);
    AddAll(&n_number_, {Signed(row.order), row.priority, row.permits, Signed(row.request.sequence),
                        row.host.number, row.host.incarnation, row.epoch, row.ttl_ms,
                        row.queued_at_unix_ms, row.works});
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
    o_id_.Add(session.id);
    if (session.before) {
      AddAll(&o_number_, {session.before->epoch, session.before->host.number,
                          session.before->host.incarnation});
    } else {
      AddAll(&o_number_, {0, 0, 0});
    }
    if (session.before && MustWaitFor(*session.before, session.after))
      m_node_.Add(session.before->host.number);
    if (!session.after) {
      x_id_.Add(session.id);
      continue;
    }
    const Session& row = *session.after;
    y_id_.Add(session.id);
    y_client_.Add(client_id_(row.client));
    y_holder_.Add(row.holder);
    y_owner_.Add(row.owner);
    AddAll(&y_number_, {row.host.number, row.host.incarnation, row.epoch, row.ttl_ms,
                        row.release_on_disconnect, row.closing});
  }
  absl::flat_hash_set<Id> conditions;
  for (const ledger::EpochCondition& condition : transaction_.epochs) {
    // What this batch itself makes of a session is looked at by the condition on its row.
    if (changed.contains(condition.session)) continue;
    if (!conditions.insert(condition.session).second) continue;
    c_session_.Add(condition.session);
    c_epoch_.Add(condition.epoch);
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
    const ledger::RequestRow& row = change->row;
    const auto state = static_cast<int64_t>(row.state);
    const auto cause = static_cast<int64_t>(row.cause);
    switch (change->op) {
      case Op::kInsert:
        a_client_.Add(client_id);
        a_semaphore_.Add(row.semaphore);
        a_claim_.Add(row.claim);
        a_fingerprint_.Add(row.fingerprint);
        AddAll(&a_number_,
               {Signed(sequence), state, cause, row.number, row.remaining, row.changed});
        break;
      case Op::kUpdate:
        b_client_.Add(client_id);
        AddAll(&b_number_, {Signed(sequence), state, cause});
        break;
      case Op::kRemove:
        l_client_.Add(client_id);
        l_sequence_.Add(Signed(sequence));
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
  for (const auto& [client_id, below] : floors) {
    f_client_.Add(client_id);
    f_below_.Add(Signed(below));
  }
  for (const uint32_t client : transaction_.forgotten_clients) forgotten_.Add(client_id_(client));
  // Each is all that there is of its client.
  for (const Id& one_shot : transaction_.forgotten_requests)
    forgotten_.Add(NameOf({0, 0, one_shot}));
}

void Builder::AddConditions() {
  for (const ledger::ReadCondition& read : transaction_.reads) {
    r_name_.Add(read.semaphore);
    r_revision_.Add(Signed(read.revision));
  }
  for (const ledger::NamedRequest& absent : transaction_.absent_requests) {
    q_client_.Add(ledger::WrittenClient(absent));
    q_sequence_.Add(Signed(absent.request.sequence));
  }
  AddConcerns();
}

void Builder::AddConcerns() {
  struct Message {
    std::string text;
    std::string news;
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
        message.news = WriteNews(transaction_, *delta->second, granted_);
      }
    }
    t_node_.Add(node);
    t_message_.Add(message.text);
    t_news_.Add(message.news);
  }
}

Arguments Builder::Build(const CommitPlace& place) {
  std::vector<const SemaphoreDelta*> deltas;
  for (const SemaphoreDelta& delta : transaction_.semaphores) deltas.push_back(&delta);
  std::ranges::sort(deltas, {},
                    [](const SemaphoreDelta* delta) -> const std::string& { return delta->name; });
  for (const SemaphoreDelta* delta : deltas) Add(*delta);
  AddSessions();
  AddRequests();
  AddForgotten();
  AddConditions();
  Arguments arguments = {std::to_string(place.node.number), std::to_string(place.node.incarnation),
                         std::to_string(place.lane), std::to_string(place.number),
                         place.row.empty() ? std::nullopt : std::optional(place.row)};
  // In the order of the function's arguments.
  const std::array<Array*, kArrays> arrays = {
      &m_node_,       &s_name_,      &s_revision_,    &s_kind_,        &s_next_order_, &w_name_,
      &w_intentions_, &w_owner_,     &w_number_,      &r_name_,        &r_revision_,   &c_session_,
      &c_epoch_,      &q_client_,    &q_sequence_,    &e_semaphore_,   &e_claim_,      &e_number_,
      &e_of_,         &e_slot_,      &u_semaphore_,   &u_claim_,       &u_session_,    &u_number_,
      &u_of_,         &u_slot_,      &g_semaphore_,   &g_claim_,       &g_holder_,     &g_owner_,
      &g_session_,    &g_client_,    &g_fingerprint_, &g_number_,      &g_of_,         &g_slot_,
      &d_semaphore_,  &d_order_,     &n_semaphore_,   &n_claim_,       &n_holder_,     &n_owner_,
      &n_session_,    &n_client_,    &n_fingerprint_, &n_number_,      &o_id_,         &o_number_,
      &x_id_,         &y_id_,        &y_client_,      &y_holder_,      &y_owner_,      &y_number_,
      &a_client_,     &a_semaphore_, &a_claim_,       &a_fingerprint_, &a_number_,     &b_client_,
      &b_number_,     &l_client_,    &l_sequence_,    &f_client_,      &f_below_,      &forgotten_,
      &t_node_,       &t_message_,   &t_news_};
  for (Array* array : arrays) arguments.push_back(array->TakeOrNull());
  tickets_.Take(&arguments);
  return arguments;
}

// "$1,…,$count"
std::string Places(size_t count) {
  std::string places;
  for (size_t i = 1; i <= count; ++i) absl::StrAppend(&places, i == 1 ? "$" : ",$", i);
  return places;
}

}  // namespace

std::string CommitSql() {
  return absl::StrCat("SELECT tokens, revisions, refusal, lane_place FROM semaphored.commit_1(",
                      Places(kNumbers + kArrays + TicketArguments::kCount), ")");
}

Arguments ArgumentsFor(const Transaction& transaction, const CommitPlace& place,
                       const std::function<const std::string&(uint32_t)>& client_id) {
  return Builder(transaction, client_id).Build(place);
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
