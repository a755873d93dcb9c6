#include "server/sessions/end_marks.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

constexpr Id kMarkedClaim{4, 1};
constexpr Id kLaterMarkedClaim{4, 2};

TEST_CASE("end marks: a mark stays until all lanes have answered a job that came after it",
          "[unit]") {
  RoomHost host(3);
  EndMarks marks(&host);
  CHECK(marks.Find(kMarkedClaim) == nullptr);
  marks.Add(kMarkedClaim, EndCause::kRevoked);
  REQUIRE(host.jobs.size() == 3);
  for (size_t lane = 0; lane < 3; ++lane) CHECK(host.jobs[lane].lane == lane);
  for (int i = 0; i < 2; ++i) {
    host.Answer(OutcomeKind::kDone);
    marks.Age(true);
    REQUIRE(marks.Find(kMarkedClaim) != nullptr);
  }
  CHECK(*marks.Find(kMarkedClaim) == EndCause::kRevoked);
  host.Answer(OutcomeKind::kDone);
  marks.Age(true);
  CHECK(marks.Find(kMarkedClaim) == nullptr);
  CHECK(host.jobs.empty());
}

TEST_CASE("end marks: one that is made while the lanes are asked waits for the next answers",
          "[unit]") {
  RoomHost host(1);
  EndMarks marks(&host);
  marks.Add(kMarkedClaim, EndCause::kRevoked);
  marks.Add(kLaterMarkedClaim, EndCause::kExpired);
  REQUIRE(host.jobs.size() == 1);
  host.Answer(absl::UnavailableError("away"));  // The lane has finished a Step all the same.
  marks.Age(true);
  CHECK(marks.Find(kMarkedClaim) == nullptr);
  REQUIRE(marks.Find(kLaterMarkedClaim) != nullptr);
  REQUIRE(host.jobs.size() == 1);
  host.Answer(OutcomeKind::kDone);
  marks.Age(true);
  CHECK(marks.Find(kLaterMarkedClaim) == nullptr);
}

TEST_CASE("end marks: no lane is asked again where it should not go on", "[unit]") {
  RoomHost host(1);
  EndMarks marks(&host);
  marks.Add(kMarkedClaim, EndCause::kRevoked);
  marks.Add(kLaterMarkedClaim, EndCause::kExpired);
  host.Answer(OutcomeKind::kDone);
  marks.Age(/*go_on=*/false);
  CHECK(host.jobs.empty());
}

TEST_CASE("end marks: one that is left out is known to be, until no lane can report its grant",
          "[unit]") {
  RoomHost host(2);
  EndMarks marks(&host);
  const auto answer = [&] {
    for (size_t lane = 0; lane < 2; ++lane) {
      host.Answer(OutcomeKind::kDone);
      marks.Age(true);
    }
  };
  for (uint64_t i = 1; i <= EndMarks::kMarksMax; ++i) marks.Add(Id{5, i}, EndCause::kRevoked);
  CHECK(marks.has_all());
  marks.Add(Id{5, EndMarks::kMarksMax + 1}, EndCause::kRevoked);
  CHECK_FALSE(marks.has_all());
  answer();  // The lanes were asked before.
  CHECK_FALSE(marks.has_all());
  answer();
  CHECK(marks.has_all());
  CHECK(host.jobs.empty());
}

}  // namespace
}  // namespace semaphored
