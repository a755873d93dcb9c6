// The clients that a ledger knows, by name and by number.
#include "adapters/ledger/clients.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored::ledger {
namespace {

constexpr uint32_t kOfStore = (1u << 31) + 4;

TEST_CASE("clients: whom the store tells of is found by the store's number") {
  Clients clients;
  const SteadyTime now{};
  // Something of it was refused here, so that the store was never told.
  const uint32_t own = clients.Add("x", now)->number;
  clients.AddStored(kOfStore, "x", 9, now);
  REQUIRE(clients.Find("x") != nullptr);
  CHECK(clients.Find("x")->number == kOfStore);
  CHECK(clients.Find("x")->sequence_high == 9);
  clients.Forget(own);
  REQUIRE(clients.Find("x") != nullptr);
  CHECK(clients.Find("x")->number == kOfStore);
  clients.Forget(kOfStore);
  CHECK(clients.Find("x") == nullptr);
  CHECK(clients.size() == 0);
}

}  // namespace
}  // namespace semaphored::ledger
