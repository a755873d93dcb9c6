// What every engine stores as the ledger encodes it: fingerprints of requests, intentions, names of one-shot
// requests; and the seal of messages between daemons.
#include "tests/unit/adapters/golden.h"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "adapters/commands.h"
#include "adapters/common/client_names.h"
#include "adapters/common/seal.h"
#include "adapters/ledger/requests.h"
#include "adapters/ledger/rules/intentions.h"
#include "adapters/ledger/state/request.h"
#include "adapters/types.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::ledger {
namespace {

using golden::CheckStored;

std::string FingerprintText(const Command& command) { return FingerprintOf(command).Hex(); }

// XXH3 of 128 bits over the version, the act and its fields; another program has computed them.
TEST_CASE("ledger golden: fingerprints of claims and tickets") {
  CHECK(kFingerprintVersion == 1);
  AcquireCommand acquire;
  acquire.semaphore = "team/db";
  acquire.permits = 2;
  acquire.limit = 3;
  acquire.adopt_limit = true;
  acquire.priority = -5;
  acquire.holder = "host";
  CheckStored(FingerprintText(acquire), "58046099fc1b473d614b58283344eefa");
  const ReleaseCommand release{{}, "team/db", {1, 2}, {1, 3}};
  CheckStored(FingerprintText(release), "2ba950f92a8a3adecc5370aa6438121e");
  EnqueueCommand enqueue;
  enqueue.semaphore = "team/db";
  enqueue.limit = 3;
  enqueue.adopt_limit = true;
  enqueue.priority = -5;
  enqueue.delay_ms = 8'000;
  enqueue.max_attempts = 4;
  enqueue.back_off = {1'000, 200, 300'000};
  enqueue.content_type = "text/plain";
  enqueue.payload = std::make_shared<const std::string>("abc");
  CheckStored(FingerprintText(enqueue), "03e112d7b5e44942f0373579d655c0d7");
  FinishCommand finish;
  finish.semaphore = "team/db";
  finish.claim = {1, 2};
  finish.result = FinishCommand::Result::kReject;
  finish.reason = "no";
  finish.retry_after_ms = 500;
  CheckStored(FingerprintText(finish), "2230a5309cfff2233cbdc73c0bfc62a8");
}

// A request of forty bytes may name a million slots: hashed one by one, a few hundred of them kept the lane from all others
// for seconds.
TEST_CASE("ledger: the fingerprint of a release costs as much as its slots have runs") {
  const auto of = [](std::initializer_list<Slots::Run> runs) {
    ReleaseCommand release{{}, "team/db", {1, 2}, {}};
    for (const Slots::Run& run : runs) release.slots.Append(run);
    return FingerprintText(release);
  };
  const auto begun = std::chrono::steady_clock::now();
  std::set<std::string> all;
  for (int i = 0; i < 1000; ++i) all.insert(of({{1, 1'000'000}}));
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(2));
  CHECK(all.size() == 1);
  for (const std::string& other :
       {of({{1, 999'999}}), of({{2, 1'000'001}}), of({{1, 2000}}), of({{2, 2001}}),
        of({{1, 1000}, {1002, 2001}}), of({{1, 1024}}), of({{2, 1025}}), of({{1, 1025}})})
    CHECK(all.insert(other).second);
}

TEST_CASE("ledger golden: fingerprints of administrative acts") {
  const Settings settings{true, 1'000, 2'000, 2, 50};
  const auto of = [](auto act) {
    return FingerprintText(AdminCommand{{}, "team/db", 6, std::move(act)});
  };
  CheckStored(of(AdminCreate{3, settings}), "a746920f9ca93ba67a1b1f8a40933ddf");
  CheckStored(of(AdminResize{AdminResize::Change::kAdd, 2, 1'000, ShrinkPolicy::kRecall, 3'000}),
              "7c439ba7ba3c614ca98a9269f63f3a12");
  CheckStored(of(AdminConfigure{settings}), "57519188299fcb05d947598568826fb1");
  CheckStored(of(AdminDestroy{DestroyPolicy::kForce, 3'000}), "aad980e75ff2a675f517049bb077b4d5");
  CheckStored(of(AdminPause{true}), "e3e01cbee13c299ac8d4413e7b7edaa5");
  CheckStored(of(AdminRevoke{{1, 2}, "host", 3'000}), "8779e4b028bb598044b81e56752ff9ba");
  CheckStored(of(AdminPrune{}), "d072cb23670e135cf53dc86213e01192");
  CheckStored(of(AdminCancelTicket{{1, 2}, true}), "08039fa9270eb7be94765b745fd6baa6");
  CheckStored(of(AdminPrioritizeTicket{{1, 2}, -5}), "f3b0cf57327ac3947a9b560ed4407e79");
  CheckStored(of(AdminRequeue{{1, 2}}), "fa7385d14be5fa9392960a3c442061ce");
  CheckStored(of(AdminPurge{{1, 2}}), "9bc117d018a063eb210f71b7281fe3d7");
  CheckStored(of(AdminAdopt{3}), "1d1ff26dd435372974cbf7d2becb90fc");
}

// What stores keep as a number: what is added gets the next one.
template <typename Enum>
void CheckNumbers(uint8_t first, std::initializer_list<Enum> values) {
  INFO(golden::kHelp);
  for (const Enum value : values) CHECK(static_cast<uint8_t>(value) == first++);
}

TEST_CASE("ledger golden: the numbers of causes, reasons and states") {
  using Reason = Recall::Reason;
  using State = RequestRow::State;
  CheckNumbers<EndCause>(0, {EndCause::kNone, EndCause::kReleased, EndCause::kExpired,
                             EndCause::kRevoked, EndCause::kRecalled, EndCause::kDestroyed,
                             EndCause::kDisconnected, EndCause::kUnknown, EndCause::kWaitExpired,
                             EndCause::kCancelled, EndCause::kExceedsLimit, EndCause::kEngineLost});
  CheckNumbers<Reason>(0, {Reason::kNone, Reason::kShrunk, Reason::kLongestHold,
                           Reason::kAdministrator, Reason::kDestroyed});
  CheckNumbers<State>(
      1, {State::kWaiting, State::kGranted, State::kEnded, State::kWaitEnded, State::kDone});
  CheckNumbers<TicketState>(
      1, {TicketState::kQueued, TicketState::kDelayed, TicketState::kAssigned, TicketState::kDead});
}

TEST_CASE("ledger golden: intentions") {
  Intentions intentions;
  intentions.host = {9, 10};
  intentions.dismiss = true;
  intentions.force_grace_ms = 1'000;
  intentions.shrink_grace_ms = 2'000;
  intentions.revocations = {{"host", 3'000, 77}};
  constexpr char kStored[] =
      R"({"dismiss":true,"force_grace_ms":1000,"node":[9,10],)"
      R"("revoke":[{"grace_ms":3000,"holder":"host","token_max":77}],"shrink_grace_ms":2000})";
  CheckStored(Encode(intentions), kStored);
  CheckStored(Encode(Decode(kStored)), kStored);
}

TEST_CASE("ledger golden: the client that a one-shot request is written as") {
  constexpr char kStored[] =
      "\x01"
      "00000000000000150000000000000016";
  CheckStored(NameOfOneShot({21, 22}), kStored);
  CHECK(OneShotOf(kStored) == Id{21, 22});
}

TEST_CASE("ledger golden: a seal") {
  constexpr char kSeal[] = "f3c66a1698a66ebcbe905b466f024f57071156e3c45b2d51dbd87d8ea7a58060";
  CheckStored(SealOf("text", "secret"), kSeal);
  CHECK(IsSeal(kSeal, "text", "secret"));
}

}  // namespace
}  // namespace semaphored::ledger
