#include "adapters/dynamodb/store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"
#include "adapters/dynamodb/commit.h"
#include "adapters/dynamodb/node_table.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {

using ledger::CommitResult;
using ledger::Failed;
using ledger::Transaction;

namespace {

constexpr uint64_t kSettledBy = 2;
constexpr uint64_t kSlackWindows = 8;  // As the ledger keeps them on a shared store.
// Others were first so often: from now on there is a pause before each attempt.
constexpr int kAttemptsWithoutPause = 3;
constexpr std::chrono::milliseconds kPauseStep{2};
constexpr int kPauseStepsMax = 20;
// Of one commit, while nothing of what was decided is wrong.
constexpr int kWritingsMax = 4;
// Other transactions are at its items: none was first yet.
constexpr int kConflictsMax = 8;
constexpr std::chrono::milliseconds kConflictPause{8};
constexpr std::chrono::milliseconds kPauseMax{200};

CommitResult Unknown() { return {CommitResult::Kind::kUnknown, {}, false, {}, {}}; }

absl::Status Dead() {
  return absl::FailedPreconditionError(
      "dynamodb: this node was declared dead by another daemon, or its id was taken");
}

std::string WrittenBy(const StoreOptions& options) {
  return absl::StrCat(options.self.number, ".", options.self.incarnation, ".", options.lane);
}

RequestBook::Options RequestsOf(const StoreOptions& options) {
  return {options.url.table, options.client_retention, kSlackWindows * options.request_window,
          options.now_unix_ms, WrittenBy(options)};
}

}  // namespace

DynamoStore::DynamoStore(StoreOptions options, const Guarantees& guarantees,
                         std::shared_ptr<CredentialSource> credentials,
                         std::shared_ptr<NoticeBox> notice_box)
    : options_(std::move(options)),
      guarantees_(guarantees),
      table_(options_.url.table),
      client_(options_.url, std::move(credentials)),
      notice_box_(std::move(notice_box)),
      ear_(notice_box_.get()),
      memory_(options_.self),
      hosted_(table_, options_.self, options_.upkeep),
      folders_(&client_, table_, ClientNumbers(), options_.url.timeout),
      one_shots_(table_, WrittenBy(options_), options_.upkeep),
      requests_(RequestsOf(options_)) {}

DynamoStore::~DynamoStore() = default;

absl::Status DynamoStore::Start() {
  const Reply state = client_.Repeat(GetItem(table_, StateKey()), Deadline());
  if (!state.answered()) return state.status;
  try {
    if (const auto item = state.body.find("Item"); item != state.body.end())
      token_epoch_ = NumberIn(*item, "epoch");
  } catch (const std::exception&) {
    return absl::DataLossError("dynamodb: the item STORE, STATE is not understood");
  }
  if (token_epoch_ > kTokenEpochMax)
    return absl::DataLossError("dynamodb: the epoch of STORE, STATE is too high for a token");
  if (absl::Status status = ReadFloors(); !status.ok()) return status;
  if (absl::Status status = requests_.LearnGeneration(&client_, Deadline()); !status.ok())
    return status;
  const absl::StatusOr<Generation> generation =
      MakeLane(&client_, table_, options_.self, options_.lane, Deadline());
  if (!generation.ok()) return generation.status();
  requests_.SetGeneration(*generation);
  history_looked_at_ = options_.now();
  return absl::OkStatus();
}

// ---- commits ----

void DynamoStore::Prepare(const Transaction& transaction) {
  for (const ledger::NewClient& added : transaction.new_clients) names_.Learn(added);
  if (transaction.attempt >= kAttemptsWithoutPause) {
    const int steps = std::min(transaction.attempt - kAttemptsWithoutPause + 1, kPauseStepsMax);
    std::this_thread::sleep_for(Skewed(kPauseStep * steps));
  }
}

