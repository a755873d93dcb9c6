// The engines that the contract is run on.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <pqxx/pqxx>

#include "absl/strings/str_replace.h"
#include "adapters/consul/client.h"
#include "adapters/consul/engine.h"
#include "adapters/consul/keys.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/dynamodb/table.h"
#include "adapters/postgres/schema.h"
#include "adapters/rabbitmq/engine.h"
#include "adapters/steady_clock.h"
#include "tests/contract/contract.h"
#include "tests/contract/shared_engine.h"

namespace semaphored::contract {
namespace {

namespace fs = std::filesystem;

class SqliteInMemory : public Fixture {
 public:
  absl::StatusOr<std::unique_ptr<Engine>> Open() override { return OpenEngine("sqlite::memory:"); }
  bool can_restart() const override { return false; }
};

// A file in a folder of its own. `options` are those of the URL, after the '?'.
class SqliteOnDisk : public Fixture {
 public:
  explicit SqliteOnDisk(std::string options) : options_(std::move(options)) {
    std::string pattern = (fs::temp_directory_path() / "semaphored-contract-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~SqliteOnDisk() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  absl::StatusOr<std::unique_ptr<Engine>> Open() override {
    return OpenEngine("sqlite://" + (folder_ / "state.db").string() + options_);
  }
  bool can_restart() const override { return true; }

 private:
  const std::string options_;
  fs::path folder_;
};

// A schema of its own in the database that the test command has started, which another role than the
// daemon's has made.
class Postgres : public Fixture {
 public:
  Postgres() {
    const char* file = std::getenv("SEMAPHORED_TEST_POSTGRES_URL_FILE");
    INFO(
        "SEMAPHORED_TEST_POSTGRES_URL_FILE names the file with the URL of a Postgres for tests; "
        "ctest sets it");
    REQUIRE(file != nullptr);
    std::ifstream stream(file);
    REQUIRE(std::getline(stream, url_));
    const std::string name(file);
    std::ifstream daemon(name + ".daemon");
    REQUIRE(std::getline(daemon, daemon_url_));
    static int count = 0;
    schema_ = "contract_" + std::to_string(getpid()) + "_" + std::to_string(++count);
    // The daemon's role has the rights that docs/postgres.md prints, and owns nothing.
    std::ifstream rights(fs::path(name).replace_filename("rights.sql"));
    std::stringstream text;
    text << rights.rdbuf();
    REQUIRE(!text.str().empty());
    pqxx::connection connection(url_);
    pqxx::work work(connection);
    work.exec("SET client_min_messages = error");
    // The right to connect is one row of the catalogue, which another test may just be writing.
    work.exec("SELECT pg_advisory_xact_lock(1)");
    work.exec(postgres::SchemaSql(schema_));
    work.exec(absl::StrReplaceAll(text.str(), {{"{schema}", schema_}}));
    work.commit();
  }
  ~Postgres() override {
    pqxx::connection connection(url_);
    pqxx::nontransaction(connection)
        .exec("SET client_min_messages = error; DROP SCHEMA IF EXISTS " + schema_ + " CASCADE");
  }

  absl::StatusOr<std::unique_ptr<Engine>> Open() override {
    // The wall clock of a case stands in the past; its history is not to be too old for that.
    return OpenEngine(daemon_url_ +
                      "?lanes=2&history_age_ms=9000000000000&manage_schema=no&schema=" + schema_);
  }
  bool can_restart() const override { return true; }
  bool AddToCounter(const std::string& node_id, int by) override {
    pqxx::connection connection(url_);
    pqxx::nontransaction work(connection);
    work.exec("UPDATE " + schema_ + ".nodes SET counter = counter + " + std::to_string(by) +
              " WHERE node_id = " + work.quote(node_id));
    return true;
  }

 private:
  std::string url_;  // As the owner.
  std::string daemon_url_;
  std::string schema_;
};

// Queues of its own, under a prefix, in the broker that the test command has started.
class Rabbit : public Fixture {
 public:
  explicit Rabbit(const std::string& layout) {
    const char* file = std::getenv("SEMAPHORED_TEST_RABBITMQ_URL_FILE");
    INFO(
        "SEMAPHORED_TEST_RABBITMQ_URL_FILE names the file with the URL of a RabbitMQ for tests; "
        "ctest sets it");
    REQUIRE(file != nullptr);
    std::ifstream stream(file);
    REQUIRE(std::getline(stream, url_));
    static int count = 0;
    prefix_ = "contract-" + std::to_string(getpid()) + "-" + std::to_string(++count) + "-";
    // What a broker on a busy machine does late is no fault, and would end the leases of a case.
    url_ += "?layout=" + layout + "&timeout_ms=20000&prefix=" + prefix_;
  }
  ~Rabbit() override { rabbitmq::RemoveAll(url_).IgnoreError(); }

  absl::StatusOr<std::unique_ptr<Engine>> Open() override { return OpenEngine(url_); }
  bool can_restart() const override { return true; }

