// The records of the embedded store: what is read is what was written, and nothing else is read at
// all.
#include "adapters/sqlite/record.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "adapters/sqlite/codec.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::sqlite {
namespace {

Lease FullLease() {
  Lease lease;
  lease.id = {1, 2};
  lease.session = {3, 4};
  lease.request = {7, std::numeric_limits<uint64_t>::max()};
  lease.fingerprint = {15, 16};
  lease.moved_from = 17;
  lease.host = {9, 10};
  lease.epoch = 11;
  lease.permits = 6;
  lease.priority = -1000;
  lease.ttl_ms = 86'400'000;
  lease.order = 1ull << 40;
  lease.holder = "host\xc3\xbc/pid 12";
  lease.owner = "team-a";
  lease.slots = {1, 2, 3, 7, 9, 10};
  lease.token = (5ull << 48) | 77;
  lease.granted_at_unix_ms = 1'700'000'000'000;
  lease.recall = {Recall::Reason::kLongestHold, 30'000};
  lease.ticket = {12, 13};
  lease.attempt = 14;
  return lease;
}

Ticket FullTicket() {
  Ticket ticket;
  ticket.id = {1, 2};
  ticket.priority = -1000;
  ticket.order = 1ull << 40;
  ticket.state = TicketState::kDelayed;
  ticket.attempt = 3;
  ticket.max_attempts = 4;
  ticket.back_off = {5, 600, 7'000};
  ticket.delay_ms = 8'000;
  ticket.delays = 9;
  ticket.host = {10, 11};
  ticket.lease = {12, 13};
  ticket.content_type = "application/json";
  ticket.payload_bytes = 65'536;
  ticket.trace = "00-0af7-b7ad-01";
  ticket.reasons = {{1, "one", 1'700'000'000'000}, {2, "", -5}};
  ticket.enqueued_at_unix_ms = 1'700'000'000'001;
  return ticket;
}

void CheckSameClaim(const Claim& a, const Claim& b) {
  CHECK(a.id == b.id);
  CHECK(a.session == b.session);
  CHECK(a.request == b.request);
  CHECK(a.fingerprint == b.fingerprint);
  CHECK(a.host == b.host);
  CHECK(a.epoch == b.epoch);
  CHECK(a.permits == b.permits);
  CHECK(a.priority == b.priority);
  CHECK(a.ttl_ms == b.ttl_ms);
  CHECK(a.order == b.order);
  CHECK(a.holder == b.holder);
  CHECK(a.owner == b.owner);
}

// A good record of each kind, with the call that reads it under a key.
struct Sample {
  std::string name;
  uint64_t key;
  std::string bytes;
  std::function<absl::Status(uint64_t key, std::string_view bytes)> read;
};

std::vector<Sample> Samples() {
  std::vector<Sample> samples;
  auto add = [&](std::string name, uint64_t key, auto read) -> std::string& {
    samples.push_back({std::move(name), key, "", read});
    return samples.back().bytes;
  };
  SemaphoreRow row;
  row.limit = 3;
  WriteSemaphore(5, row, &add("semaphore", 5, [](uint64_t key, std::string_view bytes) {
                   return ReadSemaphore(static_cast<uint32_t>(key), bytes).status();
                 }));
  const Lease lease = FullLease();
  WriteLease(5, lease.token, lease,
             &add("lease", lease.token, [](uint64_t key, std::string_view bytes) {
               return ReadLease(key, bytes).status();
             }));
  Waiter waiter;
  waiter.id = waiter.session = {1, 1};
  WriteWaiter(8, 5, waiter, &add("waiter", 8, [](uint64_t key, std::string_view bytes) {
                return ReadWaiter(key, bytes).status();
              }));
  WriteTicket(4, 5, FullTicket(), &add("ticket", 4, [](uint64_t key, std::string_view bytes) {
                return ReadTicket(key, bytes).status();
              }));
  WritePayload(4, "the payload", &add("payload", 4, [](uint64_t key, std::string_view bytes) {
                 return ReadPayload(key, bytes).status();
               }));
  Session session;
  session.id = {2, 2};
  session.holder = "someone";
  WriteSession(9, session, &add("session", 9, [](uint64_t key, std::string_view bytes) {
                 return ReadSession(key, bytes).status();
               }));
  ledger::RequestChange change;
  change.row.request = {1, 2};
  change.row.semaphore = "s";
  std::string& requests = add("requests", 10, [](uint64_t key, std::string_view bytes) {
    return ReadRequests(key, bytes, [](const RequestView&) {});
  });
  AppendRequest(change, &requests);
  change.op = ledger::RequestChange::Op::kRemove;
  AppendRequest(change, &requests);
  SealRequests(10, &requests);
  std::string& history = add("history", 11, [](uint64_t key, std::string_view bytes) {
    return ReadHistory(key, bytes, [](const HistoryRow&) {});
  });
  AppendHistory({0, "s", std::make_shared<Lease>(lease), 5, EndCause::kRevoked}, &history);
  SealHistory(11, &history);
  return samples;
}

TEST_CASE("a semaphore's record is read as it was written") {
  SemaphoreRow row;
  row.limit = 1'000'000;
  row.settings = {true, 1000, 0, 3, 200'000};
  row.paused = true;
  row.destroying = true;
  row.made_on_use = true;
  row.created_at_unix_ms = 12;
  std::string bytes;
  WriteSemaphore(4, row, &bytes);
  CHECK(ReadSemaphore(4, bytes).value() == row);
  row = SemaphoreRow();
  row.settings.recall_grace_ms = -1;
  bytes.clear();
  WriteSemaphore(4, row, &bytes);
  CHECK(ReadSemaphore(4, bytes).value() == row);
}

TEST_CASE("a lease's record is read as it was written") {
  const Lease lease = FullLease();
  std::string bytes;
  WriteLease(6, lease.token, lease, &bytes);
  const LeaseRecord read = ReadLease(lease.token, bytes).value();
  CHECK(read.semaphore == 6);
  CheckSameClaim(*read.lease, lease);
  CHECK(read.lease->slots == lease.slots);
  CHECK(read.lease->token == lease.token);
  CHECK(read.lease->moved_from == lease.moved_from);
  CHECK(read.lease->granted_at_unix_ms == lease.granted_at_unix_ms);
  CHECK(read.lease->recall == lease.recall);
  CHECK_FALSE(read.lease->foreign);
  CHECK(read.lease->ticket == lease.ticket);
  CHECK(read.lease->attempt == 14);
}

// One that was written and cannot be read would keep the daemon from starting.
TEST_CASE("a lease is read with each reason that a recall can have") {
  for (const auto reason : {Recall::Reason::kShrunk, Recall::Reason::kLongestHold,
                            Recall::Reason::kAdministrator, Recall::Reason::kDestroyed}) {
    CAPTURE(static_cast<int>(reason));
    Lease lease = FullLease();
    lease.recall = {reason, 30'000};
    std::string bytes;
    WriteLease(6, lease.token, lease, &bytes);
    const absl::StatusOr<LeaseRecord> read = ReadLease(lease.token, bytes);
    REQUIRE(read.ok());
    CHECK(read->lease->recall == lease.recall);
  }
}

TEST_CASE("records of tickets and payloads are read as they were written") {
  for (const Ticket& ticket : {FullTicket(), [] {
                                 Ticket ticket;
                                 ticket.id = {3, 4};
                                 ticket.state = TicketState::kDead;
                                 return ticket;
                               }()}) {
    std::string bytes;
    WriteTicket(7, 8, ticket, &bytes);
    const TicketRecord read = ReadTicket(7, bytes).value();
    CHECK(read.semaphore == 8);
    CHECK(*read.ticket == ticket);
  }
  for (const std::string& payload :
       {std::string(), std::string("\0\xff", 2), std::string(100'000, 'x')}) {
    std::string bytes;
    WritePayload(7, payload, &bytes);
    CHECK(ReadPayload(7, bytes).value() == payload);
  }
}

TEST_CASE("a lease of a million permits takes no more room than one of a few") {
  Lease lease = FullLease();
  lease.slots = Slots();
  lease.slots.Append({1, kPermitsMax});
  lease.permits = kPermitsMax;
  std::string bytes;
  WriteLease(6, 1, lease, &bytes);
  CHECK(bytes.size() < 150);
  CHECK(ReadLease(1, bytes).value().lease->slots == lease.slots);
}

TEST_CASE("records of waiters and sessions are read as they were written") {
  Waiter waiter;
  static_cast<Claim&>(waiter) = FullLease();
  waiter.session = waiter.id;
  waiter.queued_at_unix_ms = -5;
  waiter.works = true;
  std::string bytes;
  WriteWaiter(3, 2, waiter, &bytes);
  const WaiterRecord read = ReadWaiter(3, bytes).value();
  CHECK(read.semaphore == 2);
  CheckSameClaim(*read.waiter, waiter);
  CHECK(read.waiter->queued_at_unix_ms == -5);
  CHECK(read.waiter->works);
  waiter.request = {0, 0, {21, 22}};
  bytes.clear();
  WriteWaiter(3, 2, waiter, &bytes);
  CheckSameClaim(*ReadWaiter(3, bytes).value().waiter, waiter);

  Session session{.id = {1, 2},
                  .host = {3, 4},
                  .epoch = 5,
                  .ttl_ms = 6,
                  .client = 7,
                  .release_on_disconnect = true,
                  .closing = true,
                  .holder = "holder",
                  .owner = "team-a"};
  bytes.clear();
  WriteSession(3, session, &bytes);
  const auto back = ReadSession(3, bytes).value();
  CHECK(back->id == session.id);
  CHECK(back->host == session.host);
  CHECK(back->epoch == 5);
  CHECK(back->ttl_ms == 6);
  CHECK(back->client == 7);
  CHECK(back->release_on_disconnect);
  CHECK(back->closing);
  CHECK(back->holder == "holder");
  CHECK(back->owner == "team-a");
}

TEST_CASE("logs of requests and history are read in order") {
  using State = ledger::RequestRow::State;
  std::string bytes;
  std::vector<ledger::RequestChange> changes(5);
  for (size_t i = 0; i < changes.size(); ++i) {
    ledger::RequestRow& row = changes[i].row;
    row.request = {2, i + 1};
    row.fingerprint = {3, i};
    row.state = static_cast<State>(i + 1);
    if (i != 4) row.claim = {4, i};
    row.changed = i == 1;
    row.cause = EndCause::kExpired;
    row.number = 4;
    row.remaining = 5;
    row.semaphore = "s" + std::to_string(i);
    AppendRequest(changes[i], &bytes);
  }
  changes[2].op = ledger::RequestChange::Op::kRemove;
  AppendRequest(changes[2], &bytes);
  // With a UUID in place of client and sequence number.
  changes.push_back(changes[0]);
  changes.back().row.request = {0, 0, {17, 18}};
  AppendRequest(changes.back(), &bytes);
  ledger::RequestChange gone = changes.back();
  gone.op = ledger::RequestChange::Op::kRemove;
  AppendRequest(gone, &bytes);
  SealRequests(12, &bytes);
  std::vector<ledger::RequestRow> rows;
  std::vector<RequestKey> removed;
  REQUIRE(ReadRequests(12, bytes, [&](const RequestView& view) {
            if (view.removed) return removed.push_back(view.request);
            rows.push_back(view.Copy());
          }).ok());
  REQUIRE(rows.size() == 6);
  for (size_t i = 0; i < rows.size(); ++i) CHECK(rows[i] == changes[i].row);
  CHECK(removed == std::vector<RequestKey>{{2, 3}, {0, 0, {17, 18}}});

  bytes.clear();
  const auto lease = std::make_shared<Lease>(FullLease());
  AppendHistory({0, "a", lease, 1'700'000'000'500, EndCause::kReleased}, &bytes);
  AppendHistory({0, "b", lease, 0, EndCause::kRevoked}, &bytes);
  SealHistory(100, &bytes);
  std::vector<HistoryRow> history;
  REQUIRE(ReadHistory(100, bytes, [&](HistoryRow row) { history.push_back(std::move(row)); }).ok());
  REQUIRE(history.size() == 2);
  CHECK(history[0].number == 100);
  CHECK(history[1].number == 101);
  CHECK(history[0].ended_at_unix_ms == 1'700'000'000'500);
  CHECK(history[1].ended_at_unix_ms == 0);
  CHECK(history[1].semaphore == "b");
  CHECK(history[1].cause == EndCause::kRevoked);
  CHECK(history[1].lease->slots == lease->slots);
  CHECK(history[1].lease->token == lease->token);
  CHECK(history[1].lease->holder == lease->holder);
}

TEST_CASE("a damaged record is DATA_LOSS, whichever bit it is") {
  for (const Sample& sample : Samples()) {
    CAPTURE(sample.name);
    CHECK(sample.read(sample.key, sample.bytes).ok());
    for (size_t bit = 0; bit < sample.bytes.size() * 8; ++bit) {
      std::string damaged = sample.bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      CAPTURE(bit);
      REQUIRE(absl::IsDataLoss(sample.read(sample.key, damaged)));
    }
  }
}

TEST_CASE("a record that is cut, or longer, or under another key, is DATA_LOSS") {
  for (const Sample& sample : Samples()) {
    CAPTURE(sample.name);
    for (size_t size = 0; size < sample.bytes.size(); ++size) {
      CAPTURE(size);
      REQUIRE(absl::IsDataLoss(
          sample.read(sample.key, std::string_view(sample.bytes).substr(0, size))));
    }
    CHECK(absl::IsDataLoss(sample.read(sample.key, sample.bytes + '\0')));
    CHECK(absl::IsDataLoss(sample.read(sample.key + 1, sample.bytes)));
  }
}

// With good check bytes, so that the fields themselves are looked at.
TEST_CASE("a record that says what cannot be is DATA_LOSS") {
  auto lease_with = [](auto change) {
    Lease lease = FullLease();
    change(lease);
    std::string bytes;
    WriteLease(1, 7, lease, &bytes);
    return ReadLease(7, bytes).status();
  };
  CHECK(lease_with([](Lease&) {}).ok());
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.slots = {0, 1, 2, 3, 7, 9}; })));
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.slots = {1, 2, 3, 7, 9}; })));
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.slots.Append({11, 11}); })));
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.permits = 0; })));
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.permits = kPermitsMax + 1; })));
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.id = Id(); })));
  CHECK(absl::IsDataLoss(lease_with([](Lease& lease) { lease.ttl_ms = -1; })));
  CHECK(absl::IsDataLoss(
      lease_with([](Lease& lease) { lease.recall.reason = static_cast<Recall::Reason>(5); })));
  CHECK(absl::IsDataLoss(
      lease_with([](Lease& lease) { lease.holder = std::string(kHolderBytesMax + 1, 'h'); })));

  std::string bytes;
  AppendHistory({0, "s", std::make_shared<Lease>(FullLease()), 0, static_cast<EndCause>(12)},
                &bytes);
  SealHistory(1, &bytes);
  CHECK(absl::IsDataLoss(ReadHistory(1, bytes, [](const HistoryRow&) {})));
}

}  // namespace
}  // namespace semaphored::sqlite
