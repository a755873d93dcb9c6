// The clients whose answers are remembered: their numbers, their highest sequence number that was answered, and the
// time since their last request. Single-threaded.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/adapter.h"

namespace semaphored::ledger {

struct Client {
  uint32_t number = 0;
  std::string client_id;
  uint64_t sequence_high = 0;  // The highest that has a row; 0: none yet.
  uint64_t floor = 0;          // Rows below may have been dropped from the store.
  bool stored = false;         // The store knows its name.
  uint64_t batch = 0;          // The last batch with a request of it.
  SteadyTime used_at;
};

class Clients {
 public:
  // nullptr if unknown. Pointers are good until the client is forgotten.
  Client* Find(std::string_view client_id);
  const Client* Find(std::string_view client_id) const;
  Client* Find(uint32_t number);
  // A new one, not stored yet.
  Client* Add(std::string client_id, SteadyTime now);
  // One that the store reported. From now on its name stands for this number.
  Client* AddStored(uint32_t number, std::string client_id, uint64_t sequence_high, SteadyTime now);
  void Use(Client* client, SteadyTime now);
  // Makes it the next one to be forgotten.
  void SetOverdue(uint32_t number);
  void Forget(uint32_t number);

  size_t size() const { return by_number_.size(); }
  // The one whose last request is the oldest; nullptr if there are none.
  Client* Oldest() { return clients_.empty() ? nullptr : &clients_.front(); }

 private:
  using Position = std::list<Client>::iterator;
  Client* Insert(Client client);

  std::list<Client> clients_;                                // The one used last is at the back.
  absl::flat_hash_map<std::string_view, Position> by_name_;  // Keys point into clients_.
  absl::flat_hash_map<uint32_t, Position> by_number_;
  uint32_t next_number_ = 1;
};

}  // namespace semaphored::ledger
