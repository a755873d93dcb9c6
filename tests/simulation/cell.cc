#include "tests/simulation/cell.h"

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {
namespace {

// As Consul takes operations.
constexpr uint32_t kRowsSmall = 64;

std::vector<Cell> CellsOf(bool possible) {
  std::vector<Cell> cells;
  for (const bool exclusive : {false, true}) {
    for (const size_t lanes : {size_t{3}, size_t{1}}) {
      if ((exclusive && lanes > 1) == possible) continue;
      for (const uint32_t grants : {1u, 0u}) {
        for (const uint32_t rows : {kRowsSmall, 0u})
          cells.push_back({lanes, exclusive, grants, rows});
      }
    }
  }
  return cells;
}

std::string BoundOf(uint32_t bound) { return bound == 0 ? "none" : absl::StrCat(bound); }

}  // namespace

const std::vector<Cell>& AllCells() {
  static const std::vector<Cell> cells = CellsOf(/*possible=*/true);
  return cells;
}

std::vector<Cell> ImpossibleCells() { return CellsOf(/*possible=*/false); }

const Cell& CellOf(uint64_t seed) { return AllCells()[seed % AllCells().size()]; }

std::string NameOf(const Cell& cell) {
  return absl::StrCat("lanes ", cell.lanes, ", ", cell.exclusive ? "exclusive" : "shared",
                      ", grants ", BoundOf(cell.grants_per_commit_max), ", rows ",
                      BoundOf(cell.rows_per_commit_max));
}

}  // namespace semaphored::simulation
