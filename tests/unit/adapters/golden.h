// Stored formats, byte by byte: what daemons write is what these tests say, and what the tests say is read as
// it was meant. A test that fails here shows a change of a format.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "adapters/types.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::golden {

inline constexpr char kHelp[] =
    "a stored format has changed: a store of the version before must still be read, or refused. "
    "See "
    "docs/compatibility.md, 'Stored formats'";

inline void CheckStored(const std::string& written, const std::string& stored) {
  INFO(kHelp);
  CHECK(written == stored);
}

inline std::string HexOf(const std::string& bytes) { return absl::BytesToHexString(bytes); }
inline std::string BytesOf(const char* hex) { return absl::HexStringToBytes(hex); }

// Every field of a claim has a value of its own.
inline void FillClaim(Claim* claim) {
  claim->id = {1, 2};
  claim->session = {3, 4};
  claim->request = {7, 8, {}};
  claim->fingerprint = {15, 16};
  claim->host = {9, 10};
  claim->epoch = 11;
  claim->permits = 6;
  claim->priority = -1000;
  claim->ttl_ms = 86'400'000;
  claim->order = 14;
  claim->holder = "host";
  claim->owner = "team-a";
}

inline LeasePtr FullLease() {
  auto lease = std::make_shared<Lease>();
  FillClaim(lease.get());
  lease->slots = {1, 2, 3, 7, 9, 10};
  lease->token = 77;
  lease->granted_at_unix_ms = 1'700'000'000'000;
  lease->recall = {Recall::Reason::kShrunk, 30'000};
  lease->ticket = {12, 13};
  lease->attempt = 14;
  lease->moved_from = 17;
  return lease;
}

// Of a one-shot request, detached.
inline WaiterPtr FullOffer() {
  auto offer = std::make_shared<Waiter>();
  FillClaim(offer.get());
  offer->session = offer->id;
  offer->request = {0, 0, {21, 22}};
  offer->queued_at_unix_ms = 1'700'000'000'000;
  offer->works = true;
  return offer;
}

inline Ticket FullTicket() {
  Ticket ticket;
  ticket.id = {1, 2};
  ticket.priority = -10;
  ticket.order = 14;
  ticket.state = TicketState::kDelayed;
  ticket.attempt = 3;
  ticket.max_attempts = 4;
  ticket.back_off = {1'000, 200, 300'000};
  ticket.delay_ms = 8'000;
  ticket.delays = 9;
  ticket.host = {10, 11};
  ticket.content_type = "text/plain";
  ticket.payload_bytes = 3;
  ticket.trace = "00-46-47-01";
  ticket.reasons = {{2, "no", 1'700'000'000'000}};
  ticket.owner = "team-a";
  ticket.enqueued_at_unix_ms = 1'700'000'000'001;
  return ticket;
}

inline Session FullSession() {
  return {.id = {1, 2},
          .host = {3, 4},
          .epoch = 5,
          .ttl_ms = 30'000,
          .client = 7,
          .release_on_disconnect = true,
          .closing = true,
          .holder = "host",
          .owner = "team-a"};
}

inline SemaphoreRow FullRow() {
  SemaphoreRow row;
  row.name = "team/db";
  row.limit = 3;
  row.settings = {true, 1'000, 2'000, 2, 50};
  row.paused = true;
  row.made_on_use = true;
  row.intentions = "do";
  row.next_order = 15;
  row.revision = 6;
  row.created_at_unix_ms = 1'700'000'000'000;
  row.owner = "team-a";
  return row;
}

}  // namespace semaphored::golden
