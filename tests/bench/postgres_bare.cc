// The set-based statements that the daemon sends to Postgres, without a daemon: what it could reach
// at most. Each of a few connections commits batches of whole cycles: half of a batch's operations
// acquire, the other half release what the batch before acquired; each on a semaphore of its own,
// with session, requests and history.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "adapters/postgres/commit_rows.h"
#include "tests/bench/loop.h"
#include "tests/bench/modes.h"
#include "tests/bench/postgres_connection.h"

namespace semaphored::bench {
namespace {

using postgres::Arguments;
using postgres::CommitRows;
using State = ledger::RequestRow::State;

constexpr const char* kHolder = "host-17/4242";
// As the daemon's lanes have it.
constexpr const char* kPrepare =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;"
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;"
    "SET enable_sort = off; SET enable_memoize = off; SET jit = off";
// As the daemon's: requests are forgotten below a window, some at a time.
constexpr uint64_t kWindow = 8 * 1024;
constexpr uint64_t kPrunedEvery = 256;
constexpr int64_t kTtl_ms = 30'000;
int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Shared {
  std::mutex mutex;
  Meter meter;
  Report* report;
  uint64_t commits = 0;
  Histogram commit;
  std::atomic<bool> broken = false;
};

// One connection with its semaphores, its session and its numbered commits.
class Lane {
 public:
  Lane(const Options& options, const std::string& run, uint32_t number)
      : options_(options),
        number_(static_cast<int32_t>(number)),
        client_(run + "/client/" + std::to_string(number)),
        session_high_(static_cast<uint64_t>(Clock::now().time_since_epoch().count())) {
    for (uint32_t i = 0; i < std::max(2U, options.batch); ++i) {
      names_.push_back(run + "/" + std::to_string(number) + "/" + std::to_string(i));
    }
    half_ = names_.size() / 2;
    names_.resize(2 * half_);
    revisions_.resize(names_.size());
    orders_.resize(names_.size(), 1);
  }

  std::string Open(int32_t node) {
    node_ = node;
    std::string error = connection_.Open(options_.server);
    if (error.empty()) error = connection_.Run(kPrepare).error();
    if (error.empty()) error = connection_.Prepare("commit", postgres::CommitSql());
    if (!error.empty()) return error;
    error = connection_
                .Run("INSERT INTO semaphored.lanes (node, incarnation, lane) VALUES (" +
                     std::to_string(node_) + ", 1, " + std::to_string(number_) + ")")
                .error();
    return error.empty() ? MakeSemaphores() : error;
  }

  void Run(Shared* shared) {
    TimePoint before = Clock::now();
    while (!shared->broken && !shared->meter.Over(Clock::now())) {
      const TimePoint sent = Clock::now();
      const bool releases = holding_;
      const std::string error = Turn();
      const TimePoint done = Clock::now();
      const std::lock_guard lock(shared->mutex);
      if (!error.empty()) {
        shared->report->Error(error);
        shared->broken = true;
        return;
      }
      if (shared->meter.Measures(done)) {
        ++shared->commits;
        shared->commit.Record(NanosBetween(sent, done));
      }
      for (size_t i = 0; i < half_; ++i) {
        shared->meter.Acquired(sent, done);
        if (releases) shared->meter.CycleDone(before, done);
      }
      before = sent;
    }
  }

 private:
  // What went wrong; empty: nothing.
  std::string Commit(CommitRows* rows) {
    // It knows no place of the lane's row: the function looks for it.
    Arguments arguments = {std::to_string(node_), "1", std::to_string(number_),
                           std::to_string(commits_++), std::nullopt};
    rows->Take(&arguments);
    const PostgresResult row = connection_.RunPrepared("commit", arguments);
    if (std::string error = row.error(); !error.empty()) return error;
    const std::string_view refusal = row.Value(0, "refusal");
    if (!refusal.empty()) return "refused: " + std::string(refusal);
    revisions_made_ = row.Value(0, "revisions");
    return {};
  }

  NodeRef self() const { return {static_cast<uint32_t>(node_), 1}; }
  Id session() const { return {session_high_, 1}; }

  // The lane's semaphores and its session.
  std::string MakeSemaphores() {
    CommitRows rows;
    SemaphoreRow row;
    row.limit = 1;
    row.created_at_unix_ms = NowMs();
    for (size_t i = 0; i < names_.size(); ++i) {
      row.name = names_[i];
      AddStart(row.name, orders_[i], /*passing=*/false, &rows.semaphores_made);
      AddSemaphore(row, &rows.semaphores_written);
    }
    Session session;
    session.id = this->session();
    session.host = self();
    session.epoch = 1;
    session.ttl_ms = kTtl_ms;
    session.holder = kHolder;
    AddSession(session, client_, &rows.sessions_written);
    if (std::string error = Commit(&rows); !error.empty()) return error;
    // '{1,2}', in the order of the names.
    const std::vector<int64_t> made = postgres::ReadNumbers(revisions_made_);
    if (made.size() != revisions_.size()) return "the new semaphores have no revisions";
    std::ranges::copy(made, revisions_.begin());
    return {};
  }

