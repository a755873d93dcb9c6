// Which rows of one-shot requests a lane counts, and when they may go, with a clock that the test moves.
#include "adapters/ledger/one_shots.h"

#include <chrono>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::ledger {
namespace {

using State = RequestRow::State;
using Op = RequestChange::Op;

struct Shots {
  SteadyTime now = SteadyClock::now();
  OneShots shots{Options()};

  LedgerOptions Options() {
    LedgerOptions options;
    options.one_shot_requests_max = 3;
    options.request_retention = std::chrono::seconds(60);
    options.now = [this] { return now; };
    return options;
  }
  // A commit that wins, and does this to requests. Returns what it forgets.
  std::vector<Id> Commit(const std::vector<RequestChange>& changes, size_t claims = 0) {
    shots.BeginBatch(claims);
    Transaction transaction;
    transaction.requests = changes;
    shots.Forget(&transaction);
    shots.Won(transaction);
    return transaction.forgotten_requests;
  }
  static RequestChange Change(Op op, uint64_t number, State state) {
    RequestRow row;
    row.request.one_shot = {number, number};
    row.state = state;
    return {op, row};
  }
};

TEST_CASE("one-shots: a row may go when its time has passed since its last state") {
  Shots shots;
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 1, State::kWaiting)}).empty());
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 2, State::kDone)}).empty());
  shots.now += std::chrono::seconds(30);
  CHECK(shots.Commit({Shots::Change(Op::kUpdate, 1, State::kGranted)}).empty());
  CHECK(shots.Commit({Shots::Change(Op::kUpdate, 1, State::kEnded)}).empty());
  // A numbered request, and a wait that was given up, are none of them.
  RequestChange numbered = Shots::Change(Op::kInsert, 0, State::kDone);
  numbered.row.request = {7, 1};
  CHECK(shots.Commit({numbered, Shots::Change(Op::kRemove, 9, State::kWaiting)}).empty());
  shots.now += std::chrono::milliseconds(29'999);
  CHECK(shots.Commit({numbered}).empty());
  shots.now += std::chrono::milliseconds(1);
  CHECK(shots.Commit({numbered}) == std::vector<Id>{{2, 2}});
  CHECK(shots.Commit({numbered}).empty());
  shots.now += std::chrono::seconds(30);
  CHECK(shots.Commit({numbered}) == std::vector<Id>{{1, 1}});
}

TEST_CASE("one-shots: what a former life left counts from when it is known") {
  Shots shots;
  shots.shots.Add({5, 5});
  shots.now += std::chrono::seconds(59);
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 1, State::kDone)}).empty());
  shots.now += std::chrono::seconds(1);
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 2, State::kDone)}) == std::vector<Id>{{5, 5}});
}

TEST_CASE("one-shots: a commit that loses forgets nothing") {
  Shots shots;
  shots.Commit({Shots::Change(Op::kInsert, 1, State::kDone)});
  shots.now += std::chrono::seconds(60);
  const RequestChange next = Shots::Change(Op::kInsert, 2, State::kDone);
  shots.shots.BeginBatch(0);
  Transaction lost;
  lost.requests = {next};
  shots.shots.Forget(&lost);
  CHECK(lost.forgotten_requests.size() == 1);
  CHECK(shots.Commit({next}) == std::vector<Id>{{1, 1}});
}

TEST_CASE("one-shots: claims, rows that are kept and new ones count, what may go does not") {
  Shots shots;
  shots.Commit({Shots::Change(Op::kInsert, 1, State::kDone)});
  shots.shots.BeginBatch(/*claims=*/1);
  CHECK(shots.shots.HasRoom());
  shots.shots.AddNew();
  CHECK_FALSE(shots.shots.HasRoom());
  shots.shots.BeginBatch(2);
  CHECK_FALSE(shots.shots.HasRoom());
  shots.now += std::chrono::seconds(60);
  shots.shots.BeginBatch(2);
  CHECK(shots.shots.HasRoom());
  // Without anything else to write a row goes only for want of room.
  Transaction nothing;
  shots.shots.Forget(&nothing);
  CHECK(nothing.forgotten_requests.size() == 1);
  shots.shots.BeginBatch(1);
  Transaction still;
  shots.shots.Forget(&still);
  CHECK(still.empty());
}

TEST_CASE("one-shots: an id that the batch itself writes is not forgotten with it") {
  Shots shots;
  shots.Commit({Shots::Change(Op::kInsert, 1, State::kDone)});
  shots.Commit({Shots::Change(Op::kInsert, 2, State::kDone)});
  shots.now += std::chrono::seconds(60);
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 1, State::kDone)}) == std::vector<Id>{{2, 2}});
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 3, State::kDone)}).empty());
  shots.now += std::chrono::seconds(60);
  CHECK(shots.Commit({Shots::Change(Op::kInsert, 4, State::kDone)}) ==
        std::vector<Id>{{1, 1}, {3, 3}});
}

}  // namespace
}  // namespace semaphored::ledger
