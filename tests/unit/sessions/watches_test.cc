#include "server/sessions/watches.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "server/sessions/drains.h"

namespace semaphored {
namespace {

class WatchingListener : public WatchListener {
 public:
  void OnSnapshot(const std::vector<SemaphoreInfo>&, bool) override {}
  void OnChange(const SemaphoreChange& change) override {
    heard.push_back(change.info.row.name);
    if (watches != nullptr) watches->Remove(removes);
  }
  void OnWatchRefused(Refusal) override {}

  std::vector<std::string> heard;
  Watches* watches = nullptr;  // When it hears of something, it removes …
  uint64_t removes = 0;        // … this watch of them.
};

SemaphoreChange ChangeOf(const std::string& name, uint32_t held = 0) {
  SemaphoreChange change;
  change.info.row.name = name;
  change.info.held = held;
  return change;
}

TEST_CASE("watches: those that match hear of a change, in the order in which they came", "[unit]") {
  const auto names = WatchedNames::Make();
  Watches watches(names);
  WatchingListener a;
  WatchingListener b;
  watches.Add("", "a", &a);
  watches.Add("b", "", &b);
  watches.Tell(ChangeOf("a"));
  watches.Tell(ChangeOf("b/1"));
  watches.Tell(ChangeOf("c"));
  CHECK(a.heard == std::vector<std::string>{"a"});
  CHECK(b.heard == std::vector<std::string>{"b/1"});
  CHECK(watches.TakeAll() == std::vector<WatchListener*>{&a, &b});
  CHECK_FALSE(names->Matches("a"));
}

TEST_CASE(
    "watches: a listener that hears of a change may remove any watch, which hears nothing more",
    "[unit]") {
  Watches watches(WatchedNames::Make());
  WatchingListener first;
  WatchingListener second;
  const uint64_t own = watches.Add("", "", &first);
  first.watches = &watches;
  first.removes = watches.Add("", "", &second);
  watches.Tell(ChangeOf("a"));
  CHECK(first.heard.size() == 1);
  CHECK(second.heard.empty());
  first.removes = own;
  watches.Tell(ChangeOf("b"));
  watches.Tell(ChangeOf("c"));
  CHECK(first.heard.size() == 2);
}

TEST_CASE("watches: a listener that watches again has another watch", "[unit]") {
  Watches watches(WatchedNames::Make());
  WatchingListener listener;
  const uint64_t former = watches.Add("", "a", &listener);
  watches.Remove(former);
  const uint64_t later = watches.Add("", "b", &listener);
  CHECK(later != former);
  // What was asked for by the former watch finds no listener.
  CHECK(watches.Find(former) == nullptr);
  CHECK(watches.Find(later) == &listener);
  watches.Remove(former);
  watches.Tell(ChangeOf("a"));
  watches.Tell(ChangeOf("b"));
  CHECK(listener.heard == std::vector<std::string>{"b"});
}

// ---- Drains ----

Drains::Drain DrainOf(const std::string& semaphore, uint32_t held_max,
                      bool until_destroyed = false) {
  Drains::Drain drain;
  drain.semaphore = semaphore;
  drain.held_max = held_max;
  drain.until_destroyed = until_destroyed;
  return drain;
}

TEST_CASE("drains: a change takes those that have waited for it", "[unit]") {
  Drains drains;
  drains.Add(Id{1, 1}, DrainOf("a", 2));
  drains.Add(Id{1, 2}, DrainOf("a", 1));
  drains.Add(Id{1, 3}, DrainOf("a", 0, /*until_destroyed=*/true));
  drains.Add(Id{1, 4}, DrainOf("b", 9));
  CHECK(drains.TakeDone(ChangeOf("a", 3)).empty());
  std::vector<Drains::Drain> done = drains.TakeDone(ChangeOf("a", 2));
  REQUIRE(done.size() == 1);
  CHECK(done[0].held_max == 2);
  CHECK_FALSE(drains.Contains(Id{1, 1}));
  done = drains.TakeDone(ChangeOf("a", 0));
  REQUIRE(done.size() == 1);
  CHECK(done[0].held_max == 1);
  SemaphoreChange destroyed = ChangeOf("a", 5);
  destroyed.kind = SemaphoreChange::Kind::kDestroyed;
  done = drains.TakeDone(destroyed);
  REQUIRE(done.size() == 1);
  CHECK(done[0].until_destroyed);
  CHECK(drains.TakeDone(destroyed).empty());
  CHECK(drains.Contains(Id{1, 4}));
}

TEST_CASE("drains: one whose time is over is taken by its id, once", "[unit]") {
  Drains drains;
  drains.Add(Id{1, 1}, DrainOf("a", 0));
  REQUIRE(drains.Take(Id{1, 1}));
  CHECK_FALSE(drains.Take(Id{1, 1}));
  CHECK(drains.TakeDone(ChangeOf("a", 0)).empty());
  drains.Add(Id{1, 2}, DrainOf("a", 0));
  CHECK(drains.TakeAll().size() == 1);
  CHECK(drains.TakeDone(ChangeOf("a", 0)).empty());
}

}  // namespace
}  // namespace semaphored
