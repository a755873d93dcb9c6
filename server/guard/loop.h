// A thread that waits for the sockets of many connections and lets each go on; and lets in those that wait, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/base/clock.h"
#include "server/guard/connection.h"

namespace semaphored::guard {

using ConnectionPtr = std::unique_ptr<Connection>;

class Loop {
 public:
  // Called on the loop's thread, or within an Add() after Stop(). The loop has let go of the connection.
  struct Handlers {
    std::function<void(ConnectionPtr)> on_ready;  // Its handshake is done.
    std::function<void(ConnectionPtr)> on_over;
  };

  // The clock outlives it. `handshake` is how long one may take.
  Loop(const Clock* clock, Milliseconds handshake, Handlers handlers);
  // Stop(0).
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // The connection is the loop's from now on; after Stop() it is closed. Any thread; does not block.
  void Add(ConnectionPtr connection);
  // Waits for so long until no connection is left, then ends them all. Returns when the thread has ended. One thread.
  void Stop(Milliseconds patience);

 private:
  // What the kernel's events point to. It stands until the end of the turn in which it is let go.
  struct Socket {
    Connection* connection = nullptr;  // Null: let go.
    bool of_client = false;
    Connection::Interest known;  // As the kernel has it.
  };
  struct Watched {
    ConnectionPtr connection;
    Socket client;
    Socket daemon;
    std::optional<SteadyTime> deadline;
    uint64_t arrival = 0;  // Its place among those that wait; 0: none.
  };

  void Run();
  // False: it is time to end.
  bool TakeAdded();
  void OnEvent(const Socket& socket, SteadyTime now);
  // Brings what is waited for up to date, and lets go of a connection whose time here is over.
  void After(Watched* watched, SteadyTime now);
  void Watch(int descriptor, Socket* socket, const Connection::Interest& wanted) const;
  void SetDeadline(Watched* watched, std::optional<SteadyTime> deadline);
  void EndOverdue(SteadyTime now);
  void LetGo(Watched* watched, SteadyTime now);
  // Lets in those that wait to be, as far as their addresses may.
  void LetIn(SteadyTime now);
  // Lets those go on that were held up.
  void GoOn(SteadyTime now);
  int SleepMs(SteadyTime now) const;
  void Wake() const;

  const Clock* clock_;
  const Milliseconds handshake_;
  const Handlers handlers_;
  const int epoll_;
  const int wake_;
  std::vector<char> buffer_;

  // The thread's.
  absl::flat_hash_map<Connection*, std::unique_ptr<Watched>> watched_;
  std::vector<std::unique_ptr<Watched>> let_go_;  // In this turn.
  std::set<std::pair<SteadyTime, Connection*>> deadlines_;
  std::map<uint64_t, Watched*> waiting_;  // By their arrival.
  uint64_t arrivals_ = 0;
  SteadyTime let_in_at_{};  // When those that wait are looked at next.
  absl::flat_hash_set<Connection*> held_up_;
  size_t turn_ = 0;       // Which of them is the first.
  SteadyTime look_at_{};  // When those that are held up are looked at next.

  std::mutex mutex_;
  std::vector<ConnectionPtr> added_;  // Guarded by mutex_.
  std::optional<SteadyTime> end_by_;  // Guarded by mutex_. Set: Stop() has been called.
  std::thread thread_;
};

}  // namespace semaphored::guard
