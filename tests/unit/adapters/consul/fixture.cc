#include "tests/unit/adapters/consul/fixture.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/engine.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::consul {

using ledger::SemaphoreDelta;
using ledger::Transaction;

TestPrefix::TestPrefix() {
  const char* file = std::getenv("SEMAPHORED_TEST_CONSUL_URL_FILE");
  INFO("SEMAPHORED_TEST_CONSUL_URL_FILE names the file with the URL of a Consul; ctest sets it");
  REQUIRE(file != nullptr);
  std::ifstream stream(file);
  std::string url;
  REQUIRE(std::getline(stream, url));
  port_ = static_cast<uint16_t>(ReadUrl(url).value().port);
  static int count = 0;
  prefix_ = absl::StrCat("unit-", getpid(), "-", ++count);
}

TestPrefix::~TestPrefix() { RemoveAll(UrlText()).IgnoreError(); }

std::string TestPrefix::UrlText(const std::string& options, uint16_t port) const {
  return absl::StrCat("consul://127.0.0.1:", port == 0 ? port_ : port, "/", prefix_, options);
}

Url TestPrefix::ParsedUrl(const std::string& options, uint16_t port) const {
  return ReadUrl(UrlText(options, port)).value();
}

std::vector<Entry> TestPrefix::Tree(const std::string& key) const {
  Client client(ParsedUrl());
  const Reply reply = client.Get(HttpTarget("/v1/kv/", key).Option("recurse").Option("consistent"));
  REQUIRE(reply.answered());
  return reply.http_status == 404 ? std::vector<Entry>() : ReadEntries(reply.body).value();
}

std::string TestPrefix::Value(const std::string& key) const {
  for (const Entry& entry : Tree(key)) {
    if (entry.key == key) return entry.value;
  }
  return "";
}

void TestPrefix::Put(const std::string& key, const std::string& value, uint64_t flags) const {
  Client client(ParsedUrl());
  const Reply reply =
      client.Put(HttpTarget("/v1/kv/", key).Option("flags", absl::StrCat(flags)), value);
  REQUIRE(reply.body == "true");
}

void TestPrefix::Lock(const std::string& key, const std::string& session, uint64_t flags) const {
  Client client(ParsedUrl());
  const Reply reply = client.Put(
      HttpTarget("/v1/kv/", key).Option("acquire", session).Option("flags", absl::StrCat(flags)),
      "");
  REQUIRE(reply.body == "true");
}

void TestPrefix::Delete(const std::string& key) const {
  Client client(ParsedUrl());
  TransactionRequest request;
  request.Delete(key);
  REQUIRE(client.Put("/v1/txn", request.Body()).http_status == 200);
}

void TestPrefix::DestroySession(const std::string& session) const {
  Client client(ParsedUrl());
  REQUIRE(client.Put(HttpTarget("/v1/session/destroy/", session), "").http_status == 200);
}

// ---- a foreign client ----

ForeignClient::ForeignClient(const TestPrefix* prefix, std::string name, uint32_t limit)
    : prefix_(prefix), name_(std::move(name)), limit_(limit) {
  Client client(prefix_->ParsedUrl());
  const Reply made = client.Put(
      "/v1/session/create", R"({"Name":"Consul API Semaphore","TTL":"15s","Behavior":"delete"})");
  REQUIRE(made.http_status == 200);
  session_ = nlohmann::json::parse(made.body)["ID"].get<std::string>();
  const Reply contender =
      client.Put(HttpTarget("/v1/kv/", absl::StrCat(prefix_->prefix(), "/", name_, "/", session_))
                     .Option("acquire", session_)
                     .Option("flags", absl::StrCat(kSemaphoreFlags)),
                 "");
  REQUIRE(contender.body == "true");
}

ForeignClient::~ForeignClient() { Die(); }

bool ForeignClient::TryAcquire() {
  const std::string folder = absl::StrCat(prefix_->prefix(), "/", name_);
  LockRecord record;
  record.limit = limit_;
  uint64_t index = 0;
  std::set<std::string> alive;
  for (const Entry& entry : prefix_->Tree(folder)) {
    if (entry.key == folder + "/.lock") {
      REQUIRE(entry.flags == kSemaphoreFlags);
      record = ReadLockRecord(entry.value, entry.flags).value();
      index = entry.modify_index;
    }
    if (!entry.session.empty()) alive.insert(entry.session);
  }
  REQUIRE(record.limit == limit_);
  std::erase_if(record.holders, [&](const std::string& holder) { return !alive.contains(holder); });
  if (record.holders.size() >= record.limit) return false;
  record.holders.insert(session_);
  Client client(prefix_->ParsedUrl());
  return client
             .Put(HttpTarget("/v1/kv/", folder + "/.lock")
                      .Option("cas", absl::StrCat(index))
                      .Option("flags", absl::StrCat(kSemaphoreFlags)),
                  WriteLockRecord(record))
             .body == "true";
}

