#include "adapters/consul/store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/common/random.h"
#include "adapters/consul/commit.h"
#include "adapters/consul/mending.h"
#include "adapters/consul/node_table.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {

using ledger::CommitResult;
using ledger::Failed;
using ledger::Transaction;

namespace {

constexpr char kNotices[] = "mail";
constexpr char kFolderWatch[] = "folder/";
constexpr std::chrono::seconds kWatchesLookedAt{1};
constexpr uint64_t kSettledBy = 2;
constexpr int kHttpDone = 200;
// Others were first so often: from now on there is a pause before each attempt.
constexpr int kAttemptsWithoutPause = 3;
constexpr std::chrono::milliseconds kPauseStep{2};
constexpr int kPauseStepsMax = 20;
// Of one commit, while it is refused for nothing but the rows of requests that others have written. A
// block of them changes some fifty times in its life, so the end of a claim gets through.
constexpr int kWritingsMax = 50;
// Each makes sixty places, or takes as many away.
constexpr int kPreparationsMax = 40;
constexpr size_t kNoticesKeptMax = 256;
constexpr size_t kNoticesDroppedAtOnce = 30;

absl::Status Dead() {
  return absl::FailedPreconditionError(
      "consul: this node was declared dead by another daemon, or its id was taken");
}

CommitResult Unknown() { return {CommitResult::Kind::kUnknown, {}, false, {}, {}}; }

}  // namespace

ConsulStore::ConsulStore(Url url, const Guarantees& guarantees, NodeRef self, uint32_t lane,
                         const Pulse* pulse, std::shared_ptr<Upkeep> upkeep)
    : url_(std::move(url)),
      guarantees_(guarantees),
      self_(self),
      lane_(lane),
      keys_(url_.prefix),
      lane_key_(keys_.Lane(self.number, lane)),
      pulse_(pulse),
      upkeep_(std::move(upkeep)),
      client_(url_),
      watches_(url_),
      places_(&client_, url_, self),
      requests_(&keys_),
      lists_(&client_, &keys_) {}

ConsulStore::~ConsulStore() = default;

absl::Status ConsulStore::Start() {
  if (absl::Status status = places_.Start(); !status.ok()) return status;
  absl::StatusOr<NodeAtIndex> node = FindNode(&client_, keys_, self_);
  if (!node.ok()) return node.status();
  const absl::StatusOr<std::optional<LaneNumber>> before = ReadLane();
  if (!before.ok()) return before.status();
  if (*before) commits_ = (*before)->commits;
  TransactionRequest request;
  request.Check(node->key, node->index);
  // An empty box would be answered with every change of any key in Consul.
  request.Set(keys_.NoticeBox(self_.number), "");
  request.Set(lane_key_, std::to_string(commits_));
  const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
  if (!answer.ok()) return answer.status();
  if (!answer->done) return Dead();
  lane_index_ = answer->entries.back().modify_index;
  upkeep_->Note(UpkeepWork::kSessions, places_.RenewIfDue(SteadyClock::now()));
  watches_.Add(kNotices, HttpTarget("/v1/kv/", keys_.Notices(self_.number)).Option("recurse"));
  return absl::OkStatus();
}

void ConsulStore::SweepRequests(std::chrono::milliseconds retention) {
  sweep_.emplace(&keys_, retention);
}

absl::StatusOr<std::optional<ConsulStore::LaneNumber>> ConsulStore::ReadLane() {
  const absl::StatusOr<std::vector<Entry>> entries = client_.ReadTree(lane_key_);
  if (!entries.ok()) return entries.status();
  for (const Entry& entry : *entries) {
    if (entry.key != lane_key_) continue;
    LaneNumber number;
    if (!absl::SimpleAtoi(entry.value, &number.commits))
      return absl::DataLossError("consul: the number of a lane is not understood");
    number.index = entry.modify_index;
    return std::optional<LaneNumber>(number);
  }
  return std::optional<LaneNumber>();
}

