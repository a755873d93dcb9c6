#include "adapters/ledger/state/slot_map.h"

#include <map>
#include <random>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {

TEST_CASE("a slot map without leases is free from 1 on") {
  const SlotMap slots;
  CHECK(slots.LowestFree(0).empty());
  CHECK(slots.LowestFree(3) == Slots{1, 2, 3});
  CHECK(slots.At(0).empty());
  CHECK(slots.At(1).empty());
  CHECK(slots.At(UINT32_MAX).empty());
}

TEST_CASE("a slot map finds holes first, then the end") {
  SlotMap slots;
  const Id lease = MakeId(1);
  slots.Take({2, 4}, lease);
  CHECK(slots.LowestFree(4) == Slots{1, 3, 5, 6});
  CHECK(slots.At(2) == lease);
  CHECK(slots.At(3).empty());
  slots.Free({4}, lease);
  CHECK(slots.LowestFree(3) == Slots{1, 3, 4});
  slots.Free({2}, lease);
  CHECK(slots.LowestFree(3) == Slots{1, 2, 3});
}

TEST_CASE("a slot that another lease has is neither taken nor freed") {
  SlotMap slots;
  slots.Take({2}, MakeId(1));
  slots.Take({1, 2, 3}, MakeId(2));
  CHECK(slots.At(2) == MakeId(1));
  CHECK(slots.At(3) == MakeId(2));
  slots.Free({1, 2, 3}, MakeId(2));
  CHECK(slots.At(2) == MakeId(1));
  CHECK(slots.LowestFree(2) == Slots{1, 3});
  slots.Free({1, 2, 3, UINT32_MAX}, MakeId(1));
  CHECK(slots.LowestFree(3) == Slots{1, 2, 3});
}

TEST_CASE("a slot map agrees with one slot after the other, after any takes and frees") {
  std::mt19937 random(7);
  SlotMap slots;
  std::map<uint32_t, Id> model;
  for (int i = 0; i < 5'000; ++i) {
    const Id lease = MakeId(random() % 3 + 1);
    std::vector<uint32_t> some;
    for (auto count = random() % 6 + 1; count > 0; --count) some.push_back(random() % 40 + 1);
    const Slots asked(some.begin(), some.end());
    const bool takes = random() % 2 == 0;
    if (takes) slots.Take(asked, lease);
    if (!takes) slots.Free(asked, lease);
    for (const uint32_t slot : asked) {
      if (takes) model.try_emplace(slot, lease);
      const auto taken = model.find(slot);
      if (!takes && taken != model.end() && taken->second == lease) model.erase(taken);
    }
    std::vector<uint32_t> free;
    for (uint32_t slot = 1; free.size() < 12; ++slot) {
      if (!model.contains(slot)) free.push_back(slot);
    }
    REQUIRE(slots.LowestFree(12) == Slots(free));
    for (uint32_t slot = 1; slot <= 41; ++slot)
      REQUIRE(slots.At(slot) == (model.contains(slot) ? model[slot] : Id()));
  }
}

}  // namespace semaphored::ledger
