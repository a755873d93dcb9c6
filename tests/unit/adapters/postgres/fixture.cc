#include "tests/unit/adapters/postgres/fixture.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/engine.h"
#include "adapters/postgres/schema.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {
namespace {

std::string ServerUrlFromEnvironment() {
  const char* path = std::getenv("SEMAPHORED_TEST_POSTGRES_URL_FILE");
  std::string url;
  if (path == nullptr || !std::getline(std::ifstream(path), url)) {
    throw std::runtime_error(
        "SEMAPHORED_TEST_POSTGRES_URL_FILE names the file with the URL of a Postgres for tests; "
        "ctest sets it");
  }
  return url;
}

}  // namespace

// ---- the database ----

Client::Client(const std::string& url, std::string schema)
    : schema_(std::move(schema)), connection_(url) {
  Run("SET client_min_messages = error");
}

pqxx::result Client::Run(const std::string& sql) {
  pqxx::nontransaction work(connection_);
  return work.exec(ForSchema(sql, schema_));
}

std::string WithPort(const std::string& url, uint16_t port) {
  const size_t host = url.rfind('@') + 1;
  const size_t colon = url.find(':', host);
  const size_t slash = url.find('/', host);
  return absl::StrCat(url.substr(0, colon), ":", port, url.substr(slash));
}

TestSchema::TestSchema() : url_(ServerUrlFromEnvironment()) {
  static std::atomic<int> count = 0;
  name_ = absl::StrCat("unit_", getpid(), "_", ++count);
  port_ = static_cast<uint16_t>(std::stoi(url_.substr(url_.find(':', url_.rfind('@')) + 1)));
}

TestSchema::~TestSchema() {
  try {
    Connect().Run("DROP SCHEMA IF EXISTS " + name_ + " CASCADE");
  } catch (const std::exception&) {
    // The server has gone, as the test has said.
  }
}

std::string TestSchema::ServerUrl(uint16_t port) const {
  return port == 0 ? url_ : WithPort(url_, port);
}

std::string TestSchema::Url(const std::string& options, uint16_t port) const {
  return absl::StrCat(ServerUrl(port), "?schema=", name_, options);
}

std::string TestSchema::For(const std::string& sql) const { return ForSchema(sql, name_); }

// ---- the store ----

OpenStore Open(const TestSchema& schema, const OpenOptions& options) {
  const auto need = [](const absl::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.ToString());
  };
  OpenStore open;
  absl::StatusOr<std::unique_ptr<Engine>> engine = OpenEngine(schema.Url());
  need(engine.status());
  open.engine = *std::move(engine);
  absl::StatusOr<NodeRef> self = open.engine->nodes().Join(options.node_id);
  need(self.status());
  open.self = *self;
  open.guard = std::make_unique<Guard>();
  Connection::Options connection;
  connection.connection = schema.ServerUrl(options.port);
  connection.timeout = options.timeout;
  connection.prepare =
      [settings = ConnectionSettings(options.timeout, options.lock_timeout)](Connection& made) {
        const Answered set = made.Run(settings);
        return set.ok ? absl::OkStatus() : set.failure.status;
      };
  auto made = std::make_unique<Connection>(std::move(connection), open.guard.get());
  open.connection = made.get();
  StoreOptions store = options.store;
  store.schema = schema.name();
  store.self = open.self;
  open.store = std::make_unique<PostgresStore>(std::move(made), open.engine->guarantees(), store);
  need(open.store->Start());
  return open;
}

void DeclareDead(const TestSchema& schema, const NodeRef& dead) {
  const std::unique_ptr<Engine> engine = OpenEngine(schema.Url()).value();
  const std::vector<NodeStore::Node> nodes = engine->nodes().Observe().value();
  const auto seen = std::ranges::find(nodes, dead, &NodeStore::Node::ref);
  if (seen == nodes.end() || !engine->nodes().DeclareDead(*seen).value())
    throw std::runtime_error("it was not declared dead");
}

// ---- transactions ----

Id MakeId(uint64_t number) { return {0x1234567890abcdef, number}; }

LeasePtr MakeLease(const OpenStore& open, uint64_t number, uint32_t slot) {
  auto lease = std::make_shared<Lease>();
  lease->id = lease->session = MakeId(number);
  lease->host = open.self;
  lease->ttl_ms = 30'000;
  lease->holder = "holder";
  lease->slots = {slot};
  lease->order = number;
  return lease;
}

ledger::Transaction Begin(const OpenStore& open) {
  ledger::Transaction transaction;
  transaction.node = open.self;
  return transaction;
}

ledger::Transaction Create(const OpenStore& open, const std::string& name, uint32_t limit) {
  ledger::Transaction transaction = Begin(open);
  ledger::SemaphoreDelta& delta = transaction.semaphores.emplace_back();
  delta.name = name;
  delta.after.emplace();
  delta.after->name = name;
  delta.after->limit = limit;
  return transaction;
}

ledger::SemaphoreDelta& Touch(ledger::Transaction& transaction, const SemaphoreRow& row) {
  ledger::SemaphoreDelta& delta = transaction.semaphores.emplace_back();
  delta.name = row.name;
  delta.before = row;
  delta.after = row;
  return delta;
}

ledger::Transaction Grant(const OpenStore& open, const SemaphoreRow& row, const LeasePtr& lease) {
  ledger::Transaction transaction = Begin(open);
  Touch(transaction, row).leases.push_back({nullptr, lease, EndCause::kNone});
  return transaction;
}

SemaphoreRow Make(OpenStore& open, const std::string& name, uint32_t limit) {
  ledger::Transaction transaction = Create(open, name, limit);
  const ledger::CommitResult result = open.Commit(transaction);
  if (result.kind != ledger::CommitResult::Kind::kWon)
    throw std::runtime_error("not made: " + result.status.ToString());
  return LoadOne(open, name).row;
}

ledger::LoadedSemaphore LoadOne(OpenStore& open, const std::string& name) {
  const std::string names[] = {name};
  absl::StatusOr<ledger::Image> image = open.store->Load(names);
  if (!image.ok()) throw std::runtime_error(image.status().ToString());
  if (image->semaphores.size() != 1) throw std::runtime_error("there is no semaphore " + name);
  return std::move(image->semaphores[0]);
}

// ---- requests ----

ledger::RequestRow MakeRequest(uint64_t sequence, ledger::RequestRow::State state,
                               const Id& claim) {
  ledger::RequestRow row;
  row.request = {1, sequence};
  row.fingerprint = {0xf1f1, sequence};
  row.state = state;
  row.semaphore = "s";
  row.claim = claim;
  return row;
}

ledger::LedgerStore::FoundRequest Find(OpenStore& open, uint64_t sequence,
                                       const std::string& client_id) {
  constexpr uint64_t kWindow = 1024;
  const ledger::NamedRequest asked{{1, sequence}, client_id};
  return open.store->FindRequests({&asked, 1}, kWindow).value().at(0);
}

// ---- waiting ----

bool Within10s(const std::function<bool()>& condition) {
  const auto deadline = SteadyClock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

int64_t WaitingForLocks(Client& client, const TestSchema& schema) {
  return client.Number(
      "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
      "AND query LIKE '%" +
      schema.name() + ".%'");
}

}  // namespace semaphored::postgres
