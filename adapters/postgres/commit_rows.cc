#include "adapters/postgres/commit_rows.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "adapters/postgres/commit_tickets.h"

namespace semaphored::postgres {
namespace {

// Of commit_1, that are no arrays; they come first.
constexpr const char* kPlaceNames[] = {"p_node", "p_incarnation", "p_lane", "p_number", "p_place"};

Column::Value IdOrNull(const Id& id) { return id.empty() ? Column::Value() : Column::Value(id); }

Column::Value TextOrNull(const std::optional<std::string>& text) {
  return text ? Column::Value(std::string_view(*text)) : Column::Value();
}

}  // namespace

std::string CommitSql() {
  std::string arguments;
  int count = 0;
  const auto add = [&](const char* name) {
    absl::StrAppend(&arguments, count == 0 ? "" : ", ", name, " => $", count + 1);
    ++count;
  };
  for (const char* name : kPlaceNames) add(name);
  const CommitRows rows;
  for (const CommitRows::Argument& argument : rows.all()) add(argument.name);
  add("payloads");
  return absl::StrCat("SELECT tokens, revisions, refusal, lane_place FROM semaphored.commit_1(",
                      arguments, ")");
}

void CommitRows::Take(Arguments* arguments) {
  const bool some_come = tickets_new.size() != 0;
  for (Argument& argument : all_) arguments->push_back(argument.rows.TakeOrNull());
  arguments->push_back(some_come ? std::optional("\\x" + absl::BytesToHexString(payloads))
                                 : std::nullopt);
}

// ---- semaphores ----

void AddTouch(std::string_view name, uint64_t revision, uint64_t next_order, Array* rows) {
  rows->AddRow({{"name", name}, {"revision", revision}, {"next_order", next_order}});
}

void AddStart(std::string_view name, uint64_t next_order, bool passing, Array* rows) {
  rows->AddRow({{"name", name}, {"next_order", next_order}, {"passing", passing}});
}

void AddSemaphore(const SemaphoreRow& row, Array* rows) {
  rows->AddRow({{"name", row.name},
                {"permits", row.limit},
                {"backfill", row.settings.backfill},
                {"longest_hold_ms", row.settings.longest_hold_ms},
                {"recall_grace_ms", row.settings.recall_grace_ms},
                {"permits_per_holder", row.settings.permits_per_holder},
                {"waiters_max", row.settings.waiters_max},
                {"paused", row.paused},
                {"destroying", row.destroying},
                {"made_on_use", row.made_on_use},
                {"intentions", row.intentions},
                {"created_at_ms", row.created_at_unix_ms},
                {"owner", row.owner}});
}

void AddRevision(std::string_view name, uint64_t revision, Array* rows) {
  rows->AddRow({{"name", name}, {"revision", revision}});
}

// ---- sessions ----

void AddEpoch(const ledger::EpochCondition& condition, Array* rows) {
  rows->AddRow({{"id", condition.session}, {"epoch", condition.epoch}});
}

void AddBefore(const Id& id, uint32_t epoch, const NodeRef& host, Array* rows) {
  rows->AddRow(
      {{"id", id}, {"epoch", epoch}, {"node", host.number}, {"incarnation", host.incarnation}});
}

void AddSession(const Session& row, std::string_view client_id, Array* rows) {
  rows->AddRow({{"id", row.id},
                {"node", row.host.number},
                {"incarnation", row.host.incarnation},
                {"epoch", row.epoch},
                {"ttl_ms", row.ttl_ms},
                {"client_id", client_id},
                {"release_on_disconnect", row.release_on_disconnect},
                {"closing", row.closing},
                {"holder", row.holder},
                {"owner", row.owner}});
}

// ---- requests ----

void AddKey(std::string_view client_id, uint64_t sequence, Array* rows) {
  rows->AddRow({{"client_id", client_id}, {"sequence", sequence}});
}

void AddRequest(const ledger::RequestRow& row, std::string_view client_id, Array* rows) {
  rows->AddRow({{"client_id", client_id},
                {"sequence", row.request.sequence},
                {"fingerprint", row.fingerprint},
                {"state", row.state},
                {"semaphore", row.semaphore},
                {"claim", row.claim},
                {"cause", row.cause},
                {"number", row.number},
                {"remaining", row.remaining},
                {"changed", row.changed}});
}

void AddRequestChange(const ledger::RequestRow& row, std::string_view client_id, Array* rows) {
  rows->AddRow({{"client_id", client_id},
                {"sequence", row.request.sequence},
                {"state", row.state},
                {"cause", row.cause}});
}

void AddFloor(std::string_view client_id, uint64_t below, Array* rows) {
  rows->AddRow({{"client_id", client_id}, {"below", below}});
}

// ---- leases ----

void AddEnd(std::string_view semaphore, const EndedLease& ended, Array* rows) {
  rows->AddRow({{"semaphore", semaphore},
                {"claim", ended.lease.id},
                {"slots", ended.slots},
                {"cause", ended.cause},
                {"history", ended.history},
                {"ended_at_ms", ended.ended_at_unix_ms}});
}

void AddLeaseChange(std::string_view semaphore, const Lease& after, Array* rows) {
  rows->AddRow({{"semaphore", semaphore},
                {"claim", after.id},
                {"slots", after.slots},
                {"session", after.session},
                {"node", after.host.number},
                {"incarnation", after.host.incarnation},
                {"epoch", after.epoch},
                {"ttl_ms", after.ttl_ms},
                {"recall_reason", after.recall.reason},
                {"recall_grace_ms", after.recall.grace_ms},
                {"moved_from", after.moved_from}});
}

void AddGrant(std::string_view semaphore, const Lease& lease, std::string_view client_id,
              EndCause cause, int64_t ended_at_unix_ms, Array* rows) {
  rows->AddRow({{"semaphore", semaphore},
                {"claim", lease.id},
                {"slots", lease.slots},
                {"holder", lease.holder},
                {"owner", lease.owner},
                {"session", lease.session},
                {"client_id", client_id},
                {"sequence", lease.request.sequence},
                {"fingerprint", lease.fingerprint},
                {"node", lease.host.number},
                {"incarnation", lease.host.incarnation},
                {"epoch", lease.epoch},
                {"ttl_ms", lease.ttl_ms},
                {"priority", lease.priority},
                {"queue_order", lease.order},
                {"recall_reason", lease.recall.reason},
                {"recall_grace_ms", lease.recall.grace_ms},
                {"moved_from", lease.moved_from},
                {"created_at_ms", lease.granted_at_unix_ms},
                {"end_cause", cause},
                {"ended_at_ms", ended_at_unix_ms}});
}

// ---- waiters ----

void AddWaiterPlace(std::string_view semaphore, const Waiter& waiter, Array* rows) {
  rows->AddRow({{"semaphore", semaphore}, {"queue_order", waiter.order}});
}

void AddWaiter(std::string_view semaphore, const Waiter& row, std::string_view client_id,
               Array* rows) {
  rows->AddRow({{"semaphore", semaphore},
                {"queue_order", row.order},
                {"priority", row.priority},
                {"claim", row.id},
                {"permits", row.permits},
                {"holder", row.holder},
                {"owner", row.owner},
                {"session", row.session},
                {"client_id", client_id},
                {"sequence", row.request.sequence},
                {"fingerprint", row.fingerprint},
                {"node", row.host.number},
                {"incarnation", row.host.incarnation},
                {"epoch", row.epoch},
                {"ttl_ms", row.ttl_ms},
                {"queued_at_ms", row.queued_at_unix_ms},
                {"works", row.works}});
}

// ---- tickets ----

void AddTicketPlace(std::string_view semaphore, const Ticket& ticket, Array* rows) {
  rows->AddRow({{"semaphore", semaphore}, {"queue_order", ticket.order}, {"ticket", ticket.id}});
}

void AddTicketChange(std::string_view semaphore, const Ticket& after, uint64_t revision,
                     const std::optional<std::string>& reasons, Array* rows) {
  rows->AddRow({{"semaphore", semaphore},
                {"queue_order", after.order},
                {"ticket", after.id},
                {"priority", after.priority},
                {"state", after.state},
                {"attempt", after.attempt},
                {"delay_ms", after.delay_ms},
                {"delays", after.delays},
                {"node", after.host.number},
                {"incarnation", after.host.incarnation},
                {"lease", IdOrNull(after.lease)},
                {"reasons", TextOrNull(reasons)},
                {"changed", revision}});
}

void AddTicket(std::string_view semaphore, const Ticket& row, uint64_t revision,
               const PayloadPtr& payload, CommitRows* commit) {
  const std::string reasons = WriteReasons(row.reasons);
  commit->tickets_new.AddRow({{"semaphore", semaphore},
                              {"queue_order", row.order},
                              {"ticket", row.id},
                              {"priority", row.priority},
                              {"state", row.state},
                              {"attempt", row.attempt},
                              {"delay_ms", row.delay_ms},
                              {"delays", row.delays},
                              {"node", row.host.number},
                              {"incarnation", row.host.incarnation},
                              {"lease", IdOrNull(row.lease)},
                              {"reasons", reasons},
                              {"changed", revision},
                              {"max_attempts", row.max_attempts},
                              {"back_off_initial_ms", row.back_off.initial_ms},
                              {"back_off_percent", row.back_off.multiplier_percent},
                              {"back_off_max_ms", row.back_off.max_ms},
                              {"content_type", row.content_type},
                              {"trace", row.trace},
                              {"owner", row.owner},
                              {"enqueued_at_ms", row.enqueued_at_unix_ms},
                              {"payload_bytes", payload == nullptr ? 0 : payload->size()},
                              {"payload_from", commit->payloads.size() + 1}});
  if (payload != nullptr) commit->payloads += *payload;
}

// ---- notices ----

void AddNotice(uint32_t node, std::string_view message, std::string_view details, Array* rows) {
  rows->AddRow({{"node", node}, {"message", message}, {"news", details}});
}

}  // namespace semaphored::postgres