// True: one of the requests has a row, or is too old, or that is not known.
bool DynamoStore::RequestsLost(const Transaction& transaction, CommitResult* result) {
  const std::vector<ledger::NamedRequest> requests = RequestsToCheck(
      transaction, [this](uint32_t number) -> const std::string& { return names_.NameOf(number); });
  const absl::StatusOr<bool> lost = requests_.AnyLost(&client_, requests, Deadline());
  if (!lost.ok()) *result = Failed(lost.status());
  if (lost.ok() && *lost) {
    result->kind = CommitResult::Kind::kLost;
    result->requests_lost = true;
  }
  return result->kind != CommitResult::Kind::kWon;
}

// True: one of the many semaphores that were only read has changed, or it is not known.
bool DynamoStore::ReadsChanged(const Transaction& transaction, CommitResult* result) {
  if (transaction.reads.size() <= kReadsMax) return false;
  absl::StatusOr<std::vector<std::string>> changed = StaleOf(transaction.reads);
  if (!changed.ok()) {
    *result = Failed(changed.status());
    return true;
  }
  if (changed->empty()) return false;
  result->kind = CommitResult::Kind::kLost;
  result->stale = *std::move(changed);
  return true;
}

// The ledger's deadline is on a clock of its own; each request has its time-out.
CommitResult DynamoStore::Commit(Transaction& transaction, SteadyTime) {
  Prepare(transaction);
  for (int writing = 1;; ++writing) {
    CommitResult found;
    // Each time: the generation in which it was found out may have ended.
    if (RequestsLost(transaction, &found) || ReadsChanged(transaction, &found)) return found;
    writer_ = std::make_unique<Writer>(this);
    CommitResult built = writer_->Build(transaction);
    if (built.kind != CommitResult::Kind::kWon) {
      writer_.reset();
      return built;
    }
    bool again = false;
    CommitResult sent = Send(transaction, &again);
    if (!again || writing == kWritingsMax) return sent;
  }
}

CommitResult DynamoStore::Send(Transaction& transaction, bool* again) {
  const SteadyTime end = Deadline();
  for (int waits = 1;; ++waits) {
    const Reply reply = client_.Repeat(writer_->request(), Deadline());
    if (reply.answered()) return Win(&transaction);
    if (reply.kind == Reply::Kind::kBroken) return Unknown();
    const std::optional<Cancelled> cancelled = ReadCancelled(reply);
    if (!cancelled) return Failed(reply.status);
    const bool final = cancelled->Has(Refusal::kCondition) || cancelled->Has(Refusal::kTooLarge) ||
                       cancelled->Has(Refusal::kOther);
    // Of those who meet at an item one gets through; who is throttled waits for longer.
    const bool passes =
        cancelled->Has(Refusal::kBusy) ? SteadyClock::now() < end : waits <= kConflictsMax;
    if (final || !passes) return JudgeRefusal(transaction, *cancelled, again);
    std::this_thread::sleep_for(Skewed(std::min(kConflictPause * waits, kPauseMax)));
  }
}

// `again`: what was decided still holds, and has only to be written again.
CommitResult DynamoStore::JudgeRefusal(Transaction& transaction, const Cancelled& cancelled,
                                       bool* again) {
  if (cancelled.Has(Refusal::kTooLarge)) return Failed(absl::OutOfRangeError(cancelled.message));
  if (cancelled.Has(Refusal::kOther)) return Failed(absl::InternalError(cancelled.message));
  if (!cancelled.Has(Refusal::kCondition) && cancelled.Has(Refusal::kBusy))
    return Failed(absl::UnavailableError(absl::StrCat("dynamodb: throttled: ", cancelled.message)));
  CommitResult lost;
  lost.kind = CommitResult::Kind::kLost;
  bool lane = false;
  bool floor = false;
  bool other = false;
  const std::vector<Writer::Owner>& owners = writer_->owners();
  for (size_t i = 0; i < std::min(owners.size(), cancelled.refusals.size()); ++i) {
    if (cancelled.refusals[i] == Refusal::kNone) continue;
    if (cancelled.refusals[i] != Refusal::kCondition) {
      if (owners[i].about == Writer::About::kSemaphore) lost.stale.push_back(owners[i].name);
      other = true;
      continue;
    }
    lane = lane || owners[i].about == Writer::About::kLane;
    floor = floor || owners[i].about == Writer::About::kFloor;
    lost.requests_lost = lost.requests_lost || owners[i].about == Writer::About::kRequest;
    other = other || owners[i].about != Writer::About::kFloor;
    if (owners[i].about == Writer::About::kSemaphore) lost.stale.push_back(owners[i].name);
    if (owners[i].about == Writer::About::kSession) memory_.ForgetSession(owners[i].session);
  }
  if (lane) return ReadFate(transaction, again);
  writer_.reset();
  if (floor) {
    if (absl::Status status = ReadFloors(); !status.ok()) return Failed(std::move(status));
  }
  *again = floor && !other;
  return lost;
}