void ForeignClient::Release() {
  const std::string key = absl::StrCat(prefix_->prefix(), "/", name_, "/.lock");
  Client client(prefix_->ParsedUrl());
  for (const Entry& entry : prefix_->Tree(key)) {
    LockRecord record = ReadLockRecord(entry.value, entry.flags).value();
    record.holders.erase(session_);
    REQUIRE(client
                .Put(HttpTarget("/v1/kv/", key)
                         .Option("cas", absl::StrCat(entry.modify_index))
                         .Option("flags", absl::StrCat(kSemaphoreFlags)),
                     WriteLockRecord(record))
                .body == "true");
  }
  Die();
}

void ForeignClient::Die() {
  if (session_.empty()) return;
  prefix_->DestroySession(session_);
  session_.clear();
}

// ---- a store ----

LockRecord Record(const TestPrefix& prefix, const std::string& name) {
  return ReadLockRecord(prefix.Value(prefix.keys().Lock(name)), kSemaphoreFlags).value();
}

OpenStore Open(const TestPrefix& prefix, uint16_t port, std::chrono::milliseconds timeout) {
  OpenStore open;
  open.engine = OpenEngine(prefix.UrlText()).value();
  open.self = open.engine->nodes().Join("a").value();
  open.store = std::make_unique<ConsulStore>(
      prefix.ParsedUrl(absl::StrCat("?timeout_ms=", timeout.count()), port),
      open.engine->guarantees(), open.self, 0);
  REQUIRE(open.store->Start().ok());
  return open;
}

OpenStore OpenWithPulse(const TestPrefix& prefix, const std::string& node_id) {
  OpenStore open;
  open.engine = OpenEngine(prefix.UrlText()).value();
  open.self = open.engine->nodes().Join(node_id).value();
  const Url url = prefix.ParsedUrl("?sessions=daemon&check_ttl_s=3");
  open.pulse = std::make_unique<Pulse>(url, open.self);
  REQUIRE(open.pulse->Start().ok());
  open.store =
      std::make_unique<ConsulStore>(url, open.engine->guarantees(), open.self, 0, open.pulse.get());
  REQUIRE(open.store->Start().ok());
  return open;
}

Id MakeId(uint64_t number) { return {0x1d, number}; }

ledger::RequestRow MakeRow(uint64_t sequence, ledger::RequestRow::State state,
                           const std::string& semaphore) {
  ledger::RequestRow row;
  row.request = {0, sequence};
  row.fingerprint = {~uint64_t{0}, sequence};
  row.state = state;
  row.semaphore = semaphore;
  row.claim = {sequence, ~uint64_t{0}};
  return row;
}

LeasePtr MakeLease(const OpenStore& open, uint64_t number, uint32_t slot) {
  auto lease = std::make_shared<Lease>();
  lease->id = MakeId(number);
  lease->session = lease->id;
  lease->host = open.self;
  lease->ttl_ms = 30'000;
  lease->order = number;
  lease->holder = "holder";
  lease->slots = {slot};
  return lease;
}

Transaction Begin(const OpenStore& open) {
  Transaction transaction;
  transaction.node = open.self;
  return transaction;
}

Transaction Create(const OpenStore& open, const std::string& name, uint32_t limit) {
  Transaction transaction = Begin(open);
  SemaphoreDelta& delta = transaction.semaphores.emplace_back();
  delta.name = name;
  delta.after.emplace();
  delta.after->name = name;
  delta.after->limit = limit;
  return transaction;
}

Transaction Grant(const OpenStore& open, const SemaphoreRow& row, const LeasePtr& lease) {
  Transaction transaction = Begin(open);
  SemaphoreDelta& delta = transaction.semaphores.emplace_back();
  delta.name = row.name;
  delta.before = row;
  delta.after = row;
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  return transaction;
}

ledger::LoadedSemaphore LoadOne(OpenStore& open, const std::string& name) {
  absl::StatusOr<ledger::Image> image = open.store->Load({&name, 1});
  REQUIRE(image.ok());
  REQUIRE(image->semaphores.size() == 1);
  return std::move(image->semaphores.front());
}

SemaphoreRow Make(OpenStore& open, const std::string& name, uint32_t limit) {
  REQUIRE(open.store->Load({&name, 1}).ok());
  Transaction create = Create(open, name, limit);
  REQUIRE(open.Commit(create).kind == ledger::CommitResult::Kind::kWon);
  return LoadOne(open, name).row;
}

}  // namespace semaphored::consul
