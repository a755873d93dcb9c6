// Random batches through the rules: what a transaction says is exactly what it did, and Revert
// takes back all of it.
#include "adapters/ledger/state/transaction.h"

#include <algorithm>
#include <map>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

// Sends any command that the rules know, about a few semaphores, sessions and clients.
class RandomCommands {
 public:
  RandomCommands(Bench* bench, uint32_t seed) : bench_(bench), random_(seed) {}

  void One() {
    bench_->context.client = Below(3);
    bench_->context.self = {1, Below(2) + 1};
    switch (Below(15)) {
      case 0:
        return Administer();
      case 1:
        return TouchSession();
      case 2:
        return Touch();
      case 3:
      case 4:
      case 5:
        return TakeBack();
      case 6:
      case 7:
        return Enqueue();
      case 8:
      case 9:
        return Take();
      case 10:
        return Finish();
      default:
        return Ask();
    }
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  std::string Name() { return std::string(1, static_cast<char>('a' + Below(3))); }
  Id Session() { return MakeId(1'000'000 + Below(3)); }
  uint64_t Known() { return Below(static_cast<uint32_t>(claims_) + 1); }
  // Of the last ones: those before are mostly gone.
  Id KnownTicket() {
    return MakeId(2'000'000 + tickets_ - std::min(tickets_, uint64_t{Below(20)}));
  }
  uint64_t KnownClaim() { return claims_ - std::min(claims_, uint64_t{Below(20)}); }

  void Enqueue() {
    EnqueueCommand command;
    command.semaphore = Name();
    command.ticket = MakeId(2'000'000 + ++tickets_);
    command.limit = Below(4) == 0 ? 0 : Below(5) + 1;
    command.adopt_limit = true;
    command.priority = static_cast<int32_t>(Below(3));
    command.delay_ms = Below(3) == 0 ? 100 : 0;
    command.max_attempts = Below(3);
    command.payload = std::make_shared<const std::string>("payload");
    if (bench_->context.client != 0) command.requester = {"c", ++sequence_};
    ledger::Enqueue(*bench_->editor, command, bench_->context);
  }

  void Take() {
    TakeCommand command;
    command.semaphore = Name();
    command.claim = MakeId(++claims_);
    command.session = Below(3) == 0 ? Session() : command.claim;
    command.holder = std::string(1, static_cast<char>('x' + Below(2)));
    command.keep = static_cast<OfferKept>(Below(3));
    ledger::Take(*bench_->editor, command, bench_->context);
  }

  void Finish() {
    if (Below(3) == 0) {
      ledger::Ripen(*bench_->editor, {Name(), KnownTicket(), Below(3)}, bench_->context);
      return;
    }
    FinishCommand command;
    command.semaphore = Name();
    command.claim = MakeId(KnownClaim());
    command.result = static_cast<FinishCommand::Result>(Below(4));
    command.reason = "because";
    if (Below(2) == 0) command.retry_after_ms = Below(2) * 100;
    if (bench_->context.client != 0) command.requester = {"c", ++sequence_};
    ledger::Finish(*bench_->editor, command, bench_->context);
  }

  void Ask() {
    AcquireCommand command = AcquireOf(Name(), ++claims_, Below(3) + 1, Below(2) == 0);
    command.limit = Below(4) == 0 ? 0 : Below(5) + 1;
    command.adopt_limit = true;
    command.priority = static_cast<int32_t>(Below(3));
    command.holder = std::string(1, static_cast<char>('x' + Below(2)));
    if (Below(3) == 0) command.session = Session();
    if (bench_->context.client != 0) command.requester = {"c", ++sequence_};
    Acquire(*bench_->editor, command, bench_->context);
  }

  void TakeBack() {
    if (Below(3) == 0) {
      EndCommand command;
      command.semaphore = Name();
      command.claim = MakeId(Known());
      End(*bench_->editor, command, bench_->context);
      return;
    }
    ReleaseCommand command = ReleaseOf(Name(), Known());
    if (bench_->context.client != 0) command.requester = {"c", ++sequence_};
    if (Below(2) == 0) command.slots = {Below(3) + 1};
    Release(*bench_->editor, command, bench_->context);
  }

  void Touch() {
    if (Below(2) == 0) {
      Adopt(*bench_->editor, {Name(), MakeId(Known())}, bench_->context);
      return;
    }
    const Recall recall{Recall::Reason::kLongestHold, Below(2) * 500};
    RecallLease(*bench_->editor, {Name(), MakeId(Known()), recall}, bench_->context);
  }

  void TouchSession() {
    switch (Below(4)) {
      case 0:
        CloseSession(*bench_->editor, {Session(), 0, EndCause::kExpired}, bench_->context);
        return;
      case 1:
        AdoptSession(*bench_->editor, {Session()}, bench_->context);
        return;
      default:
        OpenSession(*bench_->editor, {Session(), "c", 500, "h", false}, bench_->context);
        return;
    }
  }

  void Administer() {
    const Settings settings{.backfill = Below(2) == 0, .permits_per_holder = Below(3)};
    AdminCommand command = AdminOf(Name(), AdminPause{Below(2) == 0});
    const auto policy = static_cast<ShrinkPolicy>(Below(3));
    const Id ticket = Below(2) == 0 ? Id() : KnownTicket();
    switch (Below(10)) {
      case 6:
        command.act = AdminCancelTicket{KnownTicket(), Below(2) == 0};
        break;
      case 7:
        command.act = AdminPrioritizeTicket{KnownTicket(), static_cast<int32_t>(Below(3))};
        break;
      case 8:
        command.act = AdminRequeue{ticket};
        break;
      case 9:
        command.act = AdminPurge{ticket};
        break;
      case 0:
        command.act = AdminCreate{Below(5) + 1, settings};
        break;
      case 1:
        command.act = AdminResize{AdminResize::Change::kSet, Below(6), 100, policy, Below(2) * 9};
        break;
      case 2:
        command.act = AdminConfigure{settings};
        break;
      case 3:
        command.act = AdminDestroy{static_cast<DestroyPolicy>(Below(3))};
        break;
      case 4:
        command.act = AdminRevoke{{}, Below(2) == 0 ? "x" : "", Below(2) * 9};
        break;
      default:
        break;
    }
    ledger::Administer(*bench_->editor, command, bench_->context);
  }

  Bench* bench_;
  std::mt19937 random_;
  uint64_t claims_ = 0;
  uint64_t tickets_ = 0;
  uint64_t sequence_ = 0;
};

// What a store makes of transactions: only from what stands in them, checking that each change fits
// what is there.
class Mirror {
 public:
  void Carry(const Transaction& transaction) {
    for (const SemaphoreDelta& delta : transaction.semaphores) CarrySemaphore(delta);
    for (const SessionChange& change : transaction.sessions) {
      REQUIRE(sessions_.contains((change.before ? change.before : change.after)->id) ==
              (change.before != nullptr));
      if (change.after) sessions_[change.after->id] = change.after;
      if (!change.after) sessions_.erase(change.before->id);
    }
  }

