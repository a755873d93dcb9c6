// The rows of commit_1's arguments, as the daemon writes them and as the database describes them.
#include "adapters/postgres/commit_rows.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/adapters/postgres/ticket_rows.h"

namespace semaphored::postgres {
namespace {

// One row of each.
void FillEach(CommitRows* rows) {
  rows->hosts.Add(1);
  AddTouch("s", 1, 1, &rows->semaphores_touched);
  AddStart("s", 1, false, &rows->semaphores_made);
  AddSemaphore({}, &rows->semaphores_written);
  AddRevision("s", 1, &rows->semaphores_destroyed);
  AddRevision("s", 1, &rows->semaphores_read);
  AddEpoch({}, &rows->session_epochs);
  AddBefore(MakeId(1), 1, {1, 1}, &rows->sessions_before);
  rows->sessions_gone.Add(MakeId(1));
  AddSession({}, "c", &rows->sessions_written);
  AddKey("c", 1, &rows->requests_absent);
  AddRequest({}, "c", &rows->requests_new);
  AddRequestChange({}, "c", &rows->requests_changed);
  AddKey("c", 1, &rows->requests_gone);
  AddFloor("c", 1, &rows->request_floors);
  rows->clients_forgotten.Add("c");
  Lease lease;
  lease.slots = {1, 2};
  AddEnd("s", {lease, lease.slots, EndCause::kReleased, true, 1}, &rows->leases_ended);
  AddLeaseChange("s", lease, &rows->leases_changed);
  AddGrant("s", lease, "c", EndCause::kNone, 0, &rows->leases_granted);
  AddWaiterPlace("s", {}, &rows->waiters_gone);
  AddWaiter("s", {}, "c", &rows->waiters_new);
  AddTicketPlace("s", *MakeTicket(1), &rows->tickets_gone);
  AddTicketChange("s", *MakeTicket(1), 1, "[]", &rows->tickets_changed);
  AddTicket("s", *MakeTicket(1), 1, nullptr, rows);
  AddNotice(1, "s 2", "", &rows->notices);
}

// Arrays among the arguments, in their order: name, type of an element, and its columns.
constexpr char kArrayArguments[] = R"sql(
  SELECT p.proargnames[i + 1] AS name, format_type(e.oid, NULL) AS type,
         COALESCE((SELECT string_agg(a.attname, ' ' ORDER BY a.attnum) FROM pg_attribute a
                     WHERE a.attrelid = e.typrelid AND a.attnum > 0), '') AS columns
    FROM pg_proc p, generate_series(0, p.pronargs - 1) AS i, pg_type t, pg_type e
    WHERE p.oid = 'semaphored.commit_1'::regproc AND t.oid = p.proargtypes[i] AND t.typcategory = 'A'
      AND e.oid = t.typelem
    ORDER BY i)sql";

TEST_CASE("postgres commit: rows have the columns of their types, in the same order",
          "[postgres]") {
  const TestSchema schema;
  REQUIRE(OpenEngine(schema.Url()).ok());
  Client client = schema.Connect();
  CommitRows rows;
  FillEach(&rows);
  std::vector<std::string> names;
  std::vector<std::string> columns;
  for (const CommitRows::Argument& argument : rows.all()) {
    names.emplace_back(argument.name);
    columns.push_back(absl::StrJoin(argument.rows.columns(), " "));
  }
  Arguments values;
  rows.Take(&values);
  const pqxx::result described = client.Run(kArrayArguments);
  REQUIRE(static_cast<size_t>(described.size()) == names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const pqxx::row row = described[static_cast<pqxx::result::size_type>(i)];
    INFO(row["name"].as<std::string>());
    CHECK(names[i] == row["name"].as<std::string>());
    CHECK(columns[i] == row["columns"].as<std::string>());
    // Each value is one of its column's type.
    REQUIRE(values[i].has_value());
    CHECK(client.Number("SELECT cardinality(" + client.connection().quote(*values[i]) +
                        "::" + row["type"].as<std::string>() + "[])") == 1);
  }
}

}  // namespace
}  // namespace semaphored::postgres