// ---- commits ----

CommitResult ConsulStore::Commit(Transaction& transaction, SteadyTime deadline) {
  if (pulse_ != nullptr) {
    if (absl::Status alive = pulse_->Check(); !alive.ok()) return Failed(std::move(alive));
  }
  for (const ledger::NewClient& added : transaction.new_clients) names_.Learn(added);
  if (transaction.attempt >= kAttemptsWithoutPause) {
    const int steps = std::min(transaction.attempt - kAttemptsWithoutPause + 1, kPauseStepsMax);
    std::this_thread::sleep_for(Skewed(kPauseStep * steps));
  }
  if (absl::Status status = LearnRequests(transaction); !status.ok()) return Failed(status);
  int preparations = 0;
  for (int writing = 1;; ++writing) {
    writer_ = std::make_unique<Writer>(this);
    CommitResult built = writer_->Build(transaction);
    if (built.kind == CommitResult::Kind::kLost)
      return Lose(transaction, built.requests_lost, !built.requests_lost);
    if (writer_->lacking() && ++preparations <= kPreparationsMax) {
      const absl::StatusOr<bool> prepared = Mender(this).MakePlaces(*writer_->lacking());
      if (!prepared.ok()) return Failed(prepared.status());
      if (!*prepared) return Lose(transaction, /*requests_lost=*/false);
      continue;
    }
    if (built.kind != CommitResult::Kind::kWon) return built;
    const Reply reply = client_.Put("/v1/txn", writer_->request().Body());
    if (reply.kind == Reply::Kind::kBroken) return Unknown();
    if (reply.kind == Reply::Kind::kRefused) return Failed(reply.status);
    // Whatever it was that came, the lane's key says what became of it.
    if (reply.http_status == kHttpDone) {
      const std::optional<uint64_t> index = ReadLandedIndex(reply.body);
      return index ? Win(&transaction, *index) : Unknown();
    }
    const absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
    if (!answer.ok() || answer->done) return Unknown();
    const bool only_requests = writer_->OnlyRequestsRefused(*answer);
    CommitResult judged = JudgeRefusal(transaction, *answer, only_requests);
    // What was decided still holds. Others had written to these blocks, and it was not known here.
    const bool again = only_requests && judged.kind == CommitResult::Kind::kLost &&
                       !judged.requests_lost && writing < kWritingsMax &&
                       SteadyClock::now() < deadline;
    if (!again) return judged;
  }
}

absl::Status ConsulStore::LearnRequests(const Transaction& transaction) {
  using ledger::RequestChange;
  using State = ledger::RequestRow::State;
  std::vector<ledger::NamedRequest> changed;
  for (const RequestChange& change : transaction.requests) {
    const ledger::RequestRow& row = change.row;
    if (change.op == RequestChange::Op::kInsert || row.state == State::kGranted) continue;
    changed.push_back({row.request, names_.NameOf(row.request.client)});
  }
  return changed.empty() ? absl::OkStatus() : requests_.Learn(&client_, changed);
}

CommitResult ConsulStore::Win(Transaction* transaction, uint64_t index) {
  ++commits_;
  lane_index_ = index;
  writer_->Win(index, transaction);
  writer_.reset();
  for (const ledger::RequestFloor& floor : transaction->request_floors)
    requests_.RaiseLater(names_.NameOf(floor.client), floor.below);
  for (const uint32_t number : transaction->forgotten_clients) names_.Forget(number);
  requests_.ForgetLater(transaction->forgotten_requests);
  return {};
}

CommitResult ConsulStore::Lose(const Transaction& transaction, bool requests_lost, bool stale) {
  writer_.reset();
  if (requests_lost) requests_.Lost();
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  result.requests_lost = requests_lost;
  if (!stale) return result;
  result.stale = ledger::NamesIn(transaction);
  return result;
}