  void CheckSame(const LedgerState& state) const {
    LedgerState built;
    for (const auto& [name, stored] : semaphores_) {
      Semaphore* semaphore = built.Insert(stored.row);
      semaphore->row.revision = state.Find(name) ? state.Find(name)->row.revision : 0;
      for (const auto& [id, lease] : stored.leases) {
        built.Apply(semaphore, LeaseChange{nullptr, lease, EndCause::kNone});
      }
      for (const auto& [id, waiter] : stored.waiters) {
        built.Apply(semaphore, WaiterChange{nullptr, waiter, EndCause::kNone});
      }
      for (const auto& [id, ticket] : stored.tickets)
        built.Apply(semaphore, TicketChange{nullptr, ticket, nullptr});
    }
    for (const auto& [id, session] : sessions_) built.Apply(SessionChange{nullptr, session});
    REQUIRE(Picture(built) == Picture(state));
  }

 private:
  struct Stored {
    SemaphoreRow row;
    std::map<Id, LeasePtr> leases;
    std::map<Id, WaiterPtr> waiters;
    std::map<Id, TicketPtr> tickets;
  };

  template <typename Rows, typename Row>
  static void CarryRow(Rows* rows, const Row& before, const Row& after) {
    if (before) {
      REQUIRE(rows->contains(before->id));
      REQUIRE(rows->at(before->id) == before);
      rows->erase(before->id);
    }
    if (after) {
      REQUIRE_FALSE(rows->contains(after->id));
      rows->emplace(after->id, after);
    }
  }

