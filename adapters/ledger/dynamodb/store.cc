#include "adapters/ledger/dynamodb/store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/dynamodb/commit.h"
#include "adapters/ledger/dynamodb/news_text.h"
#include "adapters/ledger/dynamodb/node_table.h"
#include "adapters/ledger/dynamodb/random.h"

namespace semaphored::dynamodb {

using ledger::CommitResult;
using ledger::SemaphoreDelta;
using ledger::Transaction;

namespace {

using std::chrono::steady_clock;

constexpr uint64_t kSettledBy = 2;
constexpr uint64_t kSlackWindows = 8;  // As the ledger keeps them on a shared store.
constexpr uint64_t kNoWindow = uint64_t{1} << 62;
// Others were first so often: from now on there is a pause before each attempt.
constexpr int kAttemptsWithoutPause = 3;
constexpr std::chrono::milliseconds kPauseStep{2};
constexpr int kPauseStepsMax = 20;
// Of one commit, while nothing of what was decided is wrong.
constexpr int kWritingsMax = 4;
// Other transactions are at its items: nobody was first yet.
constexpr int kConflictsMax = 8;
constexpr std::chrono::milliseconds kConflictPause{8};
constexpr size_t kLeftoversAtOnce = 50;
constexpr size_t kLeftoversMax = 100'000;
// Where this node had no claim for so long it is not looked for any more.
constexpr std::chrono::minutes kNamesKept{10};
constexpr std::chrono::minutes kNamesLookedAt{1};

CommitResult Failed(absl::Status status) {
  return {CommitResult::Kind::kFailed, {}, false, {}, std::move(status)};
}

CommitResult Unknown() { return {CommitResult::Kind::kUnknown, {}, false, {}, {}}; }

absl::Status Dead() {
  return absl::FailedPreconditionError(
      "dynamodb: this node was declared dead by another daemon, or its id was taken");
}

AnswerBook::Options AnswersOf(const StoreOptions& options) {
  return {options.url.table, options.client_retention, kSlackWindows * options.request_window,
          options.now_unix_ms};
}

}  // namespace

DynamoStore::DynamoStore(StoreOptions options, const Guarantees& guarantees,
                         std::shared_ptr<CredentialSource> credentials,
                         std::shared_ptr<Mailbox> mailbox)
    : options_(std::move(options)),
      guarantees_(guarantees),
      table_(options_.url.table),
      client_(options_.url, std::move(credentials)),
      mailbox_(std::move(mailbox)),
      ear_(mailbox_.get()),
      answers_(AnswersOf(options_)) {}

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
  if (absl::Status status = ReadFloors(); !status.ok()) return status;
  return MakeLane(&client_, table_, options_.self, options_.lane, Deadline());
}

// ---- commits ----

absl::Status DynamoStore::Prepare(const Transaction& transaction, bool* answered) {
  for (const ledger::NewClient& added : transaction.new_clients) names_.Learn(added);
  if (transaction.attempt >= kAttemptsWithoutPause) {
    const int steps = std::min(transaction.attempt - kAttemptsWithoutPause + 1, kPauseStepsMax);
    std::this_thread::sleep_for(Skewed(kPauseStep * steps));
  }
  const std::vector<ledger::AskedRequest> requests = RequestsToCheck(
      transaction, [this](uint32_t number) -> const std::string& { return names_.NameOf(number); });
  const absl::StatusOr<bool> any =
      answers_.AnyAnswered(&client_, requests, steady_clock::now(), Deadline());
  if (!any.ok()) return any.status();
  *answered = *any;
  return absl::OkStatus();
}

// True: one of the many semaphores that were only read has changed, or it is not known.
bool DynamoStore::ReadsChanged(const Transaction& transaction, CommitResult* result) {
  if (transaction.reads.size() <= kReadsMax) return false;
  std::vector<SemaphoreRow> rows(transaction.reads.size());
  std::vector<const SemaphoreRow*> pointers;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].name = transaction.reads[i].semaphore;
    rows[i].revision = transaction.reads[i].revision;
    pointers.push_back(&rows[i]);
  }
  absl::StatusOr<std::vector<std::string>> changed = Changed(pointers);
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
  bool answered = false;
  if (absl::Status status = Prepare(transaction, &answered); !status.ok())
    return Failed(std::move(status));
  if (answered) {
    CommitResult lost = Lose(transaction);
    lost.stale.clear();
    lost.answered = true;
    return lost;
  }
  if (CommitResult changed; ReadsChanged(transaction, &changed)) return changed;
  for (int writing = 1;; ++writing) {
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
  for (int conflicts = 0;; ++conflicts) {
    const Reply reply = client_.Repeat(writer_->request(), Deadline());
    if (reply.answered()) return Win(&transaction);
    if (reply.kind == Reply::Kind::kBroken) return Unknown();
    const std::optional<Cancelled> cancelled = ReadCancelled(reply);
    if (!cancelled) return Failed(reply.status);
    const bool may_pass = (cancelled->Has(Refusal::kConflict) || cancelled->Has(Refusal::kBusy)) &&
                          !cancelled->Has(Refusal::kCondition) &&
                          !cancelled->Has(Refusal::kTooLarge) && !cancelled->Has(Refusal::kOther);
    if (!may_pass || conflicts == kConflictsMax)
      return JudgeRefusal(transaction, *cancelled, again);
    std::this_thread::sleep_for(Skewed(kConflictPause * (conflicts + 1)));
  }
}

