// How rows stand in the table: keys that sort as queues do, rows that are read as they were
// written, and a digest that must be the same for ever.
#include "adapters/dynamodb/items.h"

#include <limits>
#include <string>
#include <vector>

#include "adapters/dynamodb/notice_text.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::dynamodb {
namespace {

const std::string kClient = "client";
const std::string& NameOf(uint32_t) { return kClient; }
uint32_t NumberOf(const std::string& name) { return name == kClient ? 7 : 0; }

Lease MakeLease() {
  Lease lease;
  lease.id = {1, 2};
  lease.session = {3, 4};
  lease.request = {7, 8};
  lease.host = {9, 10};
  lease.epoch = 11;
  lease.permits = 4;
  lease.priority = -12;
  lease.ttl_ms = 13;
  lease.order = 14;
  lease.holder = "héraut \"15\"";
  lease.owner = "team-a";
  lease.slots = {1, 2, 3, 7};
  lease.token = 16;
  lease.granted_at_unix_ms = 17;
  lease.recall = {Recall::Reason::kShrunk, 18};
  lease.fingerprint = {19, 20};
  lease.moved_from = 21;
  return lease;
}

Waiter MakeWaiter(int32_t priority, uint64_t order) {
  Waiter waiter;
  waiter.id = waiter.session = {5, 6};
  waiter.priority = priority;
  waiter.order = order;
  waiter.queued_at_unix_ms = 19;
  return waiter;
}

Ticket MakeTicket() {
  Ticket ticket;
  ticket.id = {31, 32};
  ticket.priority = -33;
  ticket.order = 34;
  ticket.state = TicketState::kAssigned;
  ticket.attempt = 35;
  ticket.max_attempts = 36;
  ticket.back_off = {37, 38, 39};
  ticket.delays = 40;
  ticket.host = {41, 42};
  ticket.lease = {43, 44};
  ticket.content_type = "text/plain";
  ticket.payload_bytes = 45;
  ticket.trace = "00-46-47-01";
  ticket.reasons = {{48, "é \"49\"", 50}, {51, "", 52}};
  ticket.enqueued_at_unix_ms = 53;
  return ticket;
}

TEST_CASE("dynamodb items: places sort as they are served") {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const std::vector<Waiter> queue = {
      MakeWaiter(kMost, 9),    MakeWaiter(1, 2),  MakeWaiter(1, 10),    MakeWaiter(0, 1),
      MakeWaiter(0, 1u << 30), MakeWaiter(-1, 1), MakeWaiter(kLeast, 1)};
  for (size_t i = 0; i + 1 < queue.size(); ++i)
    CHECK(WaiterKey("s", queue[i]).sort < WaiterKey("s", queue[i + 1]).sort);
  // The head comes first, and leases before the queue.
  CHECK(HeadKey("s").sort < LeaseKey("s", MakeLease()).sort);
  CHECK(LeaseKey("s", MakeLease()).sort < WaiterKey("s", queue[0]).sort);
  CHECK(FromSortable(Sortable(123'456)) == 123'456);
}

TEST_CASE("dynamodb items: tickets stand among the waiters, offers apart") {
  Ticket ticket = MakeTicket();
  ticket.priority = 1;
  ticket.order = 5;
  CHECK(WaiterKey("s", MakeWaiter(1, 4)).sort < TicketKey("s", ticket).sort);
  CHECK(TicketKey("s", ticket).sort < WaiterKey("s", MakeWaiter(1, 6)).sort);
  CHECK(TicketKey("s", ticket).sort < WaiterKey("s", MakeWaiter(0, 4)).sort);
  Waiter offer = MakeWaiter(1, 5);
  offer.works = true;
  CHECK(WaiterKey("s", offer) == Key{"SEMAPHORE#s", "OFFER#0000000000000005"});
  CHECK(PayloadKey("s", {1, 2}) == Key{"PAYLOAD#00000000000000010000000000000002", "s"});
}

TEST_CASE("dynamodb items: a ticket, its lease and its payload are read as they were written") {
  const Ticket ticket = MakeTicket();
  const json item = WriteTicket({"p", "s"}, ticket);
  CHECK(IsTicket(item));
  CHECK(*ReadTicket(item) == ticket);
  Ticket delayed = ticket;
  delayed.state = TicketState::kDelayed;
  delayed.delay_ms = 54;
  delayed.lease = {};
  delayed.reasons.clear();
  CHECK(*ReadTicket(WriteTicket({"p", "s"}, delayed)) == delayed);

  Lease lease = MakeLease();
  lease.ticket = ticket.id;
  lease.attempt = 55;
  const LeasePtr read = ReadLease(WriteLease({"p", "s"}, lease, 20, NameOf), NumberOf);
  CHECK(read->ticket == ticket.id);
  CHECK(read->attempt == 55);
  CHECK(DigestOf(*read, 20) == DigestOf(lease, 20));
  CHECK(DigestOf(lease, 20) != DigestOf(MakeLease(), 20));

  Waiter offer = MakeWaiter(0, 1);
  offer.works = true;
  const json standing = WriteWaiter({"p", "s"}, offer, NameOf);
  CHECK_FALSE(IsTicket(standing));
  CHECK(ReadWaiter(standing, NumberOf)->works);
  CHECK(DigestOf(offer) != DigestOf(MakeWaiter(0, 1)));

  for (const std::string& payload : {std::string(), std::string("\0\xff text", 7)})
    CHECK(*ReadPayload(WritePayload({"p", "s"}, payload)) == payload);
}

TEST_CASE("dynamodb items: rows are read as they were written") {
  const Lease lease = MakeLease();
  const LeasePtr read = ReadLease(WriteLease({"p", "s"}, lease, 20, NameOf), NumberOf);
  CHECK(read->id == lease.id);
  CHECK(read->session == lease.session);
  CHECK(read->request == lease.request);
  CHECK(read->fingerprint == lease.fingerprint);
  CHECK(read->moved_from == 21);
  CHECK(read->host == lease.host);
  CHECK(read->epoch == lease.epoch);
  CHECK(read->permits == lease.permits);
  CHECK(read->priority == lease.priority);
  CHECK(read->ttl_ms == lease.ttl_ms);
  CHECK(read->order == lease.order);
  CHECK(read->holder == lease.holder);
  CHECK(read->owner == lease.owner);
  CHECK(read->slots == lease.slots);
  CHECK(read->token == 20);
  CHECK(read->granted_at_unix_ms == lease.granted_at_unix_ms);
  CHECK(read->recall == lease.recall);
  CHECK(DigestOf(*read, read->token) == DigestOf(lease, 20));

  const Waiter waiter = MakeWaiter(5, 21);
  const WaiterPtr waits = ReadWaiter(WriteWaiter({"p", "s"}, waiter, NameOf), NumberOf);
  CHECK(waits->detached());
  CHECK(waits->queued_at_unix_ms == 19);
  CHECK(DigestOf(*waits) == DigestOf(waiter));

  Head head;
  head.row.name = "s";
  head.row.limit = 22;
  head.row.settings = {true, 23, 24, 25, 26};
  head.row.paused = head.row.destroying = head.row.made_on_use = true;
  head.row.next_order = 27;
  head.row.revision = 28;
  head.row.created_at_unix_ms = 29;
  head.digest = std::numeric_limits<uint64_t>::max();
  head.history_number = 30;
  head.counts = {31, 32, 33, {34, 35, 36, 37}};
  const Head again = ReadHead("s", WriteHead(head));
  CHECK(again.row == head.row);
  CHECK(again.digest == head.digest);
  CHECK(again.history_number == head.history_number);
  CHECK(again.counts == head.counts);
  head.counts = {};
  const json without = WriteHead(head);
  CHECK_FALSE(without.contains("tickets_queued"));
  CHECK_FALSE(without.contains("tickets_dead"));
  CHECK(ReadHead("s", without).counts == head.counts);

  Session session;
  session.id = {31, 32};
  session.host = {33, 34};
  session.epoch = 35;
  session.ttl_ms = 36;
  session.client = 7;
  session.release_on_disconnect = true;
  session.closing = true;
  session.holder = "holder";
  session.owner = "team-a";
  const ledger::SessionPtr row = ReadSession(WriteSession(session, NameOf), NumberOf);
  CHECK(row->id == session.id);
  CHECK(row->host == session.host);
  CHECK(row->epoch == session.epoch);
  CHECK(row->ttl_ms == session.ttl_ms);
  CHECK(row->client == session.client);
  CHECK(row->release_on_disconnect);
  CHECK(row->closing);
  CHECK(row->holder == session.holder);
  CHECK(row->owner == session.owner);
}

TEST_CASE("dynamodb items: what is not understood is refused") {
  const Lease lease = MakeLease();
  const json good = WriteLease({"p", "s"}, lease, 20, NameOf);
  CHECK(good["slots"] == Text("1-3,7"));
  for (const char* slots :
       {"", "1-3", "1-3,7,8", "3-1,7,8,9", "0-3", "1-4000000000", "a", "1,,2-"}) {
    json item = good;
    item["slots"] = Text(slots);
    CHECK_THROWS(ReadLease(item, NumberOf));
  }
  json item = good;
  item["fencing_token"] = Text("twenty");
  CHECK_THROWS(ReadLease(item, NumberOf));
  item = good;
  item.erase("claim");
  CHECK_THROWS(ReadLease(item, NumberOf));
  CHECK_THROWS(ReadHead("s", ItemWith(HeadKey("s"))));

  const json ticket = WriteTicket({"p", "s"}, MakeTicket());
  for (const uint64_t state : {0, 1, 5}) {  // Queued, but with a lease.
    item = ticket;
    item["state"] = Number(state);
    CHECK_THROWS(ReadTicket(item));
  }
  item = ticket;
  item.erase("claim");
  CHECK_THROWS(ReadTicket(item));
  item = ticket;
  item["reasons"] = Text("why");
  CHECK_THROWS(ReadTicket(item));
  item = WritePayload({"p", "s"}, "payload");
  item["payload"] = {{"B", "*"}};
  CHECK_THROWS(ReadPayload(item));
}

TEST_CASE("dynamodb items: every change of a ticket changes its digest") {
  const uint64_t digest = DigestOf(MakeTicket());
  const auto changed = [&](auto&& change) {
    Ticket other = MakeTicket();
    change(other);
    return DigestOf(other) != digest;
  };
  CHECK(changed([](Ticket& other) { ++other.id.low; }));
  CHECK(changed([](Ticket& other) { ++other.priority; }));
  CHECK(changed([](Ticket& other) { ++other.order; }));
  CHECK(changed([](Ticket& other) { other.state = TicketState::kDead; }));
  CHECK(changed([](Ticket& other) { ++other.attempt; }));
  CHECK(changed([](Ticket& other) { ++other.delay_ms; }));
  CHECK(changed([](Ticket& other) { ++other.delays; }));
  CHECK(changed([](Ticket& other) { ++other.host.incarnation; }));
  CHECK(changed([](Ticket& other) { ++other.lease.high; }));
  CHECK(changed([](Ticket& other) { other.reasons.pop_back(); }));
  CHECK(changed([](Ticket& other) { ++other.reasons[0].at_unix_ms; }));
}

TEST_CASE("dynamodb items: every change of a claim changes its digest") {
  const Lease lease = MakeLease();
  const uint64_t digest = DigestOf(lease, lease.token);
  CHECK(DigestOf(lease, 99) != digest);
  const auto changed = [&](auto&& change) {
    Lease other = lease;
    change(other);
    return DigestOf(other, other.token) != digest;
  };
  CHECK(changed([](Lease& other) { ++other.host.number; }));
  CHECK(changed([](Lease& other) { ++other.host.incarnation; }));
  CHECK(changed([](Lease& other) { ++other.epoch; }));
  CHECK(changed([](Lease& other) { ++other.session.low; }));
  CHECK(changed([](Lease& other) { ++other.ttl_ms; }));
  CHECK(changed([](Lease& other) { ++other.moved_from; }));
  CHECK(changed([](Lease& other) { other.slots = {1, 2, 3, 8}; }));
  CHECK(changed([](Lease& other) { other.recall.grace_ms = 1; }));
  CHECK(changed([](Lease& other) { other.recall.reason = Recall::Reason::kLongestHold; }));
  CHECK(changed([](Lease& other) { other.id.low = 9; }));
}

TEST_CASE("dynamodb items: what stands in tables is found by later versions") {
  // Heads have these; see DigestOf.
  CHECK(DigestOf(MakeLease(), 20) == 15'696'896'199'941'276'670u);
  CHECK(DigestOf(MakeWaiter(5, 21)) == 6'165'441'760'374'622'060u);
  CHECK(FloorOf("team/db") == 77);
}

TEST_CASE("dynamodb items: details of a notice that are not understood are none") {
  CHECK_FALSE(ReadDetailsText({"s", 5, ""}).has_value());
  CHECK_FALSE(ReadDetailsText({"s", 5, "{"}).has_value());
  CHECK_FALSE(ReadDetailsText({"s", 5, "[1]"}).has_value());
  const std::string good =
      R"({"next_order":3,"ended":[[1,1]],"left":[],"granted":[[0,2,[1],99,17]],)"
      R"("gone":["00000000000000010000000000000002"],"let_in":[],"digest":18446744073709551615,)"
      R"("history_number":4})";
  const std::optional<SentDetails> told = ReadDetailsText({"s", 5, good});
  REQUIRE(told.has_value());
  CHECK(told->details.revision == 5);
  CHECK(told->details.granted.at(0).token == 99);
  CHECK(told->gone == std::vector<Id>{{1, 2}});
  CHECK(told->digest == std::numeric_limits<uint64_t>::max());
  std::string bad = good;
  bad.replace(bad.find("0002"), 1, "x");
  CHECK_FALSE(ReadDetailsText({"s", 5, bad}).has_value());
}

}  // namespace
}  // namespace semaphored::dynamodb
