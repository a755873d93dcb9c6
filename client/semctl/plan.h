// What has to be done so that semaphores are as they are declared. Pure.
#ifndef SEMAPHORED_CLIENT_SEMCTL_PLAN_H_
#define SEMAPHORED_CLIENT_SEMCTL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/semctl/definitions.h"

namespace semaphore::semctl {

using Semaphores = std::map<std::string, v1::SemaphoreInfo>;  // By name.

// One act of administration.
struct Step {
  // In the order in which they are done: what gives comes before what takes.
  enum class Act { kCreate, kConfigure, kGrow, kShrink, kDestroy };
  Act act = Act::kCreate;
  std::string semaphore;
  Definition from;  // As it stands before this step; kCreate: nothing stands.
  Definition to;    // As it stands after it; kDestroy: nothing stands.
  Shrinking shrinking;
};

struct Difference {
  enum class Kind { kCreate, kChange, kDestroy };
  struct Change {
    std::string key;
    std::string from;  // As in a file; empty: there is none.
    std::string to;    // Likewise.
  };
  Kind kind = Kind::kChange;
  std::string semaphore;
  std::vector<Change> changes;  // kCreate: the limit, and what is not as by default.
};

struct PlanOptions {
  // Semaphores that are covered by a declared prefix, and not declared, are destroyed.
  bool prune = false;
  // What stands and is not as declared may be changed. Else that is a problem.
  bool replace = true;
};

struct Plan {
  std::vector<Difference> differences;  // By name.
  std::vector<Step> steps;              // In the order in which they are to be done.
  std::size_t unchanged = 0;
  // Why it would not succeed: nothing is to be begun while there is one. By name.
  std::vector<std::string> problems;
};

// `current`: all that is declared and stands; with prune also all that the prefixes cover.
Plan MakePlan(const Declarations& declared, const Semaphores& current, const PlanOptions& options);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_PLAN_H_
