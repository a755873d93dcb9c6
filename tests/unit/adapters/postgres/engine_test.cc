// What the URL of a Postgres store says, how its schema comes to be, and what is done after a
// fail-over.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/postgres/schema.h"
#include "adapters/postgres/url.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

using Catch::Matchers::ContainsSubstring;
using ledger::Transaction;
using std::chrono::milliseconds;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// A file that goes away.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    std::string pattern = std::filesystem::temp_directory_path() / "semaphored-url-XXXXXX";
    close(mkstemp(pattern.data()));
    path_ = pattern;
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The parts of postgres://user:password@host:port/database.
struct Parts {
  std::string user, password, place;
  explicit Parts(const std::string& url) {
    const size_t user_at = url.find("//") + 2;
    const size_t password_at = url.find(':', user_at) + 1;
    const size_t place_at = url.rfind('@') + 1;
    user = url.substr(user_at, password_at - 1 - user_at);
    password = url.substr(password_at, place_at - 1 - password_at);
    place = url.substr(place_at);
  }
};

// ---- the URL ----

TEST_CASE("postgres URL: what is said and what is not", "[postgres]") {
  const Url plain = ReadUrl("postgres://user:secret@host:5433/db").value();
  CHECK(plain.schema == "semaphored");
  CHECK(plain.lanes == 2);
  CHECK(plain.history_rows == 100'000);
  CHECK(plain.timeout == milliseconds(2500));
  CHECK(plain.manage_schema);
  CHECK_THAT(plain.connection, ContainsSubstring("postgres://user:secret@host:5433/db?"));
  CHECK_THAT(plain.connection, ContainsSubstring("target_session_attrs=read-write"));
  CHECK_THAT(plain.connection, ContainsSubstring("connect_timeout=2"));

  const Url full = ReadUrl(
                       "postgres://host/db?schema=other_1&lanes=7&history_rows=0&"
                       "history_age_ms=5000&timeout_ms=900&manage_schema=no&"
                       "sslmode=disable&connect_timeout=9&application_name=mine")
                       .value();
  CHECK(full.schema == "other_1");
  CHECK(full.lanes == 7);
  CHECK(full.history_rows == 0);
  CHECK(full.history_age_ms == 5000);
  CHECK(full.timeout == milliseconds(900));
  CHECK_FALSE(full.manage_schema);
  // Those of libpq go to it, and what is given is not set again.
  CHECK_THAT(full.connection, ContainsSubstring("sslmode=disable"));
  CHECK_THAT(full.connection, ContainsSubstring("connect_timeout=9"));
  CHECK_FALSE(absl::StrContains(full.connection, "connect_timeout=2"));
  CHECK_FALSE(absl::StrContains(full.connection, "application_name=semaphored"));
  CHECK_FALSE(absl::StrContains(full.connection, "lanes"));
  CHECK_FALSE(absl::StrContains(full.connection, "schema="));

  CHECK(ReadUrl("postgres:///?service=name").ok());
  CHECK(ReadUrl("postgres://").ok());
  CHECK(ReadUrl("postgresql://one,two:5433/db").ok());
  CHECK(ReadUrl("postgres://host?schema=x").ok());
}

TEST_CASE("postgres URL: what is wrong is named, and no password with it", "[postgres]") {
  struct Wrong {
    std::string options;
    std::string named;
  };
  const auto wrong = GENERATE(
      Wrong{"unknown=1", "unknown"}, Wrong{"schema=", "schema="}, Wrong{"schema=Semaphored", "a-z"},
      Wrong{"schema=1st", "digit"}, Wrong{"schema=pg_mine", "pg_"}, Wrong{"schema=a-b", "a-z"},
      Wrong{"schema=x;drop", "a-z"}, Wrong{"schema=a%20b", "a-z"},
      Wrong{"schema=" + std::string(41, 'a'), "40"}, Wrong{"lanes=0", "from 1 to"},
      Wrong{"lanes=65", "64"}, Wrong{"lanes=two", "lanes=two"}, Wrong{"timeout_ms=99", "from 100"},
      Wrong{"timeout_ms=60001", "60000"}, Wrong{"history_rows=-1", "history_rows"},
      Wrong{"history_age_ms=999", "history_age_ms"}, Wrong{"manage_schema=maybe", "yes or no"},
      Wrong{"password_file=/nowhere/at/all", "/nowhere/at/all"}, Wrong{"flag", "not understood"},
      Wrong{"sslmode=a=b", "sslmode"}, Wrong{"password=%zz-secret", "right is postgres://"});
  CAPTURE(wrong.options);
  const absl::Status status = ReadUrl("postgres://user:secret@host/db?" + wrong.options).status();
  CHECK(status.code() == kInvalid);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(wrong.named));
  CHECK_FALSE(absl::StrContains(status.message(), "secret"));
}

