#include "adapters/common/client_names.h"

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::ledger {
namespace {

// The commit with the first number was lost, and the client came again later.
TEST_CASE("client names: a name that has another number by now keeps it when the former goes") {
  ClientNames names;
  names.Learn({1, "again"});
  names.Learn({2, "again"});
  SECTION("by itself") { names.Forget(1); }
  SECTION("with all that are not in use") {
    for (uint32_t number = 3; number < 3000; ++number)
      names.Learn({number, absl::StrCat("other-", number)});
    names.ForgetBut([](uint32_t number) { return number == 2; });
    CHECK(names.NameOf(3).empty());
  }
  CHECK(names.NameOf(1).empty());
  CHECK(names.NumberOf("again") == 2);
}

}  // namespace
}  // namespace semaphored::ledger
