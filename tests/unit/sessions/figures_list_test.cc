#include "server/sessions/figures_list.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

struct FiguresWorld {
  explicit FiguresWorld(size_t semaphores_max = 10)
      : metrics(&host.time, semaphores_max, [](const SemaphoreMetrics::Visit&) {}) {}

  void Refresh() {
    list.Refresh([this] { ++done; });
  }

  RoomHost host;
  SemaphoreMetrics metrics;
  FiguresList list{&host, &metrics, &host.lists, 15'000};
  int done = 0;
};

TEST_CASE("figures list: a list comes in slices, and all callers wait for its end", "[unit]") {
  FiguresWorld world;
  world.Refresh();
  world.Refresh();
  world.host.AnswerList({InfoOf("a")}, /*more=*/true);
  CHECK(world.done == 0);
  CHECK(world.host.Oldest<ListCommand>().after == "a");
  CHECK_FALSE(world.metrics.list_begun_at());
  world.host.AnswerList({InfoOf("b")});
  CHECK(world.done == 2);
  CHECK(world.metrics.list_begun_at() == world.host.time.Now());
}

TEST_CASE("figures list: the next list begins when the interval is over, also after an error",
          "[unit]") {
  FiguresWorld world;
  world.Refresh();
  world.host.Answer(absl::UnavailableError("away"));
  CHECK(world.done == 1);
  CHECK_FALSE(world.metrics.list_begun_at());
  world.host.Pass(Milliseconds(14'999));
  world.Refresh();
  CHECK(world.done == 2);
  CHECK(world.host.jobs.empty());
  world.host.Pass(Milliseconds(1));
  world.Refresh();
  CHECK(world.done == 2);
  CHECK(world.host.jobs.size() == 1);
}

TEST_CASE("figures list: where each reading is paid for there is one in twenty intervals",
          "[unit]") {
  FiguresWorld world;
  world.host.promises.push = false;
  world.Refresh();
  world.host.AnswerList({InfoOf("a")});
  world.host.Pass(Milliseconds(20 * 15'000 - 1));
  world.Refresh();
  CHECK(world.done == 2);
  CHECK(world.host.jobs.empty());
  world.host.Pass(Milliseconds(1));
  world.Refresh();
  CHECK(world.host.jobs.size() == 1);
}

TEST_CASE("figures list: nothing is listed where nothing is counted or named", "[unit]") {
  FiguresWorld off(0);
  off.Refresh();
  FiguresWorld without_names;
  without_names.host.promises.names = false;
  without_names.Refresh();
  CHECK(off.done == 1);
  CHECK(without_names.done == 1);
  CHECK(off.host.jobs.empty());
  CHECK(without_names.host.jobs.empty());
}

}  // namespace
}  // namespace semaphored
