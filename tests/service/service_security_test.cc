// Identities at the service, in one process: quotas of workers, what is anonymous, and what stands
// when the access file changes. The rules of every call are tested by tests/e2e/test_security.py.
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "server/core/access.h"
#include "server/core/token_command.h"
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
struct Worker {
  Worker(World& world, const std::string& name, uint32_t tickets_max)
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
  Worker first(world, "a", 2);
  REQUIRE(first.Opened() == "OK");
  Worker second(world, "a", 2);
  CHECK(second.Opened() == "RESOURCE_EXHAUSTED QUOTA");
  Worker third(world, "a", 1);
  REQUIRE(third.Opened() == "OK");
  As context("a");
  CHECK(Say(Acquire(world, &context, "a/x")) == "RESOURCE_EXHAUSTED QUOTA");
  CHECK(first.SetTicketsMax(1) == "OK");
  As again("a");
  CHECK(Say(Acquire(world, &again, "a/x")) == "OK");
  CHECK(first.SetTicketsMax(2) == "RESOURCE_EXHAUSTED QUOTA");
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
  const pb::SemaphoreInfo info = world.Describe("public/x");
  CHECK(info.leases_size() == 2);
  for (const pb::LeaseInfo& row : info.leases()) CHECK(row.lease().lease_id().empty());
  CHECK(world.Release(lease) == 1);
  Context wrong;
  wrong.AddMetadata("authorization", "Bearer nobody's");
  CHECK(Say(Acquire(world, &wrong, "public/x")) == "UNAUTHENTICATED UNAUTHENTICATED");
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

}  // namespace
}  // namespace semaphored::test
