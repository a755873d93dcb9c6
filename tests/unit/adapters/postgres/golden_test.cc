// What is in the database: the columns of the tables, and what columns encode.
#include "tests/unit/adapters/golden.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/commit_tickets.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/adapters/postgres/ticket_rows.h"

namespace semaphored::postgres {
namespace {

using golden::CheckStored;

constexpr char kColumns[] =
    "clients: client_id text, floor bigint\n"
    "lanes: node integer, incarnation integer, lane integer, alive boolean, commits bigint\n"
    "leases: semaphore text, slot integer, kind \"char\", claim uuid, token bigint, holder "
    "text, owner text, session uuid, client_id text, sequence bigint, fingerprint uuid, "
    "node integer, incarnation integer, epoch integer, ttl_ms bigint, priority integer, "
    "queue_order bigint, recall_reason smallint, recall_grace_ms bigint, moved_from "
    "integer, created_at timestamp with time zone, completed_at timestamp with time zone, "
    "timed_out_at timestamp with time zone, end_cause smallint, history_number bigint\n"
    "nodes: number integer, node_id text, incarnation integer, counter bigint, dead "
    "boolean, stopped boolean, daemon text, started_at timestamp with time zone\n"
    "payloads: ticket uuid, payload bytea\n"
    "requests: client_id text, sequence bigint, fingerprint uuid, state smallint, "
    "semaphore text, claim uuid, cause smallint, number bigint, remaining bigint, changed "
    "boolean, node integer, incarnation integer, lane integer\n"
    "semaphores: name text, permits bigint, backfill boolean, longest_hold_ms bigint, "
    "recall_grace_ms bigint, permits_per_holder bigint, waiters_max bigint, paused "
    "boolean, destroying boolean, made_on_use boolean, intentions text, next_order bigint, "
    "revision bigint, created_at timestamp with time zone, owner text\n"
    "sessions: id uuid, node integer, incarnation integer, epoch integer, ttl_ms bigint, "
    "client_id text, release_on_disconnect boolean, closing boolean, holder text, owner "
    "text\n"
    "store: only_row boolean, version integer, oldest_daemon integer, epoch integer, "
    "withheld boolean, withheld_ms bigint, timeline text, synchronous boolean, "
    "revision_floor bigint, secret text\n"
    "tickets: semaphore text, queue_order bigint, priority integer, ticket uuid, state "
    "smallint, attempt bigint, max_attempts bigint, back_off_initial_ms bigint, "
    "back_off_percent bigint, back_off_max_ms bigint, delay_ms bigint, delays bigint, node "
    "integer, incarnation integer, lease uuid, content_type text, payload_bytes bigint, "
    "trace text, owner text, reasons jsonb, enqueued_at timestamp with time zone, changed "
    "bigint\n"
    "waiters: semaphore text, queue_order bigint, priority integer, claim uuid, permits "
    "bigint, holder text, owner text, session uuid, client_id text, sequence bigint, "
    "fingerprint uuid, node integer, incarnation integer, epoch integer, ttl_ms bigint, "
    "queued_at timestamp with time zone, works boolean";

TEST_CASE("postgres golden: the columns of version 1", "[postgres]") {
  const TestSchema schema;
  REQUIRE(OpenEngine(schema.Url()).ok());
  Client sql = schema.Connect();
  const std::string columns = sql.Text(absl::StrCat(
      "SELECT string_agg(line, E'\\n' ORDER BY line COLLATE \"C\") FROM (SELECT c.relname || ': ' "
      "|| string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY "
      "a.attnum) AS line FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN "
      "pg_attribute a ON a.attrelid = c.oid WHERE n.nspname = '",
      schema.name(),
      "' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped GROUP BY c.relname) AS t"));
  CheckStored(columns, kColumns);
  CHECK(sql.Text("SELECT version || ' ' || oldest_daemon FROM semaphored.store") == "1 1");
}

// Of all rows in the order of `key`, without what the server counts or reads off its clock.
std::string RowsOf(Client& sql, const std::string& table, const std::string& key,
                   const std::string& columns) {
  return sql.Text(absl::StrCat("SELECT string_agg(concat_ws(' ', ", columns, "), E'\\n' ORDER BY ",
                               key, ") FROM semaphored.", table));
}

TEST_CASE("postgres golden: a semaphore, its leases and waiters, a session and a request",
          "[postgres]") {
  const TestSchema schema;
  OpenStore open = Open(schema);
  Client sql = schema.Connect();
  auto session = std::make_shared<Session>(golden::FullSession());
  auto lease = std::make_shared<Lease>(*golden::FullLease());
  auto ended = std::make_shared<Lease>(*MakeLease(open, 5, 4));
  auto waiter = std::make_shared<Waiter>(*golden::FullOffer());
  session->host = lease->host = waiter->host = open.self;
  lease->session = session->id;
  lease->epoch = session->epoch;
  lease->ticket = {};
  lease->token = 0;
  ended->granted_at_unix_ms = 1'700'000'000'000;
  waiter->request = {7, 9, {}};
  ledger::RequestChange granted;
  granted.row = {{7, 8, {}},
                 lease->fingerprint,
                 ledger::RequestRow::State::kGranted,
                 "team/db",
                 lease->id,
                 EndCause::kNone,
                 0,
                 0,
                 false};

  ledger::Transaction make = Begin(open);
  make.new_clients.push_back({7, "client"});
  make.sessions.push_back({nullptr, session});
  ledger::SemaphoreDelta& made = make.semaphores.emplace_back();
  made.name = "team/db";
  made.after = golden::FullRow();
  made.leases.push_back({nullptr, lease, EndCause::kNone});
  made.leases.push_back({nullptr, ended, EndCause::kNone});
  made.waiters.push_back({nullptr, waiter});
  make.requests.push_back(granted);
  REQUIRE(open.Commit(make).kind == ledger::CommitResult::Kind::kWon);
  ledger::Transaction end = Begin(open);
  Touch(end, LoadOne(open, "team/db").row).leases.push_back({ended, nullptr, EndCause::kRevoked});
  end.history.push_back({0, "team/db", ended, 1'700'000'000'500, EndCause::kRevoked});
  REQUIRE(open.Commit(end).kind == ledger::CommitResult::Kind::kWon);

  CheckStored(RowsOf(sql, "semaphores", "name",
                     "name, permits, backfill, longest_hold_ms, recall_grace_ms, "
                     "permits_per_holder, waiters_max, paused, destroying, made_on_use, "
                     "intentions, next_order, owner, (extract(epoch FROM created_at) * "
                     "1000)::bigint"),
              "team/db 3 t 1000 2000 2 50 t f t do 15 team-a 1700000000000");
  CheckStored(RowsOf(sql, "sessions", "id",
                     "id, node, incarnation, epoch, ttl_ms, client_id, release_on_disconnect, "
                     "closing, holder, owner"),
              "00000000-0000-0001-0000-000000000002 1 1 5 30000 client t t host team-a");
  CheckStored(RowsOf(sql, "requests", "sequence",
                     "client_id, sequence, fingerprint, state, semaphore, claim, cause, number, "
                     "remaining, changed, node, incarnation, lane"),
              "client 8 00000000-0000-000f-0000-000000000010 2 team/db "
              "00000000-0000-0001-0000-000000000002 0 0 0 f 1 1 0");
  CheckStored(RowsOf(sql, "waiters", "queue_order",
                     "semaphore, queue_order, priority, claim, permits, holder, owner, session, "
                     "client_id, sequence, fingerprint, node, incarnation, epoch, ttl_ms, works, "
                     "(extract(epoch FROM queued_at) * 1000)::bigint"),
              "team/db 14 -1000 00000000-0000-0001-0000-000000000002 6 host team-a "
              "00000000-0000-0001-0000-000000000002 client 9 00000000-0000-000f-0000-000000000010 "
              "1 1 11 86400000 t 1700000000000");
  // A row for each slot. The lease that has ended is kept, with its cause and its time.
  std::string stored;
  for (const int slot : {1, 2, 3, 7, 9, 10}) {
    absl::StrAppend(&stored, "team/db ", slot,
                    " d 00000000-0000-0001-0000-000000000002 host team-a "
                    "00000000-0000-0001-0000-000000000002 client 8 "
                    "00000000-0000-000f-0000-000000000010 1 1 5 86400000 -1000 14 1 30000 17 "
                    "1700000000000\n");
    if (slot == 3) {
      absl::StrAppend(&stored,
                      "team/db 4 d 12345678-90ab-cdef-0000-000000000005 holder  "
                      "12345678-90ab-cdef-0000-000000000005  0 "
                      "00000000-0000-0000-0000-000000000000 1 1 1 30000 0 5 0 0 0 1700000000000 "
                      "1700000000500 3\n");
    }
  }
  stored.pop_back();
  CheckStored(RowsOf(sql, "leases", "slot",
                     "semaphore, slot, kind, claim, holder, owner, session, client_id, sequence, "
                     "fingerprint, node, incarnation, epoch, ttl_ms, priority, queue_order, "
                     "recall_reason, recall_grace_ms, moved_from, (extract(epoch FROM "
                     "created_at) * 1000)::bigint, (extract(epoch FROM COALESCE(completed_at, "
                     "timed_out_at)) * 1000)::bigint, end_cause"),
              stored);
  const ledger::LoadedSemaphore read = LoadOne(open, "team/db");
  REQUIRE(read.leases.size() == 1);
  CHECK(read.leases[0]->slots == lease->slots);
  CHECK(read.leases[0]->recall == lease->recall);
  REQUIRE(read.waiters.size() == 1);
  CHECK((read.waiters[0]->works && read.waiters[0]->priority == -1000));
}

TEST_CASE("postgres golden: reasons of tickets") {
  const std::vector<TicketReason> reasons = golden::FullTicket().reasons;
  constexpr char kStored[] = R"([{"at":1700000000000,"attempt":2,"text":"no"}])";
  CheckStored(WriteReasons(reasons), kStored);
  CHECK(ReadReasons(kStored) == reasons);
}

TEST_CASE("postgres golden: a ticket, its payload and a one-shot request", "[postgres]") {
  const TestSchema schema;
  OpenStore open = Open(schema);
  Client sql = schema.Connect();
  const SemaphoreRow row = Make(open, "s");
  Ticket ticket = golden::FullTicket();
  ticket.host = open.self;
  ledger::Transaction transaction = Begin(open);
  Add(&Touch(transaction, row), std::make_shared<Ticket>(ticket), std::string("a\0\xff", 3));
  ledger::RequestChange request;
  request.row.request = {0, 0, {21, 22}};
  request.row.fingerprint = {15, 16};
  request.row.semaphore = "s";
  request.row.claim = ticket.id;
  request.row.number = 4;
  transaction.requests.push_back(request);
  REQUIRE(open.Commit(transaction).kind == ledger::CommitResult::Kind::kWon);
  CheckStored(
      sql.Text("SELECT concat_ws(' ', queue_order, priority, ticket, state, attempt, max_attempts, "
               "back_off_initial_ms, back_off_percent, back_off_max_ms, delay_ms, delays, "
               "content_type, payload_bytes, trace, owner, reasons, "
               "(extract(epoch FROM enqueued_at) * 1000)::bigint) FROM semaphored.tickets"),
      "14 -10 00000000-0000-0001-0000-000000000002 2 3 4 1000 200 300000 8000 9 text/plain 3 "
      R"(00-46-47-01 team-a [{"at": 1700000000000, "text": "no", "attempt": 2}] 1700000000001)");
  CheckStored(sql.Text("SELECT encode(payload, 'hex') FROM semaphored.payloads"), "6100ff");
  CheckStored(
      sql.Text("SELECT concat_ws(' ', encode(convert_to(client_id, 'UTF8'), 'hex'), sequence, "
               "fingerprint, state, semaphore, claim, cause, number, remaining, changed) "
               "FROM semaphored.requests"),
      "013030303030303030303030303030313530303030303030303030303030303136 0 "
      "00000000-0000-000f-0000-000000000010 5 s 00000000-0000-0001-0000-000000000002 0 4 0 "
      "f");
  CHECK(*LoadOne(open, "s").tickets.at(0) == ticket);
  const ledger::NamedRequest asked{request.row.request, ""};
  CHECK(open.store->FindRequests({&asked, 1}, 1024).value().at(0).row == request.row);
}

}  // namespace
}  // namespace semaphored::postgres
