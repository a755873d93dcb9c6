#include "tests/unit/adapters/dynamodb/fixture.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/table.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::dynamodb {

using ledger::SemaphoreDelta;
using ledger::Transaction;

namespace {

class TestKeys : public CredentialSource {
 public:
  absl::StatusOr<Credentials> Get() override { return Credentials{"id", "secret", ""}; }
};

}  // namespace

std::shared_ptr<CredentialSource> TestCredentials() { return std::make_shared<TestKeys>(); }

// ---- the table ----

StoreTable::StoreTable() {
  const char* const file = std::getenv("SEMAPHORED_TEST_DYNAMODB_URL_FILE");
  INFO(
      "SEMAPHORED_TEST_DYNAMODB_URL_FILE names the file with the URL of a DynamoDB; ctest sets it");
  REQUIRE(file != nullptr);
  std::ifstream stream(file);
  std::string text;
  REQUIRE(std::getline(stream, text));
  static int count = 0;
  url_ = ReadUrl(text).value();
  url_.table = absl::StrCat("unit-store-", getpid(), "-", ++count);
  client_ = std::make_unique<Client>(url_, TestCredentials());
  Ask({"CreateTable", json::parse(TableDefinition(url_.table))});
}

StoreTable::~StoreTable() {
  (void)client_->Repeat({"DeleteTable", json::object({{"TableName", url_.table}})}, kNever);
}

uint16_t StoreTable::port() const {
  return static_cast<uint16_t>(std::stoi(url_.endpoint.substr(url_.endpoint.rfind(':') + 1)));
}

Url StoreTable::UrlThrough(const std::string& endpoint, std::chrono::milliseconds timeout) const {
  Url url = url_;
  if (!endpoint.empty()) url.endpoint = endpoint;
  url.timeout = timeout;
  return url;
}

Reply StoreTable::Ask(const Request& request) const {
  Reply reply = client_->Repeat(request, kNever);
  INFO(reply.status.ToString());
  REQUIRE(reply.answered());
  return reply;
}

std::vector<json> StoreTable::Items(const std::string& partition) const {
  Range range;
  range.partition = partition;
  return std::move(QueryAll(client_.get(), url_.table, {range}, kNever).value().front());
}

json StoreTable::Item(const Key& key) const {
  const Reply reply = Ask(GetItem(url_.table, key));
  const auto item = reply.body.find("Item");
  return item == reply.body.end() ? json() : *item;
}

void StoreTable::Put(const json& item) const { Ask(PutItem(url_.table, item, Condition::None())); }

void StoreTable::Delete(const Key& key) const {
  Ask(DeleteItem(url_.table, key, Condition::None()));
}

// ---- the proxy ----

DynamoProxy::DynamoProxy(const StoreTable* table)
    : table_(table),
      http_([this](const LoopbackHttp::Request& request, int) { return Handle(request); }) {}

void DynamoProxy::OnRequest(std::function<void(Passing* passing)> hook) {
  const std::lock_guard lock(mutex_);
  on_request_ = std::move(hook);
}

void DynamoProxy::OnAnswer(std::function<void(const std::string& operation, json* body)> hook) {
  const std::lock_guard lock(mutex_);
  on_answer_ = std::move(hook);
}

DynamoProxy::Counted DynamoProxy::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counted_, {});
}

LoopbackHttp::Answer DynamoProxy::Handle(const LoopbackHttp::Request& request) {
  const std::string target = request.header("x-amz-target");
  Passing passing;
  passing.operation = target.substr(target.find('.') + 1);
  passing.body = json::parse(request.body);
  const std::lock_guard lock(mutex_);
  ++counted_.requests[passing.operation];
  if (passing.body.contains("TransactItems"))
    counted_.items += passing.body["TransactItems"].size();
  if (on_request_) on_request_(&passing);
  if (passing.refuse)
    return {400,
            json({{"__type", "com.amazonaws.dynamodb.v20120810#" + passing.error}}).dump(),
            {},
            passing.lose};
  Client client(table_->url(), TestCredentials());
  Reply reply = client.Repeat({passing.operation, passing.body}, kNever);
  if (reply.answered() && on_answer_) on_answer_(passing.operation, &reply.body);
  return {reply.answered() ? 200 : 400, reply.body.dump(), {}, passing.lose};
}