CommitResult ConsulStore::JudgeRefusal(Transaction& transaction, const TransactionAnswer& answer,
                                       bool only_requests) {
  bool lane = false;
  bool requests = false;
  for (const TransactionAnswer::Refusal& refusal : answer.refusals) {
    if (refusal.operation >= writer_->owners().size()) continue;
    const Writer::Owner& owner = writer_->owners()[refusal.operation];
    lane = lane || owner.about == Writer::About::kLane;
    requests = requests || owner.about == Writer::About::kRequests;
    // Its session has ended: another is taken the next time.
    if (owner.about == Writer::About::kPlace) places_.Forget(owner.name);
    if (owner.about == Writer::About::kSession) sessions_.erase(owner.session);
  }
  if (absl::Status status = answer.WhyForbidden(); !status.ok()) return Failed(std::move(status));
  // The library may have sent it a second time, over a new connection, after the first had landed.
  if (lane) return Settle(transaction, SteadyTime());
  if (requests) {
    const absl::StatusOr<bool> lost = requests_.LookAgain(&client_);
    if (!lost.ok()) return Failed(lost.status());
    requests = *lost;
  }
  return Lose(transaction, requests, !only_requests);
}

CommitResult ConsulStore::Settle(Transaction& transaction, SteadyTime) {
  TransactionRequest request;
  request.Cas(lane_key_, std::to_string(commits_ + kSettledBy), lane_index_);
  const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
  if (!answer.ok()) return Unknown();
  if (answer->landed_at() != 0) {
    // Its number has been used up: it did not land, and cannot any more.
    commits_ += kSettledBy;
    lane_index_ = answer->landed_at();
    return Lose(transaction, /*requests_lost=*/false);
  }
  const absl::StatusOr<std::optional<LaneNumber>> number = ReadLane();
  if (!number.ok()) return Unknown();
  // Whether the commit landed before this node was ended is not known here: others go on with it.
  if (!*number) return Failed(Dead());
  const uint64_t commits = (*number)->commits;
  if (commits == commits_ + 1) return Win(&transaction, (*number)->index);
  if (commits == commits_ + kSettledBy) {
    // An earlier settling had used it up, and its answer was lost.
    commits_ = commits;
    lane_index_ = (*number)->index;
    return Lose(transaction, /*requests_lost=*/false);
  }
  if (commits == commits_) {
    // Another program has written the key as it was: ours may still come, at neither index.
    lane_index_ = (*number)->index;
    return Unknown();
  }
  return Failed(Dead());
}

// ---- requests and clients ----

absl::StatusOr<std::vector<ledger::LedgerStore::FoundRequest>> ConsulStore::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t window) {
  return requests_.Find(&client_, requests, std::min(window, uint64_t{1} << 62));
}

void ConsulStore::ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) {
  names_.ForgetBut(in_use);
}

// ---- waiting ----

bool ConsulStore::TakeMissedNotices() { return std::exchange(missed_, false); }

void ConsulStore::HearNotices(const std::string& body, std::vector<ledger::ChangeNotice>* notices) {
  const absl::StatusOr<std::vector<Entry>> entries = ReadEntries(body);
  if (!entries.ok()) return upkeep_->Failed(UpkeepWork::kNotices, entries.status());
  const uint64_t heard = notices_index_;
  for (const Entry& entry : *entries) {
    notices_index_ = std::max(notices_index_, entry.modify_index);
    std::optional<std::string> name = Keys::NameIn(entry.key, keys_.Notices(self_.number));
    if (entry.modify_index <= heard || !name) continue;
    uint64_t revision = 0;
    if (!absl::SimpleAtoi(entry.value, &revision)) revision = 0;
    notices->push_back({*std::move(name), revision, ""});
  }
  if (entries->size() > kNoticesKeptMax) DropNotices(*entries);
}

