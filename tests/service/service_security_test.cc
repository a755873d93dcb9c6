// Identities at the service, in one process: quotas of workers and of client ids, what is
// anonymous, who may make semaphores, and what stands when the access file changes. The rules of
// every call are tested by tests/e2e/test_security.py.
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "server/access/access.h"
#include "server/commands/token_command.h"
#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

const std::string& TokenOf(const std::string& name) {
  static std::map<std::string, std::string> tokens;
  std::string& token = tokens[name];
  if (token.empty()) token = NewToken();
  return token;
}

std::shared_ptr<const AccessPolicy> Policy(const std::string& rest) {
  const auto policy = AccessPolicy::Parse("[identities.a]\ntokens = [\"" +
                                          HashOfToken(TokenOf("a")) + "\"]\n" + rest);
  if (!policy.ok()) throw std::runtime_error(policy.status().ToString());
  return *policy;
}

ServerOptions With(const std::string& rest) {
  ServerOptions options;
  options.access = Policy(rest);
  return options;
}

struct As : Context {
  explicit As(const std::string& name) { AddMetadata("authorization", "Bearer " + TokenOf(name)); }
};

grpc::Status Acquire(World& world, grpc::ClientContext* context, const std::string& semaphore,
                     pb::Lease* lease = nullptr) {
  pb::AcquireResponse response;
  const grpc::Status status =
      world.stub().Acquire(context, world.Request(semaphore, 10), &response);
  if (lease != nullptr) *lease = response.lease();
  return status;
}

// What the first message of a worker with so many hands is answered by; the stream is left open.
struct DeniedWorker {
  DeniedWorker(World& world, const std::string& name, uint32_t tickets_max)
      : context(name), stream(world.stub().Work(&context)) {
    pb::WorkRequest request;
    request.mutable_open()->set_client_id("w");
    request.mutable_open()->add_prefixes("a/");
    request.mutable_open()->set_tickets_max(tickets_max);
    stream->Write(request);
  }
  std::string Opened() {
    pb::WorkResponse response;
    return stream->Read(&response) && response.has_opened() ? "OK" : Say(stream->Finish());
  }
  std::string SetTicketsMax(uint32_t tickets_max) {
    pb::WorkRequest request;
    request.set_tickets_max(tickets_max);
    request.mutable_ping()->set_ping_id(1);
    stream->Write(request);
    pb::WorkResponse response;
    return stream->Read(&response) && response.has_pong() ? "OK" : Say(stream->Finish());
  }
  As context;
  std::unique_ptr<grpc::ClientReaderWriter<pb::WorkRequest, pb::WorkResponse>> stream;
};

constexpr char kWorks[] = R"(
  rules = [{ prefixes = ["a/"], verbs = ["acquire", "work"] }]
  quotas = { permits = 3, sessions = 2 }
)";

TEST_CASE("security: the hands of a worker count as permits") {
  World world(With(kWorks));
  DeniedWorker first(world, "a", 2);
  REQUIRE(first.Opened() == "OK");
  DeniedWorker second(world, "a", 2);
  CHECK(second.Opened() == "RESOURCE_EXHAUSTED QUOTA");
  DeniedWorker third(world, "a", 1);
  REQUIRE(third.Opened() == "OK");
  As context("a");
  CHECK(Say(Acquire(world, &context, "a/x")) == "RESOURCE_EXHAUSTED QUOTA");
  CHECK(first.SetTicketsMax(1) == "OK");
  As again("a");
  CHECK(Say(Acquire(world, &again, "a/x")) == "OK");
  CHECK(first.SetTicketsMax(2) == "RESOURCE_EXHAUSTED QUOTA");
}

constexpr char kTwoPermits[] = R"(
  rules = [{ prefixes = [""], verbs = ["acquire", "verify"] }]
  quotas = { permits = 2, waiters = 1 }
)";

// Acquire by request id.
struct Asked {
  explicit Asked(World& world) : world(world) {}