TEST_CASE("postgres URL: a password that needs escaping is not told", "[postgres]") {
  // Characters that end a part of a URL: whoever forgets to escape them has made another URL.
  const std::string url = GENERATE(
      "postgres://user:se/secret@host.invalid/db", "postgres://user:se#secret@host.invalid/db",
      "postgres://user:se%secret@host.invalid/db", "postgres://user:se:secret@host.invalid/db");
  CAPTURE(url);
  const absl::Status status = OpenEngine(url).status();
  CHECK_FALSE(status.ok());
  CHECK_FALSE(absl::StrContains(status.message(), "secret"));
}

TEST_CASE("postgres URL: what follows a character that was not escaped is not told", "[postgres]") {
  const std::string url = GENERATE("postgres://user:se?secret@host.invalid/db",
                                   "postgres://user:se@secret@host.invalid/db",
                                   "postgres://user@host.invalid/db?password=se&secret");
  CAPTURE(url);
  CHECK_FALSE(absl::StrContains(OpenEngine(url).status().message(), "secret"));
}

TEST_CASE("postgres URL: a password file", "[postgres]") {
  TestSchema schema;
  const Parts parts(schema.ServerUrl());
  const auto open = [&](const TemporaryFile& file) {
    return OpenEngine(absl::StrCat("postgres://", parts.user, "@", parts.place,
                                   "?schema=", schema.name(), "&password_file=", file.path()))
        .status();
  };
  CHECK(open(TemporaryFile(parts.password + "\n")).ok());
  CHECK(open(TemporaryFile(parts.password)).ok());
  const absl::Status wrong = open(TemporaryFile("secret & 'more'\n"));
  CHECK(wrong.code() == absl::StatusCode::kPermissionDenied);
  CHECK_FALSE(absl::StrContains(wrong.message(), "secret"));
  CHECK(open(TemporaryFile("")).code() == kInvalid);
  // Whatever characters it has.
  const TemporaryFile odd("a b&c=%41?#/@:\xc3\xa9\n");
  const Url url = ReadUrl("postgres://u@h/d?password_file=" + odd.path()).value();
  CHECK_THAT(url.connection, ContainsSubstring("password=a%20b%26c%3D%2541%3F%23%2F%40%3A%C3%A9"));
}

TEST_CASE("postgres URL: several hosts, and services of libpq", "[postgres]") {
  TestSchema schema;
  const Parts parts(schema.ServerUrl());
  SECTION("the one that answers is taken") {
    const auto engine =
        OpenEngine(absl::StrCat("postgres://", parts.user, ":", parts.password, "@127.0.0.1:1,",
                                parts.place, "?schema=", schema.name()));
    CHECK(engine.ok());
  }
  SECTION("a service says the rest") {
    const size_t colon = parts.place.find(':');
    const size_t slash = parts.place.find('/');
    const TemporaryFile services(absl::StrCat(
        "[unit]\nhost=", parts.place.substr(0, colon),
        "\nport=", parts.place.substr(colon + 1, slash - colon - 1), "\nuser=", parts.user,
        "\npassword=", parts.password, "\ndbname=", parts.place.substr(slash + 1), "\n"));
    setenv("PGSERVICEFILE", services.path().c_str(), 1);
    const auto engine = OpenEngine("postgres:///?service=unit&schema=" + schema.name());
    const auto unknown = OpenEngine("postgres:///?service=other&schema=" + schema.name());
    unsetenv("PGSERVICEFILE");
    CHECK(engine.ok());
    CHECK_THAT(std::string(unknown.status().message()), ContainsSubstring("other"));
  }
}

