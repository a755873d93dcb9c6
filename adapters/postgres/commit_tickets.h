// What a batch does to tickets and to offers, as the arguments of commit_tickets_1 (schema_3.sql).
#pragma once

#include <string>
#include <vector>

#include "adapters/postgres/array.h"
#include "adapters/postgres/connection.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::postgres {

class TicketArguments {
 public:
  static constexpr size_t kCount = 25;

  // The semaphore is written, and is marked as made by its first use.
  void AddMadeOnUse(const std::string& semaphore) { made_.Add(semaphore); }
  // From `before`, null: it comes, to `after`, null: it leaves. `client_id` is of `after`.
  void AddOffer(const std::string& semaphore, const WaiterPtr& before, const WaiterPtr& after,
                const std::string& client_id);
  void AddTickets(const ledger::SemaphoreDelta& delta);

  // Nothing was added: the function need not be called.
  bool empty() const;
  // Appends kCount of them; nothing may be added after.
  void Take(Arguments* arguments);

 private:
  // All changes of a ticket in a batch, as one.
  struct Folded {
    TicketPtr before;
    TicketPtr after;
    PayloadPtr payload;
  };
  static std::vector<Folded> Fold(const std::vector<ledger::TicketChange>& changes);
  void Change(const ledger::SemaphoreDelta& delta, const Ticket& before, const Ticket& after);
  void Bring(const ledger::SemaphoreDelta& delta, const Ticket& ticket, const PayloadPtr& payload);

  Array made_;
  Array d_semaphore_, d_order_;
  Array n_semaphore_, n_claim_, n_holder_, n_session_, n_client_, n_number_;
  Array x_semaphore_, x_order_, x_ticket_;
  Array u_semaphore_, u_ticket_, u_lease_, u_reasons_, u_number_;
  Array t_semaphore_, t_ticket_, t_lease_, t_reasons_, t_content_type_, t_trace_, t_number_;
  std::string payloads_;
};

// As the column tickets.reasons has them, and back. The text may hold anything.
std::string WriteReasons(const std::vector<TicketReason>& reasons);
// What is not understood is left out.
std::vector<TicketReason> ReadReasons(const std::string& text);

}  // namespace semaphored::postgres
