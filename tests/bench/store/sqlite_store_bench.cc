// What the embedded store can do alone, without daemon and rules: whole cycles (an acquire and the
// release of it, each with revision, lease, request and history) at several operations a commit,
// with real syncs.
//
//   sqlite_store_bench FOLDER [SECONDS [OPERATIONS_PER_COMMIT...]]
//
// In a commit of N operations N/2 leases are granted and those of the commit before released, each
// on a semaphore of its own. Prints cycles/s, the CPU's part of it, bytes written, and how long
// commits took.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/sqlite/schema.h"
#include "adapters/sqlite/store.h"

namespace semaphored::sqlite {
namespace {

using Clock = SteadyClock;
using ledger::CommitResult;
using ledger::Transaction;

constexpr uint32_t kClients = 1;
constexpr uint64_t kWindow = 1024;

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint64_t BytesWritten() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (io >> key >> value) {
    if (key == "wchar:") return value;
  }
  return 0;
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class Bench {
 public:
  explicit Bench(const std::string& path) {
    auto database = Database::Open({.path = path, .synchronous = true, .vfs = ""});
    if (!database.ok()) Die(database.status());
    database_ = *std::move(database);
    if (absl::Status status = PrepareSchema(*database_); !status.ok()) Die(status);
    nodes_ = std::make_shared<NodeTable>(database_);
    self_ = nodes_->Join("bench").value();
    store_ = std::make_unique<SqliteStore>(database_, nodes_, StoreOptions());
    if (auto image = store_->LoadAll(); !image.ok()) Die(image.status());
    for (uint32_t client = 1; client <= kClients; ++client)
      clients_.push_back({client, absl::StrCat("client-", client)});
  }

  void MakeSemaphores(size_t count) {
    Transaction transaction;
    transaction.node = self_;
    for (const auto& client : clients_) transaction.new_clients.push_back(client);
    for (size_t i = 0; i < count; ++i) {
      SemaphoreRow& row = rows_.emplace_back();
      row.name = absl::StrCat("team/resource-", i);
      row.limit = 4;
      auto& delta = transaction.semaphores.emplace_back();
      delta.name = row.name;
      delta.after = row;
    }
    Commit(transaction);
    held_.resize(count);
  }

  // Releases what is held on each semaphore of the turn and grants anew.
  size_t Turn(size_t operations) {
    Transaction transaction;
    transaction.node = self_;
    const size_t count = std::max<size_t>(1, operations / 2);
    transaction.semaphores.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      next_ = (next_ + 1) % rows_.size();
      if (operations == 1) next_ = 0;
      auto& delta = transaction.semaphores.emplace_back();
      delta.name = rows_[next_].name;
      delta.before = rows_[next_];
      // One operation: grants and releases by turns.
      const bool release = held_[next_] != nullptr;
      if (release) Release(&delta, &transaction);
      if (operations > 1 || !release) Grant(&delta, &transaction);
      delta.after = rows_[next_];
    }
    transaction.request_floors.push_back({1, sequence_ > kWindow ? sequence_ - kWindow : 0});
    Commit(transaction);
    return operations == 1 ? 1 : 2 * count;
  }

 private:
  void Remember(ledger::RequestRow::State state, const LeasePtr& lease, Transaction* transaction) {
    ledger::RequestRow& row = transaction->requests.emplace_back().row;
    row.request = {static_cast<uint32_t>(1 + sequence_ % kClients), ++sequence_};
    row.fingerprint = {sequence_, sequence_};
    row.state = state;
    row.semaphore = rows_[next_].name;
    if (row.pinned()) row.claim = lease->id;
    row.number = 1;
  }

  void Grant(ledger::SemaphoreDelta* delta, Transaction* transaction) {
    auto lease = std::make_shared<Lease>();
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    lease->id = {random_, ++ids_};
    lease->session = {1, 1};
    lease->host = self_;
    lease->order = rows_[next_].next_order++;
    lease->ttl_ms = 30'000;
    lease->holder = "host-17/4242";
    lease->slots = {1};
    lease->granted_at_unix_ms = 1'700'000'000'000;
    Remember(ledger::RequestRow::State::kGranted, lease, transaction);
    lease->request = transaction->requests.back().row.request;
    lease->fingerprint = transaction->requests.back().row.fingerprint;
    delta->leases.push_back({nullptr, lease, EndCause::kNone});
    held_[next_] = std::move(lease);
  }

