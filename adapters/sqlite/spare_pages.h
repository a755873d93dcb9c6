// Pages of the file that hold nothing any more: most are kept for what comes, the rest goes back to
// the file system. Small steps do it, each a commit of its own, so that a commit that comes
// meanwhile waits for one of them at the most. Under the database's mutex.
//
// A quarter of the file must be free before the first step, 2 MiB at least, and an eighth stays, 1
// MiB at least: a queue that is now longer and now shorter does not move the same pages again and
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "adapters/common/upkeep.h"
#include "adapters/sqlite/database.h"
#include "adapters/steady_clock.h"

namespace semaphored::sqlite {

class SparePages {
 public:
  // `database` outlives it. Errors are reported to `upkeep`.
  SparePages(Database* database, std::shared_ptr<Upkeep> upkeep)
      : database_(database), upkeep_(std::move(upkeep)) {}

  // Looks whether there are too many of them by now. Some 20 us.
  void Look();
  // Steps are due: there were too many when they were last looked at.
  bool too_many() const { return surplus_ > 0; }
  // Gives some back; a checkpoint then cuts the file. Blocks for some 5 ms, and longer where the
  // file has millions of free pages. After an error no step is due until the next Look.
  // REQUIRES: no transaction is open, and none is unsettled.
  void Step();
  // The same, if steps are due and the last one is a while ago: for a store that is never idle.
  void StepBetweenCommits();

 private:
  void Adapt(SteadyTime began);

  Database* const database_;
  const std::shared_ptr<Upkeep> upkeep_;
  int64_t surplus_ = 0;  // Pages; 0 as long as there are not too many.
  int pages_at_once_ = 32;
  SteadyTime last_step_{};
};

}  // namespace semaphored::sqlite