TEST_CASE("postgres: why it cannot be opened is told without the password", "[postgres]") {
  TestSchema schema;
  const Parts parts(schema.ServerUrl());
  const auto open = [&](const std::string& user, const std::string& place) {
    return OpenEngine(absl::StrCat("postgres://", user, ":secret@", place)).status();
  };
  const absl::Status denied = open(parts.user, parts.place);
  CHECK(denied.code() == absl::StatusCode::kPermissionDenied);
  const absl::Status nobody = open("nobody", parts.place);
  CHECK(nobody.code() == absl::StatusCode::kPermissionDenied);
  const absl::Status closed = open(parts.user, "127.0.0.1:1/db");
  CHECK(closed.code() == absl::StatusCode::kUnavailable);
  const absl::Status absent = open(parts.user, "host.invalid/db");
  CHECK(absent.code() == absl::StatusCode::kUnavailable);
  for (const absl::Status& status : {denied, nobody, closed, absent}) {
    CAPTURE(status.ToString());
    CHECK_FALSE(absl::StrContains(status.message(), "secret"));
  }
  const absl::Status database =
      OpenEngine(WithPort(schema.ServerUrl(), schema.port()) + "_absent").status();
  CHECK(database.code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE(absl::StrContains(database.message(), parts.password));
}

// ---- the schema ----

TEST_CASE("postgres: an empty database is not touched with manage_schema=no", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  const std::string url = schema.Url("&manage_schema=no");
  const absl::Status refused = OpenEngine(url).status();
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("semaphored schema --print"));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring(schema.name() + " is absent"));
  CHECK(other.Number("SELECT count(*) FROM pg_namespace WHERE nspname = '" + schema.name() + "'") ==
        0);
  // What it names is enough.
  other.Run(EngineSchema(url).value());
  const auto engine = OpenEngine(url);
  REQUIRE(engine.ok());
  CHECK((*engine)->nodes().Join("a").ok());
}

TEST_CASE("postgres: a schema that takes newer daemons only is refused", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  REQUIRE(OpenEngine(schema.Url()).ok());
  const std::string manage = GENERATE("&manage_schema=yes", "&manage_schema=no");
  // Newer, but it takes us.
  other.Run("UPDATE semaphored.store SET version = 9");
  CHECK(OpenEngine(schema.Url(manage)).ok());
  other.Run("UPDATE semaphored.store SET oldest_daemon = 8");
  const absl::Status refused = OpenEngine(schema.Url(manage)).status();
  CHECK(refused.code() == absl::StatusCode::kUnimplemented);
  for (const std::string& told :
       {schema.name() + " has version 9", std::string("newer semaphored"),
        std::string("version 8 or later"), absl::StrCat("this one knows ", kSchemaVersion)})
    CHECK_THAT(std::string(refused.message()), ContainsSubstring(told));
  CHECK(other.Number("SELECT version FROM semaphored.store") == 9);
}

TEST_CASE("postgres: engines that open at the same moment make one schema", "[postgres]") {
  for (int round = 0; round < 5; ++round) {
    TestSchema schema;
    std::vector<std::future<absl::Status>> opened;
    // They wait for each other, on a busy machine for longer than the default.
    const std::string url = schema.Url("&timeout_ms=20000&connect_timeout=20");
    for (int i = 0; i < 4; ++i) {
      opened.push_back(std::async(std::launch::async, [&] { return OpenEngine(url).status(); }));
    }
    for (auto& each : opened) {
      const absl::Status status = each.get();
      CAPTURE(status.ToString());
      CHECK(status.ok());
    }
    Client other = schema.Connect();
    CHECK(other.Number("SELECT version FROM semaphored.store") == kSchemaVersion);
  }
}

// ---- fail-overs ----

// A store as a server that was promoted since would have it: commits may be missing.
struct FailedOver {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore before = Open(schema);
  uint64_t token = 0;  // The highest that was given before.

  explicit FailedOver(int64_t withheld_ms, bool synchronous = false) {
    const SemaphoreRow row = Make(before, "s");
    const LeasePtr lease = MakeLease(before, 1);
    lease->ttl_ms = 50;
    Transaction grant = Grant(before, row, lease);
    REQUIRE(before.Commit(grant).kind == ledger::CommitResult::Kind::kWon);
    token = lease->token;
    CHECK_FALSE(before.store->GrantsWithheld());
    other.Run(absl::StrCat("UPDATE semaphored.store SET timeline = '000000FF', synchronous = ",
                           synchronous ? "true" : "false", ", withheld_ms = ", withheld_ms));
  }
  int64_t epoch() { return other.Number("SELECT epoch FROM semaphored.store"); }
  bool withheld() { return other.Number("SELECT withheld::int FROM semaphored.store") == 1; }
};

uint64_t NextToken(OpenStore& open) {
  const LeasePtr lease = MakeLease(open, 9, 2);
  Transaction grant = Grant(open, LoadOne(open, "s").row, lease);
  REQUIRE(open.Commit(grant).kind == ledger::CommitResult::Kind::kWon);
  return lease->token;
}

