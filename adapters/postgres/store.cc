#include "adapters/postgres/store.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/client_names.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/message.h"
#include "adapters/postgres/schema.h"
#include "adapters/postgres/statements.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

using ledger::CommitResult;
using ledger::Failed;
using ledger::SemaphoreDelta;
using ledger::Transaction;

namespace {

constexpr size_t kReadAgainAtOnce = 16;  // Semaphores.
constexpr uint64_t kSettledBy = 2;       // See kSettle.

// "Serialization failure" and "deadlock detected": the whole was taken back, try again.
bool IsLostRace(const std::string& state) {
  return state == "40001" || state == "40P01" || state == "40000" || state == "SM002" ||
         state == "SM003";
}

}  // namespace

PostgresStore::PostgresStore(std::unique_ptr<Connection> connection, const Guarantees& guarantees,
                             StoreOptions options)
    : connection_(std::move(connection)),
      guarantees_(guarantees),
      options_(std::move(options)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      sql_(std::make_unique<Statements>(options_.schema)),
      pruner_(sql_.get(), options_.prune, options_.upkeep.get()) {}

PostgresStore::~PostgresStore() { close(wake_); }

// ---- the connection ----

absl::Status PostgresStore::Start() {
  if (absl::Status status = connection_->Open(); !status.ok()) return status;
  const Answered made = connection_->Run(
      sql_->open_lane, {std::to_string(options_.self.number),
                        std::to_string(options_.self.incarnation), std::to_string(options_.lane)});
  if (!made.ok) return made.failure.status;
  if (made.rows.empty()) {
    return absl::FailedPreconditionError(
        "postgres: this node was declared dead by another daemon, or its id was taken");
  }
  commits_ = made.rows[0][0].as<uint64_t>();
  return Ready();
}

absl::Status PostgresStore::Ready() {
  if (absl::Status status = connection_->Open(); !status.ok()) return status;
  if (life_ == connection_->life()) return absl::OkStatus();
  in_transaction_ = false;
  locked_.clear();
  // First listen, then read: what happens in between is heard.
  absl::Status status =
      connection_->Listen(absl::StrCat(options_.schema, "_", options_.self.number));
  if (!status.ok()) return status;
  if (absl::Status read = ReadWithheld(); !read.ok()) return read;
  // It may be another server, without the last commits of the first.
  tickets_.Clear();
  lane_place_.clear();
  life_ = connection_->life();
  missed_ = true;
  return absl::OkStatus();
}

Answered PostgresStore::Query(const Statement& statement, const Arguments& arguments) {
  if (absl::Status status = Ready(); !status.ok()) {
    Answered answered;
    answered.ok = false;
    answered.failure = {Failure::Kind::kRefused, "", std::move(status)};
    return answered;
  }
  Answered answered = connection_->Run(statement, arguments);
  if (!answered.ok && in_transaction_) {
    connection_->Run("ROLLBACK");
    in_transaction_ = false;
    locked_.clear();
  }
  return answered;
}

absl::Status PostgresStore::RollBack() {
  if (!in_transaction_) return absl::OkStatus();
  in_transaction_ = false;
  locked_.clear();
  const Answered done = connection_->Run("ROLLBACK");
  return done.ok ? absl::OkStatus() : done.failure.status;
}

bool PostgresStore::TakeMissedNotices() { return std::exchange(missed_, false); }

void PostgresStore::Wake() {
  const uint64_t one = 1;
  // It can only fail when it has been called 2^64 times in vain.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

absl::StatusOr<std::vector<ledger::ChangeNotice>> PostgresStore::Wait(SteadyTime deadline) {
  std::vector<ledger::ChangeNotice> notices;
  const auto take = [&](const std::string& payload) { notices.push_back(ReadMessage(payload)); };
  // Just a look, within the deciding of a batch: a lock that is held stays.
  const bool look = deadline == SteadyTime::min();
  if (!look) {
    if (absl::Status status = RollBack(); !status.ok()) return status;
  }
  if (absl::Status status = Ready(); !status.ok()) return status;
  // Under load there are looks only.
  if (options_.lane == 0 && !in_transaction_) {
    absl::Status pruned = pruner_.PruneIfDue(
        SteadyClock::now(), [this](const Statement& statement, const Arguments& arguments) {
          return Query(statement, arguments);
        });
    if (!pruned.ok()) return pruned;
  }
  for (;;) {
    if (absl::Status status = connection_->TakeNotifications(take); !status.ok()) return status;
    const auto now = SteadyClock::now();
    if (!notices.empty() || look || now >= deadline || missed_) return notices;
    pollfd files[] = {{connection_->socket(), POLLIN, 0}, {wake_, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    poll(files, 2, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if ((files[1].revents & POLLIN) != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
      if (absl::Status status = connection_->TakeNotifications(take); !status.ok()) return status;
      return notices;
    }
  }
}

std::optional<ledger::ChangeDetails> PostgresStore::ReadDetails(
    const ledger::ChangeNotice& notice) {
  return postgres::ReadDetails(notice, secret_);
}

// ---- clients by number ----

void PostgresStore::ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) {
  // Called at each sweep: a queue that this lane has not used for some sweeps is not kept either.
  tickets_.Age();
  names_.ForgetBut(in_use);
}

// ---- commits ----

CommitResult PostgresStore::Commit(Transaction& transaction, SteadyTime) {
  for (const ledger::NewClient& added : transaction.new_clients) names_.Learn(added);
  bool locked = in_transaction_;
  for (const SemaphoreDelta& delta : transaction.semaphores)
    locked = locked && (!delta.before || locked_.contains(delta.name));
  if (!locked) {
    if (absl::Status status = RollBack(); !status.ok()) return Failed(std::move(status));
  }
  const Arguments arguments =
      ArgumentsFor(transaction, {options_.self, options_.lane, commits_, lane_place_},
                   [this](uint32_t number) -> const std::string& { return names_.NameOf(number); });
  if (absl::Status status = Ready(); !status.ok()) return Failed(std::move(status));
  const bool in_transaction = in_transaction_;
  const Answered answered = Query(sql_->commit, arguments);
  if (!answered.ok) {
    CommitResult result = Judge(transaction, answered.failure);
    // What was sent inside a transaction is not committed before its COMMIT is.
    if (in_transaction && result.kind == CommitResult::Kind::kUnknown)
      result = Failed(answered.failure.status);
    return result;
  }
  if (const std::string refusal = answered.rows[0][2].as<std::string>(); !refusal.empty())
    return Judge(transaction, {Failure::Kind::kRefused, refusal, absl::OkStatus()});
  if (in_transaction) {
    in_transaction_ = false;
    locked_.clear();
    const Answered done = connection_->Run("COMMIT");
    if (!done.ok) return Judge(transaction, done.failure);
  }
  ++commits_;
  lane_place_ = answered.rows[0][3].is_null() ? "" : answered.rows[0][3].as<std::string>();
  TakeGiven(answered.rows[0][0].c_str(), answered.rows[0][1].c_str(), &transaction);
  for (const uint32_t number : transaction.forgotten_clients) names_.Forget(number);
  return {};
}

CommitResult PostgresStore::Judge(const Transaction& transaction, const Failure& failure) {
  if (failure.kind == Failure::Kind::kBroken)
    return {CommitResult::Kind::kUnknown, {}, false, {}, {}};
  if (failure.state == "SM001") {
    // The number may be wrong for another reason than our death: then it is known again.
    const Answered given = Query(
        sql_->given, {std::to_string(options_.self.number),
                      std::to_string(options_.self.incarnation), std::to_string(options_.lane)});
    if (!given.ok) return Failed(given.failure.status);
    if (given.rows.empty() || !given.rows[0][1].as<bool>()) {
      return Failed(absl::FailedPreconditionError(
          "postgres: this node was declared dead by another daemon, or its id was taken"));
    }
    commits_ = given.rows[0][0].as<uint64_t>();
    return Lose(transaction, false);
  }
  if (failure.state == "SM004") {
    // A program has changed rows without raising the revision: everything is read again.
    CommitResult result;
    result.kind = CommitResult::Kind::kLost;
    for (const SemaphoreDelta& delta : transaction.semaphores) {
      result.stale.push_back(delta.name);
      tickets_.Forget(delta.name);
    }
    return result;
  }
  if (failure.state == "55P03") return FindBusy(transaction, failure.status);
  if (IsLostRace(failure.state)) return Lose(transaction, failure.state == "SM003");
  return Failed(failure.status);
}

// A lock was not to be had: which of the semaphores is it?
CommitResult PostgresStore::FindBusy(const Transaction& transaction, const absl::Status& status) {
  CommitResult result = Failed(status);
  Array names;
  for (const SemaphoreDelta& delta : transaction.semaphores) names.Add(delta.name);
  const Answered busy = Query(sql_->busy, {names.Take()});
  if (!busy.ok) return result;
  for (const auto& row : busy.rows) result.busy.push_back(row[0].as<std::string>());
  if (!result.busy.empty()) return result;
  // One that another transaction is about to make cannot be seen.
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (!delta.before) result.busy.push_back(delta.name);
  }
  return result;
}

// Finds out what is stale; from a few losses on, under locks that stay until the next commit.
CommitResult PostgresStore::Lose(const Transaction& transaction, bool requests_lost) {
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  result.requests_lost = requests_lost;
  if (transaction.attempt >= options_.attempts_without_lock) {
    const Failure failure = LockFor(transaction);
    if (failure.state == "55P03") return FindBusy(transaction, failure.status);
    if (!failure.status.ok()) return Failed(failure.status);
  }
  if (transaction.semaphores.size() + transaction.reads.size() <= kReadAgainAtOnce) {
    // Not worth a question which of them it was.
    result.stale = ledger::NamesIn(transaction);
    return result;
  }
  Array names;
  Array revisions;
  const auto add = [&](const std::string& name, uint64_t revision) {
    names.Add(name);
    revisions.Add(static_cast<int64_t>(revision));
  };
  for (const SemaphoreDelta& delta : transaction.semaphores)
    add(delta.name, delta.before ? delta.before->revision : 0);
  for (const ledger::ReadCondition& read : transaction.reads) add(read.semaphore, read.revision);
  if (names.size() == 0) return result;
  const Answered changed = Query(sql_->changed, {names.Take(), revisions.Take()});
  if (!changed.ok) return Failed(changed.failure.status);
  for (const auto& row : changed.rows) result.stale.push_back(row[0].as<std::string>());
  return result;
}

Failure PostgresStore::LockFor(const Transaction& transaction) {
  if (absl::Status status = RollBack(); !status.ok())
    return {Failure::Kind::kRefused, "", std::move(status)};
  Array names;
  std::set<std::string> locked;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    names.Add(delta.name);
    locked.insert(delta.name);
  }
  if (Answered begun = connection_->Run("BEGIN"); !begun.ok) return begun.failure;
  in_transaction_ = true;
  const Answered done = Query(sql_->lock, {names.Take()});
  if (!done.ok) return done.failure;
  locked_ = std::move(locked);
  return {};
}

CommitResult PostgresStore::Settle(Transaction& transaction, SteadyTime) {
  const Arguments place = {std::to_string(options_.self.number),
                           std::to_string(options_.self.incarnation),
                           std::to_string(options_.lane)};
  CommitResult unknown{CommitResult::Kind::kUnknown, {}, false, {}, {}};
  Arguments arguments = place;
  arguments.push_back(std::to_string(commits_));
  const Answered settled = Query(sql_->settle, arguments);
  if (!settled.ok) return unknown;
  if (!settled.rows.empty()) {
    // Its number has been used up: it did not land, and cannot any more.
    commits_ += kSettledBy;
    return Lose(transaction, false);
  }
  const Answered given = Query(sql_->given, place);
  if (!given.ok) return unknown;
  const absl::Status dead = absl::FailedPreconditionError(
      "postgres: this node was declared dead by another daemon, or its id was taken");
  if (given.rows.empty()) return Failed(dead);
  const uint64_t commits = given.rows[0][0].as<uint64_t>();
  if (commits == commits_ + 1) {
    Array semaphores;
    Array claims;
    Array slots;
    for (const SemaphoreDelta& delta : transaction.semaphores) {
      for (const ledger::LeaseChange& change : delta.leases) {
        if (change.before) continue;
        semaphores.Add(delta.name);
        claims.Add(change.after->id);
        slots.Add(change.after->slots.empty() ? 0 : int64_t{*change.after->slots.begin()});
      }
    }
    absl::flat_hash_map<Id, uint64_t> tokens;
    if (claims.size() > 0) {
      const Answered found = Query(sql_->tokens, {semaphores.Take(), claims.Take(), slots.Take()});
      if (!found.ok) return unknown;
      for (const auto& row : found.rows) tokens[ReadId(row[0].c_str())] = row[1].as<uint64_t>();
    }
    // The revisions of new semaphores are not known: they are taken for 1, and if that is wrong,
    // the next commit is lost and reads them.
    ledger::SetTokens(tokens, &transaction);
    commits_ = commits;
    for (const uint32_t number : transaction.forgotten_clients) names_.Forget(number);
    return {};
  }
  if (commits == commits_ + kSettledBy) {
    // An earlier settling had used it up, and its answer was lost.
    commits_ = commits;
    return Lose(transaction, false);
  }
  // Ours never were: this node has been ended before it landed.
  return Failed(dead);
}

absl::StatusOr<std::vector<ledger::LedgerStore::FoundRequest>> PostgresStore::FindRequests(
    absl::Span<const ledger::NamedRequest> requests, uint64_t window) {
  Array clients;
  Array sequences;
  for (const ledger::NamedRequest& asked : requests) {
    clients.Add(ledger::WrittenClient(asked));
    sequences.Add(static_cast<int64_t>(asked.request.sequence));
  }
  const Answered answered = Query(
      sql_->requests,
      {clients.Take(), sequences.Take(), std::to_string(std::min(window, uint64_t{1} << 62))});
  if (!answered.ok) return answered.failure.status;
  std::vector<FoundRequest> found(requests.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const pqxx::row row = answered.rows[static_cast<pqxx::result::size_type>(i)];
    found[i].too_old = row[8].as<bool>();
    if (row[0].is_null()) continue;
    ledger::RequestRow& request = found[i].row.emplace();
    request.request = requests[i].request;
    request.state = static_cast<ledger::RequestRow::State>(row[0].as<int>());
    request.fingerprint = ReadId(row[1].c_str());
    request.semaphore = row[2].as<std::string>();
    request.claim = ReadId(row[3].c_str());
    request.cause = static_cast<EndCause>(row[4].as<int>());
    request.number = row[5].as<uint32_t>();
    request.remaining = row[6].as<uint32_t>();
    request.changed = row[7].as<bool>();
  }
  return found;
}

absl::Status PostgresStore::EndForeign(absl::Span<const std::string> names) {
  Array array;
  for (const std::string& name : names) array.Add(name);
  const Answered ended = Query(sql_->end_foreign, {array.Take()});
  return ended.ok ? absl::OkStatus() : ended.failure.status;
}

// A lane that finds grants withheld waits from now on for the longest TTL that the database knows.
absl::Status PostgresStore::ReadWithheld() {
  const Answered read = connection_->Run(sql_->withheld, {});
  if (!read.ok) return read.failure.status;
  const int64_t epoch = read.rows[0][0].as<int64_t>();
  if (epoch != 0 && epoch != withheld_epoch_) {
    const std::chrono::milliseconds longest(read.rows[0][1].as<int64_t>());
    withheld_until_ = SteadyClock::now() + longest;
    spdlog::warn(
        "postgres: the server was promoted and had no synchronous standby: commits may be lost; "
        "nothing is granted for {} ms",
        longest.count());
  }
  withheld_epoch_ = epoch;
  secret_ = read.rows[0][2].as<std::string>();
  return absl::OkStatus();
}

bool PostgresStore::GrantsWithheld() {
  if (withheld_epoch_ == 0) return false;
  // What is written now may be taken back with the locks.
  if (in_transaction_) return true;
  if (SteadyClock::now() < withheld_until_) return true;
  const Answered over = Query(sql_->withheld_over, {std::to_string(withheld_epoch_)});
  if (!over.ok) {
    options_.upkeep->Failed(UpkeepWork::kFailOver, over.failure.status);
    return true;
  }
  spdlog::info("postgres: leases that may have been lost have run out: granting again");
  withheld_epoch_ = 0;
  return false;
}

}  // namespace semaphored::postgres