// `again`: what was decided still holds, it is only to be written anew.
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
    if (cancelled.refusals[i] == Refusal::kConflict) {
      if (owners[i].about == Writer::About::kSemaphore) lost.stale.push_back(owners[i].name);
      other = true;
      continue;
    }
    lane = lane || owners[i].about == Writer::About::kLane;
    floor = floor || owners[i].about == Writer::About::kFloor;
    lost.answered = lost.answered || owners[i].about == Writer::About::kAnswer;
    other = other || owners[i].about != Writer::About::kFloor;
    if (owners[i].about == Writer::About::kSemaphore) lost.stale.push_back(owners[i].name);
    if (owners[i].about == Writer::About::kSession) sessions_.erase(owners[i].session);
  }
  if (lane) return ReadFate(transaction);
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
  TellInterest();
  return {};
}

CommitResult DynamoStore::Lose(const Transaction& transaction) {
  writer_.reset();
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  for (const SemaphoreDelta& delta : transaction.semaphores) result.stale.push_back(delta.name);
  for (const ledger::ReadCondition& read : transaction.reads)
    result.stale.push_back(read.semaphore);
  return result;
}

CommitResult DynamoStore::Settle(Transaction& transaction, SteadyTime) {
  // The same once more, under the same token and conditions: if it has landed this says so, and if
  // not it may yet.
  const Reply reply = client_.Repeat(writer_->request(), Deadline());
  if (reply.answered()) return Win(&transaction);
  // Whatever else was said: one that was sent before may be under way still.
  json lane = ItemWith(LaneKey(options_.self, options_.lane));
  SetNumber(&lane, "commits", commits_ + kSettledBy);
  const Reply ended = client_.Repeat(
      PutItem(table_, lane, Condition::Present().And("commits", commits_)), Deadline());
  if (ended.answered()) {
    // Its number has been used up: it did not land, and cannot any more.
    commits_ += kSettledBy;
    return Lose(transaction);
  }
  return ReadFate(transaction);
}

CommitResult DynamoStore::ReadFate(Transaction& transaction) {
  const Reply reply =
      client_.Repeat(GetItem(table_, LaneKey(options_.self, options_.lane)), Deadline());
  if (!reply.answered()) return Unknown();
  const auto item = reply.body.find("Item");
  // Whether it had landed before this node was ended nobody here is told: others go on with it.
  if (item == reply.body.end()) return Failed(Dead());
  uint64_t commits = 0;
  std::string last;
  try {
    commits = NumberIn(*item, "commits");
    last = TextIn(*item, "last");
  } catch (const std::exception&) {
    return Failed(absl::DataLossError("dynamodb: the item of a lane is not understood"));
  }
  if (commits == commits_ + 1 && last == writer_->token()) return Win(&transaction);
  // It stands as it stood: ours may still come.
  if (commits == commits_) return Unknown();
  // An earlier settling had used the number up, and its answer was lost; or another commit had it.
  commits_ = commits;
  return Lose(transaction);
}

// ---- answers and clients ----

absl::StatusOr<std::optional<ledger::Answer>> DynamoStore::FindAnswer(
    const RequestKey& request, const std::string& client_id) {
  const ledger::AskedRequest asked{request, client_id};
  absl::StatusOr<std::vector<Found>> found = FindAnswers({&asked, 1}, kNoWindow);
  if (!found.ok()) return found.status();
  return std::move(found->front().answer);
}

absl::StatusOr<std::vector<ledger::LedgerStore::Found>> DynamoStore::FindAnswers(
    absl::Span<const ledger::AskedRequest> requests, uint64_t window) {
  return answers_.Find(&client_, requests, window, Deadline());
}

