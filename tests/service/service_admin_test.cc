// Administer: every act and question, as a client sees it.
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

pb::AdministerRequest On(const std::string& semaphore) {
  pb::AdministerRequest request;
  request.set_semaphore(semaphore);
  return request;
}

pb::AdministerRequest Create(const std::string& semaphore, uint32_t limit) {
  pb::AdministerRequest request = On(semaphore);
  request.mutable_create()->set_limit(limit);
  return request;
}

TEST_CASE("administer: create, describe, configure", "[service]") {
  World world;
  pb::AdministerResponse response;
  pb::AdministerRequest create = Create("a", 3);
  create.mutable_create()->mutable_settings()->set_backfill(true);
  REQUIRE(Say(world.Administer(create, &response)) == "OK");
  CHECK(response.changed());
  CHECK(response.semaphore().limit() == 3);
  CHECK(response.semaphore().settings().backfill());
  CHECK(response.semaphore().settings().recall_grace_ms() == 30'000);
  CHECK(response.semaphore().revision() > 0);

  REQUIRE(Say(world.Administer(create, &response)) == "OK");
  CHECK_FALSE(response.changed());
  CHECK(Say(world.Administer(Create("a", 4), &response)) == "ALREADY_EXISTS ALREADY_EXISTS");

  pb::AdministerRequest configure = On("a");
  configure.mutable_configure()->mutable_settings()->set_recall_grace_ms(-1);
  configure.mutable_configure()->mutable_settings()->set_permits_per_holder(1);
  REQUIRE(Say(world.Administer(configure, &response)) == "OK");
  const pb::SemaphoreInfo info = world.Describe("a");
  CHECK_FALSE(info.settings().backfill());
  CHECK(info.settings().recall_grace_ms() == -1);
  CHECK(info.settings().permits_per_holder() == 1);

  configure.set_expected_revision(1);
  CHECK(Say(world.Administer(configure, &response)) == "ABORTED REVISION_MISMATCH");
}

TEST_CASE("administer: describe lists who holds and who waits", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  grpc::CompletionQueue queue;
  Context context;
  const pb::AcquireRequest request = world.Request("a", 1, -1);
  auto call = world.stub().AsyncAcquire(&context, request, &queue);
  pb::AcquireResponse response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));
  const pb::SemaphoreInfo info = world.Describe("a");
  CHECK(info.held() == 1);
  REQUIRE(info.leases_size() == 1);
  CHECK(info.leases(0).lease().lease_id() == lease.lease_id());
  CHECK(info.leases(0).granted_at_unix_ms() > 0);
  CHECK_FALSE(info.leases(0).node().empty());
  REQUIRE(info.waiters_size() == 1);
  CHECK(info.waiters(0).position() == 1);
  CHECK(info.waiters(0).permits() == 1);
  CHECK(info.waiters(0).queued_at_unix_ms() > 0);
  context.TryCancel();
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST_CASE("administer: resize", "[service]") {
  World world;
  pb::AdministerResponse response;
  pb::AdministerRequest resize = On("a");
  resize.mutable_resize()->set_limit(2);
  CHECK(Say(world.Administer(resize, &response)) == "NOT_FOUND NO_SUCH_SEMAPHORE");
  world.MustAcquire("a", 1);
  REQUIRE(Say(world.Administer(resize, &response)) == "OK");
  CHECK(response.semaphore().limit() == 2);
  resize.mutable_resize()->set_add(3);
  REQUIRE(Say(world.Administer(resize, &response)) == "OK");
  CHECK(response.semaphore().limit() == 5);
  resize.mutable_resize()->set_remove(6);
  CHECK(Say(world.Administer(resize, &response)) == "INVALID_ARGUMENT INVALID_FIELD");
  resize.mutable_resize()->set_limit(0);
  resize.mutable_resize()->set_policy(pb::SHRINK_POLICY_REFUSE);
  CHECK(Say(world.Administer(resize, &response)) == "FAILED_PRECONDITION WOULD_OVERSHOOT");
  resize.mutable_resize()->set_policy(pb::SHRINK_POLICY_WAIT);
  REQUIRE(Say(world.Administer(resize, &response)) == "OK");
  CHECK(response.semaphore().limit() == 0);
  CHECK(response.semaphore().held() == 1);
}

