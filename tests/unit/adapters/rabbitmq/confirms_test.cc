// The broker's answers to messages that were published together.
#include "adapters/rabbitmq/confirms.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace semaphored::rabbitmq {
namespace {

using Answers = std::vector<Confirm>;

TEST_CASE("rabbitmq confirms: one by one, or all up to a number") {
  Confirms confirms(7, {"a", "b", "c", "d"});
  CHECK(confirms.left() == 4);
  confirms.Settle(9, /*multiple=*/false, Confirm::kRefused);
  CHECK(confirms.left() == 3);
  confirms.Settle(9, /*multiple=*/true, Confirm::kStored);
  CHECK(confirms.left() == 1);
  CHECK(confirms.Answers() ==
        Answers{Confirm::kStored, Confirm::kStored, Confirm::kRefused, Confirm::kUnknown});
}

TEST_CASE("rabbitmq confirms: a number twice, or of no message, changes nothing") {
  Confirms confirms(7, {"a", "b"});
  for (const uint64_t sequence : {6, 9, 7, 7}) confirms.Settle(sequence, false, Confirm::kStored);
  confirms.Settle(6, /*multiple=*/true, Confirm::kRefused);
  CHECK(confirms.left() == 1);
  CHECK(confirms.Answers() == Answers{Confirm::kStored, Confirm::kUnknown});
}

TEST_CASE("rabbitmq confirms: what was returned is confirmed all the same, and is in no queue") {
  Confirms confirms(1, {"same", "other", "same"});
  confirms.Return("same");
  confirms.Settle(1, /*multiple=*/false, Confirm::kStored);
  confirms.Return("same");
  confirms.Return("same");  // More of them than were sent.
  confirms.Return("unknown");
  CHECK(confirms.left() == 2);
  confirms.Settle(3, /*multiple=*/true, Confirm::kStored);
  CHECK(confirms.left() == 0);
  CHECK(confirms.Answers() == Answers{Confirm::kNoQueue, Confirm::kStored, Confirm::kNoQueue});
}

}  // namespace
}  // namespace semaphored::rabbitmq
