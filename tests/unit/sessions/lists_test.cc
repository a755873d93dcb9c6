#include "server/sessions/lists.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

// An engine that answers when the test says so.
struct ListedEngine {
  struct Asked {
    ListCommand slice;
    Reply<AdminAnswer> reply;
  };
  std::vector<Asked> asked;
  Lists lists{64, [this](ListCommand slice, Reply<AdminAnswer> reply) {
                asked.push_back({std::move(slice), std::move(reply)});
              }};

  // The oldest question.
  void Answer() {
    Asked first = std::move(asked.front());
    asked.erase(asked.begin());
    Result<AdminAnswer> result;
    result.value.report = std::make_unique<Report>();
    first.reply(std::move(result));
  }
};

ListCommand ListOf(const std::string& prefix, uint32_t rows_max) {
  ListCommand list;
  list.prefix = prefix;
  list.rows_max = rows_max;
  return list;
}

TEST_CASE("lists: a long list comes in slices, one at a time", "[unit]") {
  ListedEngine engine;
  int replies = 0;
  engine.lists.Add(ListOf("a", 10'000), [&](const Result<AdminAnswer>&) { ++replies; });
  engine.lists.Add(ListOf("b", 10'000), [&](const Result<AdminAnswer>&) { ++replies; });
  REQUIRE(engine.asked.size() == 1);
  CHECK(engine.asked[0].slice.prefix == "a");
  CHECK(engine.asked[0].slice.rows_max == 64);
  engine.Answer();
  CHECK(replies == 1);
  REQUIRE(engine.asked.size() == 1);
  CHECK(engine.asked[0].slice.prefix == "b");
}

TEST_CASE("lists: who asks for the next slice goes behind those who wait", "[unit]") {
  ListedEngine engine;
  std::string order;
  engine.lists.Add(ListOf("a", 64), [&](const Result<AdminAnswer>&) {
    order += 'a';
    engine.lists.Add(ListOf("c", 64), [&](const Result<AdminAnswer>&) { order += 'c'; });
  });
  engine.lists.Add(ListOf("b", 64), [&](const Result<AdminAnswer>&) { order += 'b'; });
  while (!engine.asked.empty()) engine.Answer();
  CHECK(order == "abc");
}

TEST_CASE("lists: short lists go together, as many as have the rows of one slice", "[unit]") {
  ListedEngine engine;
  for (int i = 0; i < 100; ++i) engine.lists.Add(ListOf("a", 1), [](const Result<AdminAnswer>&) {});
  CHECK(engine.asked.size() == 64);
  engine.Answer();
  CHECK(engine.asked.size() == 64);
  CHECK(engine.lists.Stop().size() == 35);
  while (!engine.asked.empty()) engine.Answer();
}

}  // namespace
}  // namespace semaphored
