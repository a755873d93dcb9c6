// Which of this daemon's leases are meant when another daemon has lowered a limit.
#include "adapters/rabbitmq/asked_recalls.h"

#include <algorithm>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace semaphored::rabbitmq {
namespace {

using Held = absl::flat_hash_map<Id, UsedTokens::Held>;

Id ClaimOf(uint32_t slot) { return {3, slot}; }

Held HeldOn(const std::vector<uint32_t>& slots) {
  Held held;
  for (const uint32_t slot : slots) held[ClaimOf(slot)] = {slot, "", slot};
  return held;
}

// The slots that are chosen of `held`, of a semaphore that has slots 1 to `slots` and `limit` permits.
std::vector<uint32_t> Chosen(uint32_t slots, uint32_t limit, const AskedOfAll& asked,
                             const std::vector<uint32_t>& held) {
  StoredSemaphore stored;
  stored.row.limit = limit;
  for (uint32_t slot = 1; slot <= slots; ++slot) stored.slots.insert(slot);
  std::vector<uint32_t> chosen;
  for (const Id& claim : ChooseLeases(asked, stored, HeldOn(held)))
    chosen.push_back(static_cast<uint32_t>(claim.low));
  std::ranges::sort(chosen);
  return chosen;
}

AskedOfAll Asked(uint32_t leases_max, std::set<uint32_t> slots_of_sender = {}) {
  AskedOfAll asked;
  asked.wanted.semaphore = "s";
  asked.wanted.leases_max = leases_max;
  asked.slots_of_sender = std::move(slots_of_sender);
  return asked;
}

TEST_CASE("rabbitmq recalls: the highest slots are meant, whichever daemon has them") {
  CHECK(Chosen(6, 4, Asked(10), {1, 5}) == std::vector<uint32_t>{5});
  CHECK(Chosen(6, 4, Asked(10), {2, 6}) == std::vector<uint32_t>{6});
  CHECK(Chosen(6, 4, Asked(10), {1, 2}).empty());
}

TEST_CASE("rabbitmq recalls: the sender's own slots are not meant, and no more are than it wants") {
  CHECK(Chosen(6, 4, Asked(10, {5, 6}), {3, 4}) == std::vector<uint32_t>{3, 4});
  CHECK(Chosen(6, 3, Asked(1), {4, 5, 6}) == std::vector<uint32_t>{6});
  CHECK(Chosen(4, 4, Asked(10), {1, 2, 3, 4}).empty());
  // More is too much than there are slots to choose from.
  CHECK(Chosen(3, 0, Asked(10, {1}), {2, 3}) == std::vector<uint32_t>{2, 3});
}

TEST_CASE("rabbitmq recalls: what is sent is read as it was meant, and nothing else is") {
  AskedOfAll asked = Asked(7, {1, 4});
  asked.wanted.claim = ClaimOf(4);
  asked.wanted.holder = "h";
  asked.wanted.recall = {Recall::Reason::kDestroyed, 250};
  const nlohmann::json text = WriteAsked(asked);
  const std::optional<AskedOfAll> read = ReadAsked(text);
  REQUIRE(read);
  CHECK((read->wanted.semaphore == "s" && read->wanted.claim == ClaimOf(4)));
  CHECK((read->wanted.holder == "h" && read->wanted.leases_max == 7));
  CHECK(read->wanted.recall.reason == Recall::Reason::kDestroyed);
  CHECK((read->wanted.recall.grace_ms == 250 && read->slots_of_sender == asked.slots_of_sender));
  for (const char* field : {"take_back", "claim", "holder", "reason", "grace_ms", "leases_max"}) {
    nlohmann::json less = text;
    less.erase(field);
    CHECK_FALSE(ReadAsked(less));
  }
  nlohmann::json other = text;
  other["grace_ms"] = -1;
  CHECK_FALSE(ReadAsked(other));
  // A claim that is not understood must not be taken for all claims.
  other = text;
  other["claim"] = "?";
  CHECK_FALSE(ReadAsked(other));
}

}  // namespace
}  // namespace semaphored::rabbitmq
