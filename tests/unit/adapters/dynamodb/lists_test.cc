// Lists of semaphores: their counts, which any daemon's last commit has left in the heads, and what
// they cost.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/lane.h"
#include "tests/unit/relay.h"

namespace semaphored::dynamodb {
namespace {

using ledger::SemaphoreCounts;
using Ends = FinishCommand::Result;

constexpr uint32_t kListed = 1000;

SemaphoreCounts CountsIn(const SemaphoreInfo& info) {
  return {info.held, info.waiting, info.offers, info.tickets};
}

// Of "s", as the lane lists it.
SemaphoreCounts ListedBy(OneLane* lane) {
  const Outcome list = lane->Run(ListCommand{"", "", kListed});
  REQUIRE(list.kind == OutcomeKind::kDone);
  REQUIRE(list.report->infos.size() == 1);
  return CountsIn(list.report->infos[0]);
}

EnqueueCommand JobIn(const OneLane& lane, uint64_t number, const std::string& semaphore) {
  EnqueueCommand enqueue = lane.Job(number, "payload");
  enqueue.semaphore = semaphore;
  enqueue.limit = 1;
  return enqueue;
}

void EnqueueIn(OneLane* lane, uint64_t first, uint64_t count, const std::string& prefix) {
  std::vector<Command> commands;
  for (uint64_t i = first; i < first + count; ++i)
    commands.emplace_back(JobIn(*lane, i, absl::StrCat(prefix, i)));
  for (const Outcome& outcome : lane->RunAll(std::move(commands)))
    REQUIRE(outcome.kind == OutcomeKind::kEnqueued);
}

TEST_CASE("dynamodb lists: the counts are those of the last commit of any daemon", "[dynamodb]") {
  StoreTable table;
  OneLane a(table, "a");
  OneLane b(table, "b");
  OneLane idle(table, "idle");
  const auto check = [&](const SemaphoreCounts& expected) {
    CHECK(ListedBy(&idle) == expected);
    CHECK(CountsIn(idle.Describe()) == expected);
  };
  REQUIRE(a.Administer(AdminCreate{2, {}}).kind == OutcomeKind::kDone);
  check({});
  std::vector<Command> commands;
  for (uint64_t i = 1; i <= 3; ++i) commands.emplace_back(a.Job(i, "payload"));
  a.RunAll(std::move(commands));
  check({0, 0, 0, {3, 0, 0, 0}});
  EnqueueCommand late = a.Job(4, "payload");
  late.delay_ms = 60'000;
  REQUIRE(a.Run(late).kind == OutcomeKind::kEnqueued);
  REQUIRE(a.Run(a.Offer(901)).kind == OutcomeKind::kGranted);
  check({1, 0, 0, {2, 1, 1, 0}});
  REQUIRE(a.Run(a.Finish(901, Ends::kReject)).kind == OutcomeKind::kReleased);
  check({0, 0, 0, {2, 1, 0, 1}});

  // Neither has read what the other has done last.
  REQUIRE(b.Run(b.Offer(902)).kind == OutcomeKind::kGranted);
  check({1, 0, 0, {1, 1, 1, 1}});
  REQUIRE(a.Run(a.Ask(10, "s", true)).kind == OutcomeKind::kGranted);
  REQUIRE(a.Run(a.Ask(11, "s", true)).kind == OutcomeKind::kQueued);
  check({2, 1, 0, {1, 1, 1, 1}});
  REQUIRE(b.Run(b.Finish(902, Ends::kDone)).kind == OutcomeKind::kReleased);
  check({2, 0, 0, {1, 1, 0, 1}});

  // A daemon that knows a commit of another by its change notice alone.
  REQUIRE(b.Run(b.Ask(12, "s", true)).kind == OutcomeKind::kQueued);
  check({2, 1, 0, {1, 1, 0, 1}});
  ReleaseCommand release;
  release.requester = {"client20", 1};
  release.semaphore = "s";
  release.claim = MakeId(10);
  REQUIRE(a.Run(release).kind == OutcomeKind::kReleased);
  check({2, 0, 0, {1, 1, 0, 1}});
  b.Await(Event::Kind::kGranted, 1);
  REQUIRE(b.Administer(AdminRequeue{}, "admin").kind == OutcomeKind::kDone);
  check({2, 0, 0, {2, 1, 0, 0}});
  REQUIRE(b.Run(b.Offer(903)).kind == OutcomeKind::kQueued);
  check({2, 0, 1, {2, 1, 0, 0}});
}

TEST_CASE("dynamodb lists: a list asks for its pages, and for no semaphore by itself",
          "[dynamodb]") {
  constexpr uint64_t kFew = 3;
  constexpr uint64_t kMany = 250;
  StoreTable table;
  OneLane writer(table, "writer");
  EnqueueIn(&writer, 1, kFew, "few/");
  EnqueueIn(&writer, 1001, kMany, "many/");
  Relay relay(table.port());
  OneLane reader(table, "reader", absl::StrCat("http://127.0.0.1:", relay.port()));
  const auto requests = [&](const std::string& prefix, uint64_t semaphores, uint64_t tickets) {
    const uint64_t before = relay.http_requests();
    const Outcome list = reader.Run(ListCommand{prefix, "", kListed});
    const uint64_t after = relay.http_requests();
    CHECK(list.report->infos.size() == semaphores);
    uint64_t queued = 0;
    for (const SemaphoreInfo& info : list.report->infos) queued += info.tickets.queued;
    CHECK(queued == tickets);
    return after - before;
  };
  // The names, and the heads of a hundred at a time.
  CHECK(requests("few/", kFew, kFew) == 2);
  CHECK(requests("many/", kMany, kMany) == 4);
  // After changes it is the same.
  EnqueueCommand more = JobIn(writer, 2001, "few/1");
  REQUIRE(writer.Run(more).kind == OutcomeKind::kEnqueued);
  CHECK(requests("few/", kFew, kFew + 1) == 2);
  CHECK(requests("few/1", 1, 2) == 2);
}

}  // namespace
}  // namespace semaphored::dynamodb