  pb::AcquireRequest Request(const std::string& client, uint64_t sequence,
                             const std::string& semaphore) const {
    pb::AcquireRequest request = world.Request(semaphore, 1);
    request.mutable_request_id()->mutable_numbered()->set_client_id(client);
    request.mutable_request_id()->mutable_numbered()->set_sequence(sequence);
    return request;
  }
  std::string operator()(uint64_t sequence, const std::string& semaphore,
                         pb::Lease* lease = nullptr) const {
    As context("a");
    pb::AcquireResponse response;
    const grpc::Status status =
        world.stub().Acquire(&context, Request("c", sequence, semaphore), &response);
    if (lease != nullptr) *lease = response.lease();
    return Say(status);
  }
  uint32_t Release(const pb::Lease& lease) const {
    As context("a");
    pb::ReleaseRequest request;
    request.set_lease_id(lease.lease_id());
    pb::ReleaseResponse response;
    return world.stub().Release(&context, request, &response).ok() ? response.released() : 0;
  }

  World& world;
};

TEST_CASE("security: a repeated acquire gets its answer at the quota, and counts once") {
  World world(With(kTwoPermits));
  const Asked asked(world);
  pb::Lease first;
  pb::Lease second;
  REQUIRE(asked(1, "x", &first) == "OK");
  REQUIRE(asked(2, "y", &second) == "OK");
  CHECK(asked(3, "z") == "RESOURCE_EXHAUSTED QUOTA");
  pb::Lease again;
  CHECK(asked(1, "x", &again) == "OK");
  CHECK(again.lease_id() == first.lease_id());
  CHECK(asked(2, "x") == "INVALID_ARGUMENT REQUEST_ID_REUSED");
  // What has ended is told to have ended.
  REQUIRE(asked.Release(first) == 1);
  REQUIRE(asked(3, "z") == "OK");
  CHECK(asked(1, "x") == "NOT_FOUND NOT_HELD");
  // The two that were asked for again count as two.
  REQUIRE(asked.Release(second) == 1);
  CHECK(asked(4, "x") == "OK");
  CHECK(asked(5, "y") == "RESOURCE_EXHAUSTED QUOTA");
}

TEST_CASE("security: a repeated wait finds its place at the quota") {
  World world(With(kTwoPermits));
  const Asked asked(world);
  pb::Lease held;
  REQUIRE(asked(1, "x", &held) == "OK");
  pb::HoldRequest request;
  *request.mutable_acquire() = asked.Request("w", 1, "x");
  request.mutable_acquire()->set_wait_forever(true);
  const auto hold = [&](grpc::ClientContext* context) {
    auto stream = world.stub().Hold(context, request);
    pb::HoldResponse event;
    CHECK((stream->Read(&event) && event.has_queued()));
    return stream;
  };
  As first("a");
  const auto moved = hold(&first);
  As second("a");
  const auto stream = hold(&second);
  CHECK(Say(moved->Finish()) != "OK");  // The place is the other's now.
  pb::HoldRequest other = request;
  other.mutable_acquire()->mutable_request_id()->mutable_numbered()->set_sequence(2);
  As third("a");
  CHECK(Say(world.stub().Hold(&third, other)->Finish()) == "RESOURCE_EXHAUSTED QUOTA");
  REQUIRE(asked.Release(held) == 1);
  pb::HoldResponse event;
  REQUIRE(stream->Read(&event));
  CHECK(event.has_granted());
  CHECK(asked(2, "y") == "OK");
  CHECK(asked(3, "z") == "RESOURCE_EXHAUSTED QUOTA");
}

TEST_CASE("security: a session resumed at the quota is answered what it repeats") {
  World world(With(kTwoPermits));
  const auto open = [](auto& stream, const std::string& resume) {
    pb::SessionRequest request;
    request.mutable_open()->set_client_id("c");
    request.mutable_open()->set_resume_session_id(resume);
    stream.Write(request);
    pb::SessionResponse response;
    stream.Read(&response);
    return response.opened();
  };
  const auto acquire = [](auto& stream, uint64_t sequence) {
    pb::SessionRequest request;
    pb::SessionCommand* command = request.add_commands();
    command->set_sequence(sequence);
    command->mutable_acquire()->set_semaphore("s" + std::to_string(sequence));
    command->mutable_acquire()->set_limit(1);
    stream.Write(request);
    pb::SessionResponse response;
    stream.Read(&response);
    return response.results_size() == 1 ? response.results(0) : pb::SessionResult();
  };
  As lost("a");
  auto before = world.stub().Session(&lost);
  const std::string session = open(*before, "").session_id();
  const std::string first = acquire(*before, 1).granted().lease_id();
  REQUIRE_FALSE(first.empty());
  REQUIRE(acquire(*before, 2).has_granted());
  lost.TryCancel();
  before->Finish();
  As context("a");
  auto stream = world.stub().Session(&context);
  CHECK(open(*stream, session).leases_size() == 2);
  CHECK(acquire(*stream, 1).granted().lease_id() == first);
  CHECK(ErrorOf(acquire(*stream, 3).error()).reason == "QUOTA");
  stream->WritesDone();
  context.TryCancel();
}