void DynamoStore::ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) {
  names_.ForgetBut(in_use);
}

// ---- own claims ----

bool DynamoStore::IsOwn(const Claim& claim) const {
  if (claim.detached()) return claim.host == options_.self;
  const auto session = sessions_.find(claim.session);
  return session != sessions_.end() && session->second->host == options_.self;
}

void DynamoStore::AddOwn(Known* known, const Claim& claim, bool waits) {
  RemoveOwn(known, claim.id);
  if (!IsOwn(claim)) return;
  known->own[claim.id] = {waits, claim.detached()};
  ++(waits ? waiting_ : holding_);
}

void DynamoStore::RemoveOwn(Known* known, const Id& claim) {
  const auto found = known->own.find(claim);
  if (found == known->own.end()) return;
  --(found->second.waits ? waiting_ : holding_);
  known->own.erase(found);
}

// ---- waiting ----

absl::StatusOr<std::vector<ledger::Hint>> DynamoStore::Wait(SteadyTime deadline) {
  if (deadline != SteadyTime::min()) {
    DropLeftovers();
    ForgetIdleNames(steady_clock::now());
  }
  return ear_.Take(deadline);
}

// Whoever carries it out goes on without reading, and so must this. If it is not carried out, the
// semaphore is read.
std::optional<ledger::News> DynamoStore::ReadNews(const ledger::Hint& hint) {
  const auto found = known_.find(hint.semaphore);
  if (found == known_.end() || !found->second.damage.ok()) return std::nullopt;
  Known& known = found->second;
  if (known.revision == 0 || known.revision + 1 != hint.revision) return std::nullopt;
  std::optional<ToldNews> told = ReadNewsText(hint);
  if (!told) return std::nullopt;
  known.revision = hint.revision;
  known.digest = told->digest;
  known.history_number = told->history_number;
  for (const Id& id : told->gone) RemoveOwn(&known, id);
  for (const Id& id : told->let_in) {
    const auto own = known.own.find(id);
    if (own == known.own.end() || !own->second.waits) continue;
    own->second.waits = false;
    --waiting_;
    ++holding_;
  }
  TellInterest();
  return std::move(told->news);
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
  (void)client_.RepeatAll(requests, Deadline());
}

// A name is written anew by the next commit with such a claim, and no other lane of this life
// writes it.
void DynamoStore::ForgetIdleNames(SteadyTime now) {
  if (now < names_looked_at_ + kNamesLookedAt) return;
  names_looked_at_ = now;
  std::vector<std::string> idle;
  std::vector<Request> requests;
  for (auto& [name, at] : hosted_at_) {
    const auto known = known_.find(name);
    const bool has =
        known == known_.end() ||
        std::ranges::any_of(known->second.own, [](const auto& own) { return own.second.detached; });
    if (has) {
      at.idle_since.reset();
    } else if (!at.idle_since) {
      at.idle_since = now;
    } else if (now - *at.idle_since >= kNamesKept && idle.size() < kLeftoversAtOnce) {
      idle.push_back(name);
      // One that comes late must not meet what was written anew.
      requests.push_back(DeleteItem(table_, HostAtKey(options_.self.number, name),
                                    Condition::IsText("stamp", at.stamp)));
    }
  }
  if (requests.empty()) return;
  for (const std::string& name : idle) hosted_at_.erase(name);
  (void)client_.RepeatAll(requests, Deadline());
}

// ---- mending ----

absl::StatusOr<std::optional<ledger::Pruned>> DynamoStore::Repair(const std::string& name) {
  const absl::StatusOr<std::vector<Folder>> read = ReadFolders({name});
  if (!read.ok()) return read.status();
  const Folder& folder = read->front();
  if (folder.is_moment || !folder.exists) return std::optional<ledger::Pruned>();
  // What stands there counts from now on.
  Head head = folder.head;
  const uint64_t before = head.row.revision++;
  head.digest = 0;
  for (const LeasePtr& lease : folder.leases) head.digest ^= DigestOf(*lease, lease->token);
  for (const WaiterPtr& waiter : folder.waiters) head.digest ^= DigestOf(*waiter);
  const Reply reply = client_.Repeat(
      PutItem(table_, WriteHead(head), Condition::Is("revision", before)), Deadline());
  if (!reply.answered() && reply.error != "ConditionalCheckFailedException") return reply.status;
  ledger::Pruned pruned;
  pruned.message = "items had been changed by hand; what stands there now was counted anew";
  return std::optional<ledger::Pruned>(std::move(pruned));
}

}  // namespace semaphored::dynamodb
