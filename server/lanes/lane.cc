#include "server/lanes/lane.h"

#include <algorithm>
#include <utility>

namespace semaphored {

namespace {
// kBusy, which a later attempt may change, is an error to the sender.
absl::StatusOr<Outcome> WithoutBusy(Outcome outcome) {
  if (outcome.kind == OutcomeKind::kBusy) return absl::UnavailableError(outcome.message);
  return outcome;
}
}  // namespace

LaneCore::LaneCore(std::unique_ptr<Adapter> adapter, const Clock* clock, LaneOptions options)
    : adapter_(std::move(adapter)), clock_(clock), options_(options) {
  progress_ = clock_->Now().time_since_epoch().count();
  fresh_ = turned_ = progress_.load();
}

void LaneCore::RunOnce(std::vector<Job> jobs, SteadyTime wait_until, LaneResults* results) {
  if (!unknown_.empty()) {
    // Nothing new is begun before it is known what became of the last batch.
    std::move(jobs.begin(), jobs.end(), std::back_inserter(kept_));
    Step({}, clock_->Now() + options_.engine_timeout, false, results);
    if (!unknown_.empty()) return BackOff();
    jobs = std::exchange(kept_, {});
    if (jobs.empty()) return;
  }
  if (jobs.empty()) {
    Step({}, wait_until, false, results);
    return;
  }
  while (jobs.size() > options_.batch_max) {
    const auto middle = jobs.begin() + static_cast<ptrdiff_t>(options_.batch_max);
    std::vector<Job> first(std::move_iterator(jobs.begin()), std::move_iterator(middle));
    jobs.erase(jobs.begin(), middle);
    Step(std::move(first), clock_->Now() + options_.engine_timeout, true, results);
    if (!unknown_.empty()) {
      kept_ = std::move(jobs);
      return;
    }
  }
  Step(std::move(jobs), clock_->Now() + options_.engine_timeout, true, results);
}

void LaneCore::Step(std::vector<Job> jobs, SteadyTime deadline, bool retry_reads,
                    LaneResults* results) {
  std::vector<Submission> batch;
  batch.reserve(jobs.size());
  first_number_ = next_number_;
  for (Job& job : jobs) batch.push_back({next_number_++, std::move(job.command)});
  const SteadyTime begun = clock_->Now();
  absl::StatusOr<StepResult> step = adapter_->Step(batch, deadline);
  const SteadyTime ended = clock_->Now();
  Count(batch.size(), ended - begun, step.status());
  turned_ = ended.time_since_epoch().count();
  if (step.ok()) {
    AbsorbQuarantines(std::exchange(step->quarantines, {}), results);
    progress_ = ended.time_since_epoch().count();
    const bool settled = unknown_.empty();  // Else this Step has read nothing.
    Absorb(*std::move(step), &jobs, results);
    if (unknown_.empty()) backoff_ = Milliseconds(0);
    if (settled && unknown_.empty()) fresh_ = begun.time_since_epoch().count();
    return;
  }
  BackOff();
  if (absl::IsFailedPrecondition(step.status())) results->fatal = step.status();
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].command = std::move(batch[i].command);
  Fail(std::move(jobs), step.status(), retry_reads, results);
}

// Waiting for events says nothing of the engine, but that it failed.
void LaneCore::Count(size_t commands, SteadyTime::duration took, const absl::Status& status) {
  if (!status.ok()) figures_.errors[static_cast<size_t>(status.code()) % kStatusCodes] += 1;
  if (commands == 0) return;
  const auto took_us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
  figures_.step_us.Observe(kStepBounds, static_cast<uint64_t>(std::max<int64_t>(took_us, 0)));
  figures_.batch.Observe(kBatchBounds, commands);
}

void LaneCore::BackOff() {
  backoff_ = std::clamp(backoff_ * 2, options_.backoff_min, options_.backoff_max);
  jitter_ ^= jitter_ << 13;
  jitter_ ^= jitter_ >> 7;
  jitter_ ^= jitter_ << 17;
  const auto half = backoff_ / 2;
  not_before_ = clock_->Now() + half + half * static_cast<int64_t>(jitter_ % 1000) / 1000;
}

void LaneCore::Fail(std::vector<Job> jobs, const absl::Status& status, bool retry_reads,
                    LaneResults* results) {
  std::vector<Job> reads;
  for (Job& job : jobs) {
    if (retry_reads && IsReadOnly(job.command)) {
      reads.push_back(std::move(job));
    } else {
      results->finished.push_back({std::move(job.done), status});
    }
  }
  // An engine that cannot write may still read; one that cannot be reached refuses these as well.
  if (!reads.empty())
    Step(std::move(reads), clock_->Now() + options_.engine_timeout, false, results);
}

