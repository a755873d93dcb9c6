// The set-based statements that the daemon sends to Postgres, without a daemon: what it could reach
// at most. Each of a few connections commits batches of whole cycles: half of a batch's operations
// acquire, the other half release what the batch before acquired; each on a semaphore of its own,
// with session, requests and history.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/bench/loop.h"
#include "tests/bench/modes.h"
#include "tests/bench/postgres_connection.h"

namespace semaphored::bench {
namespace {

using Element = PostgresParameters::Element;

constexpr const char* kHolder = "host-17/4242";
constexpr const char* kNoOwner = "";
// As the daemon's lanes have it.
constexpr const char* kPrepare =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;"
    "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;"
    "SET enable_sort = off; SET jit = off";
// As the daemon's: requests are forgotten below a window, some at a time.
constexpr int64_t kWindow = 8 * 1024;
constexpr int64_t kPrunedEvery = 256;
// The states of a request, and a cause of its end.
constexpr int64_t kGranted = 2;
constexpr int64_t kEnded = 3;
constexpr int64_t kDone = 5;
constexpr int64_t kReleased = 1;

// The arguments of commit_1 that are filled in, in the order of the statement's parameters; all
// others are empty.
constexpr std::array kArguments = {
    "p_node",    "p_incarnation", "p_lane",      "p_number",     "s_name",   "s_revision",
    "s_kind",    "s_next_order",  "w_name",      "w_intentions", "w_owner",  "w_number",
    "c_session", "c_epoch",       "e_semaphore", "e_claim",      "e_number", "e_of",
    "e_slot",    "g_semaphore",   "g_claim",     "g_holder",     "g_owner",  "g_session",
    "g_client",  "g_fingerprint", "g_number",    "g_of",         "g_slot",   "y_id",
    "y_client",  "y_holder",      "y_owner",     "y_number",     "a_client", "a_semaphore",
    "a_claim",   "a_fingerprint", "a_number",    "b_client",     "b_number", "f_client",
    "f_below",
};

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The call of commit_1, with the names of its arguments as the server knows them; or an error.
std::string CommitStatement(PostgresConnection& connection, std::string* statement) {
  const PostgresResult names = connection.Run(
      "SELECT unnest(proargnames[:pronargs]) FROM pg_proc"
      " WHERE oid = 'semaphored.commit_1'::regproc");
  if (std::string error = names.error(); !error.empty()) return error;
  *statement = "SELECT * FROM semaphored.commit_1(";
  size_t found = 0;
  for (int i = 0; i < names.rows(); ++i) {
    const std::string name(names.Value(i, 0));
    const auto argument = std::find(kArguments.begin(), kArguments.end(), name);
    // It knows no place of the lane's row: the function looks for it.
    std::string value = name == "p_place" ? "NULL" : "'{}'";
    if (argument != kArguments.end()) {
      value = "$" + std::to_string(argument - kArguments.begin() + 1);
      ++found;
    }
    *statement += (i == 0 ? "" : ", ") + name + " => " + value;
  }
  *statement += ")";
  return found == kArguments.size() ? "" : "commit_1 has other arguments than this program knows";
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
    std::string statement;
    if (error.empty()) error = CommitStatement(connection_, &statement);
    if (error.empty()) error = connection_.Prepare("commit", statement);
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
  // One array; its elements are added by `fill`.
  template <typename Fill>
  void Put(Element element, Fill&& fill) {
    to_.BeginArray(element);
    fill();
  }
  void PutNone(std::initializer_list<Element> elements) {
    for (Element element : elements) to_.BeginArray(element);
  }
  void AddAll(std::initializer_list<int64_t> columns) {
    for (int64_t column : columns) to_.Add(column);
  }

  // What went wrong; empty: nothing.
  std::string Commit() {
    const PostgresResult row = connection_.RunPrepared("commit", to_);
    if (std::string error = row.error(); !error.empty()) return error;
    const std::string_view refusal = row.Value(0, "refusal");
    if (!refusal.empty()) return "refused: " + std::string(refusal);
    revisions_made_ = row.Value(0, "revisions");
    return {};
  }

  void BeginCommit() {
    to_.Clear();
    to_.Int32(node_);
    to_.Int32(1);
    to_.Int32(number_);
    to_.Int64(commits_++);
  }

  // The semaphores, as new ones or at their revisions.
  void PutSemaphores(bool make) {
    Put(Element::kText, [&] {
      for (const auto& name : names_) to_.Add(name);
    });
    Put(Element::kInt64, [&] {
      for (int64_t revision : revisions_) to_.Add(revision);
    });
    Put(Element::kInt16, [&] {
      for (size_t i = 0; i < names_.size(); ++i) to_.Add(make ? 1 : 0);
    });
    Put(Element::kInt64, [&] {
      for (int64_t order : orders_) to_.Add(order);
    });
    const size_t made = make ? names_.size() : 0;
    Put(Element::kText, [&] {
      for (size_t i = 0; i < made; ++i) to_.Add(names_[i]);
    });
    for (int empty = 0; empty < 2; ++empty) {  // Intentions and owners.
      Put(Element::kText, [&] {
        for (size_t i = 0; i < made; ++i) to_.Add("");
      });
    }
    Put(Element::kInt64, [&] {
      for (size_t i = 0; i < made; ++i) AddAll({1, 0, 0, 30000, 0, 0, 0, 0, NowMs(), 0});
    });
  }

  // The lane's semaphores and its session.
  std::string MakeSemaphores() {
    BeginCommit();
    PutSemaphores(/*make=*/true);
    PutNone({Element::kUuid, Element::kInt32});  // c
    PutEnds(0, 0, 0);
    PutGrants(0, 0, 0);
    Put(Element::kUuid, [&] { to_.AddUuid(session_high_, 1); });
    Put(Element::kText, [&] { to_.Add(client_); });
    Put(Element::kText, [&] { to_.Add(kHolder); });
    Put(Element::kText, [&] { to_.Add(kNoOwner); });
    Put(Element::kInt64, [&] { AddAll({1, node_, 1, 30000, 0, 0}); });
    PutRequests(0, 0, 0, 0);
    PutNone({Element::kText, Element::kInt64});  // f
    if (std::string error = Commit(); !error.empty()) return error;
    // '{1,2}', in the order of the names.
    std::string_view numbers = revisions_made_;
    for (int64_t& revision : revisions_) {
      if (numbers.empty()) return "the new semaphores have no revisions";
      numbers.remove_prefix(1);
      const auto end = std::from_chars(numbers.data(), numbers.data() + numbers.size(), revision);
      numbers.remove_prefix(static_cast<size_t>(end.ptr - numbers.data()));
    }
    return {};
  }

  // Acquires on one half of the semaphores, releases on the other what the turn before acquired.
  std::string Turn() {
    const size_t acquire = first_half_ ? 0 : half_;
    const size_t release = half_ - acquire;
    const size_t released = holding_ ? half_ : 0;
    const int64_t now = NowMs();
    for (size_t i = 0; i < half_; ++i) ++orders_[acquire + i];
    BeginCommit();
    PutSemaphores(/*make=*/false);
    Put(Element::kUuid, [&] { to_.AddUuid(session_high_, 1); });
    Put(Element::kInt32, [&] { to_.Add(1); });
    PutEnds(release, released, now);
    PutGrants(acquire, half_, now);
    PutNone(
        {Element::kUuid, Element::kText, Element::kText, Element::kText, Element::kInt64});  // y
    PutRequests(acquire, half_, release, released);
    PutFloor();
    std::string error = Commit();
    for (int64_t& revision : revisions_) ++revision;
    held_ids_ = next_ids_;
    next_ids_ += static_cast<uint64_t>(half_);
    first_half_ = !first_half_;
    holding_ = true;
    return error;
  }

  // Leases of `count` semaphores from `first` on are given back.
  void PutEnds(size_t first, size_t count, int64_t now) {
    const auto each = [&](Element element, auto&& add) {
      Put(element, [&] {
        for (size_t i = 0; i < count; ++i) add(i);
      });
    };
    each(Element::kText, [&](size_t i) { to_.Add(names_[first + i]); });
    each(Element::kUuid, [&](size_t i) { to_.AddUuid(session_high_, held_ids_ + i); });
    each(Element::kInt64, [&](size_t) { AddAll({1, 1, now}); });
    each(Element::kInt32, [&](size_t i) { to_.Add(static_cast<int64_t>(i) + 1); });
    each(Element::kInt32, [&](size_t) { to_.Add(1); });
  }

  // One lease is granted on each of `count` semaphores from `first` on.
  void PutGrants(size_t first, size_t count, int64_t now) {
    const auto each = [&](Element element, auto&& add) {
      Put(element, [&] {
        for (size_t i = 0; i < count; ++i) add(i);
      });
    };
    each(Element::kText, [&](size_t i) { to_.Add(names_[first + i]); });
    each(Element::kUuid, [&](size_t i) { to_.AddUuid(session_high_, next_ids_ + i); });
    each(Element::kText, [&](size_t) { to_.Add(kHolder); });
    each(Element::kText, [&](size_t) { to_.Add(kNoOwner); });
    each(Element::kUuid, [&](size_t) { to_.AddUuid(session_high_, 1); });
    each(Element::kText, [&](size_t) { to_.Add(client_); });
    each(Element::kUuid, [&](size_t) { to_.AddUuid(session_high_, first); });
    each(Element::kInt64, [&](size_t i) {
      const auto sequence = sequence_ + 1 + static_cast<int64_t>(i);
      AddAll({sequence, node_, 1, 1, 30000, 0, orders_[first + i] - 1, 0, 0, 0, now, 0, 0});
    });
    each(Element::kInt32, [&](size_t i) { to_.Add(static_cast<int64_t>(i) + 1); });
    each(Element::kInt32, [&](size_t) { to_.Add(1); });
  }

  // Requests that are granted, and those that give back, come; those whose leases are given back
  // change.
  void PutRequests(size_t acquire, size_t acquired, size_t release, size_t released) {
    const int64_t granted_from = sequence_ + 1;
    const auto each = [&](Element element, auto&& add_acquired, auto&& add_released) {
      Put(element, [&] {
        for (size_t i = 0; i < acquired; ++i) add_acquired(i);
        for (size_t i = 0; i < released; ++i) add_released(i);
      });
    };
    const auto client = [&](size_t) { to_.Add(client_); };
    each(Element::kText, client, client);
    each(
        Element::kText, [&](size_t i) { to_.Add(names_[acquire + i]); },
        [&](size_t i) { to_.Add(names_[release + i]); });
    each(
        Element::kUuid, [&](size_t i) { to_.AddUuid(session_high_, next_ids_ + i); },
        [&](size_t i) { to_.AddUuid(session_high_, held_ids_ + i); });
    each(
        Element::kUuid, [&](size_t) { to_.AddUuid(session_high_, acquire); },
        [&](size_t) { to_.AddUuid(session_high_, release); });
    each(
        Element::kInt64,
        [&](size_t) {
          AddAll({++sequence_, kGranted, 0, 0, 0, 0});
        },
        [&](size_t) {
          AddAll({++sequence_, kDone, 0, 1, 0, 0});
        });
    Put(Element::kText, [&] {
      for (size_t i = 0; i < released; ++i) to_.Add(client_);
    });
    Put(Element::kInt64, [&] {
      for (size_t i = 0; i < released; ++i)
        AddAll({held_sequence_ + static_cast<int64_t>(i), kEnded, kReleased});
    });
    held_sequence_ = granted_from;
  }

  void PutFloor() {
    if (sequence_ < kWindow + floor_ + kPrunedEvery) {
      PutNone({Element::kText, Element::kInt64});
      return;
    }
    floor_ = sequence_ - kWindow + 1;
    Put(Element::kText, [&] { to_.Add(client_); });
    Put(Element::kInt64, [&] { to_.Add(floor_); });
  }

  Options options_;
  int32_t number_;
  std::string client_;
  uint64_t session_high_;
  PostgresConnection connection_;
  PostgresParameters to_;
  int32_t node_ = 0;
  int64_t commits_ = 0;
  std::vector<std::string> names_;
  size_t half_ = 0;
  std::vector<int64_t> revisions_, orders_;
  std::string revisions_made_;
  int64_t sequence_ = 0;
  int64_t floor_ = 0;
  int64_t held_sequence_ = 0;  // Of the first request of the turn before.
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
