// Tickets in the DynamoDB store: where they and their payloads stand, that both come and go with
// their commit whatever becomes of its answer, and where a node's delays are found.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::dynamodb {
namespace {

using ledger::LedgerStore;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;

std::shared_ptr<Ticket> MakeTicket(uint64_t number, int32_t priority = 0) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = MakeId(number);
  ticket->order = number;
  ticket->priority = priority;
  ticket->max_attempts = 3;
  ticket->content_type = "text/plain";
  ticket->payload_bytes = 7;
  ticket->enqueued_at_unix_ms = 1'800'000'000'000;
  return ticket;
}

PayloadPtr Payload(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

// What becomes of `before`: a copy of it, to be changed.
std::shared_ptr<Ticket> Next(const TicketPtr& before) { return std::make_shared<Ticket>(*before); }

Transaction Enqueue(const OpenStore& open, const SemaphoreRow& row, const TicketPtr& ticket,
                    const std::string& payload) {
  Transaction transaction = Touch(open, row);
  transaction.semaphores[0].tickets.push_back({nullptr, ticket, Payload(payload)});
  return transaction;
}

Transaction Change(const OpenStore& open, const SemaphoreRow& row, TicketPtr before,
                   TicketPtr after) {
  Transaction transaction = Touch(open, row);
  transaction.semaphores[0].tickets.push_back({std::move(before), std::move(after), nullptr});
  return transaction;
}

// The ticket meets a worker.
Transaction Assign(const OpenStore& open, const SemaphoreRow& row, const TicketPtr& ticket,
                   uint64_t claim) {
  auto assigned = Next(ticket);
  assigned->state = TicketState::kAssigned;
  ++assigned->attempt;
  const LeasePtr lease = MakeLease(open, claim);
  assigned->lease = lease->id;
  lease->ticket = ticket->id;
  lease->attempt = assigned->attempt;
  Transaction transaction = Grant(open, row, lease);
  transaction.semaphores[0].tickets.push_back({ticket, assigned, nullptr});
  return transaction;
}

SemaphoreRow Win(OpenStore& open, Transaction transaction) {
  const ledger::CommitResult result = open.Commit(transaction);
  INFO(result.status.ToString());
  REQUIRE(result.kind == Kind::kWon);
  return After(transaction);
}

std::vector<std::string> Places(const StoreTable& table) {
  std::vector<std::string> places;
  for (const json& item : table.Items(PartitionOf("s"))) places.push_back(KeyOf(item).sort);
  return places;
}

PayloadPtr Read(OpenStore& open, uint64_t ticket) {
  const LedgerStore::TicketAt at{"s", MakeId(ticket)};
  return open.store->ReadPayloads({&at, 1}).value().front();
}

// ---- where they stand ----

TEST_CASE("dynamodb tickets: each stands in the queue, and its payload apart", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const TicketPtr ticket = MakeTicket(2);
  const std::string payload("\0\xff bytes", 8);
  Transaction enqueue = Enqueue(open, Make(open, "s"), ticket, payload);
  enqueue.semaphores[0].waiters.push_back({nullptr, MakeWaiter(open, 1)});
  enqueue.semaphores[0].waiters.push_back({nullptr, MakeWaiter(open, 3, 1)});
  Win(open, std::move(enqueue));
  CHECK(Places(table) == std::vector<std::string>{"HEAD",
                                                  WaiterKey("s", *MakeWaiter(open, 3, 1)).sort,
                                                  WaiterKey("s", *MakeWaiter(open, 1)).sort,
                                                  TicketKey("s", *ticket).sort});
  CHECK_FALSE(table.Item(TicketKey("s", *ticket)).contains("payload"));
  OpenStore other = Open(table, {.node_id = "b"});
  const ledger::LoadedSemaphore loaded = LoadOne(other, "s");
  REQUIRE(loaded.tickets.size() == 1);
  CHECK(*loaded.tickets[0] == *ticket);
  CHECK(loaded.waiters.size() == 2);
  CHECK(*Read(other, 2) == payload);
}

TEST_CASE("dynamodb tickets: with another priority it has another place, and is there once",
          "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const TicketPtr low = MakeTicket(1);
  const TicketPtr other = MakeTicket(2);
  SemaphoreRow row = Win(open, Enqueue(open, Make(open, "s"), low, "low"));
  row = Win(open, Enqueue(open, row, other, "other"));
  auto high = Next(low);
  high->priority = 5;
  row = Win(open, Change(open, row, low, high));
  CHECK(Places(table) ==
        std::vector<std::string>{"HEAD", TicketKey("s", *high).sort, TicketKey("s", *other).sort});
  CHECK(*Read(open, 1) == "low");
  // There and back in one batch.
  Transaction back = Change(open, row, high, low);
  back.semaphores[0].tickets.push_back({low, high, nullptr});
  row = Win(open, std::move(back));
  CHECK(LoadOne(open, "s").tickets.size() == 2);
  row = Win(open, Change(open, row, high, nullptr));
  CHECK(Places(table) == std::vector<std::string>{"HEAD", TicketKey("s", *other).sort});
  CHECK(table.Item(PayloadKey("s", high->id)).is_null());
}

TEST_CASE("dynamodb tickets: an assignment does not touch the payload, the end removes it",
          "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  const TicketPtr ticket = MakeTicket(1);
  const SemaphoreRow queued = Win(open, Enqueue(open, Make(open, "s"), ticket, "payload"));
  std::vector<std::string> written;
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    if (passing->operation == "TransactWriteItems") written.push_back(passing->body.dump());
  });
  Transaction assign = Assign(open, queued, ticket, 9);
  const SemaphoreRow assigned = Win(open, assign);
  REQUIRE(written.size() == 1);
  CHECK(written[0].find("PAYLOAD#") == std::string::npos);
  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->ticket == ticket->id);
  CHECK(loaded.tickets.at(0)->lease == loaded.leases[0]->id);
  Transaction done = Change(open, assigned, assign.semaphores[0].tickets[0].after, nullptr);
  done.semaphores[0].leases.push_back(
      {assign.semaphores[0].leases[0].after, nullptr, EndCause::kReleased});
  Win(open, std::move(done));
  CHECK(Places(table) == std::vector<std::string>{"HEAD"});
  CHECK(table.Items(PayloadKey("s", ticket->id).partition).empty());
}

