// The end of a session that has very many claims: in pages, so that no lane is busy with it alone.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr uint32_t kMany = 1000;
constexpr size_t kPage = 32;

struct OneLane {
  SessionsWorld world;
  uint64_t requests = 0;

  void Open(ClientStream* stream, const std::string& client_id, const Id& resume = {}) {
    OpenParams params;
    params.client_id = client_id;
    params.ttl_ms = 10'000;
    params.resume = resume;
    world.sessions().Open(std::move(params), stream);
    world.Settle();
  }
  void Ask(const ClientStream& stream, const std::string& client_id, const std::string& semaphore,
           uint32_t limit) {
    AcquireParams params;
    params.requester = {client_id, ++requests};
    params.semaphore = semaphore;
    params.permits = 1;
    params.limit = limit;
    params.wait_ms = -1;
    world.sessions().AcquireIn(stream.session, std::move(params), requests, true);
  }
  // Of all leases that have ended, the last one first.
  std::vector<uint64_t> TokensOfEnds(const std::string& semaphore) {
    std::vector<uint64_t> tokens;
    HistoryCommand command;
    command.semaphore = semaphore;
    command.rows_max = 2 * kMany;
    world.sessions().History(std::move(command), [&](Result<AdminAnswer> result) {
      for (const HistoryRow& row : result.value.report->history) tokens.push_back(row.lease->token);
    });
    world.Settle();
    return tokens;
  }
};

TEST_CASE("end: a session with very many leases and waits ends in pages") {
  OneLane at;
  ClientStream many;
  ClientStream other;
  at.Open(&many, "many");
  at.Open(&other, "other");
  for (uint32_t i = 0; i < kMany; ++i) at.Ask(many, "many", "s", kMany);
  at.Ask(other, "other", "s", kMany);
  for (uint32_t i = 0; i < 10; ++i) at.Ask(many, "many", "s", kMany);
  at.world.Settle();
  REQUIRE(many.granted.size() == kMany);
  REQUIRE(at.world.Describe("s")->waiting == 11);

  at.world.TakeMostEvents();
  at.world.sessions().DetachSession(&many);
  for (int i = 0; i < 30; ++i) {
    at.world.sessions().TouchSession(other.session);
    at.world.Pass(Milliseconds(1000));
  }
  // The waits of the session went first, and the other client's was served.
  CHECK(at.world.Describe("s")->held == 1);
  CHECK(at.world.Describe("s")->waiting == 0);
  CHECK(other.granted.size() == 1);
  CHECK(other.ended.empty());
  CHECK(at.world.TakeMostEvents() <= kPage + 1);
  // In the order of the grants, the newest end first in the history.
  const std::vector<uint64_t> tokens = at.TokensOfEnds("s");
  CHECK(tokens.size() == kMany);
  CHECK(std::ranges::is_sorted(tokens, std::greater()));
  ClientStream again;
  at.Open(&again, "many", many.session);
  CHECK_FALSE(again.resumed);
}

}  // namespace
}  // namespace semaphored