 private:
  std::string url_;
  std::string prefix_;
};

// Keys of its own, under a prefix, in the Consul that the test command has started.
class Consul : public Fixture {
 public:
  // `options` are those of the URL, after the prefix.
  explicit Consul(const std::string& options = "") {
    const char* file = std::getenv("SEMAPHORED_TEST_CONSUL_URL_FILE");
    INFO(
        "SEMAPHORED_TEST_CONSUL_URL_FILE names the file with the URL of a Consul for tests; ctest "
        "sets it");
    REQUIRE(file != nullptr);
    std::ifstream stream(file);
    REQUIRE(std::getline(stream, url_));
    static int count = 0;
    url_ += "/contract-" + std::to_string(getpid()) + "-" + std::to_string(++count) + options;
  }
  ~Consul() override { consul::RemoveAll(url_).IgnoreError(); }

  absl::StatusOr<std::unique_ptr<Engine>> Open() override { return OpenEngine(url_); }
  bool can_restart() const override { return true; }
  bool AddToCounter(const std::string& node_id, int by) override {
    const consul::Url url = consul::ReadUrl(url_).value();
    const consul::Keys keys(url.prefix);
    consul::Client client(url);
    const auto read = [&](const std::string& key) {
      return client.Get(HttpTarget("/v1/kv/", key).Option("raw")).body;
    };
    const auto node = nlohmann::json::parse(read(keys.Node(node_id)));
    const std::string beats = keys.Heartbeat(node.at("number").get<uint32_t>());
    const std::string raised = std::to_string(std::stoll(read(beats)) + by);
    REQUIRE(client.Put(HttpTarget("/v1/kv/", beats), raised).answered());
    return true;
  }

 private:
  std::string url_;
};

// A table of its own in the DynamoDB that the test command has started.
class Dynamo : public Fixture {
 public:
  Dynamo() {
    const char* file = std::getenv("SEMAPHORED_TEST_DYNAMODB_URL_FILE");
    INFO(
        "SEMAPHORED_TEST_DYNAMODB_URL_FILE names the file with the URL of a DynamoDB for tests; "
        "ctest sets it");
    REQUIRE(file != nullptr);
    std::string text;
    std::ifstream stream(file);
    REQUIRE(std::getline(stream, text));
    static int count = 0;
    const std::string options = text.substr(text.find('?'));
    url_ = "dynamodb://local/contract-" + std::to_string(getpid()) + "-" + std::to_string(++count) +
           options;
    parsed_ = dynamodb::ReadUrl(url_).value();
    client_ =
        std::make_unique<dynamodb::Client>(parsed_, dynamodb::FindCredentials("", parsed_.region));
    // Without its TTL: the wall clock of a case stands in the past.
    const dynamodb::Reply made = client_->Repeat(
        {"CreateTable", dynamodb::json::parse(dynamodb::TableDefinition(parsed_.table))},
        SteadyClock::now() + parsed_.timeout);
    INFO(made.status.ToString());
    REQUIRE(made.answered());
  }
  ~Dynamo() override {
    (void)client_->Repeat({"DeleteTable", dynamodb::json::object({{"TableName", parsed_.table}})},
                          SteadyClock::now() + parsed_.timeout);
  }

  absl::StatusOr<std::unique_ptr<Engine>> Open() override { return OpenEngine(url_); }
  bool can_restart() const override { return true; }
  bool AddToCounter(const std::string& node_id, int by) override {
    dynamodb::Change change;
    const SteadyTime deadline = SteadyClock::now() + parsed_.timeout;
    const dynamodb::Reply read =
        client_->Repeat(dynamodb::GetItem(parsed_.table, dynamodb::NodeKey(node_id)), deadline);
    REQUIRE(read.answered());
    const uint64_t beats = dynamodb::NumberIn(read.body.at("Item"), "beats");
    change.set.emplace_back("beats", dynamodb::Number(static_cast<int64_t>(beats) + by));
    const dynamodb::Reply raised =
        client_->Repeat(dynamodb::UpdateItem(parsed_.table, dynamodb::NodeKey(node_id), change,
                                             dynamodb::Condition::Present()),
                        deadline);
    INFO(raised.status.ToString());
    REQUIRE(raised.answered());
    return true;
  }

 private:
  std::string url_;
  dynamodb::Url parsed_;
  std::unique_ptr<dynamodb::Client> client_;
};

}  // namespace

const std::vector<EngineUnderTest>& EnginesUnderTest() {
  static const auto* engines = new std::vector<EngineUnderTest>{
      {"sqlite-memory", [] { return std::make_unique<SqliteInMemory>(); }},
      {"sqlite-disk", [] { return std::make_unique<SqliteOnDisk>(""); }},
      // As on disk, but one guarantee less: what it cannot do must be refused, and nothing else
      // change.
      {"sqlite-no-history",
       [] { return std::make_unique<SqliteOnDisk>("?history_rows=0&synchronous=off"); }},
      {"postgres", [] { return std::make_unique<Postgres>(); }},
      {"consul", [] { return std::make_unique<Consul>(); }},
      {"consul-daemon", [] { return std::make_unique<Consul>("?sessions=daemon"); }},
      {"dynamodb", [] { return std::make_unique<Dynamo>(); }},
      {"rabbitmq", [] { return std::make_unique<Rabbit>("tokens"); }},
      {"rabbitmq-slots", [] { return std::make_unique<Rabbit>("slots"); }},
      {"shared", [] { return MakeSharedFixture(/*lossy=*/false); }},
      {"shared-lossy", [] { return MakeSharedFixture(/*lossy=*/true); }},
      {"shared-silent", [] { return MakeSilentFixture(); }},
  };
  return *engines;
}

}  // namespace semaphored::contract
