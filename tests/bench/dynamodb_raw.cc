// What DynamoDB gives without a daemon: conditional transactions of as many items as a cycle of the
// daemon has, five to acquire (the lane's number, the semaphore's revision, lease, answer, and the
// session's epoch looked at) and five to release (number, revision, lease, answer, history). Each
// client has items and a connection of its own.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/requests.h"
#include "tests/bench/loop.h"
#include "tests/bench/meter.h"
#include "tests/bench/modes.h"

namespace semaphored::bench {
namespace {

using dynamodb::Condition;
using dynamodb::json;
using dynamodb::Key;
using dynamodb::TransactionRequest;

constexpr std::chrono::seconds kPatience{5};
// As long as what a daemon writes of a lease.
const std::string kFiller(300, 'x');

struct Shared {
  std::mutex mutex;
  Meter meter;
  Report* report;
  std::atomic<bool> broken = false;
};

class RawClient {
 public:
  RawClient(const dynamodb::Url& url, std::string name, Shared* shared)
      : table_(url.table),
        name_(std::move(name)),
        client_(url, dynamodb::FindCredentials(url.profile, url.region)),
        shared_(shared) {}

  void Run() {
    // What the first conditions rest upon.
    TransactionRequest first(table_);
    for (const char* what : {"LANE", "HEAD", "SESSION"}) first.Put(Item(what, 1));
    if (!Carry(first)) return;
    while (!shared_->broken && !shared_->meter.Over(Clock::now())) {
      const TimePoint sent = Clock::now();
      if (!Acquire()) return;
      const TimePoint acquired = Clock::now();
      if (!Release()) return;
      const std::lock_guard lock(shared_->mutex);
      shared_->meter.Acquired(sent, acquired);
      shared_->meter.CycleDone(sent, Clock::now());
    }
  }

 private:
  Key KeyOf(const std::string& what) const { return {absl::StrCat(what, "#", name_), "ROW"}; }

  json Item(const std::string& what, uint64_t number) const {
    json item = dynamodb::ItemWith(KeyOf(what));
    item["n"] = dynamodb::Number(number);
    dynamodb::SetText(&item, "filler", kFiller);
    return item;
  }

  // Raises what both halves of a cycle raise.
  void Begin(TransactionRequest* transaction) {
    transaction->Put(Item("LANE", number_ + 1), Condition::Present().And("n", number_));
    transaction->Put(Item("HEAD", number_ + 1), Condition::Is("n", number_));
    ++number_;
    transaction->Put(Item(absl::StrCat("ANSWER", number_), 0), Condition::Absent());
  }

  bool Acquire() {
    TransactionRequest transaction(table_);
    Begin(&transaction);
    transaction.Put(Item("LEASE", number_));
    transaction.Check(KeyOf("SESSION"), Condition::Is("n", 1));
    return Carry(transaction);
  }

  bool Release() {
    TransactionRequest transaction(table_);
    Begin(&transaction);
    transaction.Delete(KeyOf("LEASE"));
    transaction.Put(Item(absl::StrCat("HISTORY", number_), 0));
    return Carry(transaction);
  }

  bool Carry(const TransactionRequest& transaction) {
    const dynamodb::Reply reply =
        client_.Once(transaction.ToRequest(absl::StrCat(name_, ".", ++requests_)),
                     SteadyClock::now() + kPatience);
    if (reply.answered()) return true;
    const std::lock_guard lock(shared_->mutex);
    shared_->report->Error(reply.status.ToString());
    shared_->broken = true;
    return false;
  }

  const std::string table_;
  const std::string name_;
  dynamodb::Client client_;
  Shared* const shared_;
  uint64_t number_ = 1;
  uint64_t requests_ = 0;
};

}  // namespace

Report RunDynamoRaw(const Options& options) {
  Report report;
  report.title = "dynamodb raw";
  const absl::StatusOr<dynamodb::Url> url = dynamodb::ReadUrl(options.server);
  if (!url.ok()) {
    report.Error(url.status().ToString());
    return report;
  }
  Shared shared{.mutex = {}, .meter = Meter(options), .report = &report};
  {
    const std::string run = absl::StrCat(Clock::now().time_since_epoch().count() % 1'000'000'000);
    std::vector<std::unique_ptr<RawClient>> clients;
    std::vector<std::jthread> running;
    for (uint32_t i = 0; i < options.clients; ++i)
      clients.push_back(std::make_unique<RawClient>(*url, absl::StrCat(run, ".", i), &shared));
    for (const auto& client : clients) running.emplace_back([&client] { client->Run(); });
    running.clear();
  }
  shared.meter.Fill(/*one_permit=*/false, &report);
  return report;
}

}  // namespace semaphored::bench
