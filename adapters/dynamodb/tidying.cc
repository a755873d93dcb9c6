// Of the store, what it does while it waits: it hears of others, and removes what means nothing any more.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"
#include "adapters/dynamodb/notice_text.h"
#include "adapters/dynamodb/store.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kLeftoversAtOnce = 50;
constexpr size_t kLeftoversMax = 100'000;
constexpr std::chrono::minutes kHistoryLookedAt{1};
// DynamoDB takes up to some days to remove what has expired.
constexpr std::chrono::seconds kExpiryMax = std::chrono::hours(96);

}  // namespace

// ---- waiting ----

absl::StatusOr<std::vector<ledger::ChangeNotice>> DynamoStore::Wait(SteadyTime deadline) {
  if (deadline != SteadyTime::min()) {
    DropLeftovers();
    one_shots_.ForgetSome(&client_, Deadline());
    one_shots_.SweepIfDue(&client_, options_.now(), Deadline());
    hosted_.ForgetIdle(&client_, options_.now(), Deadline(),
                       [this](const std::string& name) { return memory_.MayHost(name); });
    LookAtHistory(options_.now());
    memory_.ForgetSomeSessions();
  } else if (one_shots_.is_behind()) {
    one_shots_.ForgetSome(&client_, Deadline());
  }
  return ear_.Take(deadline);
}

// The ledger, which carries the notice out, goes on without reading, and so must the store. If the
// ledger does not carry it out, it reads the semaphore.
std::optional<ledger::ChangeDetails> DynamoStore::ReadDetails(const ledger::ChangeNotice& notice) {
  std::optional<SentDetails> told = ReadDetailsText(notice);
  if (!told || !memory_.Follow(notice.semaphore, notice.revision, *told)) return std::nullopt;
  TellInterest();
  return std::move(told->details);
}

void DynamoStore::DropLeftovers() {
  if (leftovers_.empty()) return;
  // They cost little, and mean nothing: no more is tried than is easily done.
  if (leftovers_.size() > kLeftoversMax) leftovers_.resize(kLeftoversMax);
  std::vector<Request> requests;
  while (!leftovers_.empty() && requests.size() < kLeftoversAtOnce) {
    requests.push_back(DeleteItem(table_, leftovers_.back(), Condition::None()));
    leftovers_.pop_back();
  }
  RunUpkeep(&client_, requests, UpkeepWork::kLeftovers, options_.upkeep.get(), Deadline());
}

// DynamoDB itself removes what has expired, if the table's time-to-live is on. Where this lane has written, what was
// written first shows whether it does.
void DynamoStore::LookAtHistory(SteadyTime now) {
  if (history_of_.empty() || now < history_looked_at_ + kHistoryLookedAt) return;
  history_looked_at_ = now;
  Range range;
  range.partition = std::exchange(history_of_, "");
  range.rows_max = 1;
  range.eventually = true;
  const auto oldest = QueryAll(&client_, table_, {range}, Deadline());
  options_.upkeep->Note(UpkeepWork::kHistory, oldest.status());
  if (!oldest.ok() || oldest->front().empty()) return;
  const int64_t now_s = options_.now_unix_ms() / 1000;
  try {
    if (SignedIn(oldest->front().front(), kExpiresAt) + kExpiryMax.count() > now_s) return;
    options_.upkeep->Failed(UpkeepWork::kHistory,
                            absl::FailedPreconditionError(absl::StrCat(
                                "dynamodb: ", range.partition, " has items that expired over ",
                                std::chrono::ceil<std::chrono::hours>(kExpiryMax).count(),
                                " h ago: is the time-to-live of the table on?")));
  } catch (const std::exception&) {
    options_.upkeep->Failed(
        UpkeepWork::kHistory,
        absl::DataLossError("dynamodb: a row of the history is not understood"));
  }
}

}  // namespace semaphored::dynamodb