  void Release(ledger::SemaphoreDelta* delta, Transaction* transaction) {
    LeasePtr& lease = held_[next_];
    delta->leases.push_back({lease, nullptr, EndCause::kReleased});
    transaction->history.push_back(
        {0, rows_[next_].name, lease, 1'700'000'000'100, EndCause::kReleased});
    ledger::RequestChange& ended = transaction->requests.emplace_back();
    ended.op = ledger::RequestChange::Op::kUpdate;
    ended.row.request = lease->request;
    ended.row.state = ledger::RequestRow::State::kEnded;
    Remember(ledger::RequestRow::State::kDone, lease, transaction);
    lease = nullptr;
  }

  void Commit(Transaction& transaction) {
    CommitResult result = store_->Commit(transaction, SteadyTime::max());
    if (result.kind != CommitResult::Kind::kWon) Die(result.status);
    for (const auto& delta : transaction.semaphores) {
      const size_t number =
          std::strtoull(delta.name.c_str() + sizeof("team/resource-") - 1, nullptr, 10);
      rows_[number].revision = delta.revision;
    }
  }

  std::shared_ptr<Database> database_;
  std::shared_ptr<NodeTable> nodes_;
  std::unique_ptr<SqliteStore> store_;
  NodeRef self_;
  std::vector<ledger::NewClient> clients_;
  std::vector<SemaphoreRow> rows_;
  std::vector<LeasePtr> held_;
  size_t next_ = 0;
  uint64_t sequence_ = 0;
  uint64_t ids_ = 0;
  uint64_t random_ = 1;
};

void Run(const std::string& folder, double seconds, size_t operations) {
  const std::string path = folder + "/bench.db";
  for (const char* suffix : {"", "-wal", ".lock"}) std::filesystem::remove(path + suffix);
  Bench bench(path);
  bench.MakeSemaphores(std::max<size_t>(1, operations / 2));
  for (int i = 0; i < 50; ++i) bench.Turn(operations);

  std::vector<double> commits_ms;
  uint64_t done = 0;
  const double cpu = CpuSeconds();
  const uint64_t bytes = BytesWritten();
  const auto start = Clock::now();
  auto now = start;
  while (now - start < std::chrono::duration<double>(seconds)) {
    const auto before = now;
    done += bench.Turn(operations);
    now = Clock::now();
    commits_ms.push_back(std::chrono::duration<double, std::milli>(now - before).count());
  }
  const double took = std::chrono::duration<double>(now - start).count();
  const double cycles = static_cast<double>(done) / 2;
  std::ranges::sort(commits_ms);
  const auto at = [&](double part) {
    return commits_ms[static_cast<size_t>(part * static_cast<double>(commits_ms.size() - 1))];
  };
  std::printf(
      "%4zu operations a commit: %8.0f cycles/s %6.0f commits/s  %4.2f cores  %5.2f us CPU a cycle "
      " %6.0f B a cycle  commit ms p50 %.3f p99 %.3f max %.3f\n",
      operations, cycles / took, static_cast<double>(commits_ms.size()) / took,
      (CpuSeconds() - cpu) / took, 1e6 * (CpuSeconds() - cpu) / cycles,
      static_cast<double>(BytesWritten() - bytes) / cycles, at(0.5), at(0.99), commits_ms.back());
  for (const char* suffix : {"", "-wal", ".lock"}) std::filesystem::remove(path + suffix);
}

}  // namespace
}  // namespace semaphored::sqlite

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: sqlite_store_bench FOLDER [SECONDS [OPERATIONS_PER_COMMIT...]]\n");
    return 2;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  std::vector<size_t> operations = {1, 16, 256};
  if (argc > 3) operations.clear();
  for (int i = 3; i < argc; ++i) operations.push_back(std::strtoull(argv[i], nullptr, 10));
  for (size_t each : operations) semaphored::sqlite::Run(argv[1], seconds, each);
  return 0;
}