TEST_CASE("administer: pause, resume, drain", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 2);
  pb::AdministerResponse response;
  pb::AdministerRequest pause = On("a");
  pause.mutable_pause();
  REQUIRE(Say(world.Administer(pause, &response)) == "OK");
  CHECK(response.semaphore().paused());
  {
    Context context;
    pb::AcquireResponse acquired;
    CHECK(Say(world.stub().Acquire(&context, world.Request("a", 2), &acquired)) ==
          "FAILED_PRECONDITION PAUSED");
  }
  pb::AdministerRequest resume = On("a");
  resume.mutable_resume();
  REQUIRE(Say(world.Administer(resume, &response)) == "OK");
  CHECK_FALSE(response.semaphore().paused());

  pb::AdministerRequest drain = On("a");
  drain.mutable_drain()->set_wait_ms(0);
  REQUIRE(Say(world.Administer(drain, &response)) == "OK");
  CHECK_FALSE(response.done());
  REQUIRE(response.semaphore().leases_size() == 1);
  CHECK(response.semaphore().leases(0).lease().lease_id() == lease.lease_id());
  CHECK(world.Release(lease) == 1);
  drain.mutable_drain()->set_wait_ms(10'000);
  REQUIRE(Say(world.Administer(drain, &response)) == "OK");
  CHECK(response.done());
  CHECK(response.semaphore().paused());
}

TEST_CASE("administer: revoke", "[service]") {
  World world;
  const pb::Lease one = world.MustAcquire("a", 5);
  world.MustAcquire("a", 5);
  const pb::Lease three = world.MustAcquire("a", 5);
  pb::AdministerResponse response;
  pb::AdministerRequest revoke = On("a");
  revoke.mutable_revoke()->set_lease_id(one.lease_id());
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.affected() == 1);
  CHECK(response.semaphore().held() == 2);
  revoke.mutable_revoke()->clear_lease_id();
  revoke.mutable_revoke()->set_holder(three.holder());
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.affected() == 1);
  revoke.mutable_revoke()->clear_holder();
  revoke.mutable_revoke()->set_all(true);
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.affected() == 1);
  CHECK(response.semaphore().held() == 0);
}

TEST_CASE("administer: destroy", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  pb::AdministerResponse response;
  pb::AdministerRequest destroy = On("a");
  destroy.mutable_destroy();
  CHECK(Say(world.Administer(destroy, &response)) == "FAILED_PRECONDITION IN_USE");
  destroy.mutable_destroy()->set_policy(pb::DESTROY_POLICY_WAIT);
  REQUIRE(Say(world.Administer(destroy, &response)) == "OK");
  CHECK_FALSE(response.done());
  CHECK(response.semaphore().destroying());
  CHECK(world.Release(lease) == 1);
  CHECK(Say(world.Administer(destroy, &response)) == "NOT_FOUND NO_SUCH_SEMAPHORE");

  const pb::Lease again = world.MustAcquire("a", 1);
  CHECK(again.token() > lease.token());
  destroy.mutable_destroy()->set_policy(pb::DESTROY_POLICY_FORCE);
  REQUIRE(Say(world.Administer(destroy, &response)) == "OK");
  CHECK(response.done());
  CHECK(response.changed());
  CHECK_FALSE(response.has_semaphore());
  CHECK(world.Release(again) == 0);
}

TEST_CASE("administer: list and history, page by page", "[service]") {
  World world;
  for (const char* name : {"x/1", "x/2", "x/3", "y"}) world.Release(world.MustAcquire(name, 1));
  pb::AdministerResponse response;
  pb::AdministerRequest list;
  list.mutable_list()->set_prefix("x/");
  list.mutable_list()->set_rows_max(2);
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  REQUIRE(response.semaphores_size() == 2);
  CHECK(response.semaphores(0).semaphore() == "x/1");
  CHECK(response.more());
  list.mutable_list()->set_after("x/2");
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  REQUIRE(response.semaphores_size() == 1);
  CHECK(response.semaphores(0).semaphore() == "x/3");
  CHECK_FALSE(response.more());

  world.Release(world.MustAcquire("y", 1));
  pb::AdministerRequest history = On("y");
  history.mutable_history()->set_rows_max(1);
  REQUIRE(Say(world.Administer(history, &response)) == "OK");
  REQUIRE(response.history_size() == 1);
  CHECK(response.more());
  CHECK(response.history(0).cause() == pb::END_CAUSE_RELEASED);
  CHECK(response.history(0).semaphore() == "y");
  CHECK(response.history(0).ended_at_unix_ms() > 0);
  const uint64_t newest = response.history(0).token();
  history.mutable_history()->set_before(response.history(0).number());
  REQUIRE(Say(world.Administer(history, &response)) == "OK");
  REQUIRE(response.history_size() == 1);
  CHECK(response.history(0).token() < newest);
  CHECK_FALSE(response.more());
}

TEST_CASE("administer: prune", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  pb::AdministerResponse response;
  pb::AdministerRequest prune = On("a");
  prune.mutable_prune();
  REQUIRE(Say(world.Administer(prune, &response)) == "OK");
  CHECK(response.affected() == 0);
}

}  // namespace
}  // namespace semaphored::test
