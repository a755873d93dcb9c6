// Messages of daemons on the exchange, sealed: a program that may publish there, and may not read the queue with
// the secret, makes none that is taken for a daemon's.
//
//   semaphored.secret   a document: the secret. Its version is the epoch: each daemon that begins raises it
//
// A message says who has sent it, with which number, and in which epoch. So one that is published again is
// refused: by those that had it, by its number; by those that have begun since, by its epoch.
//
// On one connection, used by one thread; all calls block for some round trips.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

class Sealing {
 public:
  // `connection` outlives this; it is opened when a call is made. `queue`: of the document.
  Sealing(Connection* connection, std::string queue);

  // From now on messages are understood. Does nothing if it is done, or has just failed; `now` decides. Call it
  // now and then.
  absl::Status BeginIfDue(SteadyTime now);
  // With a seal, for all daemons that have begun by now.
  absl::StatusOr<std::string> Seal(nlohmann::json message);
  // What a daemon, another than this one, has sealed. nullopt: it is none, it is this one's, or it was there
  // before.
  std::optional<nlohmann::json> Open(const std::string& text, SteadyTime now);

 private:
  // Reads the document, and makes it if it is not there. `begin`: raises its version.
  absl::Status Read(bool begin);
  bool IsNew(const std::string& sender, uint64_t number);

  Connection* const connection_;
  const std::string queue_;
  const std::string self_;
  std::string secret_;  // Empty: not read.
  uint64_t epoch_ = 0;  // As it was last read.
  uint64_t first_ = 0;  // The lowest that is understood.
  uint64_t number_ = 0;
  std::map<std::string, uint64_t> heard_;  // The highest number of each sender.
  std::deque<std::string> senders_;        // In the order in which they came.
  SteadyTime read_again_{};
};

}  // namespace semaphored::rabbitmq