  // Acquires on one half of the semaphores, releases on the other what the turn before acquired.
  std::string Turn() {
    const size_t acquire = first_half_ ? 0 : half_;
    const size_t release = half_ - acquire;
    const int64_t now = NowMs();
    for (size_t i = 0; i < half_; ++i) ++orders_[acquire + i];
    CommitRows rows;
    for (size_t i = 0; i < names_.size(); ++i)
      AddTouch(names_[i], revisions_[i], orders_[i], &rows.semaphores_touched);
    AddEpoch({session(), 1}, &rows.session_epochs);
    const uint64_t granted_from = sequence_ + 1;
    for (size_t i = 0; i < half_; ++i) PutGrant(acquire + i, next_ids_ + i, now, &rows);
    for (size_t i = 0; holding_ && i < half_; ++i) PutEnd(release + i, i, now, &rows);
    held_sequence_ = granted_from;
    PutFloor(&rows);
    std::string error = Commit(&rows);
    for (int64_t& revision : revisions_) ++revision;
    held_ids_ = next_ids_;
    next_ids_ += static_cast<uint64_t>(half_);
    first_half_ = !first_half_;
    holding_ = true;
    return error;
  }

  ledger::RequestRow NextRequest(size_t semaphore, uint64_t claim, State state) {
    ledger::RequestRow row;
    row.request.sequence = ++sequence_;
    row.fingerprint = {session_high_, semaphore};
    row.state = state;
    row.semaphore = names_[semaphore];
    row.claim = {session_high_, claim};
    return row;
  }

  // A lease on that semaphore, and its request.
  void PutGrant(size_t semaphore, uint64_t claim, int64_t now, CommitRows* rows) {
    const ledger::RequestRow request = NextRequest(semaphore, claim, State::kGranted);
    Lease lease;
    lease.id = request.claim;
    lease.slots = {1};
    lease.holder = kHolder;
    lease.session = session();
    lease.request = request.request;
    lease.fingerprint = request.fingerprint;
    lease.host = self();
    lease.epoch = 1;
    lease.ttl_ms = kTtl_ms;
    lease.order = static_cast<uint64_t>(orders_[semaphore] - 1);
    lease.granted_at_unix_ms = now;
    AddGrant(request.semaphore, lease, client_, EndCause::kNone, 0, &rows->leases_granted);
    AddRequest(request, client_, &rows->requests_new);
  }

  // The lease that the turn before has granted as its `number`th is given back by a request.
  void PutEnd(size_t semaphore, size_t number, int64_t now, CommitRows* rows) {
    ledger::RequestRow request = NextRequest(semaphore, held_ids_ + number, State::kDone);
    request.number = 1;
    Lease lease;
    lease.id = request.claim;
    lease.slots = {1};
    AddEnd(request.semaphore, {lease, lease.slots, EndCause::kReleased, /*history=*/true, now},
           &rows->leases_ended);
    AddRequest(request, client_, &rows->requests_new);
    ledger::RequestRow granted;
    granted.request.sequence = held_sequence_ + number;
    granted.state = State::kEnded;
    granted.cause = EndCause::kReleased;
    AddRequestChange(granted, client_, &rows->requests_changed);
  }

  void PutFloor(CommitRows* rows) {
    if (sequence_ < kWindow + floor_ + kPrunedEvery) return;
    floor_ = sequence_ - kWindow + 1;
    AddFloor(client_, floor_, &rows->request_floors);
  }

  Options options_;
  int32_t number_;
  std::string client_;
  uint64_t session_high_;
  PostgresConnection connection_;
  int32_t node_ = 0;
  int64_t commits_ = 0;
  std::vector<std::string> names_;
  size_t half_ = 0;
  std::vector<int64_t> revisions_, orders_;
  std::string revisions_made_;
  uint64_t sequence_ = 0;
  uint64_t floor_ = 0;
  uint64_t held_sequence_ = 0;  // Of the first request of the turn before.
  // The low parts of the leases' ids: those of the turn before, and of the next.
  uint64_t held_ids_ = 0;
  uint64_t next_ids_ = 2;
  bool first_half_ = true;
  bool holding_ = false;
};

// The number of a new node, or an error's text.
std::string AddNode(const Options& options, const std::string& run, int32_t* number) {
  PostgresConnection connection;
  if (std::string error = connection.Open(options.server); !error.empty()) return error;
  const PostgresResult row = connection.Run("INSERT INTO semaphored.nodes (node_id) VALUES ('" +
                                            run + "') RETURNING number");
  std::string error = row.error();
  if (error.empty()) *number = std::stoi(std::string(row.Value(0, 0)));
  return error;
}

}  // namespace

Report RunPostgresBare(const Options& options) {
  Report report;
  report.title = "postgres bare";
  const std::string run = RunName();
  int32_t node = 0;
  std::string error = AddNode(options, run, &node);
  std::vector<std::unique_ptr<Lane>> lanes;
  for (uint32_t i = 0; i < options.lanes && error.empty(); ++i) {
    lanes.push_back(std::make_unique<Lane>(options, run, i));
    error = lanes.back()->Open(node);
  }
  if (!error.empty()) {
    report.Error(error);
    return report;
  }
  Shared shared{.mutex = {}, .meter = Meter(options), .report = &report, .commit = {}};
  shared.meter.Begin(Clock::now());
  {
    std::vector<std::jthread> threads;
    for (const auto& lane : lanes) threads.emplace_back(&Lane::Run, lane.get(), &shared);
  }
  report.Figure("lanes", options.lanes);
  report.Figure("operations_per_commit", options.batch);
  report.Figure("commits_per_s", static_cast<double>(shared.commits) / options.duration_s);
  shared.meter.Fill(/*one_permit=*/false, &report);
  report.Latency("commit", shared.commit);
  return report;
}

}  // namespace semaphored::bench
