#include "adapters/dynamodb/items.h"

#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "adapters/common/client_names.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

// FNV-1a: what stands in the table is found by it, so it is the same for ever.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char each : text) {
    hash ^= static_cast<unsigned char>(each);
    hash *= 1099511628211u;
  }
  return hash;
}

uint64_t DigestOfClaim(uint64_t kind, const Claim& claim) {
  uint64_t hash = Mixed(kind, claim.id.high);
  for (const uint64_t part :
       {claim.id.low, claim.session.high, claim.session.low, uint64_t{claim.host.number},
        uint64_t{claim.host.incarnation}, uint64_t{claim.epoch}, uint64_t{claim.permits},
        uint64_t{static_cast<uint32_t>(claim.priority)}, claim.order,
        static_cast<uint64_t>(claim.ttl_ms)})
    hash = Mixed(hash, part);
  return hash;
}

std::string HexOf(uint32_t number) { return absl::StrFormat("%08x", number); }

// Higher priorities first.
std::string SortablePriority(int32_t priority) {
  return HexOf(static_cast<uint32_t>(int64_t{std::numeric_limits<int32_t>::max()} - priority));
}

// Of a claim or a ticket that stands in the queue.
Key PlaceKey(const std::string& semaphore, int32_t priority, uint64_t order) {
  return {PartitionOf(semaphore),
          absl::StrCat(kQueue, SortablePriority(priority), "#", Sortable(order))};
}

// "1-4,7": a lease for many permits mostly has slots in a row.
std::string WriteSlots(const Slots& slots) {
  return absl::StrJoin(slots.runs(), ",", [](std::string* text, const Slots::Run& run) {
    absl::StrAppend(text, run.first);
    if (run.last != run.first) absl::StrAppend(text, "-", run.last);
  });
}

uint32_t ReadSlot(absl::string_view text) {
  uint32_t slot = 0;
  if (!absl::SimpleAtoi(text, &slot) || slot == 0) throw std::invalid_argument("a slot");
  return slot;
}

Slots ReadSlots(const std::string& text, uint32_t permits) {
  Slots slots;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    const uint32_t first = ReadSlot(ends.first);
    const uint32_t last = ends.second.empty() ? first : ReadSlot(ends.second);
    const bool rising = first <= last && (slots.empty() || slots.back() < first);
    if (!rising) throw std::invalid_argument("slots");
    slots.Append({first, last});
  }
  if (slots.size() != permits) throw std::invalid_argument("slots");
  return slots;
}

void WriteClaim(const Claim& claim, const NameOfClient& name_of_client, json* item) {
  SetText(item, "claim", claim.id.Hex());
  if (!claim.detached()) SetText(item, "session", claim.session.Hex());
  SetText(item, "client", ledger::WrittenClient(claim.request, name_of_client));
  SetNumber(item, "sequence", claim.request.sequence);
  if (!claim.fingerprint.empty()) SetText(item, "fingerprint", claim.fingerprint.Hex());
  SetNumber(item, "node", claim.host.number);
  SetNumber(item, "incarnation", claim.host.incarnation);
  SetNumber(item, "epoch", claim.epoch);
  SetNumber(item, "permits", claim.permits);
  SetSigned(item, "priority", claim.priority);
  SetSigned(item, "ttl_ms", claim.ttl_ms);
  SetNumber(item, "queue_order", claim.order);
  SetText(item, "holder", claim.holder);
  SetText(item, "owner", claim.owner);
}

void ReadClaim(const json& item, const NumberOfClient& number_of_client, Claim* claim) {
  claim->id = IdIn(item, "claim");
  claim->session = item.contains("session") ? IdIn(item, "session") : claim->id;
  claim->request =
      ledger::WrittenRequest(TextIn(item, "client"), NumberIn(item, "sequence"), number_of_client);
  if (item.contains("fingerprint")) claim->fingerprint = IdIn(item, "fingerprint");
  claim->host = {static_cast<uint32_t>(NumberIn(item, "node")),
                 static_cast<uint32_t>(NumberIn(item, "incarnation"))};
  claim->epoch = static_cast<uint32_t>(NumberIn(item, "epoch"));
  claim->permits = static_cast<uint32_t>(NumberIn(item, "permits"));
  claim->priority = static_cast<int32_t>(SignedIn(item, "priority"));
  claim->ttl_ms = SignedIn(item, "ttl_ms");
  claim->order = NumberIn(item, "queue_order");
  claim->holder = TextIn(item, "holder");
  claim->owner = TextIn(item, "owner");
}

const json* Find(const json& item, const char* name, const char* type) {
  const auto attribute = item.find(name);
  if (attribute == item.end()) return nullptr;
  return &attribute->at(type);
}

}  // namespace

// ---- keys ----

