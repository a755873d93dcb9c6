#include "server/page/history.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored::page {
namespace {

void List(History* history, uint32_t tick,
          const std::vector<std::pair<std::string, uint32_t>>& held) {
  history->Begin(tick);
  for (const auto& [name, permits] : held) history->Add(name, {0, permits, 0, 8});
  history->End();
}

std::vector<std::pair<uint32_t, uint32_t>> TicksOf(const History& history,
                                                   const std::string& name) {
  std::vector<std::pair<uint32_t, uint32_t>> ticks;
  for (const History::Sample& each : history.Of(name)) ticks.emplace_back(each.tick, each.held);
  return ticks;
}

using Ticks = std::vector<std::pair<uint32_t, uint32_t>>;

TEST_CASE("page history: a sample is kept when it differs, one for each tick") {
  History history;
  List(&history, 1, {{"a", 1}});
  CHECK(TicksOf(history, "a") == Ticks{{1, 1}});
  CHECK(history.recorded() == 0);
  List(&history, 2, {{"a", 1}});
  List(&history, 3, {{"a", 2}});
  List(&history, 3, {{"a", 3}});
  List(&history, 5, {{"a", 3}});
  CHECK(TicksOf(history, "a") == Ticks{{1, 1}, {3, 3}});
  CHECK(TicksOf(history, "b").empty());
}

TEST_CASE("page history: of an hour, with what stood at its beginning") {
  History history;
  for (uint32_t tick = 0; tick < 3 * History::kTicks; ++tick) List(&history, tick, {{"a", tick}});
  const auto ticks = TicksOf(history, "a");
  CHECK(ticks.size() <= History::kSamplesMax);
  CHECK(ticks.front().first == 2 * History::kTicks - 1);
  CHECK(ticks.back().first == 3 * History::kTicks - 1);
}

TEST_CASE("page history: a semaphore that is gone is forgotten") {
  History history;
  List(&history, 1, {{"a", 1}, {"b", 1}});
  List(&history, 2, {{"a", 2}, {"b", 2}});
  List(&history, 3, {{"b", 2}});
  CHECK(TicksOf(history, "a").empty());
  CHECK(history.recorded() == 1);
}

TEST_CASE("page history: at the bound only what is idle gives its entry up") {
  History history(2);
  List(&history, 1, {{"a", 1}, {"b", 1}, {"c", 1}});
  List(&history, 2, {{"a", 2}, {"b", 2}, {"c", 1}});
  List(&history, 3, {{"a", 2}, {"b", 3}, {"c", 2}});
  CHECK(history.recorded() == 2);
  // Not recorded, but what stands is known.
  CHECK(TicksOf(history, "c") == Ticks{{3, 2}});
  const uint32_t later = 2 + History::kIdleTicks;
  List(&history, later, {{"a", 2}, {"b", 3}, {"c", 3}});
  CHECK(history.recorded() == 2);
  CHECK(TicksOf(history, "c") == Ticks{{3, 2}, {later, 3}});
  CHECK(TicksOf(history, "a") == Ticks{{2, 2}});
}

}  // namespace
}  // namespace semaphored::page