void LaneCore::Absorb(StepResult step, std::vector<Job>* jobs, LaneResults* results) {
  results->finished.reserve(results->finished.size() + jobs->size());
  for (size_t i = 0; i < jobs->size(); ++i) {
    Job& job = (*jobs)[i];
    if (step.outcomes[i].kind == OutcomeKind::kUnknown) {
      unknown_.emplace(first_number_ + i, std::move(job.done));
      figures_.unknown += 1;
    } else {
      results->finished.push_back({std::move(job.done), WithoutBusy(std::move(step.outcomes[i]))});
    }
  }
  for (Settled& settled : step.settled) {
    const auto found = unknown_.find(settled.number);
    if (found == unknown_.end()) continue;
    if (settled.outcome.ok()) settled.outcome = WithoutBusy(*std::move(settled.outcome));
    results->finished.push_back({std::move(found->second), std::move(settled.outcome)});
    unknown_.erase(found);
  }
  figures_.unsettled.Set(unknown_.size());
  for (Event& event : step.events) {
    std::vector<Event>& events = IsOwn(event.semaphore) ? results->events : results->elsewhere;
    // The name lies in the ledger, which goes on.
    event.semaphore = event.ticket == nullptr
                          ? std::string_view()
                          : results->names.emplace_back(std::string(event.semaphore));
    events.push_back(std::move(event));
  }
  for (SemaphoreChange& change : step.changes) {
    if (IsOwn(change.info.row.name)) results->changes.push_back(std::move(change));
  }
  std::move(step.delayed.begin(), step.delayed.end(), std::back_inserter(results->delayed));
}

// A Step that finds a semaphore damaged has not read it: what the last one has read counts.
void LaneCore::AbsorbQuarantines(std::vector<Quarantine> quarantines, LaneResults* results) {
  if (quarantines.empty()) return;
  results->quarantined_at = fresh_at();
  for (Quarantine& quarantine : quarantines) {
    if (!IsOwn(quarantine.semaphore)) continue;
    if (quarantine.why.ok()) quarantined_.erase(quarantine.semaphore);
    if (!quarantine.why.ok()) quarantined_.insert(quarantine.semaphore);
    results->quarantines.push_back(std::move(quarantine));
  }
  figures_.quarantined.Set(quarantined_.size());
}

// ---- Lane ----

namespace {
// How long a lane without commands waits in the engine before it looks around.
constexpr Milliseconds kIdleWait{1000};
}  // namespace

Lane::Lane(std::unique_ptr<Adapter> adapter, const Clock* clock, LaneOptions options,
           std::function<void(LaneResults)> deliver)
    : core_(std::move(adapter), clock, options),
      clock_(clock),
      options_(options),
      deliver_(std::move(deliver)),
      thread_([this] { Run(); }) {}

Lane::~Lane() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    called_ = true;
  }
  submitted_.notify_one();
  core_.Wake();
  thread_.join();
}

void Lane::Submit(Job job) {
  std::vector<Job> jobs;
  jobs.push_back(std::move(job));
  Submit(std::move(jobs));
}

void Lane::Submit(std::vector<Job> jobs) {
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A thread that is inside a Step with commands looks at the queue when that ends.
    wake = stepping_ && queue_.empty();
    if (queue_.empty()) {
      queue_ = std::move(jobs);
    } else {
      std::move(jobs.begin(), jobs.end(), std::back_inserter(queue_));
    }
    called_ = true;
  }
  submitted_.notify_one();
  if (wake) core_.Wake();
}

void Lane::Run() {
  for (;;) {
    std::vector<Job> jobs;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_ && queue_.empty()) return;
      jobs = std::exchange(queue_, {});
      stepping_ = jobs.empty();
      called_ = false;
    }
    if (!jobs.empty()) {
      last_jobs_ = jobs.size();
      short_wait_.Took(clock_->Now() - idle_since_);
    }
    LaneResults results;
    core_.RunOnce(std::move(jobs), clock_->Now() + kIdleWait, &results);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stepping_ = false;
    }
    if (!results.empty()) {
      ++untold_;
      results.fresh = core_.fresh_at();
      deliver_(std::move(results));
      idle_since_ = clock_->Now();
    } else if (untold_ == 0) {
      told_ = core_.fresh_at().time_since_epoch().count();
    }
    Wait(core_.not_before());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ && core_.unsettled()) return;
  }
}

void Lane::Told(SteadyTime fresh) {
  told_ = fresh.time_since_epoch().count();
  --untold_;
}

void Lane::Wait(SteadyTime not_before) {
  // Where grants come of themselves, a moment after the release, the engine is to be listened to.
  if (core_.guarantees().grants_at_once && short_wait_.PaysFor(last_jobs_)) {
    while (!called_ && clock_->Now() - idle_since_ < ShortWait::kLongest) std::this_thread::yield();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  // The engine refused or is silent: it is not asked for events again at once. Commands go through,
  // since their senders have deadlines.
  WaitUntil(submitted_, lock, not_before,
            [&] { return stopping_ || !queue_.empty() || clock_->Now() >= not_before; });
}

}  // namespace semaphored