TEST_CASE("dynamodb tickets: what has come and gone in one batch leaves nothing", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const TicketPtr ticket = MakeTicket(1);
  Transaction both = Enqueue(open, Make(open, "s"), ticket, "payload");
  both.semaphores[0].tickets.push_back({ticket, nullptr, nullptr});
  Win(open, std::move(both));
  CHECK(Places(table) == std::vector<std::string>{"HEAD"});
  CHECK(Read(open, 1) == nullptr);
  CHECK(LoadOne(open, "s").tickets.empty());
}

// ---- payloads ----

TEST_CASE("dynamodb tickets: payloads are read many at once, and again what was left out",
          "[dynamodb]") {
  constexpr uint64_t kMany = 130;  // More than one request for many takes.
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  SemaphoreRow row = Make(open, "s");
  std::vector<LedgerStore::TicketAt> asked;
  for (uint64_t done = 0; done < kMany;) {
    Transaction enqueue = Touch(open, row);
    for (int i = 0; i < 40 && done < kMany; ++i, ++done) {
      enqueue.semaphores[0].tickets.push_back(
          {nullptr, MakeTicket(done + 1), Payload(absl::StrCat("payload ", done + 1))});
      asked.push_back({"s", MakeId(done + 1)});
    }
    row = Win(open, std::move(enqueue));
  }
  asked.push_back({"s", MakeId(1000)});  // There is none.
  asked.push_back({"t", MakeId(1)});     // Not there.
  asked.push_back(asked.front());        // Asked for twice.
  int answers = 0;
  proxy.OnAnswer([&](const std::string& operation, json* body) {
    if (operation != "BatchGetItem" || ++answers > 2) return;
    // As under load: some of it has to be asked for again.
    json& found = (*body)["Responses"].begin().value();
    json left = json::array();
    for (int i = 0; i < 5 && !found.empty(); ++i) {
      left.push_back(KeyJson(KeyOf(found.back())));
      found.erase(found.size() - 1);
    }
    (*body)["UnprocessedKeys"][table.url().table] = {{"Keys", left}, {"ConsistentRead", true}};
  });
  const std::vector<PayloadPtr> payloads = open.store->ReadPayloads(asked).value();
  CHECK(answers > 2);
  REQUIRE(payloads.size() == asked.size());
  for (uint64_t i = 0; i < kMany; ++i) {
    REQUIRE(payloads[i] != nullptr);
    CHECK(*payloads[i] == absl::StrCat("payload ", i + 1));
  }
  CHECK(payloads[kMany] == nullptr);
  CHECK(payloads[kMany + 1] == nullptr);
  CHECK(*payloads[kMany + 2] == "payload 1");
}

