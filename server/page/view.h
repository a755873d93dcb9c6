// What one viewer of the page looks at: the query of its feed, as values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "adapters/types.h"

namespace semaphored::page {

struct View {
  enum class Kind : uint8_t { kList, kSemaphore, kSessions, kEngine };
  enum class Sort : uint8_t { kName, kHeld, kWaiting, kOldest };

  Kind kind = Kind::kList;
  // ---- kList: the rows from `from` on of those whose names contain `search`, in any case of letters ----
  std::string search;
  Sort sort = Sort::kWaiting;
  bool ascending = false;
  uint32_t from = 0;
  uint32_t rows = 100;
  // ---- kSemaphore ----
  std::string name;
  std::vector<TicketState> tickets;  // Those in these states; empty: none are wanted.
};

inline constexpr uint32_t kWindowRowsMax = 200;

// A query's parameters, decoded.
using Parameters = std::map<std::string, std::string>;

// What is wrong with a query.
struct WrongParameter {
  std::string name;
  std::string right;  // "must be …".
};
std::variant<View, WrongParameter> ParseView(const Parameters& parameters);

}  // namespace semaphored::page
