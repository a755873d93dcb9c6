#include "tests/simulation/simulation.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

// The seed's cell, but for what the environment says.
Cell CellFromEnvironment(uint64_t seed) {
  Cell cell = CellOf(seed);
  cell.lanes = static_cast<size_t>(FromEnvironment("SIM_LANES", static_cast<int64_t>(cell.lanes)));
  cell.grants_per_commit_max =
      static_cast<uint32_t>(FromEnvironment("SIM_GRANTS", cell.grants_per_commit_max));
  cell.rows_per_commit_max =
      static_cast<uint32_t>(FromEnvironment("SIM_ROWS", cell.rows_per_commit_max));
  if (const char* store = std::getenv("SIM_STORE"))
    cell.exclusive = std::string(store) == "exclusive";
  if (cell.exclusive) cell.lanes = 1;
  return cell;
}

RunOptions OptionsOf(uint64_t seed) {
  RunOptions options;
  options.seed = seed;
  options.cell = CellFromEnvironment(seed);
  options.chaos_s = FromEnvironment("SIM_CHAOS_S", options.chaos_s);
  options.tracing = FromEnvironment("SIM_TRACE", 0) != 0;
  options.crowd = static_cast<double>(FromEnvironment("SIM_CROWD_PERCENT", 1)) / 100;
  return options;
}

// What the runs of this process had, for the table that tests/deep.sh sums up.
class Table {
 public:
  void Add(const Cell& cell, const RunResult& result) {
    CellRow& row = cells_[NameOf(cell)];
    row.seeds += 1;
    row.ends += result.grants;
    for (const uint64_t count : result.faults) row.faults += count;
    for (const auto& [branch, counts] : result.tally) {
      for (size_t fault = 0; fault < kFaultKinds; ++fault) tally_[branch][fault] += counts[fault];
    }
  }
  // Appends to the file that SIM_TABLE names, in one write, since other processes do the same.
  void Write() {
    const char* name = std::getenv("SIM_TABLE");
    if (name == nullptr) return;
    std::string text;
    for (const auto& [cell, row] : cells_)
      absl::StrAppend(&text, "cell\t", cell, "\t", row.seeds, "\t", row.ends, "\t", row.faults,
                      "\n");
    for (const auto& [branch, counts] : tally_) {
      absl::StrAppend(&text, "branch\t", branch);
      for (const uint64_t count : counts) absl::StrAppend(&text, "\t", count);
      absl::StrAppend(&text, "\n");
    }
    std::FILE* file = std::fopen(name, "a");
    REQUIRE(file != nullptr);
    std::setvbuf(file, nullptr, _IOFBF, text.size() + 1);
    std::fputs(text.c_str(), file);
    std::fclose(file);
    cells_.clear();
    tally_.clear();
  }

 private:
  struct CellRow {
    uint64_t seeds = 0;
    uint64_t ends = 0;
    uint64_t faults = 0;
  };
  std::map<std::string, CellRow> cells_;
  Tally tally_;
};

Table& TheTable() {
  static Table table;
  return table;
}

// Runs it again to have the events before it went wrong.
void CheckSeed(uint64_t seed) {
  RunOptions options = OptionsOf(seed);
  const RunResult result = Run(options);
  TheTable().Add(*options.cell, result);
  if (result.ok) return;
  options.tracing = true;
  const RunResult again = Run(options);
  FAIL_CHECK("seed " << seed << " (" << NameOf(*options.cell) << ") " << result.what << "\n"
                     << again.trace << "\n"
                     << (again.what == result.what
                             ? ""
                             : "the second run went another way: " + again.what + "\n")
                     << "seed " << seed << " (" << NameOf(*options.cell) << ") " << result.what
                     << "\nreplay: SIM_SEED=" << seed << " simulation_tests \"one seed\"");
}

// An eighth of the SIM_SEEDS (1200) seeds from SIM_FIRST_SEED (1) on.
void CheckPart(uint64_t part) {
  const uint64_t count = static_cast<uint64_t>(FromEnvironment("SIM_SEEDS", 1200));
  const uint64_t first = static_cast<uint64_t>(FromEnvironment("SIM_FIRST_SEED", 1));
  for (uint64_t index = part * count / 8; index < (part + 1) * count / 8; ++index)
    CheckSeed(first + index);
  TheTable().Write();
}

}  // namespace

TEST_CASE("the cells of the matrix") {
  CHECK(AllCells().size() == 12);
  CHECK(ImpossibleCells().size() == 4);
  for (const Cell& cell : ImpossibleCells()) CHECK(cell.exclusive);
  // Successive seeds run all of them.
  for (uint64_t seed = 0; seed < AllCells().size(); ++seed) CHECK(CellOf(seed) == AllCells()[seed]);
}

// What tests/deep.sh puts into its table. No branch has a name that the list does not have.
TEST_CASE("names of all branches") {
  std::printf("faults:");
  for (size_t fault = 0; fault < kFaultKinds; ++fault)
    std::printf("\t%s", std::string(NameOf(static_cast<FaultKind>(fault))).c_str());
  std::printf("\n");
  for (const std::string& name : AllBranches()) std::printf("branch:\t%s\n", name.c_str());
}

TEST_CASE("one seed") { CheckSeed(static_cast<uint64_t>(FromEnvironment("SIM_SEED", 1))); }

TEST_CASE("seeds: part 1 of 8") { CheckPart(0); }
TEST_CASE("seeds: part 2 of 8") { CheckPart(1); }
TEST_CASE("seeds: part 3 of 8") { CheckPart(2); }
TEST_CASE("seeds: part 4 of 8") { CheckPart(3); }
TEST_CASE("seeds: part 5 of 8") { CheckPart(4); }
TEST_CASE("seeds: part 6 of 8") { CheckPart(5); }
TEST_CASE("seeds: part 7 of 8") { CheckPart(6); }
TEST_CASE("seeds: part 8 of 8") { CheckPart(7); }

// A mutant that no seed catches is a hole in the checks.
TEST_CASE("every broken rule is noticed", "[mutants]") {
  const uint64_t seeds_max = static_cast<uint64_t>(FromEnvironment("SIM_MUTANT_SEEDS", 4000));
  const char* only = std::getenv("SIM_MUTANT");  // A part of its name.
  for (const MutantName& each : AllMutants()) {
    if (only != nullptr && each.name.find(only) == std::string::npos) continue;
    RunOptions options;
    options.mutant = each.mutant;
    RunResult result;
    for (options.seed = 1; options.seed <= seeds_max && result.ok; ++options.seed) {
      result = Run(options);
    }
    INFO(each.name);
    CHECK_FALSE(result.ok);
    if (FromEnvironment("SIM_VERBOSE", 0) != 0) {
      std::printf("%-55s seed %3d: %s\n", each.name.c_str(), static_cast<int>(options.seed) - 1,
                  result.what.c_str());
    }
  }
}

TEST_CASE("a seed replays exactly") {
  uint64_t grants = 0;
  uint64_t tickets_done = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const RunResult first = Run(OptionsOf(seed));
    RunOptions traced = OptionsOf(seed);
    traced.tracing = true;
    const RunResult second = Run(traced);
    CAPTURE(seed, first.what, second.what);
    CHECK(first.digest == second.digest);
    CHECK(first.events == second.events);
    grants += first.grants;
    tickets_done += first.tickets_done;
  }
  CHECK(grants > 100);
  CHECK(tickets_done > 20);
}

}  // namespace semaphored::simulation
