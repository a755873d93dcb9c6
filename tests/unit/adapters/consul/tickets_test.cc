// Tickets in Consul: the keys that they stand in, commits whose answer is lost, and what people do
// to the keys by hand.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/consul/format.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::consul {
namespace {

using ledger::CommitResult;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using Kind = CommitResult::Kind;

constexpr std::chrono::milliseconds kPatience{400};
constexpr uint64_t kTicket = 1000;  // The first of their numbers; leases have lower ones.

std::shared_ptr<Ticket> MakeTicket(uint64_t number = 0) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = MakeId(kTicket + number);
  ticket->order = 1 + number;
  ticket->max_attempts = 3;
  ticket->payload_bytes = 4;
  ticket->enqueued_at_unix_ms = 7;
  return ticket;
}

// A batch about "s" as it stands.
Transaction Change(OpenStore& open) {
  Transaction transaction = Begin(open);
  SemaphoreDelta& delta = transaction.semaphores.emplace_back();
  delta.before = delta.after = LoadOne(open, "s").row;
  delta.name = "s";
  delta.after->next_order += 10;
  return transaction;
}

Transaction Enqueue(OpenStore& open, const TicketPtr& ticket) {
  Transaction transaction = Change(open);
  transaction.semaphores[0].tickets.push_back(
      {nullptr, ticket, std::make_shared<const std::string>("work")});
  return transaction;
}

void Put(OpenStore& open, const TicketPtr& ticket) {
  Transaction transaction = Enqueue(open, ticket);
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
}

// Puts a ticket and gives it to a lease.
TicketPtr Assign(OpenStore& open, const LeasePtr& lease, uint64_t number = 0) {
  const TicketPtr ticket = MakeTicket(number);
  Put(open, ticket);
  auto assigned = std::make_shared<Ticket>(*ticket);
  assigned->state = TicketState::kAssigned;
  assigned->lease = lease->id;
  lease->ticket = ticket->id;
  lease->attempt = assigned->attempt = 1;
  Transaction transaction = Change(open);
  transaction.semaphores[0].leases.push_back({nullptr, lease, EndCause::kNone});
  transaction.semaphores[0].tickets.push_back({ticket, assigned, nullptr});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  return assigned;
}

// Why nothing can be done with "s". Must be so.
std::string Damage(OpenStore& open) {
  const std::string name = "s";
  const absl::StatusOr<ledger::Image> image = open.store->Load({&name, 1});
  REQUIRE(image.ok());
  REQUIRE(image->damaged.size() == 1);
  CHECK(image->damaged[0].second.code() == absl::StatusCode::kDataLoss);
  return std::string(image->damaged[0].second.message());
}

absl::StatusOr<PayloadPtr> ReadPayload(OpenStore& open, const Id& ticket) {
  const ledger::LedgerStore::TicketAt at{"s", ticket};
  absl::StatusOr<std::vector<PayloadPtr>> payloads = open.store->ReadPayloads({&at, 1});
  if (!payloads.ok()) return payloads.status();
  return payloads->front();
}

// A store behind a relay, with a semaphore "s".
struct BehindTickets {
  TestPrefix prefix;
  Relay relay{prefix.port()};
  OpenStore open = Open(prefix, relay.port(), kPatience);
  SemaphoreRow row = Make(open, "s");
};

struct Direct {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  SemaphoreRow row = Make(open, "s");
  std::string KeyOf(const TicketPtr& ticket) const { return prefix.keys().Ticket("s", ticket->id); }
};

// ---- how they stand there ----

