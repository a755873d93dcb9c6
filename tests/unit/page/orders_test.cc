#include <catch2/catch_test_macros.hpp>

#include "server/page/viewer.h"

namespace semaphored::page {
namespace {

SemaphoreLine Line(std::string name, uint32_t held, uint64_t waiting, int64_t oldest_unix_ms) {
  SemaphoreLine line;
  line.name = std::move(name);
  line.held = held;
  line.waiting = waiting;
  line.oldest_unix_ms = oldest_unix_ms;
  return line;
}

using Order = std::vector<uint32_t>;

TEST_CASE("page orders: by each column, both ways, and by name where that is equal") {
  Listing listing;
  listing.lines = {Line("a", 2, 0, 0), Line("b", 1, 5, 900), Line("c", 2, 5, 100),
                   Line("d", 0, 0, 0)};
  Orders orders(&listing);
  CHECK(orders.By(View::Sort::kName, true) == Order{0, 1, 2, 3});
  CHECK(orders.By(View::Sort::kName, false) == Order{3, 2, 1, 0});
  CHECK(orders.By(View::Sort::kHeld, false) == Order{0, 2, 1, 3});
  CHECK(orders.By(View::Sort::kHeld, true) == Order{3, 1, 0, 2});
  CHECK(orders.By(View::Sort::kWaiting, false) == Order{1, 2, 0, 3});
  // The one that has waited the longest first.
  CHECK(orders.By(View::Sort::kOldest, false) == Order{2, 1, 0, 3});
  CHECK(orders.By(View::Sort::kOldest, true) == Order{0, 3, 1, 2});
}

TEST_CASE("page rights: without an access file all, without an identity none") {
  Rights rights;
  CHECK(rights.Sees("a"));
  CHECK(rights.Administers("a"));
  auto policy = AccessPolicy::Parse(R"([identities.one]
tokens = ["sha256:0000000000000000000000000000000000000000000000000000000000000001"]
rules = [{ prefixes = ["a/"], verbs = ["verify"] }, { prefixes = ["b/"], verbs = ["administer"] }]
)");
  REQUIRE(policy.ok());
  rights.policy = *policy;
  CHECK_FALSE(rights.Sees("a/x"));
  CHECK_FALSE(rights.Administers("a/x"));
  rights.identity = rights.policy->identities().front().get();
  CHECK(rights.Sees("a/x"));
  CHECK_FALSE(rights.Administers("a/x"));
  CHECK(rights.Administers("b/x"));
  CHECK_FALSE(rights.Sees("c"));
}

}  // namespace
}  // namespace semaphored::page