TEST_CASE("dynamodb tickets: a payload that is not understood is damage", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  Win(open, Enqueue(open, Make(open, "s"), MakeTicket(1), "payload"));
  json item = table.Item(PayloadKey("s", MakeId(1)));
  item["payload"] = Text("by hand");
  table.Put(item);
  const LedgerStore::TicketAt at{"s", MakeId(1)};
  CHECK(open.store->ReadPayloads({&at, 1}).status().code() == absl::StatusCode::kDataLoss);
  // The ticket stands.
  CHECK(LoadOne(open, "s").tickets.size() == 1);
}

TEST_CASE("dynamodb tickets: the largest payload fits, and more than fits is refused unsent",
          "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const std::string largest(384'000, '\xff');
  const SemaphoreRow row = Win(open, Enqueue(open, Make(open, "s"), MakeTicket(1), largest));
  CHECK(*Read(open, 1) == largest);
  Transaction too_large = Enqueue(open, row, MakeTicket(2), std::string(400'000, 'p'));
  CHECK(open.Commit(too_large).status.code() == absl::StatusCode::kOutOfRange);
  Transaction too_many = Touch(open, row);
  for (uint64_t i = 0; i < 11; ++i)
    too_many.semaphores[0].tickets.push_back({nullptr, MakeTicket(10 + i), Payload(largest)});
  CHECK(open.Commit(too_many).status.code() == absl::StatusCode::kOutOfRange);
  too_many.semaphores[0].tickets.pop_back();
  const SemaphoreRow full = Win(open, std::move(too_many));
  // What is deleted counts as well.
  Transaction purge = Touch(open, full);
  for (uint64_t i = 0; i < 11; ++i) {
    const auto large = MakeTicket(i < 10 ? 10 + i : 1);
    large->payload_bytes = 384'000;
    purge.semaphores[0].tickets.push_back({large, nullptr, nullptr});
  }
  CHECK(open.Commit(purge).status.code() == absl::StatusCode::kOutOfRange);
  purge.semaphores[0].tickets.pop_back();
  Win(open, std::move(purge));
  CHECK(LoadOne(open, "s").tickets.size() == 1);
}

// ---- one moment, lost answers ----

TEST_CASE("dynamodb tickets: a reading without one of them is not of one moment", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  const TicketPtr ticket = MakeTicket(1);
  SemaphoreRow row = Win(open, Enqueue(open, Make(open, "s"), ticket, "payload"));
  const json as_queued = table.Item(TicketKey("s", *ticket));
  row = Win(open, Assign(open, row, ticket, 9));
  const bool is_old = GENERATE(true, false);
  int queries = 0;
  proxy.OnAnswer([&](const std::string& operation, json* body) {
    if (operation != "Query" || ++queries > 2) return;
    json& items = (*body)["Items"];
    for (json& item : items) {
      if (IsTicket(item) && is_old) item = as_queued;
    }
    if (is_old) return;
    std::erase_if(items.get_ref<json::array_t&>(), [](const json& item) { return IsTicket(item); });
  });
  CHECK(LoadOne(open, "s").tickets.at(0)->state == TicketState::kAssigned);
  CHECK(queries == 3);
}

TEST_CASE("dynamodb tickets: a ticket whose commit was not answered is there once, or not at all",
          "[dynamodb]") {
  StoreTable table;
  Relay relay{table.port()};
  OpenStore open = Open(table, {.node_id = "a",
                                .endpoint = absl::StrCat("http://127.0.0.1:", relay.port()),
                                .timeout = std::chrono::milliseconds(1000)});
  const SemaphoreRow row = Make(open, "s");
  Transaction enqueue = Enqueue(open, row, MakeTicket(1), "payload");
  const bool arrived = GENERATE(true, false);
  if (arrived) relay.LoseAnswers();
  if (!arrived) relay.DelayRequests();
  REQUIRE(open.Commit(enqueue).kind == Kind::kUnknown);
  if (arrived) relay.CutClients();
  REQUIRE(open.Settle(enqueue).kind == Kind::kWon);
  if (!arrived) REQUIRE(relay.DeliverDelayed());
  CHECK(Places(table).size() == 2);
  CHECK(*Read(open, 1) == "payload");
  Transaction done = Change(open, After(enqueue), enqueue.semaphores[0].tickets[0].after, nullptr);
  Win(open, std::move(done));
  CHECK(table.Item(PayloadKey("s", MakeId(1))).is_null());
}

TEST_CASE("dynamodb tickets: one that came too late brings neither ticket nor payload",
          "[dynamodb]") {
  StoreTable table;
  Relay relay{table.port()};
  OpenStore open = Open(table, {.node_id = "a",
                                .endpoint = absl::StrCat("http://127.0.0.1:", relay.port()),
                                .timeout = std::chrono::milliseconds(1000)});
  OpenStore other = Open(table, {.node_id = "b"});
  Transaction enqueue = Enqueue(open, Make(open, "s"), MakeTicket(1), "payload");
  relay.DelayRequests();
  REQUIRE(open.Commit(enqueue).kind == Kind::kUnknown);
  Win(other, Touch(other, LoadOne(other, "s").row));
  CHECK(open.Settle(enqueue).kind == Kind::kLost);
  REQUIRE(relay.DeliverDelayed());
  CHECK(Places(table) == std::vector<std::string>{"HEAD"});
  CHECK(table.Item(PayloadKey("s", MakeId(1))).is_null());
}

// ---- by hand ----

TEST_CASE("dynamodb tickets: whose lease was deleted by hand is given out again after a prune",
          "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const TicketPtr ticket = MakeTicket(1);
  const SemaphoreRow row = Win(open, Enqueue(open, Make(open, "s"), ticket, "payload"));
  Transaction assign = Assign(open, row, ticket, 9);
  REQUIRE(open.Commit(assign).kind == Kind::kWon);
  table.Delete(LeaseKey("s", *assign.semaphores[0].leases[0].after));
  const std::string name = "s";
  REQUIRE(open.store->Load({&name, 1})->damaged.size() == 1);
  REQUIRE(open.store->Repair("s").value().has_value());
  CHECK(open.store->Look({&name, 1})->semaphores.at(0).counts ==
        ledger::SemaphoreCounts{0, 0, 0, {1, 0, 0, 0}});
  const ledger::LoadedSemaphore mended = LoadOne(open, "s");
  REQUIRE(mended.tickets.size() == 1);
  CHECK(mended.tickets[0]->state == TicketState::kQueued);
  CHECK(mended.tickets[0]->attempt == 1);
  CHECK(mended.tickets[0]->lease.empty());
  Win(open, Assign(open, mended.row, mended.tickets[0], 10));
  CHECK(open.store->Repair("s").value() == std::nullopt);
}

// ---- delays ----

std::vector<std::string> HostedNames(const StoreTable& table, NodeRef node) {
  std::vector<std::string> names;
  for (const json& item : table.Items(HostPartition(node.number)))
    names.push_back(KeyOf(item).sort);
  return names;
}

TEST_CASE("dynamodb tickets: where a node counts delays is found, and forgotten after them",
          "[dynamodb]") {
  using Names = std::vector<std::string>;
  SteadyTime now = SteadyTime{} + std::chrono::hours(1);
  StoreTable table;
  OpenStore open = Open(table, {.node_id = "a", .now = [&now] { return now; }});
  OpenStore other = Open(table, {.node_id = "b"});
  const auto idle = [&] {
    for (int i = 0; i < 2; ++i) {
      now += std::chrono::minutes(15);
      open.store->Wake();
      REQUIRE(open.store->Wait(SteadyClock::now() + std::chrono::seconds(10)).ok());
    }
  };
  auto delayed = MakeTicket(1);
  delayed->state = TicketState::kDelayed;
  delayed->delay_ms = 1'000;
  delayed->delays = 1;
  delayed->host = open.self;
  SemaphoreRow row = Win(open, Enqueue(open, Make(open, "s"), delayed, "payload"));
  Win(open, Enqueue(open, Make(open, "t"), MakeTicket(2), "payload"));
  CHECK(HostedNames(table, open.self) == Names{"AT#s"});
  CHECK(other.store->HostedBy({&open.self, 1})->semaphores == Names{"s"});
  idle();
  CHECK(HostedNames(table, open.self) == Names{"AT#s"});
  auto ripe = Next(delayed);
  ripe->state = TicketState::kQueued;
  ripe->delay_ms = 0;
  row = Win(open, Change(open, row, delayed, ripe));
  idle();
  CHECK(HostedNames(table, open.self).empty());
  // Told by another, who has requeued it for later: it is his to count.
  auto again = Next(ripe);
  again->state = TicketState::kDelayed;
  again->delay_ms = 1'000;
  again->delays = 2;
  again->host = other.self;
  LoadOne(other, "s");
  Win(other, Change(other, row, ripe, again));
  LoadOne(open, "s");
  CHECK(HostedNames(table, open.self).empty());
  CHECK(HostedNames(table, other.self) == Names{"AT#s"});
}

}  // namespace
}  // namespace semaphored::dynamodb