TEST_CASE("consul ticket: is read as it was written") {
  Ticket ticket = *MakeTicket();
  CHECK(**ReadTicket(ticket.id, WriteTicket(ticket)) == ticket);
  ticket.priority = -3;
  ticket.state = TicketState::kDelayed;
  ticket.attempt = 2;
  ticket.back_off = {1, 2, 3};
  ticket.delay_ms = 44;
  ticket.delays = 5;
  ticket.host = {6, 7};
  ticket.lease = {8, 9};
  ticket.content_type = "a/\"b\"";
  ticket.trace = "00-ü";
  ticket.reasons = {{1, "one\n", 11}, {2, "", -1}};
  CHECK(**ReadTicket(ticket.id, WriteTicket(ticket)) == ticket);
  for (const char* text : {"", "[]", "{}", R"({"version":2})", R"({"version":1,"state":9})"})
    CHECK(ReadTicket(ticket.id, text).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("consul document: counts tickets, and names who carries them out") {
  const std::string client = "client";
  const auto write = [&](const Document& document) {
    return WriteDocument(document, [&](uint32_t) -> const std::string& { return client; }, {});
  };
  const auto read = [](const std::string& text) {
    return ReadDocument("s", text, 1, 1, [](const std::string&) { return 8; }).value();
  };
  Document document;
  document.row.made_on_use = true;
  CHECK(read(write(document)).row.made_on_use);
  auto lease = std::make_shared<Lease>();
  lease->id = lease->session = {1, 1};
  lease->slots = {1};
  lease->ticket = {2, 2};
  lease->attempt = 3;
  document.leases.emplace(lease->id, lease);
  auto offer = std::make_shared<Waiter>();
  offer->id = offer->session = {3, 3};
  offer->works = true;
  document.waiters.emplace(offer->id, offer);
  document.ticket_count = 5;
  document.delays = {{1, 2}, {3, 4}};
  const Document back = read(write(document));
  CHECK(back.leases.at(lease->id)->ticket == lease->ticket);
  CHECK(back.leases.at(lease->id)->attempt == 3);
  CHECK(back.waiters.at(offer->id)->works);
  CHECK(back.ticket_count == 5);
  CHECK(back.delays == document.delays);
}

TEST_CASE(
    "consul: tickets and payloads are outside of what foreign clients see, and of the document",
    "[consul]") {
  Direct s;
  Put(s.open, MakeTicket(0));
  const size_t one = s.prefix.Value(s.prefix.keys().Document("s")).size();
  for (uint64_t i = 1; i < 20; ++i) Put(s.open, MakeTicket(i));
  CHECK(s.prefix.Value(s.prefix.keys().Document("s")).size() < one + 10);
  CHECK(s.prefix.Tree(s.prefix.keys().Tickets("s")).size() == 20);
  CHECK(s.prefix.Tree(s.prefix.keys().Payloads("s")).size() == 20);
  for (const Entry& entry : s.prefix.Tree(s.prefix.keys().Folder("s")))
    CHECK(entry.value != "work");
  CHECK(s.prefix.Tree(s.prefix.keys().Folder("s")).size() == 1);
}

TEST_CASE("consul: a destroyed semaphore takes its tickets along, however many", "[consul]") {
  Direct s;
  for (uint64_t i = 0; i < 70; ++i) Put(s.open, MakeTicket(i));
  Transaction destroy = Change(s.open);
  destroy.semaphores[0].after.reset();
  for (const TicketPtr& ticket : LoadOne(s.open, "s").tickets)
    destroy.semaphores[0].tickets.push_back({ticket, nullptr, nullptr});
  REQUIRE(s.open.Commit(destroy).kind == Kind::kWon);
  CHECK(s.prefix.Tree(s.prefix.keys().Tickets("s")).empty());
  CHECK(s.prefix.Tree(s.prefix.keys().Payloads("s")).empty());
}

TEST_CASE("consul: more tickets than fit a transaction are refused, and nothing is done",
          "[consul]") {
  Direct s;
  Transaction many = Change(s.open);
  for (uint64_t i = 0; i < 40; ++i)
    many.semaphores[0].tickets.push_back(
        {nullptr, MakeTicket(i), std::make_shared<const std::string>("work")});
  const CommitResult refused = s.open.Commit(many);
  CHECK(refused.kind == Kind::kFailed);
  CHECK(refused.status.code() == absl::StatusCode::kOutOfRange);
  CHECK(LoadOne(s.open, "s").tickets.empty());
}

TEST_CASE("consul: the largest payload fits a transaction", "[consul]") {
  Direct s;
  const std::string largest(128 * 1024, '\xff');
  auto ticket = MakeTicket();
  ticket->payload_bytes = static_cast<uint32_t>(largest.size());
  Transaction enqueue = Change(s.open);
  enqueue.semaphores[0].tickets.push_back(
      {nullptr, ticket, std::make_shared<const std::string>(largest)});
  REQUIRE(s.open.Commit(enqueue).kind == Kind::kWon);
  CHECK(**ReadPayload(s.open, ticket->id) == largest);
}

TEST_CASE("consul: whose delays a daemon counts is found when it is gone", "[consul]") {
  Direct s;
  CHECK(s.open.store->HostedBy({&s.open.self, 1}).value().semaphores.empty());
  auto delayed = MakeTicket();
  delayed->state = TicketState::kDelayed;
  delayed->delay_ms = 50;
  delayed->delays = 1;
  delayed->host = s.open.self;
  Put(s.open, delayed);
  CHECK(s.open.store->HostedBy({&s.open.self, 1}).value().semaphores ==
        std::vector<std::string>{"s"});
  const NodeRef other{s.open.self.number + 1, 9};
  CHECK(s.open.store->HostedBy({&other, 1}).value().semaphores.empty());
  const NodeRef earlier{s.open.self.number, s.open.self.incarnation - 1};
  CHECK(s.open.store->HostedBy({&earlier, 1}).value().semaphores.empty());
}

// ---- lost answers ----

TEST_CASE("consul: a ticket whose commit was not answered had come", "[consul]") {
  BehindTickets behind;
  const TicketPtr ticket = MakeTicket();
  Transaction enqueue = Enqueue(behind.open, ticket);
  behind.relay.LoseAnswers();
  REQUIRE(behind.open.Commit(enqueue).kind == Kind::kUnknown);
  behind.relay.CutClients();
  REQUIRE(behind.open.Settle(enqueue).kind == Kind::kWon);
  CHECK(*LoadOne(behind.open, "s").tickets.at(0) == *ticket);
  CHECK(**ReadPayload(behind.open, ticket->id) == "work");
  // It goes on from there.
  Transaction done = Change(behind.open);
  done.semaphores[0].tickets.push_back({ticket, nullptr, nullptr});
  REQUIRE(behind.open.Commit(done).kind == Kind::kWon);
  CHECK(LoadOne(behind.open, "s").tickets.empty());
  CHECK(*ReadPayload(behind.open, ticket->id) == nullptr);
}

TEST_CASE("consul: a ticket whose commit had not arrived does not come later", "[consul]") {
  BehindTickets behind;
  const TicketPtr ticket = MakeTicket();
  Transaction enqueue = Enqueue(behind.open, ticket);
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(enqueue).kind == Kind::kUnknown);
  CHECK(behind.open.Settle(enqueue).kind == Kind::kLost);
  REQUIRE(behind.relay.DeliverDelayed());
  CHECK(behind.prefix.Tree(behind.prefix.keys().Tickets("s")).empty());
  CHECK(behind.prefix.Tree(behind.prefix.keys().Payloads("s")).empty());
  Put(behind.open, ticket);
  CHECK(LoadOne(behind.open, "s").tickets.size() == 1);
}

// ---- by hand ----

TEST_CASE("consul: a ticket's key that was removed is told, and its payload is kept", "[consul]") {
  Direct s;
  const TicketPtr removed = MakeTicket(0);
  const TicketPtr other = MakeTicket(1);
  Put(s.open, removed);
  Put(s.open, other);
  s.prefix.Delete(s.KeyOf(removed));
  CHECK(absl::StrContains(Damage(s.open), "2 tickets, and 1 are there"));
  Transaction grant = Grant(s.open, s.row, MakeLease(s.open, 1));
  CHECK(s.open.Commit(grant).status.code() == absl::StatusCode::kDataLoss);
  const ledger::Pruned pruned = s.open.store->Repair("s").value().value();
  CHECK(pruned.unresolved == 0);
  CHECK(pruned.removed == 1);
  const ledger::LoadedSemaphore loaded = LoadOne(s.open, "s");
  REQUIRE(loaded.tickets.size() == 2);
  for (const TicketPtr& ticket : loaded.tickets) {
    CHECK(ticket->state == (ticket->id == removed->id ? TicketState::kDead : TicketState::kQueued));
    CHECK(**ReadPayload(s.open, ticket->id) == "work");
  }
  CHECK(s.open.store->Repair("s").value().value().removed == 0);
}

TEST_CASE("consul: all tickets' keys are removed, and dead letters made of their payloads",
          "[consul]") {
  Direct s;
  for (uint64_t i = 0; i < 50; ++i) Put(s.open, MakeTicket(i));
  for (uint64_t i = 0; i < 50; ++i) s.prefix.Delete(s.KeyOf(MakeTicket(i)));
  s.prefix.Delete(s.prefix.keys().Payload("s", MakeTicket(3)->id));
  CHECK(absl::StrContains(Damage(s.open), "50 tickets, and 0 are there"));
  CHECK(s.open.store->Repair("s").value().value().unresolved == 0);
  CHECK(LoadOne(s.open, "s").tickets.size() == 49);
}

TEST_CASE("consul: a garbled ticket is left for somebody to look at", "[consul]") {
  Direct s;
  const TicketPtr ticket = MakeTicket();
  Put(s.open, ticket);
  const std::string was = s.prefix.Value(s.KeyOf(ticket));
  s.prefix.Put(s.KeyOf(ticket), "garbled", 0);
  CHECK(absl::StrContains(Damage(s.open), s.KeyOf(ticket)));
  const ledger::Pruned pruned = s.open.store->Repair("s").value().value();
  CHECK(pruned.unresolved == 1);
  CHECK(absl::StrContains(pruned.message, s.KeyOf(ticket)));
  CHECK(s.prefix.Value(s.KeyOf(ticket)) == "garbled");
  SECTION("it is put back") {
    s.prefix.Put(s.KeyOf(ticket), was, 0);
    CHECK(*LoadOne(s.open, "s").tickets.at(0) == *ticket);
  }
  SECTION("it is given up") {
    s.prefix.Delete(s.KeyOf(ticket));
    CHECK(s.open.store->Repair("s").value().value().unresolved == 0);
    CHECK(LoadOne(s.open, "s").tickets.at(0)->state == TicketState::kDead);
  }
}

TEST_CASE("consul: what was done to a ticket's key is not written over", "[consul]") {
  Direct s;
  const TicketPtr ticket = MakeTicket();
  Put(s.open, ticket);
  Transaction raise = Change(s.open);
  auto raised = std::make_shared<Ticket>(*ticket);
  raised->priority = 5;
  raise.semaphores[0].tickets.push_back({ticket, raised, nullptr});
  Ticket by_hand = *ticket;
  by_hand.priority = 9;
  s.prefix.Put(s.KeyOf(ticket), WriteTicket(by_hand), 0);
  const CommitResult lost = s.open.Commit(raise);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.stale == std::vector<std::string>{"s"});
  CHECK(LoadOne(s.open, "s").tickets.at(0)->priority == 9);
}

