// Takes out of the database what need not be kept, in small batches: history by number and by age;
// requests whose claims ended only when they were below their client's floor; what lives of daemons
// that have ended have left behind. For one lane of each daemon to do; several daemons may do it at
// once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/common/upkeep.h"
#include "adapters/postgres/connection.h"
#include "adapters/postgres/statements.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

struct PruneOptions {
  uint64_t history_rows = 100'000;
  int64_t history_age_ms = 0;
  // Between two looks.
  std::chrono::milliseconds interval{1000};
  // The requests that a life of a daemon wrote are kept for so long after it was first seen ended: no
  // shorter than request_retention, since no other clock counts the age of its one-shot requests.
  std::chrono::milliseconds requests_kept = std::chrono::hours(1);
  // Between two readings of the figures.
  std::chrono::milliseconds measured_every{5000};
  // Every so many looks: history from its start, and lives that have ended.
  int thorough_every = 60;
};

class Pruner {
 public:
  using Query = std::function<Answered(const Statement&, const Arguments&)>;
  // `sql` and `upkeep` outlive it.
  Pruner(const Statements* sql, PruneOptions options, Upkeep* upkeep)
      : sql_(sql), options_(options), upkeep_(upkeep) {}

  // Does one batch, if it is time. Error: the connection has broken, and nothing more was tried. What
  // else the server refuses is reported to `upkeep`, and tried again.
  absl::Status PruneIfDue(SteadyTime now, const Query& query);

 private:
  using Life = std::pair<int64_t, int64_t>;  // Node and incarnation.

  // Once in each interval, however often there is more of the rest.
  void Walk(const Query& query);
  bool PruneHistory(const Query& query);
  void PruneEnded(const Query& query);
  bool PruneLives(SteadyTime now, const Query& query);
  bool LookForEnded(SteadyTime now, const Query& query);

  // Reads the figures of the upkeep.
  void Measure(SteadyTime now, const Query& query);

  // Asks, reports a refusal, and remembers if the connection broke.
  Answered Ask(const Query& query, UpkeepWork work, const Statement& statement,
               const Arguments& arguments);

  const Statements* sql_;
  const PruneOptions options_;
  Upkeep* const upkeep_;
  // nullopt: never. (The clock may begin with the machine: its zero is no time long past.)
  std::optional<SteadyTime> last_;
  std::optional<SteadyTime> walked_;
  uint64_t looks_ = 0;
  std::string history_from_ = "0";  // Numbers below have gone.
  // Lives that have ended, and when that was seen first.
  std::map<Life, SteadyTime> ended_;
  bool look_for_ended_ = true;
  // The request at which the walk along them stands.
  std::pair<std::string, std::string> ended_from_ = {"", "0"};
  // Lives whose requests are being taken out, page by page of the table.
  std::vector<Life> going_;
  int64_t page_ = 0;
  // All their requests have been taken out; the clients up to this one have been looked at.
  std::optional<std::string> clients_from_;
  std::optional<SteadyTime> measured_;
  // The oldest transaction of a snapshot, and since when it has been that.
  std::string oldest_;
  SteadyTime oldest_since_{};
  absl::Status broken_;
};

}  // namespace semaphored::postgres
