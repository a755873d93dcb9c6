#include "tests/unit/adapters/sqlite/fixture.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "adapters/sqlite/schema.h"

namespace semaphored::sqlite {

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "semaphored-sqlite-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<OpenStore> TryOpen(const DatabaseOptions& options,
                                  const StoreOptions& store_options) {
  auto database = Database::Open(options);
  if (!database.ok()) return database.status();
  OpenStore open;
  open.database = *std::move(database);
  if (absl::Status status = PrepareSchema(*open.database); !status.ok()) return status;
  open.nodes = std::make_shared<NodeTable>(open.database);
  auto self = open.nodes->Join("node");
  if (!self.ok()) return self.status();
  open.self = *self;
  open.store = std::make_unique<SqliteStore>(open.database, open.nodes, store_options);
  auto image = open.store->LoadAll();
  if (!image.ok()) return image.status();
  open.image = *std::move(image);
  return open;
}

OpenStore Open(const std::string& path, const StoreOptions& options, bool synchronous) {
  auto open = TryOpen({.path = path, .synchronous = synchronous, .vfs = ""}, options);
  if (!open.ok()) throw std::runtime_error(open.status().ToString());
  return *std::move(open);
}

Id MakeId(uint64_t number) { return {0x1234567890abcdef, number}; }

SemaphoreRow MakeRow(const std::string& name, uint32_t limit) {
  SemaphoreRow row;
  row.name = name;
  row.limit = limit;
  return row;
}

LeasePtr MakeLease(uint64_t number, uint32_t slot) {
  auto lease = std::make_shared<Lease>();
  lease->id = lease->session = MakeId(number);
  lease->host = {1, 1};
  lease->ttl_ms = 30'000;
  lease->holder = "holder";
  lease->slots = {slot};
  lease->order = number;
  return lease;
}

WaiterPtr MakeWaiter(uint64_t number) {
  auto waiter = std::make_shared<Waiter>();
  waiter->id = waiter->session = MakeId(number);
  waiter->host = {1, 1};
  waiter->order = number;
  waiter->ttl_ms = 1000;
  return waiter;
}

TicketPtr MakeTicket(uint64_t number) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = MakeId(number);
  ticket->order = number;
  ticket->content_type = "text/plain";
  ticket->reasons.push_back({1, "failed", 5});
  return ticket;
}

ledger::RequestChange MakeRequest(uint32_t client, uint64_t sequence,
                                  const std::string& semaphore) {
  ledger::RequestChange change;
  change.row.request = {client, sequence};
  change.row.fingerprint = {7, sequence};
  change.row.state = ledger::RequestRow::State::kDone;
  change.row.semaphore = semaphore;
  change.row.claim = MakeId(sequence);
  return change;
}

std::optional<ledger::RequestRow> FindRequest(const OpenStore& open, uint32_t client,
                                              uint64_t sequence) {
  const ledger::NamedRequest named{{client, sequence}, "any"};
  return open.store->FindRequests({&named, 1}, 1024).value().front().row;
}

ledger::Transaction Begin(const OpenStore& open) {
  ledger::Transaction transaction;
  transaction.node = open.self;
  return transaction;
}

ledger::Transaction Create(const OpenStore& open, const std::string& name) {
  ledger::Transaction transaction = Begin(open);
  auto& delta = transaction.semaphores.emplace_back();
  delta.name = name;
  delta.after = MakeRow(name);
  return transaction;
}

ledger::SemaphoreDelta& Touch(ledger::Transaction& transaction, const SemaphoreRow& row) {
  auto& delta = transaction.semaphores.emplace_back();
  delta.name = row.name;
  delta.before = row;
  delta.after = row;
  return delta;
}

const ledger::LoadedSemaphore* FindSemaphore(const ledger::Image& image, const std::string& name) {
  for (const auto& semaphore : image.semaphores) {
    if (semaphore.row.name == name) return &semaphore;
  }
  return nullptr;
}

}  // namespace semaphored::sqlite
