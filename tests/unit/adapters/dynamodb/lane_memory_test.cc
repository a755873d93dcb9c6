// What a lane remembers: which claims are this daemon's, and what of a semaphore the next commit rests upon.
#include "adapters/dynamodb/lane_memory.h"

#include <memory>
#include <string>

#include "catch2/catch_test_macros.hpp"

namespace semaphored::dynamodb {
namespace {

constexpr NodeRef kSelf{1, 5};
constexpr NodeRef kEarlier{1, 4};
constexpr NodeRef kOther{2, 1};

Id IdOf(uint64_t number) { return {9, number}; }

WaiterPtr Waits(uint64_t number, NodeRef host, const Id& session = {}) {
  auto waiter = std::make_shared<Waiter>();
  waiter->id = IdOf(number);
  waiter->session = session.empty() ? waiter->id : session;
  waiter->host = host;
  return waiter;
}

LeasePtr Holds(uint64_t number, NodeRef host) {
  auto lease = std::make_shared<Lease>();
  lease->id = lease->session = IdOf(number);
  lease->host = host;
  return lease;
}

ledger::SessionPtr SessionAt(const Id& id, NodeRef host) {
  auto session = std::make_shared<Session>();
  session->id = id;
  session->host = host;
  return session;
}

Folder FolderOf(const std::string& name, uint64_t revision) {
  Folder folder;
  folder.name = name;
  folder.exists = true;
  folder.head.row.revision = revision;
  folder.head.digest = 77;
  return folder;
}

TEST_CASE("dynamodb memory: own claims are counted, and those of other daemons are not") {
  LaneMemory memory(kSelf);
  Folder folder = FolderOf("s", 3);
  folder.waiters = {Waits(1, kSelf), Waits(2, kOther)};
  folder.leases = {Holds(3, kSelf), Holds(4, kOther), Holds(5, kEarlier)};
  memory.Keep(folder);
  CHECK((memory.waiting() == 1 && memory.holding() == 1));
  CHECK(memory.MayHost("s"));
  // Read again, nothing is counted twice.
  memory.Keep(folder);
  CHECK((memory.waiting() == 1 && memory.holding() == 1));
  memory.Keep(FolderOf("s", 4));
  CHECK((memory.waiting() == 0 && memory.holding() == 0));
  CHECK_FALSE(memory.MayHost("s"));
  CHECK(memory.MayHost("not read"));
}

TEST_CASE("dynamodb memory: the claims of a session come and go with it") {
  LaneMemory memory(kSelf);
  const Id session = IdOf(50);
  memory.SeeSession(session, SessionAt(session, kOther), {"s"});
  Folder folder = FolderOf("s", 3);
  folder.waiters = {Waits(1, kOther, session)};
  memory.Keep(folder);
  CHECK(memory.waiting() == 0);
  memory.WriteSession(SessionAt(session, kSelf));
  CHECK(memory.waiting() == 1);
  memory.WriteSession(SessionAt(session, kSelf));
  CHECK(memory.waiting() == 1);
  memory.WriteSession(SessionAt(session, kOther));
  CHECK(memory.waiting() == 0);
  CHECK(memory.IsIndexed(session, "s"));
  CHECK(memory.RemoveSession(session) == std::vector<std::string>{"s"});
  CHECK_FALSE(memory.IsIndexed(session, "s"));
  memory.Index(session, "s");  // Of a session that is not there nothing is kept.
  CHECK(memory.RemoveSession(session).empty());
}

TEST_CASE("dynamodb memory: a change notice is followed only from the revision before it") {
  LaneMemory memory(kSelf);
  Folder folder = FolderOf("s", 3);
  folder.waiters = {Waits(1, kSelf), Waits(2, kSelf)};
  memory.Keep(folder);
  SentDetails told;
  told.digest = 78;
  told.let_in = {IdOf(1)};
  told.gone = {IdOf(2)};
  CHECK_FALSE(memory.Follow("s", 5, told));
  CHECK_FALSE(memory.Follow("t", 4, told));
  CHECK((memory.waiting() == 2 && memory.Find("s")->digest == 77));
  CHECK(memory.Follow("s", 4, told));
  CHECK((memory.waiting() == 0 && memory.holding() == 1));
  CHECK((memory.Find("s")->revision == 4 && memory.Find("s")->digest == 78));
  CHECK_FALSE(memory.Follow("s", 4, told));
}

TEST_CASE("dynamodb memory: of what is damaged, what was known stays until it is read again") {
  LaneMemory memory(kSelf);
  memory.Keep(FolderOf("s", 3));
  Folder damaged = FolderOf("s", 9);
  damaged.damage = absl::DataLossError("x");
  memory.Keep(damaged);
  CHECK((memory.Find("s")->revision == 3 && absl::IsDataLoss(memory.Find("s")->damage)));
  CHECK_FALSE(memory.Follow("s", 4, {}));
  CHECK(memory.MayHost("s"));
  memory.Keep(FolderOf("s", 10));
  CHECK((memory.Find("s")->revision == 10 && memory.Find("s")->damage.ok()));
}

TEST_CASE("dynamodb memory: a commit that has won is what is known, also that it destroyed") {
  LaneMemory memory(kSelf);
  memory.Keep(FolderOf("s", 3));
  const LeasePtr lease = Holds(1, kSelf);
  LaneMemory::Written granted;
  granted.revision = 4;
  granted.digest = 80;
  granted.history_number = 6;
  granted.came = {{lease.get(), false}};
  memory.Keep("s", granted);
  CHECK((memory.holding() == 1 && memory.Find("s")->revision == 4));
  LaneMemory::Written destroyed;
  destroyed.digest = 81;
  destroyed.history_number = 7;
  destroyed.gone = {lease->id};
  memory.Keep("s", destroyed);
  CHECK((memory.holding() == 0 && memory.Find("s")->revision == 0));
  CHECK((memory.Find("s")->digest == 0 && memory.Find("s")->history_number == 7));
}

}  // namespace
}  // namespace semaphored::dynamodb
