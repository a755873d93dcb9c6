// What the main thread waits for: signals, and ends that the daemon did not choose.
#pragma once

#include <csignal>
#include <optional>

#include "absl/status/status.h"
#include "server/base/clock.h"

namespace semaphored {

// For a thread that waits for no signal: those that do receive all of them, and a socket that is closed at the other end
// brings an error.
inline void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// One a process; lives until it ends.
class Signals {
 public:
  struct Event {
    enum class Kind { kStop, kFatal, kReload, kTimeout };
    Kind kind = Kind::kTimeout;
    int signal = 0;  // kStop: SIGTERM or SIGINT.
  };

  // Blocks SIGTERM, SIGINT and SIGHUP for this thread and those that it starts, and ignores
  // SIGPIPE.
  Signals();

  // The daemon cannot go on. Any thread; it is up to the caller to say why.
  void AskFatal();

  // Blocks until there is something, or `patience` is over (nullopt: as long as it takes). Signals
  // of one kind that came meanwhile count once. One thread.
  Event Wait(std::optional<Milliseconds> patience);

  // From now on another SIGTERM or SIGINT ends the process at once, with 128 + its number; SIGHUP
  // has no effect. Instead of Wait.
  void EndAtNextSignal();

 private:
  int Read() const;

  int signals_ = -1;
  int fatal_event_ = -1;
};

}  // namespace semaphored
