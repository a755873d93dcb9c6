#include "server/rpc/reactor.h"

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

namespace semaphored {
namespace {

// So many events are handled before posted tasks get their turn.
constexpr int kEventsPerTurn = 256;

std::unique_ptr<grpc::CompletionQueue> QueueWithoutSockets() {
  constexpr grpc_completion_queue_attributes kAttributes = {GRPC_CQ_CURRENT_VERSION, GRPC_CQ_NEXT,
                                                            GRPC_CQ_NON_POLLING, nullptr};
  return std::make_unique<grpc::CompletionQueue>(grpc_completion_queue_create(
      grpc_completion_queue_factory_lookup(&kAttributes), &kAttributes, nullptr));
}

}  // namespace

Reactor::Reactor(const Clock* clock, std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : clock_(clock),
      server_queue_(queue.get()),
      event_time_(clock->Now()),
      driver_due_(SteadyTime::max()) {
  queue_ = std::move(queue);
}

Reactor::Reactor(const Clock* clock)
    : clock_(clock),
      queue_(QueueWithoutSockets()),
      event_time_(clock->Now()),
      driver_due_(SteadyTime::max()) {}

Reactor::~Reactor() {
  // A queue must be shut down and empty before it goes. Its events are dropped: their receivers
  // may have gone.
  if (closed_) return;
  Close();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
  }
}

void Reactor::Run() {
  const gpr_timespec at_once = gpr_time_0(GPR_CLOCK_MONOTONIC);
  for (;;) {
    void* tag = nullptr;
    bool ok = false;
    auto got = Next(&tag, &ok);
    const SteadyTime begun = clock_->Now();
    for (int events = 0; got == grpc::CompletionQueue::GOT_EVENT; ++events) {
      event_time_ = clock_->Now();
      static_cast<QueueEvent*>(tag)->OnEvent(ok);
      // Clients wait for what was posted: it runs before the next look at the sockets.
      if (tag == &wake_ || events == kEventsPerTurn) break;
      got = queue_->AsyncNext(&tag, &ok, at_once);
    }
    EndTurn();
    const SteadyTime ended = clock_->Now();
    longest_turn_.Add(ended - begun, ended);
    if (got == grpc::CompletionQueue::SHUTDOWN) return;
  }
}

grpc::CompletionQueue::NextStatus Reactor::Next(void** tag, bool* ok) {
  grpc::CompletionQueue::NextStatus status = grpc::CompletionQueue::TIMEOUT;
  if (looking_until_ > clock_->Now() && Look(tag, ok, &status)) return status;
  return queue_->AsyncNext(tag, ok, NextDeadline());
}

// False: nothing came.
bool Reactor::Look(void** tag, bool* ok, grpc::CompletionQueue::NextStatus* status) {
  {
    const std::lock_guard lock(tasks_mutex_);
    if (waking_) return false;  // The alarm is on its way.
    waking_ = true;
  }
  const gpr_timespec at_once = gpr_time_0(GPR_CLOCK_MONOTONIC);
  do {
    *status = queue_->AsyncNext(tag, ok, at_once);
    // Threads that want this processor have work to do: the lane, the guard, an engine on this machine.
    if (*status == grpc::CompletionQueue::TIMEOUT) sched_yield();
  } while (*status == grpc::CompletionQueue::TIMEOUT && !posted_ && clock_->Now() < looking_until_);
  const std::lock_guard lock(tasks_mutex_);
  waking_ = false;
  return *status != grpc::CompletionQueue::TIMEOUT || !tasks_.empty();
}

void Reactor::Post(Task task) {
  {
    std::lock_guard lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
    posted_ = true;
    if (waking_) return;
    waking_ = true;
  }
  std::lock_guard lock(alarm_mutex_);
  // A time long past: gRPC rounds a deadline up to the millisecond, and would wait that out.
  if (!alarm_off_) alarm_.Set(queue_.get(), gpr_time_0(GPR_CLOCK_MONOTONIC), &wake_);
}

void Reactor::OnWake(bool /*ok*/) {
  std::lock_guard lock(tasks_mutex_);
  waking_ = false;
}

void Reactor::Close() {
  if (closed_) return;
  closed_ = true;
  {
    std::lock_guard lock(alarm_mutex_);
    alarm_off_ = true;
  }
  queue_->Shutdown();
}

void Reactor::Arm(ReactorTimer* timer, SteadyTime due) {
  Disarm(timer);
  timer->due_ = due;
  timer->armed_ = true;
  timers_.emplace(due, timer);
}

void Reactor::Disarm(ReactorTimer* timer) {
  if (!timer->armed_) return;
  timer->armed_ = false;
  timers_.erase({timer->due_, timer});
}

void Reactor::RunTasks() {
  {
    std::lock_guard lock(tasks_mutex_);
    running_.swap(tasks_);
    posted_ = false;
  }
  for (Task& task : running_) {
    event_time_ = clock_->Now();
    task();
  }
  running_.clear();
}

void Reactor::RunTimers() {
  while (!timers_.empty()) {
    event_time_ = clock_->Now();
    const auto [due, timer] = *timers_.begin();
    if (due > event_time_) break;
    Disarm(timer);
    timer->OnTimer();
  }
}

void Reactor::EndTurn() {
  RunTasks();
  RunTimers();
  if (driver_) {
    event_time_ = clock_->Now();
    driver_due_ = driver_();
  }
  for (const auto& function : turn_ends_) function();
}

gpr_timespec Reactor::NextDeadline() const {
  SteadyTime due = driver_due_;
  if (!timers_.empty()) due = std::min(due, timers_.begin()->first);
  std::chrono::nanoseconds sleep = kLongestSleep;
  const SteadyTime now = clock_->Now();
  if (due < now + sleep) sleep = std::max(due - now, std::chrono::nanoseconds(0));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(sleep.count(), GPR_TIMESPAN));
}

}  // namespace semaphored