// Notices that were heard need not stay; one that was rewritten meanwhile is heard next time. What fails is tried
// again with the next notice.
void ConsulStore::DropNotices(const std::vector<Entry>& entries) {
  TransactionRequest request;
  for (const Entry& entry : entries) {
    if (request.size() + 2 > 2 * kNoticesDroppedAtOnce) break;
    if (!Keys::NameIn(entry.key, keys_.Notices(self_.number))) continue;
    request.Check(entry.key, entry.modify_index);
    request.Delete(entry.key);
  }
  upkeep_->Note(UpkeepWork::kNotices, client_.Write(request).status());
}

// Foreign clients write no change notice for us: where they may make room for a waiter, the folder
// itself is watched.
void ConsulStore::WatchFolders() {
  const SteadyTime now = SteadyClock::now();
  if (watches_.size() == shared_.size() + 1 && now < looked_at_ + kWatchesLookedAt) return;
  looked_at_ = now;
  for (auto& [name, until] : shared_) {
    const auto folder = folders_.find(name);
    if (folder != folders_.end() && folder->second.WaitsForRoom()) until = now + kWatchedFor;
  }
  absl::erase_if(shared_, [&](const auto& watched) { return watched.second < now; });
  for (const std::string& id : watches_.Ids()) {
    if (absl::StartsWith(id, kFolderWatch) && !shared_.contains(id.substr(sizeof kFolderWatch - 1)))
      watches_.Remove(id);
  }
  for (const auto& [name, until] : shared_) {
    watches_.Add(absl::StrCat(kFolderWatch, name),
                 HttpTarget("/v1/kv/", keys_.Folder(name)).Option("recurse"));
  }
}

void ConsulStore::Tidy(bool look) {
  const SteadyTime now = SteadyClock::now();
  if (lane_ == 0) upkeep_->Note(UpkeepWork::kSessions, places_.RenewIfDue(now));
  if (sweep_) upkeep_->Note(UpkeepWork::kRequests, sweep_->SweepIfDue(&client_, now));
  upkeep_->Note(UpkeepWork::kRequests, requests_.RaiseFloors(&client_));
  upkeep_->Note(UpkeepWork::kRequests, requests_.ForgetSome(&client_, /*at_once=*/!look));
}

absl::StatusOr<std::vector<ledger::ChangeNotice>> ConsulStore::Wait(SteadyTime deadline) {
  std::vector<ledger::ChangeNotice> notices;
  const bool look = deadline == SteadyTime::min();
  if (pulse_ != nullptr) {
    if (absl::Status alive = pulse_->Check(); !alive.ok()) return alive;
    deadline = std::min(deadline, SteadyClock::now() + PulseLookedAt(url_));
  }
  Tidy(look);
  WatchFolders();
  for (;;) {
    const Watches::Heard heard = watches_.Wait(missed_ ? SteadyTime::min() : deadline);
    for (const std::string& id : heard.interrupted) {
      missed_ = true;
      if (id == kNotices && !look && heard.changes.empty()) return heard.status;
    }
    if (!heard.interrupted.empty()) upkeep_->Note(UpkeepWork::kNotices, heard.status);
    for (const Watches::Change& change : heard.changes) {
      if (change.id == kNotices) {
        HearNotices(change.body, &notices);
        continue;
      }
      const std::string name = change.id.substr(sizeof kFolderWatch - 1);
      const auto known = folders_.find(name);
      const absl::StatusOr<std::vector<Entry>> entries = ReadEntries(change.body);
      upkeep_->Note(UpkeepWork::kNotices, entries.status());
      if (known == folders_.end() || !entries.ok()) continue;
      const Folder now = ReadFolder(keys_, name, *entries, nullptr, nullptr);
      if (!SameOutside(known->second, now)) notices.push_back({name, 0, ""});
    }
    // Only what others have done ends a wait: the rest was ours.
    const bool own = !heard.changes.empty() && notices.empty();
    if (!own || look || missed_ || SteadyClock::now() >= deadline) return notices;
  }
}

}  // namespace semaphored::consul
