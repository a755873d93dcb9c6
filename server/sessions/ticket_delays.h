// Tickets whose delays this daemon counts. When a delay is over, the ticket is made ripe in the engine, so that workers
// can take it. Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/base/timers.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class TicketDelays {
 public:
  // `ripe`: called with a semaphore in which a ticket has become ripe by Ripen. The pointers outlive it.
  TicketDelays(SessionsHost* host, Timers* timers,
               std::function<void(const std::string& semaphore)> ripe)
      : host_(host), timers_(timers), ripe_(std::move(ripe)) {}

  // Counts a delay from now on, and sets its timer (TimerKind::kRipen, with the ticket's id). The same delay (Ticket::delays)
  // is counted once, however often it is reported; a later one replaces it.
  void Count(const DelayedTicket& delayed);
  bool Contains(const Id& ticket) const { return delays_.contains(ticket); }
  // When that timer is due. Without effect if the delay is not over, or not known any more. If the command is not carried
  // out, the timer is set again.
  void Ripen(const Id& ticket);
  // The ticket is gone. Without effect if it has no delay.
  void Forget(const Id& ticket) { delays_.erase(ticket); }
  // All tickets of the semaphore are gone. Goes through all delays.
  void ForgetAt(const std::string& semaphore) {
    absl::erase_if(delays_, [&](const auto& each) { return each.second.semaphore == semaphore; });
  }

 private:
  struct Delay {
    std::string semaphore;
    uint32_t number = 0;  // Ticket::delays.
    SteadyTime until;
  };

  void OnRipened(const Id& ticket, uint32_t number, const absl::StatusOr<Outcome>& outcome);

  SessionsHost* host_;
  Timers* timers_;
  std::function<void(const std::string& semaphore)> ripe_;
  absl::flat_hash_map<Id, Delay> delays_;
};

}  // namespace semaphored
