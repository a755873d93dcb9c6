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

#include "adapters/postgres/connection.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

struct Statements;

struct PruneOptions {
  uint64_t history_rows = 100'000;
  int64_t history_age_ms = 0;
  // Between two looks.
  std::chrono::milliseconds interval{1000};
  // The requests that a life of a daemon wrote are kept for so long after it was first seen ended: no
  // shorter than request_retention, since no other clock counts the age of its one-shot requests.
  std::chrono::milliseconds requests_kept = std::chrono::hours(1);
  // Every so many looks: history from its start, and lives that have ended.
  int thorough_every = 60;
};

class Pruner {
 public:
  using Query = std::function<Answered(const char*, const std::string&, const Arguments&)>;
  // `sql` outlives it.
  Pruner(const Statements* sql, PruneOptions options) : sql_(sql), options_(options) {}

  // Does one batch, if it is time. Error: the connection has broken, and nothing more was tried;
  // what else the server says is of no concern to whoever waits.
  absl::Status PruneIfDue(SteadyTime now, const Query& query);

 private:
  using Life = std::pair<int64_t, int64_t>;  // Node and incarnation.

  bool PruneHistory(const Query& query);
  void PruneEnded(const Query& query);
  bool PruneLives(SteadyTime now, const Query& query);
  bool LookForEnded(SteadyTime now, const Query& query);

  // Asks, and remembers if the connection broke.
  Answered Ask(const Query& query, const char* name, const std::string& sql,
               const Arguments& arguments);

  const Statements* sql_;
  const PruneOptions options_;
  // nullopt: never. (The clock may begin with the machine: its zero is no time long past.)
  std::optional<SteadyTime> last_;
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
  absl::Status broken_;
};

}  // namespace semaphored::postgres
