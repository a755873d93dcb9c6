// Administer: every act and question, as a client sees it.
#include <google/protobuf/unknown_field_set.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>

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
  REQUIRE(response.has_create());
  CHECK(response.create().created());
  const pb::SemaphoreInfo created = response.create().semaphore();
  CHECK(created.limit() == 3);
  CHECK(created.settings().backfill());
  CHECK(created.settings().recall_grace_ms() == 30'000);
  CHECK(created.revision() > 0);
  CHECK(created.created_at().seconds() > 1'700'000'000);

  REQUIRE(Say(world.Administer(create, &response)) == "OK");
  CHECK_FALSE(response.create().created());
  CHECK(Say(world.Administer(Create("a", 4), &response)) == "ALREADY_EXISTS ALREADY_EXISTS");

  pb::AdministerRequest configure = On("a");
  configure.mutable_configure()->mutable_settings()->set_recall_grace_ms(0);
  configure.mutable_configure()->mutable_settings()->set_permits_per_holder(1);
  REQUIRE(Say(world.Administer(configure, &response)) == "OK");
  const pb::SemaphoreInfo info = world.Describe("a");
  CHECK_FALSE(info.settings().backfill());
  CHECK(info.settings().has_recall_grace_ms());
  CHECK(info.settings().recall_grace_ms() == 0);
  CHECK(info.settings().permits_per_holder() == 1);

  configure.set_expected_revision(1);
  CHECK(Say(world.Administer(configure, &response)) == "ABORTED REVISION_MISMATCH");
}

TEST_CASE("administer: describe lists who holds and who waits", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 1);
  grpc::CompletionQueue queue;
  Context context;
  pb::AcquireRequest request = world.Request("a", 1);
  request.set_wait_forever(true);
  auto call = world.stub().AsyncAcquire(&context, request, &queue);
  pb::AcquireResponse response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  REQUIRE(world.Becomes("a", [](const auto& info) { return info.waiting() == 1; }));
  pb::AdministerRequest describe = On("a");
  describe.mutable_describe();
  pb::AdministerResponse described;
  REQUIRE(Say(world.Administer(describe, &described)) == "OK");
  const pb::DescribeSemaphoreResult& result = described.describe();
  CHECK(result.semaphore().held() == 1);
  REQUIRE(result.leases_size() == 1);
  CHECK(result.leases(0).lease().lease_id() == lease.lease_id());
  CHECK(result.leases(0).granted_at().seconds() > 1'700'000'000);
  CHECK_FALSE(result.leases(0).node().empty());
  REQUIRE(result.waiters_size() == 1);
  CHECK(result.waiters(0).position() == 1);
  CHECK(result.waiters(0).permits() == 1);
  CHECK(result.waiters(0).queued_at().seconds() > 1'700'000'000);
  CHECK(result.next_page_token().empty());
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
  CHECK(response.resize().semaphore().limit() == 2);
  resize.mutable_resize()->set_add(3);
  REQUIRE(Say(world.Administer(resize, &response)) == "OK");
  CHECK(response.resize().semaphore().limit() == 5);
  resize.mutable_resize()->set_remove(6);
  CHECK(Say(world.Administer(resize, &response)) == "INVALID_ARGUMENT INVALID_FIELD");
  resize.mutable_resize()->set_limit(0);
  resize.mutable_resize()->set_policy(pb::SHRINK_POLICY_REFUSE);
  CHECK(Say(world.Administer(resize, &response)) == "FAILED_PRECONDITION WOULD_OVERSHOOT");
  resize.mutable_resize()->set_policy(pb::SHRINK_POLICY_WAIT);
  REQUIRE(Say(world.Administer(resize, &response)) == "OK");
  CHECK(response.resize().semaphore().limit() == 0);
  CHECK(response.resize().semaphore().held() == 1);
}

TEST_CASE("administer: pause, resume, drain", "[service]") {
  World world;
  const pb::Lease lease = world.MustAcquire("a", 2);
  pb::AdministerResponse response;
  pb::AdministerRequest pause = On("a");
  pause.mutable_pause();
  REQUIRE(Say(world.Administer(pause, &response)) == "OK");
  CHECK(response.pause().semaphore().paused());
  {
    Context context;
    pb::AcquireResponse acquired;
    CHECK(Say(world.stub().Acquire(&context, world.Request("a", 2), &acquired)) ==
          "FAILED_PRECONDITION PAUSED");
  }
  pb::AdministerRequest resume = On("a");
  resume.mutable_resume();
  REQUIRE(Say(world.Administer(resume, &response)) == "OK");
  REQUIRE(response.has_resume());
  CHECK_FALSE(response.resume().semaphore().paused());

  pb::AdministerRequest drain = On("a");
  drain.mutable_drain()->set_wait_ms(0);
  REQUIRE(Say(world.Administer(drain, &response)) == "OK");
  CHECK_FALSE(response.drain().drained());
  REQUIRE(response.drain().leases_size() == 1);
  CHECK(response.drain().leases(0).lease().lease_id() == lease.lease_id());
  CHECK(world.Release(lease) == 1);
  drain.mutable_drain()->set_wait_ms(10'000);
  REQUIRE(Say(world.Administer(drain, &response)) == "OK");
  CHECK(response.drain().drained());
  CHECK(response.drain().semaphore().paused());
}

TEST_CASE("administer: revoke", "[service]") {
  World world;
  const pb::Lease one = world.MustAcquire("a", 5);
  world.MustAcquire("a", 5);
  const pb::Lease three = world.MustAcquire("a", 5);
  pb::AdministerResponse response;
  pb::AdministerRequest revoke = On("a");
  revoke.mutable_revoke()->set_now(true);
  revoke.mutable_revoke()->set_lease_id(one.lease_id());
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.revoke().revoked() == 1);
  CHECK(response.revoke().semaphore().held() == 2);
  revoke.mutable_revoke()->clear_lease_id();
  revoke.mutable_revoke()->set_holder(three.holder());
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.revoke().revoked() == 1);
  revoke.mutable_revoke()->clear_holder();
  revoke.mutable_revoke()->set_all(true);
  REQUIRE(Say(world.Administer(revoke, &response)) == "OK");
  CHECK(response.revoke().revoked() == 1);
  CHECK(response.revoke().semaphore().held() == 0);
}

TEST_CASE(
    "administer: what waits for its effect counts as a call no longer than its client is there",
    "[service]") {
  ServerOptions options;
  options.limits.calls_max = 1;
  World world(options);
  world.MustAcquire("a", 1);
  // A stream tells when the act is done: a question would be a call itself.
  Context watch_context;
  auto watch = world.stub().Watch(&watch_context, {});
  pb::WatchResponse event;
  REQUIRE(watch->Read(&event));
  pb::AdministerRequest act = On("a");
  SECTION("a drain") { act.mutable_drain()->set_wait_ms(600'000); }
  SECTION("a destroy") {
    act.mutable_destroy()->set_policy(pb::DESTROY_POLICY_WAIT);
    act.mutable_destroy()->set_wait_ms(600'000);
  }
  Context context;
  pb::AdministerResponse response;
  std::future<grpc::Status> done = std::async(
      std::launch::async, [&] { return world.stub().Administer(&context, act, &response); });
  while (!event.semaphore().paused() && !event.semaphore().destroying())
    REQUIRE(watch->Read(&event));
  const auto another = [&] {
    Context other;
    pb::RenewRequest renew;
    renew.set_lease_id("a#00000000000000000000000000000001");
    pb::RenewResponse renewed;
    return Say(world.stub().Renew(&other, renew, &renewed));
  };
  CHECK(another() == "RESOURCE_EXHAUSTED LIMIT_REACHED");
  context.TryCancel();
  CHECK(Say(done.get()).starts_with("CANCELLED"));
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::string said;
  do said = another();
  while (said != "NOT_FOUND NOT_HELD" && std::chrono::steady_clock::now() < until);
  CHECK(said == "NOT_FOUND NOT_HELD");
  watch_context.TryCancel();
}

TEST_CASE("administer: a request that is longer than any act is refused", "[service]") {
  World world;
  pb::AdministerResponse response;
  pb::AdministerRequest list;
  list.mutable_list();
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  // It would be kept while its answer is composed.
  list.GetReflection()->MutableUnknownFields(&list)->AddLengthDelimited(1'000,
                                                                        std::string(1 << 20, 'x'));
  const grpc::Status refused = world.Administer(list, &response);
  CHECK(Say(refused) == "INVALID_ARGUMENT INVALID_FIELD");
  CHECK(refused.error_message().starts_with("the request must be at most 4096 bytes, not 10485"));
  list.Clear();
  list.mutable_list()->set_prefix(std::string(1 << 20, 'x'));
  CHECK(world.Administer(list, &response).error_message().starts_with("the request must be"));
  // The longest that there are.
  const std::string name(255, 'n');
  REQUIRE(Say(world.Administer(Create(name, 1), &response)) == "OK");
  pb::AdministerRequest revoke = On(name);
  revoke.mutable_request_id()->mutable_numbered()->set_client_id(std::string(128, 'c'));
  revoke.mutable_request_id()->mutable_numbered()->set_sequence(1);
  revoke.mutable_revoke()->set_holder(std::string(256, 'h'));
  CHECK_FALSE(Say(world.Administer(revoke, &response)).starts_with("INVALID_ARGUMENT"));
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
  CHECK_FALSE(response.destroy().gone());
  CHECK(response.destroy().semaphore().destroying());
  CHECK(world.Release(lease) == 1);
  CHECK(Say(world.Administer(destroy, &response)) == "NOT_FOUND NO_SUCH_SEMAPHORE");

  const pb::Lease again = world.MustAcquire("a", 1);
  CHECK(again.token() > lease.token());
  destroy.mutable_destroy()->set_now(true);
  CHECK(Say(world.Administer(destroy, &response)) == "INVALID_ARGUMENT INVALID_FIELD");
  destroy.mutable_destroy()->set_policy(pb::DESTROY_POLICY_FORCE);
  destroy.mutable_destroy()->set_grace_ms(1);
  CHECK(Say(world.Administer(destroy, &response)) == "INVALID_ARGUMENT INVALID_FIELD");
  destroy.mutable_destroy()->set_now(false);
  REQUIRE(Say(world.Administer(destroy, &response)) == "OK");
  CHECK_FALSE(response.destroy().gone());
  destroy.mutable_destroy()->clear_grace_ms();
  destroy.mutable_destroy()->set_now(true);
  REQUIRE(Say(world.Administer(destroy, &response)) == "OK");
  CHECK(response.destroy().gone());
  CHECK(response.destroy().changed());
  CHECK_FALSE(response.destroy().has_semaphore());
  CHECK(world.Release(again) == 0);
}

TEST_CASE("administer: list and history, page by page", "[service]") {
  World world;
  for (const char* name : {"x/1", "x/2", "x/3", "y"}) world.Release(world.MustAcquire(name, 1));
  pb::AdministerResponse response;
  pb::AdministerRequest list;
  list.mutable_list()->set_prefix("x/");
  list.mutable_list()->set_page_size(2);
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  REQUIRE(response.list().semaphores_size() == 2);
  CHECK(response.list().semaphores(0).semaphore() == "x/1");
  list.mutable_list()->set_page_token(response.list().next_page_token());
  REQUIRE_FALSE(response.list().next_page_token().empty());
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  REQUIRE(response.list().semaphores_size() == 1);
  CHECK(response.list().semaphores(0).semaphore() == "x/3");
  CHECK(response.list().next_page_token().empty());

  world.Release(world.MustAcquire("y", 1));
  pb::AdministerRequest history = On("y");
  history.mutable_history()->set_page_size(1);
  REQUIRE(Say(world.Administer(history, &response)) == "OK");
  REQUIRE(response.history().rows_size() == 1);
  REQUIRE_FALSE(response.history().next_page_token().empty());
  CHECK(response.history().rows(0).cause() == pb::END_CAUSE_RELEASED);
  CHECK(response.history().rows(0).semaphore() == "y");
  CHECK(response.history().rows(0).ended_at().seconds() > 1'700'000'000);
  const uint64_t newest = response.history().rows(0).token();
  history.mutable_history()->set_page_token(response.history().next_page_token());
  REQUIRE(Say(world.Administer(history, &response)) == "OK");
  REQUIRE(response.history().rows_size() == 1);
  CHECK(response.history().rows(0).token() < newest);
  CHECK(response.history().next_page_token().empty());
}

// More rows than are read at once.
TEST_CASE("administer: a large page is complete, and the next one goes on behind it", "[service]") {
  World world;
  constexpr int kRows = 300;
  const auto name = [](int i) { return "s" + std::to_string(1000 + i); };
  for (int i = 0; i < kRows; ++i) world.Release(world.MustAcquire(name(i), 1));
  pb::AdministerResponse response;
  pb::AdministerRequest list;
  list.mutable_list()->set_page_size(200);
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  REQUIRE(response.list().semaphores_size() == 200);
  for (int i = 0; i < 200; ++i) REQUIRE(response.list().semaphores(i).semaphore() == name(i));
  list.mutable_list()->set_page_token(response.list().next_page_token());
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  REQUIRE(response.list().semaphores_size() == 100);
  CHECK(response.list().semaphores(0).semaphore() == name(200));
  CHECK(response.list().next_page_token().empty());
  list.mutable_list()->clear_page_token();
  list.mutable_list()->set_page_size(kRows);
  REQUIRE(Say(world.Administer(list, &response)) == "OK");
  CHECK(response.list().semaphores_size() == kRows);
  CHECK(response.list().next_page_token().empty());

  for (int i = 0; i < kRows; ++i) world.MustAcquire("held", kRows);
  pb::AdministerRequest describe = On("held");
  describe.mutable_describe()->set_page_size(250);
  REQUIRE(Say(world.Administer(describe, &response)) == "OK");
  CHECK(response.describe().semaphore().held() == kRows);
  REQUIRE(response.describe().leases_size() == 250);
  for (int i = 0; i < 250; ++i)
    REQUIRE(response.describe().leases(i).lease().slots(0).first() == static_cast<uint32_t>(i + 1));
  describe.mutable_describe()->set_page_token(response.describe().next_page_token());
  REQUIRE(Say(world.Administer(describe, &response)) == "OK");
  REQUIRE(response.describe().leases_size() == 50);
  CHECK(response.describe().next_page_token().empty());

  for (int i = 0; i < kRows; ++i) world.Release(world.MustAcquire("ended", 1));
  pb::AdministerRequest history = On("ended");
  history.mutable_history()->set_page_size(kRows - 1);
  REQUIRE(Say(world.Administer(history, &response)) == "OK");
  REQUIRE(response.history().rows_size() == kRows - 1);
  history.mutable_history()->set_page_token(response.history().next_page_token());
  REQUIRE(Say(world.Administer(history, &response)) == "OK");
  CHECK(response.history().rows_size() == 1);
  CHECK(response.history().next_page_token().empty());
}

// An engine that answers the first lists, and then no more.
class ForgetfulEngine final : public Adapter {
 public:
  ForgetfulEngine(std::unique_ptr<Adapter> adapter, int lists)
      : adapter_(std::move(adapter)), lists_(lists) {}

  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    for (const Submission& submission : batch) {
      if (std::holds_alternative<ListCommand>(submission.command) && lists_-- <= 0)
        return absl::UnavailableError("the engine is away");
    }
    return adapter_->Step(batch, deadline);
  }
  void Wake() override { adapter_->Wake(); }

 private:
  std::unique_ptr<Adapter> adapter_;
  int lists_;
};

TEST_CASE("administer: a list that breaks off in the middle is an error, and not a short list",
          "[service]") {
  World world({}, [](std::unique_ptr<Adapter> adapter) {
    return std::make_unique<ForgetfulEngine>(std::move(adapter), 2);
  });
  for (int i = 0; i < 200; ++i) world.Release(world.MustAcquire("s" + std::to_string(i), 1));
  pb::AdministerResponse response;
  pb::AdministerRequest list;
  list.mutable_list()->set_page_size(200);
  CHECK(world.Administer(list, &response).error_code() == grpc::StatusCode::UNAVAILABLE);
}

// An engine whose semaphore another daemon destroys between the first slice of a description and the second.
class DestroyingEngine final : public Adapter {
 public:
  explicit DestroyingEngine(std::unique_ptr<Adapter> adapter) : adapter_(std::move(adapter)) {}

  const Guarantees& guarantees() const override { return adapter_->guarantees(); }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                  SteadyTime deadline) override {
    for (const Submission& submission : batch) {
      const auto* admin = std::get_if<AdminCommand>(&submission.command);
      if (admin == nullptr || !std::holds_alternative<AdminDescribe>(admin->act)) continue;
      if (++slices_ == 2) Destroy(admin->semaphore, deadline);
    }
    return adapter_->Step(batch, deadline);
  }
  void Wake() override { adapter_->Wake(); }

 private:
  void Destroy(const std::string& semaphore, SteadyTime deadline) {
    AdminCommand destroy;
    destroy.semaphore = semaphore;
    destroy.act = AdminDestroy{DestroyPolicy::kForce};
    const Submission submission{uint64_t{1} << 60, std::move(destroy)};
    REQUIRE(adapter_->Step({&submission, 1}, deadline).ok());
    // Many leases end in several Steps.
    for (int i = 0; i < 100; ++i) REQUIRE(adapter_->Step({}, deadline).ok());
  }

  std::unique_ptr<Adapter> adapter_;
  int slices_ = 0;
};

TEST_CASE(
    "administer: a description whose semaphore is destroyed meanwhile ends with the rows it has "
    "read",
    "[service]") {
  World world({}, [](std::unique_ptr<Adapter> adapter) {
    return std::make_unique<DestroyingEngine>(std::move(adapter));
  });
  for (int i = 0; i < 200; ++i) world.MustAcquire("held", 200);
  pb::AdministerResponse response;
  pb::AdministerRequest describe = On("held");
  describe.mutable_describe()->set_page_size(200);
  REQUIRE(Say(world.Administer(describe, &response)) == "OK");
  CHECK(response.describe().semaphore().semaphore() == "held");
  CHECK(response.describe().leases_size() > 0);
  CHECK(response.describe().leases_size() < 200);
  CHECK(response.describe().next_page_token().empty());
  // What long answers may take at once is given back, also of those that are refused.
  for (int i = 0; i < 40; ++i)
    CHECK(world.Administer(describe, &response).error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("administer: adopt", "[service]") {
  World world;
  pb::AdministerResponse response;
  pb::AdministerRequest adopt = On("a");
  adopt.mutable_adopt();
  CHECK(world.Administer(adopt, &response).error_code() == grpc::StatusCode::UNIMPLEMENTED);
  adopt.set_expected_revision(1);
  CHECK(world.Administer(adopt, &response).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  adopt.clear_expected_revision();
  pb::AdministerRequest create = On("a");
  create.mutable_create()->set_limit(2);
  REQUIRE(Say(world.Administer(create, &response)) == "OK");
  CHECK(world.Administer(adopt, &response).error_code() == grpc::StatusCode::ALREADY_EXISTS);
  adopt.mutable_adopt()->set_limit(2);
  REQUIRE(Say(world.Administer(adopt, &response)) == "OK");
  CHECK(response.adopt().limit() == 2);
  CHECK_FALSE(response.adopt().adopted());
  CHECK(response.adopt().semaphore().limit() == 2);
}

TEST_CASE("administer: prune", "[service]") {
  World world;
  world.MustAcquire("a", 1);
  pb::AdministerResponse response;
  pb::AdministerRequest prune = On("a");
  prune.mutable_prune();
  REQUIRE(Say(world.Administer(prune, &response)) == "OK");
  CHECK(response.prune().pruned() == 0);
}

}  // namespace
}  // namespace semaphored::test
