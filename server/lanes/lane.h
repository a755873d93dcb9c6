// A lane owns one adapter: it takes all that was submitted as one batch, steps the adapter, and
// hands back what came of it. LaneCore has no thread, so that tests can drive it; Lane runs one in
// a thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "server/base/clock.h"
#include "server/figures/metrics.h"

namespace semaphored {

// Runs when the command's fate is known. An error: it was not done.
using Completion = absl::AnyInvocable<void(absl::StatusOr<Outcome>)>;

// Of a completion: the command was not carried out, and is still due …
inline bool IsUndone(const absl::StatusOr<Outcome>& outcome) {
  return !outcome.ok() || outcome->kind == OutcomeKind::kDamaged;
}
// … after this. A semaphore that is damaged is not tried as often as an engine that is away.
inline constexpr Milliseconds kTryAgainAfter{500};
inline constexpr Milliseconds kTryDamagedAfter{5000};
inline Milliseconds TryAgainAfter(const absl::StatusOr<Outcome>& outcome) {
  return outcome.ok() ? kTryDamagedAfter : kTryAgainAfter;
}

inline constexpr size_t kSessionsLane = 0;  // It has the rows of sessions.

struct Job {
  Command command;
  Completion done;
};

struct Finished {
  Completion done;
  absl::StatusOr<Outcome> outcome;
};

struct LaneResults {
  std::vector<Finished> finished;
  std::vector<Event> events;      // Event::semaphore is empty, unless there is a ticket; and below.
  std::deque<std::string> names;  // Those that events refer to; moving the deque moves no name.
  // Events of semaphores that belong to other lanes: a lane that adopts or closes a session reads
  // all semaphores of that session. An event here may precede an earlier one that the semaphore's
  // own lane has not reported yet.
  std::vector<Event> elsewhere;
  std::vector<SemaphoreChange> changes;
  // Of other lanes' semaphores too: only the lane whose commit begins a delay reports it.
  std::vector<DelayedTicket> delayed;
  // Of this lane's semaphores. What other daemons did to one of them before `quarantined_at` is known.
  std::vector<Quarantine> quarantines;
  SteadyTime quarantined_at{};
  // Set when the node was declared dead or replaced: the daemon must end.
  absl::Status fatal;
  SteadyTime fresh{};  // For Lane::Told, when all of this has been looked at.
  bool empty() const {
    return finished.empty() && events.empty() && elsewhere.empty() && changes.empty() &&
           delayed.empty() && quarantines.empty() && fatal.ok();
  }
};

struct LaneOptions {
  size_t batch_max = 4096;            // Commands in one batch.
  Milliseconds engine_timeout{5000};  // For one Step with commands.
  Milliseconds backoff_min{50};       // After an error, doubled up to …
  Milliseconds backoff_max{2000};     // … this; with jitter of half.
  size_t number = 0;                  // This lane, counted from 0, …
  size_t lanes = 1;                   // … among this many.
};

// Decides whether a thread that waits for another looks again and again for a moment before it
// sleeps: a wake-up costs some 40 us, which is a tenth of a permit's way from hand to hand. Only
// where it pays: on more than one processor, when little is under way (else no client waits for
// just this, and the processors have other work), and when the last wait was short. So a daemon
// with nothing to do, or an engine that takes its time, costs nothing. Single-threaded.
class ShortWait {
 public:
  static constexpr std::chrono::microseconds kLongest{500};
  static constexpr size_t kJobsMax = 4;

  // `jobs`: how many are under way, or were last.
  bool PaysFor(size_t jobs) const { return last_ < kLongest && jobs <= kJobsMax && many_; }
  // How long a wait took, whether or not it was spent looking.
  void Took(SteadyTime::duration wait) { last_ = wait; }

 private:
  SteadyTime::duration last_ = SteadyTime::duration::max();
  bool many_ = std::thread::hardware_concurrency() > 1;
};

class LaneCore {
 public:
  // The clock outlives the lane.
  LaneCore(std::unique_ptr<Adapter> adapter, const Clock* clock, LaneOptions options);

  // One Step with `jobs` (all of them are consumed); waits for events until `wait_until` if there
  // are none. After an error of the engine the jobs that only read are tried once more by
  // themselves, the others fail. While commands are unknown, jobs are kept until those are settled.
  // Blocks; single-threaded.
  void RunOnce(std::vector<Job> jobs, SteadyTime wait_until, LaneResults* results);