// The first message of a session by this client, which is left open while it lives.
struct Opened {
  Opened(World& world, const std::string& client, const std::string& resume = "")
      : context("a"), stream(world.stub().Session(&context)) {
    pb::SessionRequest request;
    request.mutable_open()->set_client_id(client);
    request.mutable_open()->set_resume_session_id(resume);
    stream->Write(request);
    pb::SessionResponse response;
    says = stream->Read(&response) && response.has_opened() ? "OK" : Say(stream->Finish());
    id = response.opened().session_id();
  }
  ~Opened() { context.TryCancel(); }
  pb::SessionResult Acquire(const std::string& semaphore, uint32_t limit) {
    pb::SessionRequest request;
    pb::SessionCommand* command = request.add_commands();
    command->set_sequence(1);
    command->mutable_acquire()->set_semaphore(semaphore);
    command->mutable_acquire()->set_limit(limit);
    stream->Write(request);
    pb::SessionResponse response;
    return stream->Read(&response) && response.results_size() == 1 ? response.results(0)
                                                                   : pb::SessionResult();
  }
  As context;
  std::unique_ptr<grpc::ClientReaderWriter<pb::SessionRequest, pb::SessionResponse>> stream;
  std::string says;
  std::string id;
};

std::string AcquireAs(World& world, const std::string& name, const std::string& client,
                      uint64_t sequence) {
  As context(name);
  pb::AcquireResponse response;
  const std::string semaphore = name + "/" + client + "/" + std::to_string(sequence);
  return Say(
      world.stub().Acquire(&context, Asked(world).Request(client, sequence, semaphore), &response));
}

std::string Enqueue(World& world, const std::string& semaphore, uint32_t limit,
                    const std::string& client = "") {
  As context("a");
  pb::EnqueueRequest request;
  request.set_semaphore(semaphore);
  request.set_limit(limit);
  if (!client.empty()) {
    request.mutable_request_id()->mutable_numbered()->set_client_id(client);
    request.mutable_request_id()->mutable_numbered()->set_sequence(1);
  }
  pb::EnqueueResponse response;
  return Say(world.stub().Enqueue(&context, request, &response));
}

std::string ClientsOf(const std::string& quotas) {
  return "rules = [{ prefixes = [\"\"], verbs = [\"acquire\", \"work\", \"administer\"] }]\n" +
         quotas + "\n[identities.b]\ntokens = [\"" + HashOfToken(TokenOf("b")) +
         "\"]\nrules = [{ prefixes = [\"\"], verbs = [\"acquire\"] }]\n";
}

constexpr char kQuota[] = "RESOURCE_EXHAUSTED QUOTA";

std::string AcquireOneShot(World& world, const std::string& name, const std::string& uuid,
                           const std::string& semaphore, pb::Lease* lease) {
  As context(name);
  pb::AcquireRequest request = world.Request(semaphore, 9);
  request.mutable_request_id()->set_one_shot(uuid);
  pb::AcquireResponse response;
  const grpc::Status status = world.stub().Acquire(&context, request, &response);
  *lease = response.lease();
  return Say(status);
}

