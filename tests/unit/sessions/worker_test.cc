// Where a worker offers its hands, and when it takes them back.
#include "server/sessions/worker.h"

#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace semaphored {
namespace {

// Notes what the worker does; offers are answered by the test.
struct Bench {
  struct Made {
    std::string semaphore;
    Id claim;
    OfferKept keep;
  };

  explicit Bench(std::vector<std::string> names, std::vector<std::string> prefixes = {},
                 uint32_t hands = 1)
      : worker({std::move(names), std::move(prefixes), hands},
               {[this](const std::string& semaphore, OfferKept keep) {
                  made.push_back({semaphore, Id{1, ++last}, keep});
                  return made.back().claim;
                },
                [this](const std::string&, const Id& claim) { withdrawn.push_back(claim); }}) {}

  // What has been offered since the last time.
  std::vector<Made> Fill() {
    worker.Fill();
    return std::exchange(made, {});
  }
  // All that is offered stands, until nothing more is.
  size_t AllStand() {
    size_t count = 0;
    for (std::vector<Made> offers = Fill(); !offers.empty(); offers = Fill()) {
      for (const Made& offer : offers) REQUIRE(worker.OnStanding(offer.claim));
      count += offers.size();
    }
    return count;
  }

  uint64_t last = 0;
  std::vector<Made> made;
  std::vector<Id> withdrawn;
  Worker worker;
};

TEST_CASE("worker: as many offers as free hands, kept always where it is named") {
  Bench bench({"a"}, {}, 3);
  const auto offers = bench.Fill();
  REQUIRE(offers.size() == 3);
  CHECK(offers[0].semaphore == "a");
  CHECK(offers[0].keep == OfferKept::kAlways);
  CHECK(bench.Fill().empty());
}

TEST_CASE("worker: at most so many offers at one semaphore") {
  Bench bench({"a"}, {}, 100);
  CHECK(bench.AllStand() == Worker::kOffersPerSemaphore);
}

TEST_CASE("worker: with one hand one offer is asked for, then more while there is nothing to do") {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("s" + std::to_string(i));
  Bench bench(names);
  std::vector<size_t> together;
  for (auto offers = bench.Fill(); !offers.empty(); offers = bench.Fill()) {
    together.push_back(offers.size());
    for (const auto& offer : offers) bench.worker.OnStanding(offer.claim);
  }
  REQUIRE(together.size() > 3);
  CHECK(together[0] == 1);
  CHECK(together[1] == 2);
  CHECK(together[2] == 4);
}

TEST_CASE("worker: a full hand takes the other offers back, and a free one makes them anew") {
  Bench bench({"a", "b", "c"});
  CHECK(bench.AllStand() == 3);
  const Id at_a{1, 1};
  REQUIRE(bench.worker.OnTaken(at_a));
  CHECK(bench.Fill().empty());
  CHECK(bench.withdrawn.size() == 2);
  // One of them is given a ticket before that arrives: there is no hand for it.
  CHECK_FALSE(bench.worker.OnTaken(bench.withdrawn[0]));
  bench.worker.OnGone(bench.withdrawn[0]);
  bench.worker.OnGone(bench.withdrawn[1]);
  bench.worker.OnFreed(at_a);
  CHECK(bench.AllStand() == 3);
}

TEST_CASE("worker: when a ticket is there at once it goes on with the next semaphore") {
  Bench bench({"a", "b", "c"});
  std::vector<std::string> order;
  for (int i = 0; i < 6; ++i) {
    const auto offers = bench.Fill();
    REQUIRE(offers.size() == 1);
    order.push_back(offers[0].semaphore);
    REQUIRE(bench.worker.OnTaken(offers[0].claim));
    CHECK(bench.Fill().empty());
    bench.worker.OnFreed(offers[0].claim);
  }
  CHECK(order == std::vector<std::string>{"a", "b", "c", "a", "b", "c"});
}

TEST_CASE("worker: under a prefix it offers itself only where there are tickets") {
  Bench bench({}, {"t/"}, 2);
  CHECK(bench.Fill().empty());
  bench.worker.OnTickets("t/1", true);
  const auto offers = bench.Fill();
  REQUIRE(offers.size() == 2);
  CHECK(offers[0].keep == OfferKept::kWhileTickets);
  REQUIRE(bench.worker.OnStanding(offers[0].claim));
  bench.worker.OnNothing(offers[1].claim);
  CHECK(bench.Fill().empty());  // Nothing is there now, and what still stands is withdrawn.
  CHECK(bench.withdrawn == std::vector<Id>{offers[0].claim});
  bench.worker.OnGone(offers[0].claim);
  bench.worker.OnTickets("t/1", true);
  CHECK(bench.Fill().size() == 2);
}

// Tickets at all of them.
void FindAll(Bench* bench, const std::vector<std::string>& semaphores) {
  for (const std::string& semaphore : semaphores) bench->worker.OnTickets(semaphore, true);
}

std::vector<std::string> WideNames() {
  std::vector<std::string> semaphores;
  for (int i = 0; i < 3000; ++i) semaphores.push_back("t/" + std::to_string(1000 + i));
  return semaphores;
}

TEST_CASE("worker: of what it finds while its hands are full it keeps a bounded number") {
  Bench bench({}, {"t/"}, 0);
  CHECK_FALSE(bench.worker.needs_look_up());
  FindAll(&bench, WideNames());
  CHECK(bench.Fill().empty());
  CHECK(bench.worker.needs_look_up());
  bench.worker.SetHands(1);
  std::vector<std::string> asked;
  for (auto offers = bench.Fill(); !offers.empty(); offers = bench.Fill()) {
    for (const auto& offer : offers) {
      asked.push_back(offer.semaphore);
      bench.worker.OnNothing(offer.claim);
    }
  }
  REQUIRE(asked.size() == Worker::kIdleMax);
  CHECK(asked.front() == "t/1000");
  CHECK(asked.back() == "t/2023");
}

TEST_CASE("worker: none of very many semaphores with long queues starves") {
  Bench bench({}, {"t/"}, 1);
  const std::vector<std::string> semaphores = WideNames();
  std::vector<std::string> asked;
  for (size_t look_up = 0; look_up < 6; ++look_up) {
    FindAll(&bench, semaphores);
    for (size_t i = 0; i < 500; ++i) {
      const auto offers = bench.Fill();
      REQUIRE(offers.size() == 1);
      asked.push_back(offers[0].semaphore);
      REQUIRE(bench.worker.OnTaken(offers[0].claim));
      CHECK(bench.Fill().empty());
      bench.worker.OnFreed(offers[0].claim);
    }
  }
  CHECK(asked == semaphores);
}

TEST_CASE("worker: named semaphores and found ones take turns by their names") {
  Bench bench({"b", "d"}, {"t/", "a", "c"}, 1);
  FindAll(&bench, {"a", "c", "t/1"});
  std::vector<std::string> asked;
  for (int i = 0; i < 7; ++i) {
    const auto offers = bench.Fill();
    REQUIRE(offers.size() == 1);
    asked.push_back(offers[0].semaphore);
    REQUIRE(bench.worker.OnTaken(offers[0].claim));
    bench.worker.OnFreed(offers[0].claim);
  }
  CHECK(asked == std::vector<std::string>{"a", "b", "c", "d", "t/1", "a", "b"});
  bench.worker.OnTickets("c", false);
  CHECK(bench.Fill().at(0).semaphore == "d");
}

TEST_CASE(
    "worker: what could not be asked for is tried again after a sweep, or when a ticket comes") {
  Bench bench({"a"});
  bench.worker.OnFailed(bench.Fill().at(0).claim);
  CHECK(bench.Fill().empty());
  bench.worker.Sweep();
  bench.worker.OnFailed(bench.Fill().at(0).claim);
  CHECK(bench.Fill().empty());
  bench.worker.OnTickets("a", true);
  CHECK(bench.Fill().size() == 1);
}

TEST_CASE("worker: an offer whose withdrawal was lost is withdrawn again") {
  Bench bench({"a"}, {}, 1);
  bench.AllStand();
  bench.worker.SetHands(0);
  CHECK(bench.Fill().empty());
  CHECK(bench.withdrawn.size() == 1);
  bench.worker.Sweep();
  CHECK(bench.withdrawn.size() == 2);
  bench.worker.OnGone(bench.withdrawn[0]);
  bench.worker.Sweep();
  CHECK(bench.withdrawn.size() == 2);
}

TEST_CASE("worker: an offer of an earlier stream is a ticket for a free hand, and no place") {
  Bench bench({"a"});
  const Id earlier{7, 7};
  CHECK_FALSE(bench.worker.OnStanding(earlier));
  CHECK(bench.worker.OnTaken(earlier));
  CHECK(bench.worker.free_hands() == 0);
  bench.worker.OnGone(earlier);
  CHECK(bench.worker.free_hands() == 1);
}

TEST_CASE("worker: fewer hands than it has tickets") {
  Bench bench({"a"}, {}, 2);
  for (const auto& offer : bench.Fill()) REQUIRE(bench.worker.OnTaken(offer.claim));
  bench.worker.SetHands(1);
  CHECK(bench.worker.free_hands() == 0);
  bench.worker.OnFreed(Id{1, 1});
  CHECK(bench.Fill().empty());
  bench.worker.OnFreed(Id{1, 2});
  CHECK(bench.Fill().size() == 1);
}

}  // namespace
}  // namespace semaphored
