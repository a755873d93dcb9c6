// Lists of names, page by page, from engines that return all names at once: what is read for the first page of a
// list serves the others too. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/steady_clock.h"

namespace semaphored {

class NamePages {
 public:
  // All names with the prefix, in order. May block.
  using Read = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& prefix)>;

  explicit NamePages(Read read) : read_(std::move(read)) {}

  // Names with the prefix from `after` (not itself) on, `rows_max` at most. A page that goes on where the last
  // page of a list ended is of the moment at which the list was read, a minute ago at most; any other is of now.
  absl::StatusOr<std::vector<std::string>> Page(const std::string& prefix, const std::string& after,
                                                uint32_t rows_max, SteadyTime now);

 private:
  struct List {
    std::string prefix;
    std::vector<std::string> names;
    size_t next = 0;  // The first that is on no page.
    SteadyTime read_at{};
  };

  const Read read_;
  std::deque<List> lists_;  // Those of which pages are left; a few.
};

}  // namespace semaphored
