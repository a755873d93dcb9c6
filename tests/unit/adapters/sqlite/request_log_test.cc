// The index of remembered requests, against a plain model of it.
#include "adapters/sqlite/request_log.h"

#include <map>
#include <random>
#include <set>
#include <utility>

#include "catch2/catch_test_macros.hpp"

namespace semaphored::sqlite {
namespace {

// The table as it would be: what each row has been given, dead or living.
struct Model {
  std::map<uint64_t, std::set<std::pair<uint32_t, uint64_t>>> rows;
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> living;  // Where.

  size_t written() const {
    size_t sum = 0;
    for (const auto& [key, row] : rows) sum += row.size();
    return sum;
  }
  void Forget(uint32_t client, uint64_t below) {
    for (auto at = living.lower_bound({client, 0});
         at != living.end() && at->first < std::pair(client, below);) {
      at = living.erase(at);
    }
  }
};

// One commit, in the way in which the store does it.
void Append(RequestLog& log, Model& model, const std::vector<RequestKey>& requests) {
  const RequestLog::Range range = log.RowsToMove(2 * requests.size() + 64);
  uint64_t cut = log.DeadBelow();
  std::vector<RequestKey> moved;
  for (uint64_t row = range.first; row < range.last; ++row) {
    for (const auto& [client, sequence] : model.rows.at(row)) {
      if (log.Find({client, sequence}) == row) moved.push_back({client, sequence});
    }
    cut = row + 1;
  }
  for (const auto* part : {&std::as_const(moved), &requests}) {
    if (part->empty()) continue;
    const uint64_t row = log.next_row();
    log.BeginRow(row);
    for (const RequestKey& request : *part) {
      log.Add(request, /*pinned=*/false);
      model.rows[row].insert({request.client, request.sequence});
      model.living[{request.client, request.sequence}] = row;
    }
  }
  if (cut == 0) return;
  model.rows.erase(model.rows.begin(), model.rows.lower_bound(cut));
  log.CutBelow(cut);
}

void Check(const RequestLog& log, const Model& model) {
  for (const auto& [request, row] : model.living) {
    REQUIRE(log.Find({request.first, request.second}) == row);
    REQUIRE(model.rows.contains(row));
  }
  REQUIRE(model.written() <= 2 * model.living.size() + 8192 + 2 * 4096);
}

TEST_CASE("a request is found until its client's floor is raised above it") {
  RequestLog log;
  log.BeginRow(log.next_row());
  log.Add({1, 5}, false);
  log.Add({1, 3}, false);
  log.Add({2, 1}, false);
  CHECK(log.Find({1, 3}) == 1u);
  CHECK(log.Highest(1) == 5);
  CHECK_FALSE(log.Find({1, 4}));
  log.RaiseFloor(1, 5);
  CHECK_FALSE(log.Find({1, 3}));
  CHECK(log.Find({1, 5}) == 1u);
  log.Forget(1);
  CHECK_FALSE(log.Find({1, 5}));
  CHECK(log.Highest(1) == 0);
  CHECK(log.Find({2, 1}) == 1u);
}

TEST_CASE("a pinned request outlives the floor until its claim has ended") {
  RequestLog log;
  log.BeginRow(log.next_row());
  for (uint64_t i = 1; i <= 100; ++i) log.Add({1, i}, /*pinned=*/i == 10 || i == 20);
  log.RaiseFloor(1, 90);
  CHECK(log.Find({1, 10}));
  CHECK(log.Find({1, 20}));
  CHECK_FALSE(log.Find({1, 11}));
  CHECK_FALSE(log.Find({1, 89}));
  CHECK(log.Find({1, 90}));
  log.Unpin({1, 10});
  log.RaiseFloor(1, 91);
  CHECK_FALSE(log.Find({1, 10}));
  CHECK(log.IsPinned({1, 20}));
  // It changed, and is in another row now.
  log.BeginRow(log.next_row());
  log.Add({1, 20}, /*pinned=*/true);
  CHECK(log.Find({1, 20}) == 2u);
  log.AddRemoval({1, 20});
  CHECK_FALSE(log.Find({1, 20}));
  CHECK(log.Highest(1) == 100);
}

TEST_CASE("the number of a request that is no more stays until the floor is above it") {
  RequestLog log;
  log.BeginRow(log.next_row());
  log.Add({1, 7}, /*pinned=*/true);
  log.BeginRow(log.next_row());
  log.AddRemoval({1, 7});
  CHECK_FALSE(log.Find({1, 7}));
  CHECK(log.RowOf({1, 7}) == 2u);
  CHECK(log.Highest(1) == 7);
  log.BeginRow(log.next_row());
  log.Move({1, 7});
  CHECK_FALSE(log.Find({1, 7}));
  CHECK(log.RowOf({1, 7}) == 3u);
  // It may come again.
  log.Add({1, 7}, /*pinned=*/false);
  CHECK(log.Find({1, 7}) == 3u);
  log.AddRemoval({1, 7});
  log.RaiseFloor(1, 8);
  CHECK_FALSE(log.RowOf({1, 7}));
  CHECK(log.Highest(1) == 0);
}

TEST_CASE("dead rows are deleted many at a time, and the last row never") {
  RequestLog log;
  for (uint64_t i = 1; i <= 100; ++i) {
    log.BeginRow(log.next_row());
    log.Add({1, i}, false);
  }
  log.RaiseFloor(1, 50);
  CHECK(log.DeadBelow() == 0);
  log.RaiseFloor(1, 80);
  CHECK(log.DeadBelow() == 80);
  log.Forget(1);
  CHECK(log.DeadBelow() == 100);
}

TEST_CASE("a silent client does not keep the log from being cut") {
  RequestLog log;
  Model model;
  Append(log, model, {{99, 1}});
  for (uint64_t i = 1; i <= 30'000; ++i) {
    Append(log, model, {{1, i}});
    if (i < 10) continue;
    log.RaiseFloor(1, i - 9);
    model.Forget(1, i - 9);
  }
  Check(log, model);
  CHECK(log.Find({99, 1}).has_value());
}

TEST_CASE("one-shot requests are found, move, and go one by one") {
  RequestLog log;
  const auto key = [](uint64_t number) { return RequestKey{0, 0, {number, 1}}; };
  log.BeginRow(log.next_row());
  for (uint64_t i = 1; i <= 3; ++i) log.Add(key(i), /*pinned=*/true);
  log.BeginRow(log.next_row());
  log.Add(key(1), /*pinned=*/false);
  log.Unpin(key(2));
  CHECK(log.Find(key(1)) == 2);
  CHECK(log.Find(key(2)) == 1);
  CHECK_FALSE(log.Find({0, 0, {1, 2}}));
  CHECK(log.IsPinned(key(3)));
  std::set<uint64_t> unpinned;
  log.ForEachOneShotUnpinned([&](const Id& id) { unpinned.insert(id.high); });
  CHECK(unpinned == std::set<uint64_t>{1, 2});
  // No client's floor or end concerns them.
  log.RaiseFloor(0, UINT64_MAX);
  log.Forget(0);
  CHECK(log.Find(key(3)) == 1);
  for (uint64_t i = 1; i <= 3; ++i) log.AddRemoval(key(i));
  CHECK_FALSE(log.Find(key(3)));
  for (int i = 0; i < 100; ++i) log.BeginRow(log.next_row());
  CHECK(log.DeadBelow() == 102);
}

TEST_CASE("the index of requests agrees with a model") {
  std::mt19937_64 random(7);
  RequestLog log;
  Model model;
  std::map<uint32_t, uint64_t> sequences;
  for (int turn = 0; turn < 3000; ++turn) {
    std::vector<RequestKey> requests;
    for (uint64_t i = random() % 40; i > 0; --i) {
      const auto client = static_cast<uint32_t>(random() % 8 == 0 ? random() % 200 : random() % 4);
      requests.push_back({client, sequences[client] += 1 + random() % 2});
    }
    Append(log, model, requests);
    const auto client = static_cast<uint32_t>(random() % 4);
    if (sequences[client] > 64) {
      log.RaiseFloor(client, sequences[client] - 64);
      model.Forget(client, sequences[client] - 64);
    }
    if (turn % 100 == 0) {
      const auto forgotten = static_cast<uint32_t>(random() % 200);
      log.Forget(forgotten);
      model.Forget(forgotten, UINT64_MAX);
    }
    if (turn % 50 == 0) Check(log, model);
  }
  Check(log, model);
  for (uint32_t client = 0; client < 200; ++client) {
    const auto after = model.living.lower_bound({client + 1, 0});
    const bool any = after != model.living.begin() && std::prev(after)->first.first == client;
    CHECK(log.Highest(client) == (any ? std::prev(after)->first.second : 0));
  }
}

}  // namespace
}  // namespace semaphored::sqlite