TEST_CASE("security: a UUID is each identity's own, and counts as no client") {
  World world(With(ClientsOf("quotas = { clients = 1 }")));
  const std::string uuid = "123e4567-e89b-42d3-a456-426614174000";
  REQUIRE(AcquireAs(world, "a", "c", 1) == "OK");
  pb::Lease first;
  REQUIRE(AcquireOneShot(world, "a", uuid, "s", &first) == "OK");
  pb::Lease again;
  REQUIRE(AcquireOneShot(world, "a", uuid, "s", &again) == "OK");
  CHECK(again.lease_id() == first.lease_id());
  pb::Lease other;
  REQUIRE(AcquireOneShot(world, "b", uuid, "s", &other) == "OK");
  CHECK(other.lease_id() != first.lease_id());
  CHECK(AcquireOneShot(world, "a", "123e4567-e89b-42d3-a456-426614174001", "s", &other) == "OK");
  CHECK(AcquireOneShot(world, "a", "uuid", "s", &other) == "INVALID_ARGUMENT INVALID_FIELD");
  CHECK(AcquireAs(world, "a", "d", 1) == kQuota);
}

TEST_CASE("security: client ids beyond the quota are refused in every call, known ones are not") {
  World world(With(ClientsOf("quotas = { clients = 2 }")));
  REQUIRE(AcquireAs(world, "a", "c", 1) == "OK");
  Opened session(world, "s");
  REQUIRE(session.says == "OK");
  CHECK(AcquireAs(world, "a", "d", 1) == kQuota);
  CHECK(Opened(world, "d").says == kQuota);
  CHECK(DeniedWorker(world, "a", 1).Opened() == kQuota);
  CHECK(Enqueue(world, "e", 1, "d") == kQuota);
  pb::AdministerRequest create;
  create.set_semaphore("made");
  create.mutable_create()->set_limit(1);
  create.mutable_request_id()->mutable_numbered()->set_client_id("d");
  create.mutable_request_id()->mutable_numbered()->set_sequence(1);
  pb::AdministerResponse created;
  As administers("a");
  CHECK(Say(world.stub().Administer(&administers, create, &created)) == kQuota);
  pb::Lease lease;
  As without("a");
  REQUIRE(Say(Acquire(world, &without, "x", &lease)) == "OK");
  pb::ReleaseRequest release;
  release.set_lease_id(lease.lease_id());
  release.mutable_request_id()->mutable_numbered()->set_client_id("d");
  release.mutable_request_id()->mutable_numbered()->set_sequence(1);
  pb::ReleaseResponse released;
  As releases("a");
  CHECK(Say(world.stub().Release(&releases, release, &released)) == kQuota);
  release.mutable_request_id()->mutable_numbered()->set_client_id("c");
  release.mutable_request_id()->mutable_numbered()->set_sequence(2);
  As again("a");
  CHECK(Say(world.stub().Release(&again, release, &released)) == "OK");
  CHECK(AcquireAs(world, "a", "c", 1) == "OK");  // The same once more,
  CHECK(session.Acquire("y", 1).has_granted());
  CHECK(AcquireAs(world, "a", "s", 2) == "OK");  // and the session's id by another call.
  CHECK(AcquireAs(world, "b", "d", 1) == "OK");
  world.SetAccess(Policy(ClientsOf("quotas = { clients = 3 }")));
  CHECK(AcquireAs(world, "a", "d", 1) == "OK");
  CHECK(AcquireAs(world, "a", "f", 1) == kQuota);
  world.SetAccess(Policy(ClientsOf("")));
  CHECK(AcquireAs(world, "a", "f", 1) == "OK");
}

TEST_CASE("security: a session comes back at the quota of client ids, and may bring no new one") {
  World world(With(ClientsOf("quotas = { clients = 1 }")));
  Opened before(world, "s");
  REQUIRE(before.says == "OK");
  Opened other(world, "t", before.id);
  REQUIRE(other.says == "OK");
  CHECK(ErrorOf(other.Acquire("x", 1).error()).reason == "QUOTA");
  Opened same(world, "s", before.id);
  REQUIRE(same.says == "OK");
  CHECK(same.Acquire("x", 1).has_granted());
}

TEST_CASE("security: a client id that the engine may have forgotten counts no more") {
  ServerOptions options = With(ClientsOf("quotas = { clients = 1 }"));
  options.client_retention = Milliseconds(0);
  World world(options);
  CHECK(AcquireAs(world, "a", "c", 1) == "OK");
  CHECK(AcquireAs(world, "a", "d", 1) == "OK");
}

