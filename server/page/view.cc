#include "server/page/view.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/names.h"

namespace semaphored::page {
namespace {

using Problem = std::optional<WrongParameter>;

std::string ValueOf(const Parameters& parameters, const std::string& name,
                    std::string_view otherwise) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? std::string(otherwise) : found->second;
}

Problem ReadNumber(const Parameters& parameters, const std::string& name, uint32_t most,
                   uint32_t* number) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::nullopt;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  if (error == std::errc() && end == text.data() + text.size() && *number <= most)
    return std::nullopt;
  return WrongParameter{name, absl::StrCat("must be a number of at most ", most)};
}

Problem ReadList(const Parameters& parameters, View* view) {
  view->search = ValueOf(parameters, "q", "");
  if (view->search.size() > kSemaphoreNameBytesMax)
    return WrongParameter{"q",
                          absl::StrCat("must have at most ", kSemaphoreNameBytesMax, " bytes")};
  std::ranges::transform(view->search, view->search.begin(),
                         [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  constexpr std::string_view kSorts[] = {"name", "held", "waiting", "oldest"};
  const auto* const sort = std::ranges::find(kSorts, ValueOf(parameters, "sort", "waiting"));
  if (sort == std::end(kSorts))
    return WrongParameter{"sort", "must be name, held, waiting or oldest"};
  view->sort = static_cast<View::Sort>(sort - std::begin(kSorts));
  view->ascending = ValueOf(parameters, "up", "0") == "1";
  if (Problem problem = ReadNumber(parameters, "from", 10'000'000, &view->from)) return problem;
  return ReadNumber(parameters, "rows", kWindowRowsMax, &view->rows);
}

Problem ReadSemaphore(const Parameters& parameters, View* view) {
  view->name = ValueOf(parameters, "name", "");
  if (!IsSemaphoreName(view->name)) return WrongParameter{"name", "must be a semaphore's name"};
  for (const char each : ValueOf(parameters, "tickets", "")) {
    if (each < '1' || each > '4') return WrongParameter{"tickets", "must be of the digits 1 to 4"};
    const auto state = static_cast<TicketState>(each - '0');
    if (std::ranges::count(view->tickets, state) == 0) view->tickets.push_back(state);
  }
  std::ranges::sort(view->tickets);
  return std::nullopt;
}

}  // namespace

std::variant<View, WrongParameter> ParseView(const Parameters& parameters) {
  View view;
  Problem problem;
  const std::string kind = ValueOf(parameters, "view", "list");
  if (kind == "list") {
    problem = ReadList(parameters, &view);
  } else if (kind == "semaphore") {
    view.kind = View::Kind::kSemaphore;
    problem = ReadSemaphore(parameters, &view);
  } else if (kind == "sessions") {
    view.kind = View::Kind::kSessions;
  } else if (kind == "engine") {
    view.kind = View::Kind::kEngine;
  } else {
    problem = WrongParameter{"view", "must be list, semaphore, sessions or engine"};
  }
  if (problem) return *std::move(problem);
  return view;
}

}  // namespace semaphored::page