TEST_CASE("consul: a payload that was removed or changed by hand is damaged", "[consul]") {
  Direct s;
  const TicketPtr ticket = MakeTicket();
  Put(s.open, ticket);
  const std::string key = s.prefix.keys().Payload("s", ticket->id);
  s.prefix.Put(key, "longer", 0);
  CHECK(ReadPayload(s.open, ticket->id).status().code() == absl::StatusCode::kDataLoss);
  s.prefix.Delete(key);
  CHECK(ReadPayload(s.open, ticket->id).status().code() == absl::StatusCode::kDataLoss);
  CHECK(LoadOne(s.open, "s").tickets.size() == 1);
}

TEST_CASE("consul: the lease of a ticket that was removed stands, without it", "[consul]") {
  Direct s;
  const LeasePtr lease = MakeLease(s.open, 1);
  const TicketPtr ticket = Assign(s.open, lease);
  CHECK(LoadOne(s.open, "s").leases.at(0)->ticket == ticket->id);
  s.prefix.Delete(s.KeyOf(ticket));
  s.prefix.Delete(s.prefix.keys().Payload("s", ticket->id));
  Damage(s.open);
  CHECK(s.open.store->Repair("s").value().value().unresolved == 0);
  const ledger::LoadedSemaphore loaded = LoadOne(s.open, "s");
  CHECK(loaded.tickets.empty());
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->ticket.empty());
  CHECK(loaded.leases[0]->token == lease->token);
}