TEST_CASE("security: with create = false semaphores are used, and none is made") {
  World world(With(R"(
    rules = [{ prefixes = [""], verbs = ["acquire", "work"], create = false },
             { prefixes = ["own/"], verbs = ["acquire"] }]
    [identities.anonymous]
    rules = [{ prefixes = [""], verbs = ["acquire", "verify"] }]
  )"));
  const auto acquire = [&](const std::string& semaphore, uint32_t limit) {
    As context("a");
    pb::AcquireResponse response;
    return Say(world.stub().Acquire(&context, world.Request(semaphore, limit), &response));
  };
  const auto hold = [&](const std::string& semaphore) {
    As context("a");
    pb::HoldRequest request;
    *request.mutable_acquire() = world.Request(semaphore, 10);
    const auto stream = world.stub().Hold(&context, request);
    pb::HoldResponse event;
    if (!stream->Read(&event)) return Say(stream->Finish());
    context.TryCancel();
    return std::string(event.has_granted() ? "OK" : "something else");
  };
  constexpr char kNone[] = "NOT_FOUND NO_SUCH_SEMAPHORE";
  CHECK(acquire("x", 10) == kNone);
  CHECK(hold("x") == kNone);
  CHECK(ErrorOf(Opened(world, "s").Acquire("x", 10).error()).reason == "NO_SUCH_SEMAPHORE");
  CHECK(Enqueue(world, "x", 10) == kNone);
  CHECK(Enqueue(world, "own/x", 10) == kNone);
  CHECK(acquire("own/x", 10) == "OK");
  world.MustAcquire("x", 10);
  CHECK(acquire("x", 9) == "FAILED_PRECONDITION LIMIT_MISMATCH");
  CHECK(acquire("x", 10) == "OK");
  CHECK(hold("x") == "OK");
  CHECK(Opened(world, "t").Acquire("x", 10).has_granted());
  CHECK(Enqueue(world, "x", 10) == "OK");
}

TEST_CASE("security: who shows nothing is anonymous, where the file has that") {
  World world(With(R"(
    [identities.anonymous]
    rules = [{ prefixes = ["public/"], verbs = ["acquire", "verify"] }]
    quotas = { permits = 2 }
  )"));
  pb::Lease lease;
  Context first;
  REQUIRE(Say(Acquire(world, &first, "public/x", &lease)) == "OK");
  Context second;
  CHECK(Say(Acquire(world, &second, "private/x")) == "PERMISSION_DENIED PERMISSION_DENIED");
  Context third;
  CHECK(Say(Acquire(world, &third, "public/x")) == "OK");
  Context fourth;
  CHECK(Say(Acquire(world, &fourth, "public/x")) == "RESOURCE_EXHAUSTED QUOTA");
  // All of them are one identity, and yet not one client: none is shown another's secrets.
  const pb::DescribeSemaphoreResult described = world.DescribeAll("public/x");
  CHECK(described.leases_size() == 2);
  for (const pb::LeaseInfo& row : described.leases()) CHECK(row.lease().lease_id().empty());
  // Nor do page tokens say what the lease ids are.
  pb::AdministerRequest page;
  page.set_semaphore("public/x");
  page.mutable_describe()->set_page_size(1);
  pb::AdministerResponse response;
  REQUIRE(Say(world.Administer(page, &response)) == "OK");
  const std::string token = response.describe().next_page_token();
  CHECK(token.size() < 16);
  page.mutable_describe()->set_page_token(token);
  REQUIRE(Say(world.Administer(page, &response)) == "OK");
  REQUIRE(response.describe().leases_size() == 1);
  CHECK(response.describe().leases(0).lease().slots(0).first() == 2);
  CHECK(response.describe().next_page_token().empty());
  CHECK(world.Release(lease) == 1);
  Context wrong;
  wrong.AddMetadata("authorization", "Bearer nobody's");
  CHECK(Say(Acquire(world, &wrong, "public/x")) == "UNAUTHENTICATED UNAUTHENTICATED");
}

TEST_CASE("security: a list over several prefixes says that there is more exactly if there is") {
  World world(
      With("rules = [{ prefixes = [\"a/\", \"b/\", \"c/\", \"d/\"], verbs = [\"acquire\", "
           "\"verify\"] }]"));
  for (const char* name : {"a/1", "a/2", "c/1"}) {
    As context("a");
    REQUIRE(Say(Acquire(world, &context, name)) == "OK");
  }
  const auto list = [&](uint32_t rows_max, const std::string& after) {
    As context("a");
    pb::AdministerRequest request;
    request.mutable_list()->set_page_size(rows_max);
    request.mutable_list()->set_page_token(after);
    pb::AdministerResponse response;
    REQUIRE(Say(world.stub().Administer(&context, request, &response)) == "OK");
    return std::to_string(response.list().semaphores_size()) +
           (response.list().next_page_token().empty() ? "" : ", more");
  };
  CHECK(list(1, "") == "1, more");
  CHECK(list(2, "") == "2, more");
  CHECK(list(1, "a/1") == "1, more");
  CHECK(list(3, "") == "3");
  CHECK(list(1, "a/2") == "1");
}

TEST_CASE("security: a new access file counts for the next call, and what stands stays") {
  World world(With(kWorks));
  pb::Lease lease;
  As first("a");
  REQUIRE(Say(Acquire(world, &first, "a/x", &lease)) == "OK");
  world.SetAccess(Policy("[identities.b]\nrules = []"));
  As second("a");
  CHECK(Say(Acquire(world, &second, "a/x")) == "PERMISSION_DENIED PERMISSION_DENIED");
  world.SetAccess(
      Policy("rules = [{ prefixes = [\"\"], verbs = [\"acquire\"] }]\nquotas = { permits = 1 }"));
  As third("a");
  CHECK(Say(Acquire(world, &third, "a/x")) == "RESOURCE_EXHAUSTED QUOTA");
  As fourth("a");
  pb::ReleaseRequest request;
  request.set_lease_id(lease.lease_id());
  pb::ReleaseResponse response;
  REQUIRE(world.stub().Release(&fourth, request, &response).ok());
  CHECK(response.released() == 1);
  As fifth("a");
  CHECK(Say(Acquire(world, &fifth, "a/x")) == "OK");
}

// Pauses "a/x", on which there is a lease, and waits until it is drained.
struct DeniedDrain {
  explicit DeniedDrain(World& world) : context("a") {
    pb::Lease lease;
    As acquiring("a");
    REQUIRE(Say(Acquire(world, &acquiring, "a/x", &lease)) == "OK");
    done = std::async(std::launch::async, [&] {
      pb::AdministerRequest request;
      request.set_semaphore("a/x");
      request.mutable_drain()->set_wait_ms(600'000);
      return world.stub().Administer(&context, request, &response);
    });
    bool paused = false;
    for (const auto until = std::chrono::steady_clock::now() + kPatience;
         !paused && std::chrono::steady_clock::now() < until;) {
      pb::AdministerRequest request;
      request.set_semaphore("a/x");
      request.mutable_describe();
      pb::AdministerResponse described;
      As describing("a");
      paused = world.stub().Administer(&describing, request, &described).ok() &&
               described.describe().semaphore().paused();
    }
    REQUIRE(paused);
  }
  As context;
  pb::AdministerResponse response;
  std::future<grpc::Status> done;
};

TEST_CASE("security: a drain that waits ends with the rule, and tells nothing more") {
  constexpr char kBoth[] =
      "rules = [{ prefixes = [\"a/\"], verbs = [\"acquire\", \"administer\"] }]";
  World world(With(kBoth));
  DeniedDrain drain(world);
  SECTION("another rule comes, and the drain waits on; then none is left") {
    world.SetAccess(Policy(std::string(kBoth) + "\n[identities.b]\nrules = []"));
    CHECK(drain.done.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
    world.SetAccess(Policy("rules = [{ prefixes = [\"a/\"], verbs = [\"acquire\"] }]"));
    CHECK(Say(drain.done.get()) == "PERMISSION_DENIED PERMISSION_DENIED");
  }
  SECTION("the identity is removed") {
    const auto others = AccessPolicy::Parse("[identities.b]\nrules = []");
    REQUIRE(others.ok());
    world.SetAccess(*others);
    CHECK(Say(drain.done.get()) == "UNAUTHENTICATED UNAUTHENTICATED");
  }
  CHECK(drain.response.drain().leases().empty());
}

}  // namespace
}  // namespace semaphored::test