std::string PartitionOf(const std::string& semaphore) {
  return absl::StrCat("SEMAPHORE#", semaphore);
}
Key HeadKey(const std::string& semaphore) { return {PartitionOf(semaphore), kHead}; }
Key LeaseKey(const std::string& semaphore, const Lease& lease) {
  // One that was granted at once has the order of who comes next.
  return {PartitionOf(semaphore),
          absl::StrCat(kLeases, Sortable(lease.order), "#", lease.id.Hex())};
}
Key WaiterKey(const std::string& semaphore, const Waiter& waiter) {
  if (waiter.works) return {PartitionOf(semaphore), absl::StrCat(kOffers, Sortable(waiter.order))};
  return PlaceKey(semaphore, waiter.priority, waiter.order);
}
Key TicketKey(const std::string& semaphore, const Ticket& ticket) {
  return PlaceKey(semaphore, ticket.priority, ticket.order);
}
Key PayloadKey(const std::string& semaphore, const Id& ticket) {
  return {absl::StrCat("PAYLOAD#", ticket.Hex()), semaphore};
}
Key NameKey(const std::string& semaphore) { return {kNames, semaphore}; }
std::string HistoryPartition(const std::string& semaphore) {
  return absl::StrCat("HISTORY#", semaphore);
}
Key HistoryKey(const std::string& semaphore, uint64_t number) {
  return {HistoryPartition(semaphore), Sortable(number)};
}
Key PastKey(const std::string& semaphore) { return {kPast, semaphore}; }
std::string SessionPartition(const Id& session) { return absl::StrCat("SESSION#", session.Hex()); }
Key SessionKey(const Id& session) { return {SessionPartition(session), kRow}; }
Key SessionAtKey(const Id& session, const std::string& semaphore) {
  return {SessionPartition(session), absl::StrCat(kAt, semaphore)};
}
std::string HostPartition(uint32_t node) { return absl::StrCat("HOST#", node); }
Key HostedSessionKey(uint32_t node, const Id& session) {
  return {HostPartition(node), absl::StrCat(kHostedSession, session.Hex())};
}
Key HostAtKey(uint32_t node, const std::string& semaphore) {
  return {HostPartition(node), absl::StrCat(kAt, semaphore)};
}
std::string RequestPartition(const std::string& client_id) {
  return absl::StrCat("REQUEST#", client_id);
}
Key RequestRowKey(const std::string& client_id, uint64_t sequence) {
  return {RequestPartition(client_id), Sortable(sequence)};
}
Key LaneKey(NodeRef node, uint32_t lane) {
  return {absl::StrCat("LANE#", node.number),
          absl::StrCat(HexOf(node.incarnation), "#", HexOf(lane))};
}
Key NodeKey(const std::string& node_id) { return {kNodes, node_id}; }
std::string NoticePartition(uint32_t node) { return absl::StrCat("MAIL#", node); }
Key NoticeKey(uint32_t node, const std::string& semaphore) {
  return {NoticePartition(node), semaphore};
}
Key StateKey() { return {"STORE", "STATE"}; }
Key GenerationKey() { return {"STORE", "GENERATION"}; }
int FloorOf(const std::string& semaphore) {
  return static_cast<int>(Mixed(0, HashOf(semaphore)) % kFloorCount);
}
Key FloorKey(int floor) { return {kFloors, absl::StrFormat("%02x", floor)}; }

std::string Sortable(uint64_t number) { return absl::StrFormat("%016x", number); }
uint64_t FromSortable(std::string_view digits) {
  uint64_t number = 0;
  if (!absl::SimpleHexAtoi(absl::string_view(digits.data(), digits.size()), &number))
    throw std::invalid_argument("a number in a key");
  return number;
}

// ---- attributes ----

json Text(std::string_view text) { return {{"S", text}}; }
json Number(uint64_t number) { return {{"N", std::to_string(number)}}; }
json Number(int64_t number) { return {{"N", std::to_string(number)}}; }
json Binary(std::string_view bytes) {
  return {{"B", absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()))}};
}

void SetText(json* item, const char* name, std::string_view text) {
  if (!text.empty()) (*item)[name] = Text(text);
}
void SetNumber(json* item, const char* name, uint64_t number) {
  if (number != 0) (*item)[name] = Number(number);
}
void SetSigned(json* item, const char* name, int64_t number) {
  if (number != 0) (*item)[name] = Number(number);
}
void SetFlag(json* item, const char* name, bool flag) {
  if (flag) (*item)[name] = {{"BOOL", true}};
}

