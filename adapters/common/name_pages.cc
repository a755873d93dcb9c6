#include "adapters/common/name_pages.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace semaphored {
namespace {

constexpr size_t kListsMax = 4;
constexpr std::chrono::minutes kListFor{1};

}  // namespace

absl::StatusOr<std::vector<std::string>> NamePages::Page(const std::string& prefix,
                                                         const std::string& after,
                                                         uint32_t rows_max, SteadyTime now) {
  std::erase_if(lists_, [&](const List& list) { return list.read_at + kListFor < now; });
  auto list = lists_.end();
  // It may go on anywhere on the last page: an adapter requests one name more than it shows, or shows fewer. The
  // newest list is the first.
  if (!after.empty()) {
    list = std::ranges::find_if(lists_, [&](const List& each) {
      const auto shown = std::ranges::lower_bound(each.names, after);
      return each.prefix == prefix && shown != each.names.end() && *shown == after &&
             static_cast<size_t>(shown - each.names.begin()) < each.next;
    });
  }
  if (list == lists_.end()) {
    absl::StatusOr<std::vector<std::string>> names = read_(prefix);
    if (!names.ok()) return names.status();
    if (lists_.size() >= kListsMax) lists_.pop_back();
    lists_.push_front({prefix, *std::move(names), 0, now});
    list = lists_.begin();
  }
  const auto begin = std::ranges::upper_bound(list->names, after);
  const auto left = static_cast<size_t>(list->names.end() - begin);
  const auto end = begin + static_cast<std::ptrdiff_t>(std::min<size_t>(left, rows_max));
  std::vector<std::string> page(begin, end);
  list->next = static_cast<size_t>(end - list->names.begin());
  return page;
}

}  // namespace semaphored