CommitResult DynamoStore::Win(Transaction* transaction) {
  writer_->Win(transaction);
  ++commits_;
  writer_.reset();
  for (const uint32_t number : transaction->forgotten_clients) names_.Forget(number);
  one_shots_.ForgetLater(transaction->forgotten_requests);
  TellInterest();
  return {};
}

CommitResult DynamoStore::Lose(const Transaction& transaction) {
  writer_.reset();
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  result.stale = ledger::NamesIn(transaction);
  return result;
}

CommitResult DynamoStore::Settle(Transaction& transaction, SteadyTime) {
  // The same once more, under the same token and conditions: if it has landed this says so, and if
  // not it may yet.
  const Reply reply = client_.Repeat(writer_->request(), Deadline());
  if (reply.answered()) return Win(&transaction);
  // Whatever else was said: one that was sent before may be under way still.
  Change use_up;
  use_up.set.emplace_back("commits", Number(commits_ + kSettledBy));
  const Reply ended =
      client_.Repeat(UpdateItem(table_, LaneKey(options_.self, options_.lane), use_up,
                                Condition::Present().And("commits", commits_)),
                     Deadline());
  if (ended.answered()) {
    // Its number has been used up: it did not land, and cannot any more.
    commits_ += kSettledBy;
    return Lose(transaction);
  }
  return ReadFate(transaction);
}

CommitResult DynamoStore::ReadFate(Transaction& transaction, bool* again) {
  const Reply reply =
      client_.Repeat(GetItem(table_, LaneKey(options_.self, options_.lane)), Deadline());
  if (!reply.answered()) return Unknown();
  const auto item = reply.body.find("Item");
  // Whether the commit landed before this node was ended is not known here: others go on with it.
  if (item == reply.body.end()) return Failed(Dead());
  uint64_t commits = 0;
  uint64_t generation = 0;
  std::string last;
  try {
    commits = NumberIn(*item, "commits");
    generation = NumberIn(*item, "generation");
    last = TextIn(*item, "last");
  } catch (const std::exception&) {
    return Failed(absl::DataLossError("dynamodb: the item of a lane is not understood"));
  }
  if (commits == commits_ + 1 && last == writer_->token()) return Win(&transaction);
  if (commits == commits_) {
    // It stands as it stood: ours may still come.
    if (again == nullptr || generation == requests_.generation()) return Unknown();
    // The number of a generation only rises: no attempt of this commit can land any more.
    writer_.reset();
    if (absl::Status status = requests_.LearnGeneration(&client_, Deadline()); !status.ok())
      return Failed(std::move(status));
    *again = true;
    return {CommitResult::Kind::kLost, {}, false, {}, {}};
  }
  // An earlier settling had used the number up, and its answer was lost; or another commit had it.
  commits_ = commits;
  return Lose(transaction);
}

// ---- requests and clients ----

absl::StatusOr<std::vector<ledger::LedgerStore::FoundRequest>> DynamoStore::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t window) {
  return requests_.Find(&client_, requests, window, Deadline());
}

void DynamoStore::ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) {
  names_.ForgetBut(in_use);
}

}  // namespace semaphored::dynamodb