std::string TextIn(const json& item, const char* name) {
  const json* value = Find(item, name, "S");
  return value == nullptr ? "" : value->get<std::string>();
}
uint64_t NumberIn(const json& item, const char* name) {
  const json* value = Find(item, name, "N");
  uint64_t number = 0;
  if (value != nullptr && !absl::SimpleAtoi(value->get<std::string>(), &number))
    throw std::invalid_argument(name);
  return number;
}
int64_t SignedIn(const json& item, const char* name) {
  const json* value = Find(item, name, "N");
  int64_t number = 0;
  if (value != nullptr && !absl::SimpleAtoi(value->get<std::string>(), &number))
    throw std::invalid_argument(name);
  return number;
}
bool FlagIn(const json& item, const char* name) {
  const json* value = Find(item, name, "BOOL");
  return value != nullptr && value->get<bool>();
}

Id IdIn(const json& item, const char* name) {
  const std::optional<Id> id = Id::FromHex(TextIn(item, name));
  if (!id) throw std::invalid_argument("an id");
  return *id;
}

json ItemWith(const Key& key) {
  return {{kPartitionKey, Text(key.partition)}, {kSortKey, Text(key.sort)}};
}
Key KeyOf(const json& item) { return {TextIn(item, kPartitionKey), TextIn(item, kSortKey)}; }

// ---- rows ----

json WriteHead(const Head& head) {
  const SemaphoreRow& row = head.row;
  json item = ItemWith(HeadKey(row.name));
  item["revision"] = Number(row.revision);
  SetNumber(&item, "permits", row.limit);
  SetFlag(&item, "backfill", row.settings.backfill);
  SetSigned(&item, "longest_hold_ms", row.settings.longest_hold_ms);
  SetSigned(&item, "recall_grace_ms", row.settings.recall_grace_ms);
  SetNumber(&item, "permits_per_holder", row.settings.permits_per_holder);
  SetNumber(&item, "waiters_max", row.settings.waiters_max);
  SetFlag(&item, "paused", row.paused);
  SetFlag(&item, "destroying", row.destroying);
  SetFlag(&item, "made_on_use", row.made_on_use);
  SetText(&item, "intentions", row.intentions);
  SetText(&item, "owner", row.owner);
  SetNumber(&item, "next_order", row.next_order);
  SetSigned(&item, "created_at_unix_ms", row.created_at_unix_ms);
  SetNumber(&item, "digest", head.digest);
  SetNumber(&item, "history_number", head.history_number);
  SetNumber(&item, "held", head.counts.held);
  SetNumber(&item, "waiting", head.counts.waiting);
  SetNumber(&item, "offers", head.counts.offers);
  SetNumber(&item, "tickets_queued", head.counts.tickets.queued);
  SetNumber(&item, "tickets_delayed", head.counts.tickets.delayed);
  SetNumber(&item, "tickets_assigned", head.counts.tickets.assigned);
  SetNumber(&item, "tickets_dead", head.counts.tickets.dead);
  return item;
}

Head ReadHead(const std::string& semaphore, const json& item) {
  Head head;
  SemaphoreRow& row = head.row;
  row.name = semaphore;
  row.revision = NumberIn(item, "revision");
  if (row.revision == 0) throw std::invalid_argument("no revision");
  row.limit = static_cast<uint32_t>(NumberIn(item, "permits"));
  row.settings.backfill = FlagIn(item, "backfill");
  row.settings.longest_hold_ms = SignedIn(item, "longest_hold_ms");
  row.settings.recall_grace_ms = SignedIn(item, "recall_grace_ms");
  row.settings.permits_per_holder = static_cast<uint32_t>(NumberIn(item, "permits_per_holder"));
  row.settings.waiters_max = static_cast<uint32_t>(NumberIn(item, "waiters_max"));
  row.paused = FlagIn(item, "paused");
  row.destroying = FlagIn(item, "destroying");
  row.made_on_use = FlagIn(item, "made_on_use");
  row.intentions = TextIn(item, "intentions");
  row.owner = TextIn(item, "owner");
  row.next_order = NumberIn(item, "next_order");
  row.created_at_unix_ms = SignedIn(item, "created_at_unix_ms");
  head.digest = NumberIn(item, "digest");
  head.history_number = NumberIn(item, "history_number");
  head.counts.held = static_cast<uint32_t>(NumberIn(item, "held"));
  head.counts.waiting = NumberIn(item, "waiting");
  head.counts.offers = NumberIn(item, "offers");
  head.counts.tickets = {NumberIn(item, "tickets_queued"), NumberIn(item, "tickets_delayed"),
                         NumberIn(item, "tickets_assigned"), NumberIn(item, "tickets_dead")};
  return head;
}

json WriteLease(const Key& key, const Lease& lease, uint64_t token,
                const NameOfClient& name_of_client) {
  json item = ItemWith(key);
  WriteClaim(lease, name_of_client, &item);
  SetText(&item, "slots", WriteSlots(lease.slots));
  SetNumber(&item, "fencing_token", token);
  SetSigned(&item, "granted_at_unix_ms", lease.granted_at_unix_ms);
  SetNumber(&item, "recall", static_cast<uint64_t>(lease.recall.reason));
  SetSigned(&item, "recall_grace_ms", lease.recall.grace_ms);
  SetNumber(&item, "moved_from", lease.moved_from);
  if (!lease.ticket.empty()) SetText(&item, "ticket", lease.ticket.Hex());
  SetNumber(&item, "attempt", lease.attempt);
  return item;
}

