#include "adapters/ledger/clients.h"

#include <utility>

namespace semaphored::ledger {
namespace {
// From here on the store gives the numbers (see NewClient).
constexpr uint32_t kStoreNumbers = 1u << 31;
}  // namespace

const Client* Clients::Find(std::string_view client_id) const {
  const auto found = by_name_.find(client_id);
  return found == by_name_.end() ? nullptr : &*found->second;
}

Client* Clients::Find(std::string_view client_id) {
  const auto found = by_name_.find(client_id);
  return found == by_name_.end() ? nullptr : &*found->second;
}

Client* Clients::Find(uint32_t number) {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : &*found->second;
}

Client* Clients::Insert(Client client) {
  const Position at = clients_.insert(clients_.end(), std::move(client));
  // One of this name that the store never knew keeps its number only.
  by_name_.erase(at->client_id);
  by_name_.emplace(at->client_id, at);
  by_number_[at->number] = at;
  return &*at;
}

Client* Clients::Add(std::string client_id, SteadyTime now) {
  while (by_number_.contains(next_number_)) next_number_ = next_number_ % (kStoreNumbers - 1) + 1;
  Client client;
  client.number = next_number_;
  next_number_ = next_number_ % (kStoreNumbers - 1) + 1;
  client.client_id = std::move(client_id);
  client.used_at = now;
  return Insert(std::move(client));
}

Client* Clients::AddStored(uint32_t number, std::string client_id, uint64_t sequence_high,
                           SteadyTime now) {
  Client* client = Find(number);
  if (client == nullptr) {
    Client added;
    added.number = number;
    added.client_id = std::move(client_id);
    added.used_at = now;
    client = Insert(std::move(added));
    if (number < kStoreNumbers && number >= next_number_)
      next_number_ = number % (kStoreNumbers - 1) + 1;
  }
  client->stored = true;
  client->sequence_high = std::max(client->sequence_high, sequence_high);
  return client;
}

void Clients::Use(Client* client, SteadyTime now) {
  client->used_at = now;
  clients_.splice(clients_.end(), clients_, by_number_.find(client->number)->second);
}

void Clients::SetOverdue(uint32_t number) {
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return;
  found->second->used_at = SteadyTime::min();
  clients_.splice(clients_.begin(), clients_, found->second);
}

void Clients::Forget(uint32_t number) {
  const auto found = by_number_.find(number);
  if (found == by_number_.end()) return;
  const Position at = found->second;
  const auto named = by_name_.find(at->client_id);
  if (named != by_name_.end() && named->second == at) by_name_.erase(named);
  by_number_.erase(found);
  clients_.erase(at);
}

}  // namespace semaphored::ledger
