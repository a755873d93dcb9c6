// How rows stand in Consul: one format each, JSON in UTF-8 that `consul kv get` shows as it is. An
// id is 32 hexadecimal digits, as everywhere; empty: none. A daemon is [number, incarnation]. Each
// value has a version: what another one wrote is not understood.
//
// Pure functions. Each Read fails with DATA_LOSS, and what is not understood, unless it says
// otherwise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/consul/document.h"
#include "adapters/types.h"

namespace semaphored::consul {

// The client of a number, and back.
using ClientName = std::function<const std::string&(uint32_t)>;
using ClientNumber = std::function<uint32_t(const std::string&)>;
// For readers to whom clients are all the same.
inline uint32_t NoNumber(const std::string&) { return 0; }

// `ordinals`: the places of the leases that are granted by the commit that writes this. Of those the
// token is not known yet: it follows from the key's ModifyIndex until the next commit writes it.
std::string WriteDocument(const Document& document, const ClientName& client_name,
                          const absl::flat_hash_map<Id, uint64_t>& ordinals);
// The waiters on pages are not in it. The indexes are those of the key.
absl::StatusOr<Document> ReadDocument(const std::string& name, const std::string& value,
                                      uint64_t create_index, uint64_t modify_index,
                                      const ClientNumber& client_number);

std::string WritePage(absl::Span<const WaiterPtr> waiters, const ClientName& client_name);
absl::StatusOr<std::vector<WaiterPtr>> ReadPage(const std::string& name, const std::string& value,
                                                const ClientNumber& client_number);

// REQUIRES: it is not garbled.
std::string WriteRequestBlock(const RequestBlock& block);
// One that is not understood is garbled.
RequestBlock ReadRequestBlock(const std::string& value);

// `id`: its key says which it is. The payload is another key's value, as it was given.
std::string WriteTicket(const Ticket& ticket);
absl::StatusOr<TicketPtr> ReadTicket(const Id& id, const std::string& value);

std::string WriteSession(const Session& session, const ClientName& client_name);
absl::StatusOr<Session> ReadSession(const Id& id, const std::string& value,
                                    const ClientNumber& client_number);

std::string WriteNode(const NodeRow& node);
absl::StatusOr<NodeRow> ReadNode(const std::string& key, const std::string& value);

}  // namespace semaphored::consul