LeasePtr ReadLease(const json& item, const NumberOfClient& number_of_client) {
  auto lease = std::make_shared<Lease>();
  ReadClaim(item, number_of_client, lease.get());
  lease->slots = ReadSlots(TextIn(item, "slots"), lease->permits);
  lease->token = NumberIn(item, "fencing_token");
  lease->granted_at_unix_ms = SignedIn(item, "granted_at_unix_ms");
  lease->recall = {static_cast<Recall::Reason>(NumberIn(item, "recall")),
                   SignedIn(item, "recall_grace_ms")};
  lease->moved_from = static_cast<uint32_t>(NumberIn(item, "moved_from"));
  if (item.contains("ticket")) lease->ticket = IdIn(item, "ticket");
  lease->attempt = static_cast<uint32_t>(NumberIn(item, "attempt"));
  return lease;
}

json WriteWaiter(const Key& key, const Waiter& waiter, const NameOfClient& name_of_client) {
  json item = ItemWith(key);
  WriteClaim(waiter, name_of_client, &item);
  SetSigned(&item, "queued_at_unix_ms", waiter.queued_at_unix_ms);
  SetFlag(&item, "works", waiter.works);
  return item;
}

WaiterPtr ReadWaiter(const json& item, const NumberOfClient& number_of_client) {
  auto waiter = std::make_shared<Waiter>();
  ReadClaim(item, number_of_client, waiter.get());
  waiter->queued_at_unix_ms = SignedIn(item, "queued_at_unix_ms");
  waiter->works = FlagIn(item, "works");
  return waiter;
}

json WriteSession(const Session& session, const NameOfClient& name_of_client) {
  json item = ItemWith(SessionKey(session.id));
  SetText(&item, "client", name_of_client(session.client));
  SetNumber(&item, "node", session.host.number);
  SetNumber(&item, "incarnation", session.host.incarnation);
  SetNumber(&item, "epoch", session.epoch);
  SetSigned(&item, "ttl_ms", session.ttl_ms);
  SetFlag(&item, "release_on_disconnect", session.release_on_disconnect);
  SetFlag(&item, "closing", session.closing);
  SetText(&item, "holder", session.holder);
  SetText(&item, "owner", session.owner);
  return item;
}

ledger::SessionPtr ReadSession(const json& item, const NumberOfClient& number_of_client) {
  auto session = std::make_shared<Session>();
  const std::string partition = TextIn(item, kPartitionKey);
  const std::optional<Id> id = Id::FromHex(std::string_view(partition).substr(
      std::min<size_t>(partition.size(), sizeof "SESSION#" - 1)));
  if (!id) throw std::invalid_argument("a session's id");
  session->id = *id;
  session->client = number_of_client(TextIn(item, "client"));
  session->host = {static_cast<uint32_t>(NumberIn(item, "node")),
                   static_cast<uint32_t>(NumberIn(item, "incarnation"))};
  session->epoch = static_cast<uint32_t>(NumberIn(item, "epoch"));
  session->ttl_ms = SignedIn(item, "ttl_ms");
  session->release_on_disconnect = FlagIn(item, "release_on_disconnect");
  session->closing = FlagIn(item, "closing");
  session->holder = TextIn(item, "holder");
  session->owner = TextIn(item, "owner");
  return session;
}

// Each bit of the result depends on each of `number` (the finalizer of SplitMix64).
uint64_t Mixed(uint64_t hash, uint64_t number) {
  uint64_t mixed = hash + 0x9E3779B97F4A7C15u + number;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

uint64_t DigestOf(const Lease& lease, uint64_t token) {
  uint64_t hash = DigestOfClaim(1, lease);
  for (const Slots::Run& run : lease.slots.runs()) hash = Mixed(Mixed(hash, run.first), run.last);
  hash = Mixed(hash, token);
  hash = Mixed(hash, static_cast<uint64_t>(lease.recall.reason));
  hash = Mixed(hash, static_cast<uint64_t>(lease.recall.grace_ms));
  hash = Mixed(hash, lease.moved_from);
  if (lease.ticket.empty()) return hash;
  for (const uint64_t part : {lease.ticket.high, lease.ticket.low, uint64_t{lease.attempt}})
    hash = Mixed(hash, part);
  return hash;
}

uint64_t DigestOf(const Waiter& waiter) { return DigestOfClaim(waiter.works ? 3 : 2, waiter); }

}  // namespace semaphored::dynamodb
