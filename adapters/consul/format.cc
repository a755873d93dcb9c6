#include "adapters/consul/format.h"

#include <array>
#include <concepts>
#include <exception>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/fields.h"

namespace semaphored::consul {

using Json = nlohmann::json;
using ledger::RequestRow;
using State = RequestRow::State;

template <>
inline constexpr std::array<const char*, 12> kWords<EndCause> = {"",
                                                                 "released",
                                                                 "expired",
                                                                 "revoked",
                                                                 "recalled",
                                                                 "destroyed",
                                                                 "disconnected",
                                                                 "unknown",
                                                                 "wait_expired",
                                                                 "cancelled",
                                                                 "exceeds_limit",
                                                                 "engine_lost"};
template <>
inline constexpr std::array<const char*, 6> kWords<State> = {nullptr, "waiting",    "granted",
                                                             "ended", "wait_ended", "done"};
template <>
inline constexpr std::array<const char*, 5> kWords<Recall::Reason> = {"", "shrunk", "longest_hold",
                                                                      "administrator", "destroyed"};
template <>
inline constexpr std::array<const char*, 5> kWords<TicketState> = {nullptr, "queued", "delayed",
                                                                   "assigned", "dead"};

// ---- the fields of each row ----

// A row that is written is const.
template <typename Given, typename Row>
concept RowOf = std::same_as<std::remove_const_t<Given>, Row>;

template <typename V, RowOf<Settings> Row>
void Describe(V& v, Row& settings) {
  v("backfill", settings.backfill);
  v("longest_hold_ms", settings.longest_hold_ms);
  v("recall_grace_ms", settings.recall_grace_ms);
  v("permits_per_holder", settings.permits_per_holder);
  v("waiters_max", settings.waiters_max);
}

// Its name is the key's, and its revision follows from the key's index.
template <typename V, RowOf<SemaphoreRow> Row>
void Describe(V& v, Row& row) {
  v("limit", row.limit);
  v("next_order", row.next_order);
  v("created_at_unix_ms", row.created_at_unix_ms);
  v.Optional("settings", row.settings);
  v.Optional("paused", row.paused);
  v.Optional("destroying", row.destroying);
  v.Optional("made_on_use", row.made_on_use);
  v.Optional("intentions", row.intentions);
  v.Optional("owner", row.owner);
}

template <typename V, typename Row>
void DescribeClaim(V& v, Row& claim) {
  v("id", claim.id);
  v("session", claim.session);
  v.Client("client", claim.request.client);
  v("sequence", claim.request.sequence);
  v("one_shot", claim.request.one_shot);
  v("fingerprint", claim.fingerprint);
  v("host", claim.host);
  v("epoch", claim.epoch);
  v("permits", claim.permits);
  v("priority", claim.priority);
  v("ttl_ms", claim.ttl_ms);
  v("order", claim.order);
  v("holder", claim.holder);
  v("owner", claim.owner);
}

// `ordinal`: 0 if the token is known, and otherwise what it follows from.
template <typename V, RowOf<Lease> Row, typename Number>
void DescribeLease(V& v, Row& lease, Number& ordinal) {
  DescribeClaim(v, lease);
  v("slots", lease.slots);
  v("token", lease.token);
  v("ordinal", ordinal);
  v("granted_at_unix_ms", lease.granted_at_unix_ms);
  v("recall", lease.recall.reason);
  v("recall_grace_ms", lease.recall.grace_ms);
  v("moved_from", lease.moved_from);
  v("ticket", lease.ticket);
  v("attempt", lease.attempt);
}

template <typename V, RowOf<Waiter> Row>
void Describe(V& v, Row& waiter) {
  DescribeClaim(v, waiter);
  v("queued_at_unix_ms", waiter.queued_at_unix_ms);
  v("works", waiter.works);
}

template <typename V, typename Number, typename Places>
void DescribePage(V& v, Number& number, Places& gone) {
  v("page", number);
  v("gone", gone);
}

// `lease`: empty for places that no lease has.
template <typename V, RowOf<Id> Lease, RowOf<BoundPlaces> Row>
void DescribeBound(V& v, Lease& lease, Row& places) {
  v("lease", lease);
  v("host", places.host);
  v("sessions", places.sessions);
}

template <typename V, RowOf<RequestRow> Row>
void Describe(V& v, Row& row) {
  v("sequence", row.request.sequence);
  v("state", row.state);
  v("fingerprint", row.fingerprint);
  v("claim", row.claim);
  v("semaphore", row.semaphore);
  v("cause", row.cause);
  v("number", row.number);
  v("remaining", row.remaining);
  v("changed", row.changed);
}

template <typename V, RowOf<BackOff> Row>
void Describe(V& v, Row& back_off) {
  v("initial_ms", back_off.initial_ms);
  v("multiplier_percent", back_off.multiplier_percent);
  v("max_ms", back_off.max_ms);
}

template <typename V, RowOf<TicketReason> Row>
void Describe(V& v, Row& reason) {
  v("attempt", reason.attempt);
  v("text", reason.text);
  v("at_unix_ms", reason.at_unix_ms);
}

template <typename V, RowOf<Ticket> Row>
void Describe(V& v, Row& ticket) {
  v("state", ticket.state);
  v("priority", ticket.priority);
  v("order", ticket.order);
  v("attempt", ticket.attempt);
  v("max_attempts", ticket.max_attempts);
  v("back_off", ticket.back_off);
  v("delay_ms", ticket.delay_ms);
  v("delays", ticket.delays);
  v("host", ticket.host);
  v("lease", ticket.lease);
  v("content_type", ticket.content_type);
  v("payload_bytes", ticket.payload_bytes);
  v("trace", ticket.trace);
  v("owner", ticket.owner);
  v("reasons", ticket.reasons);
  v("enqueued_at_unix_ms", ticket.enqueued_at_unix_ms);
}

template <typename V, RowOf<Session> Row>
void Describe(V& v, Row& session) {
  v.Client("client", session.client);
  v("host", session.host);
  v("epoch", session.epoch);
  v("ttl_ms", session.ttl_ms);
  v("release_on_disconnect", session.release_on_disconnect);
  v("closing", session.closing);
  v("holder", session.holder);
  v("owner", session.owner);
}

template <typename V, RowOf<NodeRow> Row>
void Describe(V& v, Row& node) {
  v("id", node.node_id);
  v("number", node.ref.number);
  v("incarnation", node.ref.incarnation);
  v("dead", node.dead);
  v("stopped", node.stopped);
  v("daemon", node.daemon);
}

namespace {

constexpr int kVersion = 1;

FieldWriter NewObject(const ClientName* client_name = nullptr) {
  FieldWriter object(FieldWriter::Shape::kObject, client_name);
  object("version", kVersion);
  return object;
}

template <typename Row>
std::string WriteOne(const Row& row, const ClientName* client_name = nullptr) {
  FieldWriter object = NewObject(client_name);
  Describe(object, row);
  return object.Take();
}

// `read(json)` throws where a thing is missing or of another kind. `what`: for people.
template <typename Read>
auto Understand(const std::string& value, absl::string_view what, const Read& read)
    -> absl::StatusOr<decltype(read(Json()))> {
  try {
    const Json json = Json::parse(value);
    // (A number with a fraction, or a truth value, would be converted.)
    if (const Json& version = json.at("version");
        !version.is_number_integer() || version != kVersion)
      throw std::invalid_argument("another version wrote it");
    return read(json);
  } catch (const std::exception& error) {
    return absl::DataLossError(
        absl::StrCat("consul: ", what, " is not understood: ", error.what()));
  }
}

// ---- a document, and its parts ----

TableWriter TableOf(const auto& waiters, const ClientName& client_name) {
  TableWriter table(&client_name);
  for (const WaiterPtr& waiter : waiters)
    table.Add([&](auto& v) { Describe(v, std::as_const(*waiter)); });
  return table;
}

void ReadWaiters(const Json& json, const ClientNumber& client_number, const auto& take) {
  ReadTable(json, "waiters", &client_number, [&](FieldReader& v) {
    auto waiter = std::make_shared<Waiter>();
    Describe(v, *waiter);
    take(std::move(waiter));
  });
}

TableWriter LeasesOf(const Document& document, const ClientName& client_name,
                     const absl::flat_hash_map<Id, uint64_t>& ordinals) {
  TableWriter table(&client_name);
  for (const auto& [id, lease] : document.leases) {
    const auto granted = ordinals.find(id);
    const uint64_t ordinal = granted == ordinals.end() ? 0 : granted->second;
    table.Add([&, &lease = lease](auto& v) { DescribeLease(v, std::as_const(*lease), ordinal); });
  }
  return table;
}

LeasePtr ReadLease(FieldReader& v, uint64_t modify_index) {
  auto lease = std::make_shared<Lease>();
  uint64_t ordinal = 0;
  DescribeLease(v, *lease, ordinal);
  if (ordinal != 0) lease->token = TokenOf(modify_index, ordinal);
  if (lease->slots.size() != lease->permits) throw std::out_of_range("the slots of a lease");
  return lease;
}

TableWriter BoundOf(const Document& document) {
  TableWriter table;
  const auto add = [&](const Id& lease, const BoundPlaces& places) {
    table.Add([&](auto& v) { DescribeBound(v, lease, places); });
  };
  for (const auto& [lease, places] : document.bound) add(lease, places);
  for (const BoundPlaces& places : document.spares) add(Id(), places);
  return table;
}

void ReadBound(const Json& json, Document* document) {
  ReadTable(json, "bound", nullptr, [&](FieldReader& v) {
    Id lease;
    BoundPlaces places;
    DescribeBound(v, lease, places);
    if (lease.empty()) {
      document->spares.push_back(std::move(places));
    } else {
      document->bound.emplace(lease, std::move(places));
    }
  });
}

TableWriter PagesOf(const Document& document) {
  TableWriter table;
  for (const auto& [number, page] : document.pages)
    table.Add([&number = number, &page = page](auto& v) { DescribePage(v, number, page.gone); });
  return table;
}

void ReadPages(const Json& json, Document* document) {
  ReadTable(json, "pages", nullptr, [&](FieldReader& v) {
    uint64_t number = 0;
    Page page;
    DescribePage(v, number, page.gone);
    document->pages.emplace(number, std::move(page));
  });
}

// What is neither a row nor a table.
template <typename V, RowOf<Document> Row>
void Describe(V& v, Row& document) {
  Describe(v, document.row);
  v("changes", document.changes);
  v.Optional("places", document.places);
  v.Optional("tickets", document.ticket_count);
  v.Optional("delays", document.delays);
}

}  // namespace

std::string WriteDocument(const Document& document, const ClientName& client_name,
                          const absl::flat_hash_map<Id, uint64_t>& ordinals) {
  FieldWriter object = NewObject(&client_name);
  Describe(object, document);
  std::vector<WaiterPtr> waiters;
  waiters.reserve(document.waiters.size());
  for (const auto& [id, waiter] : document.waiters) waiters.push_back(waiter);
  object.Table("bound", BoundOf(document));
  object.Table("leases", LeasesOf(document, client_name, ordinals));
  object.Table("waiters", TableOf(waiters, client_name));
  object.Table("pages", PagesOf(document));
  return object.Take();
}

absl::StatusOr<Document> ReadDocument(const std::string& name, const std::string& value,
                                      uint64_t create_index, uint64_t modify_index,
                                      const ClientNumber& client_number) {
  return Understand(value, absl::StrCat("what is kept of the semaphore ", name),
                    [&](const Json& json) {
                      Document document;
                      FieldReader object(json, &client_number);
                      Describe(object, document);
                      document.row.name = name;
                      document.row.revision = create_index + document.changes;
                      ReadBound(json, &document);
                      ReadTable(json, "leases", &client_number, [&](FieldReader& v) {
                        LeasePtr lease = ReadLease(v, modify_index);
                        lease->longest_hold_ms = document.row.settings.longest_hold_ms;
                        document.leases.emplace(lease->id, std::move(lease));
                      });
                      ReadWaiters(json, client_number, [&](WaiterPtr waiter) {
                        document.waiters.emplace(waiter->id, std::move(waiter));
                      });
                      ReadPages(json, &document);
                      return document;
                    });
}

std::string WritePage(absl::Span<const WaiterPtr> waiters, const ClientName& client_name) {
  FieldWriter object = NewObject();
  object.Table("waiters", TableOf(waiters, client_name));
  return object.Take();
}

absl::StatusOr<std::vector<WaiterPtr>> ReadPage(const std::string& name, const std::string& value,
                                                const ClientNumber& client_number) {
  return Understand(value, absl::StrCat("a page of the waiters of ", name), [&](const Json& json) {
    std::vector<WaiterPtr> waiters;
    ReadWaiters(json, client_number,
                [&](WaiterPtr waiter) { waiters.push_back(std::move(waiter)); });
    if (waiters.empty()) throw std::out_of_range("it has none");
    return waiters;
  });
}

// ---- requests ----

std::string WriteRequestBlock(const RequestBlock& block) {
  FieldWriter object = NewObject();
  object.Optional("closed", block.closed);
  TableWriter table;
  for (const auto& [sequence, row] : block.rows)
    table.Add([&row = row](auto& v) { Describe(v, row); });
  object.Table("requests", table);
  return object.Take();
}

RequestBlock ReadRequestBlock(const std::string& value) {
  absl::StatusOr<RequestBlock> read = Understand(value, "a block", [&](const Json& json) {
    RequestBlock block;
    FieldReader(json).Optional("closed", block.closed);
    ReadTable(json, "requests", nullptr, [&](FieldReader& v) {
      RequestRow row;
      Describe(v, row);
      const uint64_t sequence = row.request.sequence;
      block.rows.emplace(sequence, std::move(row));
    });
    return block;
  });
  if (read.ok()) return *std::move(read);
  RequestBlock garbled;
  garbled.closed = garbled.garbled = true;
  return garbled;
}

// ---- tickets, sessions, daemons ----

std::string WriteTicket(const Ticket& ticket) { return WriteOne(ticket); }

absl::StatusOr<TicketPtr> ReadTicket(const Id& id, const std::string& value) {
  return Understand(value, absl::StrCat("the ticket ", id.Hex()), [&](const Json& json) {
    auto ticket = std::make_shared<Ticket>();
    FieldReader object(json);
    Describe(object, *ticket);
    ticket->id = id;
    return TicketPtr(std::move(ticket));
  });
}

std::string WriteSession(const Session& session, const ClientName& client_name) {
  return WriteOne(session, &client_name);
}

absl::StatusOr<Session> ReadSession(const Id& id, const std::string& value,
                                    const ClientNumber& client_number) {
  return Understand(value, absl::StrCat("the session ", id.Hex()), [&](const Json& json) {
    Session session;
    FieldReader object(json, &client_number);
    Describe(object, session);
    session.id = id;
    return session;
  });
}

std::string WriteNode(const NodeRow& node) { return WriteOne(node); }

absl::StatusOr<NodeRow> ReadNode(const std::string& key, const std::string& value) {
  return Understand(value, absl::StrCat("the node ", key), [&](const Json& json) {
    NodeRow node;
    FieldReader object(json);
    Describe(object, node);
    return node;
  });
}

}  // namespace semaphored::consul
