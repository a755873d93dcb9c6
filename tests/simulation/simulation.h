// One run: a seed, an engine, three daemons, many clients, and what goes wrong between them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tests/simulation/branches.h"
#include "tests/simulation/cell.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/mutants.h"

namespace semaphored::simulation {

struct RunOptions {
  uint64_t seed = 1;
  std::optional<Cell> cell;  // Without: that of the seed.
  Mutant mutant = Mutant::kNone;
  // Virtual time in which things go wrong.
  int64_t chaos_s = 40;
  // Keep and print the last events.
  bool tracing = false;
  // How often a seed has queues of hundreds, or so many dead letters that an act on all of them is larger
  // than one commit.
  double crowd = 0.01;
};

struct RunResult {
  bool ok = true;
  std::string what;   // The promise that was broken, and when.
  std::string trace;  // The last events, if they were asked for.
  uint64_t digest = 0;
  uint64_t events = 0;
  uint64_t grants = 0;
  uint64_t tickets_done = 0;
  // Acts whose numbers were predicted: exactly, and with bounds.
  uint64_t counts_exact = 0;
  uint64_t counts_bounded = 0;
  std::array<uint64_t, kFaultKinds> faults{};  // How often each kind struck.
  Tally tally;
};

RunResult Run(const RunOptions& options);

}  // namespace semaphored::simulation