// ---- a store ----

OpenStore Open(const StoreTable& table, const HowToOpen& how) {
  OpenStore open;
  open.nodes = std::make_unique<NodeTable>(table.url(), TestCredentials());
  open.self = open.nodes->Join(how.node_id).value();
  StoreOptions options;
  options.url = table.UrlThrough(how.endpoint, how.timeout);
  options.self = open.self;
  options.now_unix_ms =
      how.now_unix_ms ? how.now_unix_ms : [] { return int64_t{1'800'000'000'000}; };
  if (how.now) options.now = how.now;
  options.upkeep = open.upkeep;
  open.notice_box =
      std::make_shared<NoticeBox>(table.url(), TestCredentials(), open.self.number, open.upkeep);
  Guarantees guarantees;
  guarantees.adapter = "dynamodb";
  open.store =
      std::make_unique<DynamoStore>(options, guarantees, TestCredentials(), open.notice_box);
  const absl::Status started = open.store->Start();
  INFO(started.ToString());
  REQUIRE(started.ok());
  return open;
}

Id MakeId(uint64_t number) { return {0x1d, number}; }

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

WaiterPtr MakeWaiter(const OpenStore& open, uint64_t number, int32_t priority) {
  auto waiter = std::make_shared<Waiter>();
  waiter->id = MakeId(number);
  waiter->session = waiter->id;
  waiter->host = open.self;
  waiter->ttl_ms = 30'000;
  waiter->order = number;
  waiter->priority = priority;
  waiter->holder = "waiter";
  return waiter;
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

Transaction Touch(const OpenStore& open, const SemaphoreRow& row) {
  Transaction transaction = Begin(open);
  SemaphoreDelta& delta = transaction.semaphores.emplace_back();
  delta.name = row.name;
  delta.before = row;
  delta.after = row;
  return transaction;
}

Transaction Grant(const OpenStore& open, const SemaphoreRow& row, const LeasePtr& lease) {
  Transaction transaction = Touch(open, row);
  transaction.semaphores[0].leases.push_back({nullptr, lease, EndCause::kNone});
  return transaction;
}

namespace {

ledger::RequestChange Changed(ledger::RequestChange::Op op, uint32_t client, uint64_t sequence,
                              ledger::RequestRow::State state) {
  ledger::RequestRow row;
  row.request = {client, sequence};
  row.fingerprint = {0xf1, sequence};
  row.state = state;
  row.semaphore = "s";
  row.claim = MakeId(sequence);
  if (state == ledger::RequestRow::State::kEnded) row.cause = EndCause::kReleased;
  return {op, row};
}

}  // namespace

ledger::RequestChange Insert(uint32_t client, uint64_t sequence, ledger::RequestRow::State state) {
  return Changed(ledger::RequestChange::Op::kInsert, client, sequence, state);
}
ledger::RequestChange Update(uint32_t client, uint64_t sequence, ledger::RequestRow::State state) {
  return Changed(ledger::RequestChange::Op::kUpdate, client, sequence, state);
}
ledger::RequestChange Remove(uint32_t client, uint64_t sequence) {
  return Changed(ledger::RequestChange::Op::kRemove, client, sequence,
                 ledger::RequestRow::State::kWaiting);
}

ledger::LoadedSemaphore LoadOne(OpenStore& open, const std::string& name) {
  absl::StatusOr<ledger::Image> image = open.store->Load({&name, 1});
  INFO(image.status().ToString());
  REQUIRE(image.ok());
  REQUIRE(image->semaphores.size() == 1);
  return std::move(image->semaphores.front());
}

SemaphoreRow Make(OpenStore& open, const std::string& name, uint32_t limit) {
  REQUIRE(open.store->Load({&name, 1}).ok());
  Transaction create = Create(open, name, limit);
  REQUIRE(open.Commit(create).kind == ledger::CommitResult::Kind::kWon);
  return After(create);
}

SemaphoreRow After(const Transaction& transaction) {
  SemaphoreRow row = transaction.semaphores.at(0).after.value();
  row.revision = transaction.semaphores.at(0).revision;
  return row;
}

}  // namespace semaphored::dynamodb
