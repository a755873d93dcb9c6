// One connection to a Postgres server. It blocks, but never for longer than the time-out: a guard
// thread cuts it off then. Used by one thread at a time; never throws.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pqxx/pqxx>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/postgres/statements.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

// Shuts sockets down at their time. One thread for all connections. Any thread.
class Guard {
 public:
  using Time = SteadyTime;

  Guard();
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // From `time` on, and until Disarm, the socket is shut down.
  uint64_t Arm(int socket, Time time);
  // Afterwards the socket is left alone. True if it was shut down.
  bool Disarm(uint64_t armed);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool asleep_ = false;
  uint64_t last_ = 0;
  struct Entry {
    int socket = -1;
    Time time;
    bool done = false;
  };
  std::map<uint64_t, Entry> entries_;
  std::thread thread_;
};

struct Failure {
  enum class Kind : uint8_t {
    kRefused,  // The server said no: nothing was done.
    kBroken,   // The connection broke: what was sent may have been done, or may yet be.
  };
  Kind kind = Kind::kRefused;
  std::string state;  // SQLSTATE, if the server gave one.
  absl::Status status;
};

// A result, or why there is none.
struct Answered {
  pqxx::result rows;
  bool ok = true;
  Failure failure;
};

// Of a statement, as text; nullopt: NULL.
using Arguments = std::vector<std::optional<std::string>>;

class Receiver;  // Of libpqxx.h.

class Connection {
 public:
  struct Options {
    std::string connection;
    std::chrono::milliseconds timeout{2500};
    // Run on each new connection before anything else; an error closes it again.
    std::function<absl::Status(Connection&)> prepare;
  };

  // `guard` outlives it.
  Connection(Options options, Guard* guard);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Makes sure that there is one. UNAVAILABLE: the server cannot be reached or takes no writes;
  // PERMISSION_DENIED; INVALID_ARGUMENT: what it says of the URL.
  absl::Status Open();
  void Close();
  bool is_open() const { return connection_ != nullptr; }
  // Rises each time that Open makes a new connection.
  uint64_t life() const { return life_; }

  // Statements of the text form, any number of them, without arguments.
  Answered Run(const std::string& sql);
  // Prepared on its first use in this connection.
  Answered Run(const Statement& statement, const Arguments& arguments);

  // What has been notified, as (channel, payload), without waiting. Breaks it if it has broken.
  absl::Status TakeNotifications(const std::function<void(const std::string&)>& take);
  absl::Status Listen(const std::string& channel);
  int socket() const;
  int backend_pid() const;

 private:
  template <typename Call>
  Answered Guarded(Call&& call);

  const Options options_;
  Guard* guard_;
  std::unique_ptr<pqxx::connection> connection_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<std::string> received_;
  std::set<std::string> prepared_;  // By name.
  uint64_t life_ = 0;
};

// The same as an error for the layers above, without what must not be shown.
absl::Status StatusOf(const std::string& state, const std::string& message);

}  // namespace semaphored::postgres
