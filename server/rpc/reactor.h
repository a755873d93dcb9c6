// The one thread on which everything of gRPC and of Sessions runs: events of a completion queue,
// timers, and functions that other threads post.
//
// It works in turns. A turn handles all events that have arrived, then the posted functions, then the timers that are due.
// At its end it hands on what it has collected: jobs to the lanes, messages to the streams. So what is ready in one turn is
// sent together.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/functional/any_invocable.h"
#include "server/base/clock.h"
#include "server/base/longest_lately.h"

namespace semaphored {

// What the tags of the completion queue point to.
class QueueEvent {
 public:
  // On the reactor's thread. `ok` as gRPC says for each operation.
  virtual void OnEvent(bool ok) = 0;

 protected:
  ~QueueEvent() = default;
};

// An event that calls a member function of its owner.
template <typename Owner, void (Owner::*Method)(bool)>
class MemberEvent final : public QueueEvent {
 public:
  explicit MemberEvent(Owner* owner) : owner_(owner) {}
  void OnEvent(bool ok) override { (owner_->*Method)(ok); }

 private:
  Owner* owner_;
};

// Armed with Reactor::Arm. It must be disarmed before it is destroyed.
class ReactorTimer {
 public:
  virtual void OnTimer() = 0;

 protected:
  ~ReactorTimer() = default;

 private:
  friend class Reactor;
  SteadyTime due_{};
  bool armed_ = false;
};

// A timer that calls a member function of its owner.
template <typename Owner, void (Owner::*Method)()>
class MemberTimer final : public ReactorTimer {
 public:
  explicit MemberTimer(Owner* owner) : owner_(owner) {}
  void OnTimer() override { (owner_->*Method)(); }

 private:
  Owner* owner_;
};

class Reactor {
 public:
  using Task = absl::AnyInvocable<void()>;

  // The clock outlives it.
  Reactor(const Clock* clock, std::unique_ptr<grpc::ServerCompletionQueue> queue);
  // For clients of channels within the process alone: no socket is polled for them. (All threads that poll share
  // gRPC's one epoll, and take each other's events: a second one costs each hand-off two changes of threads.)
  explicit Reactor(const Clock* clock);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Goes round until the queue is shut down and empty. The calling thread becomes the reactor's.
  void Run();

  // Any thread. The task runs on the reactor's thread soon, in the order of posting; after Close()
  // never.
  void Post(Task task);

  // ---- On the reactor's thread, or before Run() ----

  // Shuts the queue down: Run() returns when the operations under way have ended. From now on gRPC ends the process at
  // any new operation on the queue. So a call checks closed() before it begins one: events of calls that were cut off may
  // still arrive.
  void Close();
  bool closed() const { return closed_; }

  // Null: it is for clients alone.
  grpc::ServerCompletionQueue* queue() { return server_queue_; }
  grpc::CompletionQueue* client_queue() { return queue_.get(); }
  const Clock& clock() const { return *clock_; }
  // When the event, task or timer that is being handled began to be: not later than any time read
  // in it.
  SteadyTime event_time() const { return event_time_; }

  // Calls timer->OnTimer() once, at `due` or soon after. Armed again: only the later call counts.
  void Arm(ReactorTimer* timer, SteadyTime due);
  void Disarm(ReactorTimer* timer);

  // Something is posted within a moment, most likely: until then the reactor looks for it without
  // sleeping, and the thread that posts it need not wake it.
  void ExpectSoon(SteadyTime::duration longest) { looking_until_ = clock_->Now() + longest; }

  // The longest time lately for which one turn kept all others waiting.
  SteadyTime::duration longest_turn() { return longest_turn_.Get(clock_->Now()); }

  // Called in each turn after events, tasks and timers; returns the time by which it must be called again.
  void SetDriver(std::function<SteadyTime()> driver) { driver_ = std::move(driver); }
  // Called at the end of each turn, in the order in which they were added.
  void AtTurnEnd(std::function<void()> function) { turn_ends_.push_back(std::move(function)); }

 private:
  void OnWake(bool ok);
  // The next event; TIMEOUT: there are tasks, or something is due.
  grpc::CompletionQueue::NextStatus Next(void** tag, bool* ok);
  bool Look(void** tag, bool* ok, grpc::CompletionQueue::NextStatus* status);
  void RunTasks();
  void RunTimers();
  void EndTurn();
  gpr_timespec NextDeadline() const;

  const Clock* clock_;
  std::unique_ptr<grpc::CompletionQueue> queue_;
  grpc::ServerCompletionQueue* server_queue_ = nullptr;  // The same, or null.
  SteadyTime event_time_;
  SteadyTime driver_due_;
  SteadyTime looking_until_{};
  std::function<SteadyTime()> driver_;
  std::vector<std::function<void()>> turn_ends_;
  absl::btree_set<std::pair<SteadyTime, ReactorTimer*>> timers_;
  std::vector<Task> running_;
  LongestLately longest_turn_;
  bool closed_ = false;

  std::mutex tasks_mutex_;
  std::vector<Task> tasks_;  // Guarded by tasks_mutex_.
  // Guarded by tasks_mutex_: the alarm is set and has not been delivered, or the reactor looks by
  // itself.
  bool waking_ = false;
  std::atomic<bool> posted_ = false;  // Set with each task, for a look without the mutex.
  // Setting the alarm wakes the reactor, which then takes tasks_mutex_: hence a mutex of its own.
  std::mutex alarm_mutex_;
  grpc::Alarm alarm_;       // Guarded by alarm_mutex_.
  bool alarm_off_ = false;  // Guarded by alarm_mutex_.
  MemberEvent<Reactor, &Reactor::OnWake> wake_{this};
};

}  // namespace semaphored
