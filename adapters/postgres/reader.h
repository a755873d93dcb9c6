// What the load statements answer, row by row, as an image.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/postgres/store.h"

namespace semaphored::postgres {

// Of one answer, or of sessions by themselves.
class PostgresStore::Reader {
 public:
  explicit Reader(PostgresStore* store) : store_(store) {}

  void Add(const pqxx::row& row);
  // `id`, client, holder, numbers: columns. The owner follows the numbers.
  ledger::SessionPtr AddSession(const pqxx::row& row, int id, int client, int holder, int numbers);
  // When all rows have been added.
  void Finish();
  // The same of what is only looked at.
  void FinishLook();
  // What was known of some tickets does not fit what was read.
  bool again() const { return again_; }
  bool Has(const std::string& semaphore) const { return semaphores_.contains(semaphore); }
  ledger::Image Take() { return std::move(image_); }

 private:
  uint32_t Client(const std::string& client_id) {
    const uint32_t number = store_->names_.NumberOf(client_id);
    if (number != 0 && clients_.insert(number).second)
      image_.clients.push_back({number, client_id, 0});
    return number;
  }
  ledger::LoadedSemaphore& Semaphore(const std::string& name) {
    const auto [at, is_new] = semaphores_.try_emplace(name, image_.semaphores.size());
    if (is_new) image_.semaphores.emplace_back();
    return image_.semaphores[at->second];
  }
  template <typename Row>
  void ReadClaim(const pqxx::row& row, Row* claim);
  void AddSemaphore(const pqxx::row& row);
  void AddLease(const pqxx::row& row);
  void AddWaiter(const pqxx::row& row, bool works);
  void AddTicket(const pqxx::row& row);
  // Gives each lease its slots, as many permits, and the semaphore's longest hold.
  void FinishLeases();
  void TakeTickets(ledger::LoadedSemaphore* semaphore);
  // Enters the ticket in the lease under which it is carried out; without one it is given back.
  TicketPtr TieToLease(const TicketPtr& ticket, absl::flat_hash_map<Id, LeasePtr>* leases);

  PostgresStore* store_;
  ledger::Image image_;
  absl::flat_hash_set<uint32_t> clients_;
  absl::flat_hash_map<std::string, size_t> semaphores_;
  absl::flat_hash_map<Id, LeasePtr> leases_;
  std::vector<std::pair<Lease*, uint32_t>> slots_;  // Of all leases, as they are read.
  absl::flat_hash_map<std::string, std::vector<TicketPtr>> changed_;  // Tickets, by semaphore.
  absl::flat_hash_map<std::string, std::vector<int64_t>> places_;     // Of all its tickets.
  absl::flat_hash_map<std::string, std::vector<int64_t>> counts_;     // By state, from 1.
  bool again_ = false;
};

}  // namespace semaphored::postgres
