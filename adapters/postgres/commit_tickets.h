// What a batch does to tickets, as arguments of commit_1 (schema_1.sql).
#pragma once

#include <string>
#include <vector>

#include "adapters/ledger/state/transaction.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/connection.h"

namespace semaphored::postgres {

class TicketArguments {
 public:
  static constexpr size_t kCount = 17;

  void AddTickets(const ledger::SemaphoreDelta& delta);
  // Appends kCount of them; nothing may be added after.
  void Take(Arguments* arguments);

 private:
  void Change(const ledger::SemaphoreDelta& delta, const Ticket& before, const Ticket& after);
  void Bring(const ledger::SemaphoreDelta& delta, const Ticket& ticket, const PayloadPtr& payload);

  Array h_semaphore_, h_order_, h_ticket_;
  Array j_semaphore_, j_ticket_, j_lease_, j_reasons_, j_number_;
  Array k_semaphore_, k_ticket_, k_lease_, k_reasons_, k_content_type_, k_trace_, k_owner_,
      k_number_;
  std::string payloads_;
};

// As the column tickets.reasons has them, and back. The text may hold anything.
std::string WriteReasons(const std::vector<TicketReason>& reasons);
// What is not understood is left out.
std::vector<TicketReason> ReadReasons(const std::string& text);

}  // namespace semaphored::postgres