TEST_CASE("consul: a ticket that does not know its lease any more comes back", "[consul]") {
  Direct s;
  const TicketPtr ticket = Assign(s.open, MakeLease(s.open, 1));
  Ticket by_hand = *ticket;
  by_hand.lease = MakeId(77);
  s.prefix.Put(s.KeyOf(ticket), WriteTicket(by_hand), 0);
  CHECK(absl::StrContains(Damage(s.open), "do not agree"));
  CHECK(s.open.store->Repair("s").value().value().unresolved == 0);
  const ledger::LoadedSemaphore loaded = LoadOne(s.open, "s");
  CHECK(loaded.tickets.at(0)->state == TicketState::kQueued);
  CHECK(loaded.tickets.at(0)->reasons.size() == 1);
  CHECK(loaded.leases.at(0)->ticket.empty());
}

TEST_CASE("consul: a ticket comes back when its permit ended with the daemon", "[consul]") {
  TestPrefix prefix;
  OpenStore a = OpenWithPulse(prefix, "a");
  Make(a, "s");
  const TicketPtr ticket = Assign(a, MakeLease(a, 1));
  const LockRecord record = Record(prefix, "s");
  REQUIRE(record.holders.size() == 1);
  prefix.DestroySession(*record.holders.begin());
  const ledger::LoadedSemaphore loaded = LoadOne(a, "s");
  CHECK(loaded.leases.empty());
  REQUIRE(loaded.tickets.size() == 1);
  CHECK(loaded.tickets[0]->state == TicketState::kQueued);
  CHECK(loaded.tickets[0]->attempt == 1);
  CHECK(loaded.tickets[0]->reasons.size() == 1);
  CHECK(**ReadPayload(a, ticket->id) == "work");
}

}  // namespace
}  // namespace semaphored::consul
