// What clients read of outcomes that refuse.
#include "server/sessions/refusals.h"

#include <memory>
#include <set>
#include <string>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

Refusal Refused(OutcomeKind kind, std::string message = "") {
  Outcome outcome;
  outcome.kind = kind;
  outcome.message = std::move(message);
  return RefusalOf(outcome, "s", "consul");
}

TEST_CASE("refusals: every outcome that refuses has a code, a reason and a message") {
  const std::set<OutcomeKind> no_refusals = {
      OutcomeKind::kGranted, OutcomeKind::kQueued,  OutcomeKind::kReleased,
      OutcomeKind::kHeld,    OutcomeKind::kDone,    OutcomeKind::kStillWaiting,
      OutcomeKind::kBusy,    OutcomeKind::kNothing, OutcomeKind::kNotAskedBefore,
      OutcomeKind::kReading, OutcomeKind::kUnknown, OutcomeKind::kEnqueued};
  for (int number = 0; number <= static_cast<int>(OutcomeKind::kUnknown); ++number) {
    const auto kind = static_cast<OutcomeKind>(number);
    INFO("outcome " << number);
    const Refusal refusal = Refused(kind, "why");
    CHECK((refusal.code == absl::StatusCode::kInternal) == no_refusals.contains(kind));
    CHECK((refusal.reason == Reason::kUnspecified) == no_refusals.contains(kind));
    CHECK_FALSE(refusal.message.empty());
  }
}

TEST_CASE("refusals: the numbers of the outcome are in the message") {
  Outcome mismatch;
  mismatch.kind = OutcomeKind::kLimitMismatch;
  mismatch.detail = Outcome::Limit{5, 7};
  CHECK(RefusalOf(mismatch, "s", "consul").message ==
        "limit: the semaphore has the limit 5, and the request asks for 7");

  Outcome slot;
  slot.kind = OutcomeKind::kNoSuchSlot;
  slot.detail = Outcome::NotItsSlot{3};
  const Refusal wrong = RefusalOf(slot, "s", "consul");
  CHECK(wrong.message == "slots: the lease does not hold slot 3");
  CHECK(wrong.field == "slots");
  CHECK(wrong.right == "the lease does not hold slot 3");

  Outcome revision;
  revision.kind = OutcomeKind::kRevisionMismatch;
  CHECK(RefusalOf(revision, "s", "consul").message ==
        "expected_revision: the semaphore stands at revision none");
  revision.report = std::make_unique<Report>();
  revision.report->info.emplace().row.revision = 12;
  CHECK(RefusalOf(revision, "s", "consul").message ==
        "expected_revision: the semaphore stands at revision 12");
}

TEST_CASE("refusals: the adapter's own words replace the usual ones") {
  CHECK(Refused(OutcomeKind::kUnsupported).message == "the adapter consul cannot do this");
  CHECK(Refused(OutcomeKind::kUnsupported, "no $0, 100 %").message == "no $0, 100 %");
  CHECK(Refused(OutcomeKind::kInUse).advice == "drain it first, or destroy it with wait or force");
  CHECK(Refused(OutcomeKind::kInUse, "consul lock has it").advice.starts_with("wait until no"));
}

}  // namespace
}  // namespace semaphored