  // When the next RunOnce without jobs is worth a call after an error, or while a batch is not
  // settled; the past if at once.
  SteadyTime not_before() const { return not_before_; }
  bool unsettled() const { return !unknown_.empty(); }
  // The last time a Step succeeded. Any thread.
  SteadyTime progress_at() const { return SteadyTime(SteadyTime::duration(progress_.load())); }
  // The last time a Step came back, whatever came of it. Any thread.
  SteadyTime turned_at() const { return SteadyTime(SteadyTime::duration(turned_.load())); }
  // When the last Step began that succeeded and left nothing unknown: what others had done in the
  // engine a sweep interval before is known here. Any thread.
  SteadyTime fresh_at() const { return SteadyTime(SteadyTime::duration(fresh_.load())); }
  const Guarantees& guarantees() const { return adapter_->guarantees(); }
  void Wake() { adapter_->Wake(); }
  // Any thread.
  const LaneFigures& figures() const { return figures_; }

 private:
  void Step(std::vector<Job> jobs, SteadyTime deadline, bool retry_reads, LaneResults* results);
  // After an error, or when it is still not known what became of a batch.
  void BackOff();
  void Fail(std::vector<Job> jobs, const absl::Status& status, bool retry_reads,
            LaneResults* results);
  void Count(size_t commands, SteadyTime::duration took, const absl::Status& status);
  void Absorb(StepResult step, std::vector<Job>* jobs, LaneResults* results);
  void AbsorbQuarantines(std::vector<Quarantine> quarantines, LaneResults* results);
  // An event without a semaphore (a session has moved) belongs to every lane.
  bool IsOwn(std::string_view semaphore) const {
    return semaphore.empty() || LaneOf(semaphore, options_.lanes) == options_.number;
  }

  std::unique_ptr<Adapter> adapter_;
  const Clock* clock_;
  LaneOptions options_;
  std::vector<Job> kept_;
  absl::flat_hash_map<uint64_t, Completion> unknown_;
  uint64_t next_number_ = 1;
  uint64_t first_number_ = 1;
  Milliseconds backoff_{0};
  SteadyTime not_before_{};
  std::atomic<SteadyTime::rep> progress_{0};
  std::atomic<SteadyTime::rep> fresh_{0};
  std::atomic<SteadyTime::rep> turned_{0};
  absl::flat_hash_set<std::string> quarantined_;  // Of this lane's semaphores.
  uint64_t jitter_ = 88172645463325252ull;
  LaneFigures figures_;
};

class Lane {
 public:
  // `deliver` is called on the lane's thread with what a batch brought, one call a batch, in order.
  Lane(std::unique_ptr<Adapter> adapter, const Clock* clock, LaneOptions options,
       std::function<void(LaneResults)> deliver);
  // Ends the thread after what was submitted has been carried out.
  ~Lane();

  // Any thread; does not block.
  void Submit(Job job);
  void Submit(std::vector<Job> jobs);
  SteadyTime progress_at() const { return core_.progress_at(); }
  SteadyTime turned_at() const { return core_.turned_at(); }
  // LaneCore::fresh_at of the last Step all of whose results the consumer has processed: else a
  // lease that the Step found lost would be vouched for again until its loss is processed.
  SteadyTime fresh_at() const { return SteadyTime(SteadyTime::duration(told_.load())); }
  // Any thread.
  const LaneFigures& figures() const { return core_.figures(); }
  // The consumer calls this after processing the results.
  void Told(SteadyTime fresh);
  const Guarantees& guarantees() const { return core_.guarantees(); }

 private:
  void Run();
  // Waits until `not_before`, or until there are jobs, or the end; a little longer for jobs if that
  // pays.
  void Wait(SteadyTime not_before);

  LaneCore core_;
  const Clock* clock_;
  LaneOptions options_;
  std::function<void(LaneResults)> deliver_;
  std::atomic<SteadyTime::rep> told_{core_.fresh_at().time_since_epoch().count()};
  std::atomic<int> untold_{0};  // Deliveries that have not been looked at.
  std::mutex mutex_;
  std::condition_variable submitted_;
  std::vector<Job> queue_;  // Guarded by mutex_.
  bool stepping_ = false;   // Guarded by mutex_: the thread is inside a Step that may wait.
  bool stopping_ = false;   // Guarded by mutex_.
  // Set with each job and with stopping_, for a look without the mutex.
  std::atomic<bool> called_ = false;
  // The thread's own.
  ShortWait short_wait_;
  size_t last_jobs_ = 0;
  SteadyTime idle_since_{};
  std::thread thread_;
};

}  // namespace semaphored
