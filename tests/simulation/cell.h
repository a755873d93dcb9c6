// The cells of the matrix that the seeds are spread over: how many lanes a daemon has, whose the
// engine's rows are, and how much one commit takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace semaphored::simulation {

struct Cell {
  size_t lanes = 1;
  // One daemon owns the store, and reads it when it starts; as with SQLite. Else several share it.
  bool exclusive = false;
  uint32_t grants_per_commit_max = 0;  // 0: no bound.
  // The engine refuses a commit of more rows with OUT_OF_RANGE, and acts are carried on in steps of
  // few changes. 0: no bound.
  uint32_t rows_per_commit_max = 0;
  // What one commit changes of an act that later commits carry on.
  uint32_t changes_per_commit_max() const { return rows_per_commit_max == 0 ? 256 : 2; }
  uint32_t read_to_adopt_max() const { return rows_per_commit_max == 0 ? 2'048 : 1; }
  friend bool operator==(const Cell&, const Cell&) = default;
};

// All that are possible, in a fixed order.
const std::vector<Cell>& AllCells();
// A store that owns its rows has one writer (sqlite: lanes_max is 1), so several lanes on it are
// impossible.
std::vector<Cell> ImpossibleCells();
// The seeds take turns in the cells.
const Cell& CellOf(uint64_t seed);
// Such as "lanes 3, shared, grants 1, rows 64".
std::string NameOf(const Cell& cell);

}  // namespace semaphored::simulation