  void CarrySemaphore(const SemaphoreDelta& delta) {
    REQUIRE(semaphores_.contains(delta.name) == delta.before.has_value());
    Stored& stored = semaphores_[delta.name];
    for (const LeaseChange& change : delta.leases)
      CarryRow(&stored.leases, change.before, change.after);
    for (const WaiterChange& change : delta.waiters)
      CarryRow(&stored.waiters, change.before, change.after);
    for (const TicketChange& change : delta.tickets) {
      // The payload comes with the ticket, and never again.
      REQUIRE((change.payload != nullptr) == (change.before == nullptr));
      CarryRow(&stored.tickets, change.before, change.after);
    }
    if (delta.after) {
      stored.row = *delta.after;
      return;
    }
    REQUIRE(stored.leases.empty());
    REQUIRE(stored.waiters.empty());
    REQUIRE(stored.tickets.empty());
    semaphores_.erase(delta.name);
  }

  std::map<std::string, Stored> semaphores_;
  std::map<Id, SessionPtr> sessions_;
};

}  // namespace

TEST_CASE("a transaction says exactly what it did, and a lost one leaves no trace") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Bench bench;
    RandomCommands commands(&bench, seed);
    Mirror mirror;
    std::mt19937 random(seed);
    for (int batch = 0; batch < 60; ++batch) {
      INFO("batch " << batch);
      const std::string before = Picture(bench.state);
      const uint64_t size = random() % 12 + 1;
      for (uint64_t i = 0; i < size; ++i) {
        commands.One();
        REQUIRE(bench.state.CheckInvariants() == "");
      }
      if (random() % 3 == 0) {
        bench.Lose();
        REQUIRE(Picture(bench.state) == before);
      } else {
        bench.editor->Finish();
        mirror.Carry(bench.transaction);
        bench.Win();
        mirror.CheckSame(bench.state);
      }
      REQUIRE(bench.state.CheckInvariants() == "");
    }
  }
}

TEST_CASE("an editor that did nothing leaves an empty transaction") {
  Bench bench;
  CHECK(bench.transaction.empty());
  bench.editor->Finish();
  CHECK(bench.transaction.empty());
}

TEST_CASE("a semaphore destroyed and made anew in one batch is one change of one row") {
  Bench bench;
  Acquire(
      *bench.editor,
      [] {
        auto c = AcquireOf("s", 1);
        c.limit = 2;
        return c;
      }(),
      bench.context);
  bench.Win();
  const std::string before = Picture(bench.state);
  const SemaphoreRow row = bench.state.Find("s")->row;
  Administer(*bench.editor, AdminOf("s", AdminDestroy{DestroyPolicy::kForce}), bench.context);
  Administer(*bench.editor, AdminOf("s", AdminCreate{7, {}}), bench.context);
  bench.editor->Finish();
  REQUIRE(bench.transaction.semaphores.size() == 1);
  const SemaphoreDelta& delta = bench.transaction.semaphores[0];
  REQUIRE(delta.before);
  CHECK(*delta.before == row);
  REQUIRE(delta.after);
  CHECK(delta.after->limit == 7);
  bench.Lose();
  CHECK(Picture(bench.state) == before);
}

TEST_CASE("a semaphore that comes and goes in one batch was never there") {
  Bench bench;
  const std::string before = Picture(bench.state);
  Administer(*bench.editor, AdminOf("s", AdminCreate{1, {}}), bench.context);
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  Administer(*bench.editor, AdminOf("s", AdminDestroy{DestroyPolicy::kForce}), bench.context);
  bench.editor->Finish();
  REQUIRE(bench.transaction.semaphores.size() == 1);
  CHECK_FALSE(bench.transaction.semaphores[0].before);
  CHECK_FALSE(bench.transaction.semaphores[0].after);
  CHECK(bench.transaction.history.size() == 1);
  bench.Lose();
  CHECK(Picture(bench.state) == before);
}

}  // namespace semaphored::ledger
