// The requests of silent clients are forgotten, on a real server.
#include "adapters/consul/request_sweep.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "adapters/common/client_names.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using std::chrono::seconds;

constexpr seconds kRetention{100};

struct Requests {
  TestPrefix prefix;
  Keys keys = prefix.keys();
  Client client{prefix.ParsedUrl()};
  RequestSweep sweep{&keys, kRetention};
  uint32_t written = 0;
  const SteadyTime start = SteadyClock::now();

  void Accept(const std::string& client_id, uint64_t block) {
    // To write what stands there already changes nothing in Consul.
    RequestBlock value;
    value.rows[block * 16] = MakeRow(block * 16, ledger::RequestRow::State::kDone);
    value.rows[block * 16].number = ++written;
    prefix.Put(keys.RequestBlock(client_id, block), WriteRequestBlock(value), 0);
  }
  size_t Left(const std::string& client_id) { return prefix.Tree(keys.Client(client_id)).size(); }
  void SweepAt(seconds after) { CHECK(sweep.SweepIfDue(&client, start + after).ok()); }
};

TEST_CASE("consul requests: those of a client that is silent for long are forgotten", "[consul]") {
  Requests requests;
  constexpr uint64_t kBlocks = 70;  // More than one transaction takes.
  for (uint64_t block = 0; block < kBlocks; ++block) requests.Accept("silent", block);
  requests.prefix.Put(requests.keys.RequestFloor("silent"), "7", 0);
  requests.Accept("busy", 0);
  requests.SweepAt(seconds(0));
  requests.SweepAt(seconds(50));
  CHECK(requests.Left("silent") == kBlocks + 1);
  requests.Accept("busy", 0);
  requests.SweepAt(seconds(100));
  CHECK(requests.Left("silent") == 0);
  CHECK(requests.Left("busy") == 1);
  // It was last seen to be busy at 100.
  requests.SweepAt(seconds(175));
  CHECK(requests.Left("busy") == 1);
  requests.SweepAt(seconds(200));
  CHECK(requests.Left("busy") == 0);
}

TEST_CASE("consul requests: the end of a claim that stood for long counts", "[consul]") {
  Requests requests;
  requests.Accept("c", 0);
  requests.Accept("c", 1);
  requests.SweepAt(seconds(0));
  requests.Accept("c", 0);
  requests.SweepAt(seconds(100));
  CHECK(requests.Left("c") == 2);
  requests.SweepAt(seconds(150));
  CHECK(requests.Left("c") == 2);
  requests.SweepAt(seconds(200));
  CHECK(requests.Left("c") == 0);
}

TEST_CASE("consul requests: a client with a claim that stands is not silent", "[consul]") {
  Requests requests;
  OpenStore open = Open(requests.prefix);
  const SemaphoreRow row = Make(open, "s");
  const LeasePtr lease = MakeLease(open, 1);
  ledger::Transaction grant = Grant(open, row, lease);
  REQUIRE(open.Commit(grant).kind == ledger::CommitResult::Kind::kWon);
  RequestBlock block;
  block.rows[5] = MakeRow(5, ledger::RequestRow::State::kWaiting);
  block.rows[5].claim = lease->id;
  requests.prefix.Put(requests.keys.RequestBlock("holder", 0), WriteRequestBlock(block), 0);
  block.rows[5].claim = MakeId(2);
  requests.prefix.Put(requests.keys.RequestBlock("lost", 0), WriteRequestBlock(block), 0);
  requests.prefix.Put(requests.keys.RequestBlock("garbled", 0), "garbled", 0);
  requests.SweepAt(seconds(0));
  requests.SweepAt(seconds(100));
  CHECK(requests.Left("holder") == 1);
  CHECK(requests.Left("lost") == 0);
  CHECK(requests.Left("garbled") == 1);
  ledger::Transaction release = Grant(open, LoadOne(open, "s").row, lease);
  release.semaphores[0].leases = {{lease, nullptr, EndCause::kReleased}};
  REQUIRE(open.Commit(release).kind == ledger::CommitResult::Kind::kWon);
  requests.SweepAt(seconds(200));
  CHECK(requests.Left("holder") == 0);
}

TEST_CASE("consul requests: one-shot requests that were left go when their time is over",
          "[consul]") {
  Requests requests;
  OpenStore open = Open(requests.prefix);
  const SemaphoreRow row = Make(open, "s");
  const LeasePtr lease = MakeLease(open, 1);
  ledger::Transaction grant = Grant(open, row, lease);
  REQUIRE(open.Commit(grant).kind == ledger::CommitResult::Kind::kWon);
  const auto put = [&](const std::string& name, ledger::RequestRow::State state, const Id& claim) {
    RequestBlock block;
    block.rows[0] = MakeRow(0, state);
    block.rows[0].claim = claim;
    requests.prefix.Put(requests.keys.RequestBlock(name, 0), WriteRequestBlock(block), 0);
  };
  using State = ledger::RequestRow::State;
  std::vector<std::string> ended;
  for (uint64_t i = 10; i < 80; ++i) {  // More than one transaction takes.
    ended.push_back(ledger::NameOfOneShot({i, i}));
    put(ended.back(), State::kDone, {});
  }
  const std::string holds = ledger::NameOfOneShot({1, 1});
  const std::string lost = ledger::NameOfOneShot({2, 2});
  const std::string late = ledger::NameOfOneShot({3, 3});
  put(holds, State::kGranted, lease->id);
  put(lost, State::kWaiting, MakeId(2));
  put(late, State::kGranted, MakeId(3));
  const auto ended_left = [&] {
    return std::ranges::count_if(ended, [&](const auto& name) { return requests.Left(name) > 0; });
  };
  requests.SweepAt(seconds(0));
  put(late, State::kEnded, MakeId(3));
  requests.SweepAt(seconds(99));
  CHECK(ended_left() == 70);
  requests.SweepAt(seconds(124));
  CHECK(ended_left() == 0);
  // Seen in its last state at 99. And that a claim has gone without a word was seen at 124.
  CHECK(requests.Left(late) == 1);
  CHECK(requests.Left(lost) == 1);
  requests.SweepAt(seconds(223));
  CHECK(requests.Left(late) == 0);
  CHECK(requests.Left(lost) == 1);
  requests.SweepAt(seconds(248));
  CHECK(requests.Left(lost) == 0);
  requests.SweepAt(seconds(1000));
  CHECK(requests.Left(holds) == 1);
}

}  // namespace
}  // namespace semaphored::consul
