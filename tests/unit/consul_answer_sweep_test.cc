// What silent clients were answered is forgotten, on a real server.
#include <chrono>
#include <string>

#include "adapters/consul/request_sweep.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using std::chrono::seconds;

constexpr seconds kRetention{100};

struct Answered {
  TestPrefix prefix;
  Keys keys = prefix.keys();
  Client client{prefix.ParsedUrl()};
  AnswerSweep sweep{&keys, kRetention};
  int written = 0;
  const SteadyTime start = std::chrono::steady_clock::now();

  void Answer(const std::string& client_id, uint64_t block) {
    // To write what stands there already changes nothing in Consul.
    prefix.Put(keys.AnswerBlock(client_id, block), std::to_string(++written), 0);
  }
  size_t Left(const std::string& client_id) { return prefix.Tree(keys.Client(client_id)).size(); }
  void SweepAt(seconds after) { sweep.SweepIfDue(&client, start + after); }
};

TEST_CASE("consul answers: those of a client that is silent for long are forgotten", "[consul]") {
  Answered answered;
  constexpr uint64_t kBlocks = 70;  // More than one transaction takes.
  for (uint64_t block = 0; block < kBlocks; ++block) answered.Answer("silent", block);
  answered.prefix.Put(answered.keys.AnswerFloor("silent"), "7", 0);
  answered.Answer("busy", 0);
  answered.SweepAt(seconds(0));
  answered.SweepAt(seconds(50));
  CHECK(answered.Left("silent") == kBlocks + 1);
  answered.Answer("busy", 0);
  answered.SweepAt(seconds(100));
  CHECK(answered.Left("silent") == 0);
  CHECK(answered.Left("busy") == 1);
  // It was last seen to be answered at 100.
  answered.SweepAt(seconds(175));
  CHECK(answered.Left("busy") == 1);
  answered.SweepAt(seconds(200));
  CHECK(answered.Left("busy") == 0);
}

TEST_CASE("consul answers: a request that had waited for long is an answer too", "[consul]") {
  Answered answered;
  answered.Answer("c", 0);
  answered.Answer("c", 1);
  answered.SweepAt(seconds(0));
  answered.Answer("c", 0);
  answered.SweepAt(seconds(100));
  CHECK(answered.Left("c") == 2);
  answered.SweepAt(seconds(150));
  CHECK(answered.Left("c") == 2);
  answered.SweepAt(seconds(200));
  CHECK(answered.Left("c") == 0);
}

}  // namespace
}  // namespace semaphored::consul
