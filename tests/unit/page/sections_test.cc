#include "server/page/sections.h"

#include <catch2/catch_test_macros.hpp>

#include "nlohmann/json.hpp"

namespace semaphored::page {
namespace {

using nlohmann::json;

std::string NoName(const NodeRef&) { return "node"; }

SemaphoreInfo WithLease(std::string holder) {
  SemaphoreInfo info;
  info.row.name = "a";
  auto lease = std::make_shared<Lease>();
  lease->id = Id{0x0123456789abcdef, 0xfedcba9876543210};
  lease->holder = std::move(holder);
  lease->slots = Slots{1, 2, 5};
  lease->token = UINT64_MAX;
  info.leases.push_back(lease);
  return info;
}

TEST_CASE("page sections: a lease id is there for administrators only") {
  const SemaphoreInfo info = WithLease("h");
  const json with = json::parse(LeasesJson(info, NoName, /*with_ids=*/true));
  CHECK(with[0][8] == "a#0123456789abcdeffedcba9876543210");
  const std::string without = LeasesJson(info, NoName, /*with_ids=*/false);
  CHECK(json::parse(without)[0].size() == 8);
  CHECK(without.find("fedcba98") == std::string::npos);
}

TEST_CASE("page sections: any text is a string of JSON, on one line") {
  const std::string hostile = "\"]}\n\r\t</script>\xff\xfe\xc3(\xe2\x80\xae";
  const std::string text = LeasesJson(WithLease(hostile), NoName, true);
  CHECK(text.find('\n') == std::string::npos);
  const json parsed = json::parse(text);
  CHECK(parsed[0][2].get<std::string>().starts_with("\"]}\n\r\t</script>"));
  CHECK(parsed[0][1] == json::parse("[[1,2],[5,5]]"));
  // Exact, although no number of a script is.
  CHECK(parsed[0][6] == "18446744073709551615");
}

TEST_CASE("page sections: of a lease with very many runs of slots there are the first") {
  SemaphoreInfo info = WithLease("h");
  std::vector<uint32_t> slots;
  for (uint32_t slot = 1; slot < 10'000; slot += 2) slots.push_back(slot);
  info.leases[0]->slots = Slots(slots);
  const json parsed = json::parse(LeasesJson(info, NoName, true));
  CHECK(parsed[0][1].size() == 16);
  CHECK(parsed[0][5] == 4);
}

TEST_CASE("page sections: of a ticket's reasons there is the beginning of the last") {
  TicketList list;
  auto ticket = std::make_shared<Ticket>();
  ticket->reasons = {{1, "first", 5}, {2, std::string(255, 'x') + "ä and more", 6}};
  list.tickets.push_back({ticket, 3});
  const json reasons = json::parse(TicketsJson(list))["rows"][0][10];
  REQUIRE(reasons.size() == 1);
  CHECK(reasons[0][0] == 2);
  CHECK(reasons[0][1] == std::string(255, 'x') + "…");
}

TEST_CASE("page sections: rows of two texts are rows") {
  TicketList list;
  auto ticket = std::make_shared<Ticket>();
  ticket->reasons = {{1, "no", 5}};
  list.tickets.push_back({ticket, 3});
  const json parsed = json::parse(TicketsJson(list));
  CHECK(parsed["rows"].size() == 1);
  CHECK(parsed["rows"][0][10] == json::parse("[[1,\"no\",5]]"));
  const std::vector<NodeLine> nodes = {{"n", NodeLine::State::kSelf, "h", "a", 1, 2}};
  CHECK(json::parse(NodesJson(nodes, true))["rows"][0] == json({"n", 3, "h", "a", 1, 2}));
  CHECK(json::parse(NodesJson(nodes, false))["rows"][0] == json({"n", 3, "", "", 0, 2}));
  CHECK(json::parse(ChartJson({{1, 2, 3, 4}}, 9, true))["samples"] == json::parse("[[1,2,3,4]]"));
  CHECK(json::parse(EngineJson(DaemonFigures{}, true))["beat_ms"].is_null());
  CHECK(EngineJson(DaemonFigures{}, false) == R"({"adapter":"","version":"","vouched":false})");
}

}  // namespace
}  // namespace semaphored::page
