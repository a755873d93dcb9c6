// What stands in the table, and how: the keys of all items, and the rows of the ledger as items.
// docs/internals.md (0010) shows them in one place.
//
// Attributes that are 0, false or empty are left out, and read as that. Functions that read throw a
// std::exception at an item that is not understood; their callers make DATA_LOSS of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "adapters/ledger/state/state.h"
#include "adapters/types.h"
#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {

using nlohmann::json;

struct Key {
  std::string partition;
  std::string sort;
  friend bool operator==(const Key&, const Key&) = default;
  friend auto operator<=>(const Key&, const Key&) = default;  // NOLINT(modernize-use-nullptr)
};

// ---- keys ----

inline constexpr char kNames[] = "SEMAPHORE";  // The partition with the index of names,
inline constexpr char kPast[] = "HISTORY";  // … with names of the destroyed that have a history,
inline constexpr char kNodes[] = "NODE";    // … with the nodes, by their ids,
inline constexpr char kFloors[] = "FLOOR";  // … and with the floors of revisions.
inline constexpr char kHead[] = "HEAD";
inline constexpr char kLeases[] = "LEASE#";  // What sort keys of leases begin with.
inline constexpr char kQueue[] = "QUEUE#";   // … of waiters and tickets,
inline constexpr char kOffers[] = "OFFER#";  // … and of those who offer to carry out tickets.
inline constexpr char kRow[] = "ROW";
inline constexpr char kAt[] = "AT#";  // Where there may be claims: then the semaphore's name.
inline constexpr char kHostedSession[] = "SESSION#";
inline constexpr int kFloorCount = 256;
// Of all that is in the table (common/store_version.h): an attribute of StateKey, which the first daemon writes.
inline constexpr uint64_t kStoreVersion = 1;
inline constexpr char kVersion[] = "version";

std::string PartitionOf(const std::string& semaphore);
Key HeadKey(const std::string& semaphore);
Key LeaseKey(const std::string& semaphore, const Lease& lease);
Key WaiterKey(const std::string& semaphore, const Waiter& waiter);
Key TicketKey(const std::string& semaphore, const Ticket& ticket);
// A partition of its own for each: they are large, and mostly written and read once.
Key PayloadKey(const std::string& semaphore, const Id& ticket);
Key NameKey(const std::string& semaphore);
std::string HistoryPartition(const std::string& semaphore);
Key HistoryKey(const std::string& semaphore, uint64_t number);
Key PastKey(const std::string& semaphore);
std::string SessionPartition(const Id& session);
Key SessionKey(const Id& session);
Key SessionAtKey(const Id& session, const std::string& semaphore);
std::string HostPartition(uint32_t node);
Key HostedSessionKey(uint32_t node, const Id& session);
Key HostAtKey(uint32_t node, const std::string& semaphore);
// The rows of a client's requests, by their sequence numbers.
std::string RequestPartition(const std::string& client_id);
Key RequestRowKey(const std::string& client_id, uint64_t sequence);
Key LaneKey(NodeRef node, uint32_t lane);
Key NodeKey(const std::string& node_id);
std::string NoticePartition(uint32_t node);
Key NoticeKey(uint32_t node, const std::string& semaphore);
Key StateKey();
Key GenerationKey();
// Which floor is that of the name.
int FloorOf(const std::string& semaphore);
Key FloorKey(int floor);

// A number so that numbers sort as text: 16 hexadecimal digits.
std::string Sortable(uint64_t number);
uint64_t FromSortable(std::string_view digits);

// ---- attributes ----

json Text(std::string_view text);
json Number(uint64_t number);
json Number(int64_t number);
json Binary(std::string_view bytes);
// Not if it is 0, or empty.
void SetText(json* item, const char* name, std::string_view text);
void SetNumber(json* item, const char* name, uint64_t number);
void SetSigned(json* item, const char* name, int64_t number);
void SetFlag(json* item, const char* name, bool flag);
std::string TextIn(const json& item, const char* name);
uint64_t NumberIn(const json& item, const char* name);
int64_t SignedIn(const json& item, const char* name);
bool FlagIn(const json& item, const char* name);
Id IdIn(const json& item, const char* name);
// An item with nothing but its key.
json ItemWith(const Key& key);
Key KeyOf(const json& item);

// ---- rows ----

// Clients are written by their names.
using NameOfClient = std::function<const std::string&(uint32_t)>;
using NumberOfClient = std::function<uint32_t(const std::string&)>;

struct Head {
  SemaphoreRow row;
  uint64_t digest = 0;          // DigestOf all leases, waiters and tickets, exclusively ored.
  uint64_t history_number = 0;  // The last one given to a row of its history.
  ledger::SemaphoreCounts counts;
};

json WriteHead(const Head& head);
Head ReadHead(const std::string& semaphore, const json& item);
json WriteLease(const Key& key, const Lease& lease, uint64_t token,
                const NameOfClient& name_of_client);
// `longest_hold_ms` is left to the caller, which knows the semaphore.
LeasePtr ReadLease(const json& item, const NumberOfClient& number_of_client);
json WriteWaiter(const Key& key, const Waiter& waiter, const NameOfClient& name_of_client);
WaiterPtr ReadWaiter(const json& item, const NumberOfClient& number_of_client);
// Tickets stand among the waiters; this distinguishes them. items_tickets.cc.
bool IsTicket(const json& item);
json WriteTicket(const Key& key, const Ticket& ticket);
TicketPtr ReadTicket(const json& item);
json WritePayload(const Key& key, std::string_view payload);
PayloadPtr ReadPayload(const json& item);
json WriteSession(const Session& session, const NameOfClient& name_of_client);
ledger::SessionPtr ReadSession(const json& item, const NumberOfClient& number_of_client);

// What the digest in the head is made of: a number for each lease, waiter and ticket, over all that a
// commit may change of it. It must never be changed: heads that stand have it.
uint64_t DigestOf(const Lease& lease, uint64_t token);
uint64_t DigestOf(const Waiter& waiter);
uint64_t DigestOf(const Ticket& ticket);
// A hash of all numbers that were mixed into it, in their order.
uint64_t Mixed(uint64_t hash, uint64_t number);

// A token: the store's epoch, the revision of the commit that granted, and the place of the grant
// among those of the commit.
inline constexpr int kTokenOrdinalBits = 14;
inline constexpr int kTokenEpochShift = 56;
inline constexpr uint64_t kTokenEpochMax = 127;  // So that a token is a number with a sign, too.
inline uint64_t TokenOf(uint64_t epoch, uint64_t revision, uint64_t ordinal) {
  return (epoch << kTokenEpochShift) | (revision << kTokenOrdinalBits) | ordinal;
}

}  // namespace semaphored::dynamodb