TEST_CASE("postgres: after a fail-over tokens go on far above and grants wait", "[postgres]") {
  FailedOver failed(2500);
  const auto start = SteadyClock::now();
  OpenStore open = Open(failed.schema, {.node_id = "b"});
  CHECK(failed.epoch() == 1);
  CHECK(failed.other.Text("SELECT timeline FROM semaphored.store") == "00000001");
  CHECK(open.store->GrantsWithheld());
  CHECK(NextToken(open) > uint64_t{1} << 48);
  // From SQL neither.
  CHECK(failed.other.Run("SELECT * FROM semaphored.claim('s')").empty());
  REQUIRE(Within10s([&] { return !open.store->GrantsWithheld(); }));
  CHECK(SteadyClock::now() - start >= milliseconds(2500));
  CHECK_FALSE(failed.withheld());
  CHECK_FALSE(open.store->GrantsWithheld());
  CHECK(failed.other.Run("SELECT * FROM semaphored.claim('s')").size() == 1);
  // Once is enough for one fail-over.
  OpenStore later = Open(failed.schema, {.node_id = "c"});
  CHECK(failed.epoch() == 1);
  CHECK_FALSE(later.store->GrantsWithheld());
  // And a second one is a second one.
  failed.other.Run("UPDATE semaphored.store SET timeline = '000000FE'");
  OpenStore second = Open(failed.schema, {.node_id = "d"});
  CHECK(failed.epoch() == 2);
  CHECK(second.store->GrantsWithheld());
  CHECK(failed.other.Number("SELECT last_value FROM semaphored.tokens") >= int64_t{2} << 48);
}

TEST_CASE("postgres: grants wait for the longest time-to-live that is known", "[postgres]") {
  FailedOver failed(10);
  failed.other.Run("UPDATE semaphored.leases SET ttl_ms = 700");
  const auto start = SteadyClock::now();
  OpenStore open = Open(failed.schema, {.node_id = "b"});
  REQUIRE(Within10s([&] { return !open.store->GrantsWithheld(); }));
  CHECK(SteadyClock::now() - start >= milliseconds(700));
}

TEST_CASE("postgres: that grants need not wait any more is told to all, also under a lock",
          "[postgres]") {
  FailedOver failed(0);
  failed.other.Run("UPDATE semaphored.leases SET ttl_ms = 0");
  const SemaphoreRow stale = LoadOne(failed.before, "s").row;
  OpenStore open = Open(failed.schema, {.node_id = "b"});
  failed.other.Run("UPDATE semaphored.semaphores SET revision = revision + 1");
  Transaction late = Grant(open, stale, MakeLease(open, 2, 2));
  late.attempt = 3;  // From here on in a transaction that holds the lock.
  REQUIRE(open.Commit(late).kind == ledger::CommitResult::Kind::kLost);
  // Under a lock nothing is written that may be taken back: it goes on being withheld.
  CHECK(open.store->GrantsWithheld());
  REQUIRE(open.store->Wait(SteadyClock::now()).ok());  // Ends the lock.
  REQUIRE(Within10s([&] { return !open.store->GrantsWithheld(); }));
  CHECK_FALSE(failed.withheld());
}

TEST_CASE("postgres: a daemon that connects again notices a fail-over", "[postgres]") {
  FailedOver failed(60'000);
  OpenStore& open = failed.before;
  // Nothing has happened yet that would tell it.
  CHECK_FALSE(open.store->GrantsWithheld());
  failed.other.Run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
      "WHERE usename = current_user AND pid <> pg_backend_pid() AND query LIKE '%" +
      failed.schema.name() + "%'");
  // The engine's own connections look, the heartbeat's among them.
  REQUIRE(Within10s([&] { return open.engine->nodes().Heartbeat().ok(); }));
  CHECK(failed.epoch() == 1);
  // The lane's was ended too: it is made anew, and tells.
  REQUIRE(Within10s([&] { return open.store->Names("", "", 1).ok(); }));
  CHECK(open.store->GrantsWithheld());
  CHECK(open.store->TakeMissedNotices());
}

TEST_CASE("postgres: a standby that was synchronous has lost nothing", "[postgres]") {
  FailedOver failed(60'000, /*synchronous=*/true);
  OpenStore open = Open(failed.schema, {.node_id = "b"});
  CHECK(failed.epoch() == 0);
  CHECK_FALSE(failed.withheld());
  CHECK(failed.other.Text("SELECT timeline FROM semaphored.store") == "00000001");
  CHECK_FALSE(open.store->GrantsWithheld());
  const uint64_t token = NextToken(open);
  CHECK(token > failed.token);
  CHECK(token < uint64_t{1} << 48);
}

}  // namespace
}  // namespace semaphored::postgres
