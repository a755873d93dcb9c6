#include "server/access/access.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/access/tenant.h"
#include "server/commands/token_command.h"

namespace semaphored {
namespace {

using Catch::Matchers::ContainsSubstring;
using PolicyPtr = std::shared_ptr<const AccessPolicy>;

PolicyPtr Must(const std::string& text) {
  auto policy = AccessPolicy::Parse(text);
  INFO(std::string(policy.status().message()));
  REQUIRE(policy.ok());
  return *policy;
}

std::string ErrorOf(const std::string& text) {
  const auto policy = AccessPolicy::Parse(text);
  REQUIRE_FALSE(policy.ok());
  return std::string(policy.status().message());
}

const Identity& Named(const PolicyPtr& policy, const std::string& name) {
  for (const auto& identity : policy->identities()) {
    if (identity->name() == name) return *identity;
  }
  FAIL("no identity " + name);
  return *policy->identities().front();
}

TEST_CASE("access: a token finds its identity by each of its hashes, and nothing else does") {
  const std::string old_token = NewToken();
  const std::string new_token = NewToken();
  const PolicyPtr policy = Must("[identities.a]\ntokens = [\"" + HashOfToken(old_token) + "\", \"" +
                                HashOfToken(new_token) + "\"]\n[identities.b]\ntokens = []\n");
  REQUIRE(policy->ByToken(old_token) != nullptr);
  CHECK(policy->ByToken(old_token)->name() == "a");
  CHECK(policy->ByToken(new_token)->name() == "a");
  CHECK(policy->ByToken(NewToken()) == nullptr);
  CHECK(policy->ByToken("") == nullptr);
  CHECK(policy->ByToken(HashOfToken(old_token)) == nullptr);
  CHECK(policy->anonymous() == nullptr);
}

TEST_CASE("access: tokens are 256 random bits in a form that is easy to find again") {
  const std::string token = NewToken();
  CHECK(token.size() == 47);
  CHECK(token.starts_with("smt_"));
  CHECK(token != NewToken());
  // SHA-256 of "abc", as NIST gives it.
  CHECK(HashOfToken("abc") ==
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

CertificateNames Names(std::string common_name, std::vector<std::string> dns = {},
                       std::vector<std::string> uris = {}, std::vector<std::string> emails = {}) {
  return {std::move(common_name), std::move(dns), std::move(uris), std::move(emails)};
}

TEST_CASE("access: a certificate is known by any of its names, compared as a whole") {
  const PolicyPtr policy = Must(R"(
    [identities.b]
    certificates = ["cn:bob", "uri:spiffe://x/b"]
    [identities.a]
    certificates = ["dns:a.example", "email:a@example"]
    [identities.anonymous]
  )");
  const auto name = [&](const CertificateNames& names) {
    const Identity* identity = policy->ByCertificate(names);
    return identity == nullptr ? std::string() : identity->name();
  };
  CHECK(name(Names("bob")) == "b");
  CHECK(name(Names("bo")).empty());
  CHECK(name(Names("a.example")).empty());
  CHECK(name(Names("", {"other", "a.example"})) == "a");
  CHECK(name(Names("", {}, {"spiffe://x/b"})) == "b");
  CHECK(name(Names("", {}, {}, {"a@example"})) == "a");
  CHECK(name(Names("bob", {"a.example"})) == "a");
  CHECK(name(Names("")).empty());
  REQUIRE(policy->anonymous() != nullptr);
}

TEST_CASE("access: rules allow verbs under prefixes") {
  const PolicyPtr policy = Must(R"(
    [identities.a]
    rules = [{ prefixes = ["a/", "shared/x"], verbs = ["acquire", "verify"] },
             { prefixes = ["a/b/"], verbs = ["administer"] }]
    [identities.all]
    rules = [{ prefixes = [""], verbs = ["work"] }]
  )");
  const Identity& a = Named(policy, "a");
  CHECK(a.May(Verb::kAcquire, "a/1"));
  CHECK(a.May(Verb::kAcquire, "shared/xyz"));
  CHECK_FALSE(a.May(Verb::kAcquire, "a"));
  CHECK_FALSE(a.May(Verb::kAcquire, "b/a/1"));
  CHECK_FALSE(a.May(Verb::kAdminister, "a/1"));
  CHECK(a.May(Verb::kAdminister, "a/b/1"));
  CHECK_FALSE(a.May(Verb::kWork, "a/b/1"));
  CHECK(a.May(Verb::kWork | Verb::kVerify, "a/b/1"));
  CHECK(a.MayUnder(Verb::kAcquire, "a/c"));
  CHECK_FALSE(a.MayUnder(Verb::kAcquire, "a"));
  CHECK(a.Under(Verb::kVerify | Verb::kAdminister, "") ==
        std::vector<std::string>{"a/", "shared/x"});
  CHECK(a.Under(Verb::kAdminister, "a/") == std::vector<std::string>{"a/b/"});
  CHECK(a.Under(Verb::kAdminister, "a/b/c") == std::vector<std::string>{"a/b/c"});
  CHECK(a.Under(Verb::kWork, "").empty());
  CHECK(Named(policy, "all").May(Verb::kWork, "anything"));
}

TEST_CASE("access: one rule that gives the verb with create is enough to make semaphores") {
  const PolicyPtr policy = Must(R"(
    [identities.a]
    rules = [{ prefixes = [""], verbs = ["acquire", "work"], create = false },
             { prefixes = ["a/"], verbs = ["acquire"], create = true },
             { prefixes = ["b/"], verbs = ["administer"] },
             { prefixes = ["c/"], verbs = ["work"] }]
  )");
  const Identity& a = Named(policy, "a");
  CHECK(a.May(Verb::kAcquire, "x"));
  CHECK_FALSE(a.MayCreate(Verb::kAcquire, "x"));
  CHECK(a.MayCreate(Verb::kAcquire, "a/x"));
  CHECK_FALSE(a.MayCreate(Verb::kWork, "a/x"));
  CHECK_FALSE(a.MayCreate(Verb::kAcquire, "b/x"));
  CHECK(a.MayCreate(Verb::kWork, "c/x"));
  CHECK_FALSE(a.MayCreate(Verb::kAcquire, "c/x"));
}

TEST_CASE("access: a file that is wrong says where, and never shows a token") {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"[identities", "line 1: is not TOML"},
      {"[users.a]", "users is not known"},
      {"identities = 3", "must be at most"},
      {"[identities.\"a b\"]", "letters, digits"},
      {"[identities.a]\ntoken = []", "identities.a.token is not known"},
      {"[identities.a]\ntokens = [\"smt_secret\"]", "must be hashes"},
      {"[identities.a]\ntokens = [3]", "identities.a.tokens must be texts"},
      {"[identities.anonymous]\ntokens = []", "identities.anonymous.tokens is not known"},
      {"[identities.a]\ncertificates = [\"bob\"]", "cn:NAME"},
      {"[identities.a]\ncertificates = [\"cn:\"]", "cn:NAME"},
      {"[identities.a]\ncertificates = [\"cn:x\"]\n[identities.b]\ncertificates = [\"cn:x\"]",
       "elsewhere"},
      {"[identities.a]\nrules = [{ prefixes = [\"\"], verbs = [\"own\"] }]", "not 'own'"},
      {"[identities.a]\nrules = [{ prefixes = [\"\"] }]", "must have prefixes"},
      {"[identities.a]\nrules = [{ verbs = [\"work\"] }]", "must have prefixes"},
      {"[identities.a]\nrules = [{ prefixes = [\"a/../\"], verbs = [\"work\"] }]", "not 'a/../'"},
      {"[identities.a]\nrules = [{ prefixes = [\"/a\"], verbs = [\"work\"] }]", "not '/a'"},
      {"[identities.a]\nrules = [{ prefix = [\"\"], verbs = [\"work\"] }]", "prefix is not known"},
      {"[identities.a]\nrules = [{ prefixes = [\"\"], verbs = [\"work\"], create = 0 }]",
       "identities.a.rules.create must be true or false"},
      {"[identities.a]\nquotas = { permit = 3 }", "permit is not known"},
      {"[identities.a]\nquotas = { ticket_bytes = -1 }", "ticket_bytes must be a number"},
      {"[identities.a]\nquotas = { clients = \"3\" }",
       "identities.a.quotas.clients must be a number"},
      {"[identities.a]\nquotas = { permits = -1 }", "0 or more"},
  };
  for (const auto& each : cases) {
    INFO(each.text);
    const std::string error = ErrorOf(each.text);
    CHECK_THAT(error, ContainsSubstring(each.says) && ContainsSubstring("line "));
    CHECK_THAT(error, !ContainsSubstring("secret"));
  }
  const std::string hash = HashOfToken("x");
  CHECK_THAT(ErrorOf("[identities.a]\ntokens = [\"" + hash + "\"]\n[identities.b]\ntokens = [\"" +
                     hash + "\"]"),
             ContainsSubstring("elsewhere") && !ContainsSubstring(hash));
}

TEST_CASE("access: quotas of what the adapter counts") {
  const PolicyPtr policy =
      Must("[identities.a]\nquotas = { semaphores = 1, tickets = 2, ticket_bytes = 3 }");
  const OwnerQuotas& made = Named(policy, "a").quotas().made;
  CHECK(made == OwnerQuotas{.semaphores = 1, .tickets = 2, .ticket_bytes = 3});
  CHECK(Named(Must("[identities.a]"), "a").quotas().made == OwnerQuotas{});
}

TEST_CASE("access: what a tenant has is given back, and its quotas are kept to") {
  const PolicyPtr policy =
      Must("[identities.a]\nquotas = { permits = 5, waiters = 1, sessions = 0 }");
  Tenants tenants;
  const TenantPtr tenant = tenants.Of(Named(policy, "a"));
  CHECK_FALSE(CheckQuotas(*tenant, {.permits = 5}).has_value());
  auto held = std::make_unique<Charge>(tenant, Usage{.permits = 3, .waiters = 1});
  CHECK(tenant->usage == Usage{.permits = 3, .waiters = 1});
  CHECK_FALSE(CheckQuotas(*tenant, {.permits = 2}).has_value());
  const auto refusal = CheckQuotas(*tenant, {.permits = 3});
  REQUIRE(refusal.has_value());
  CHECK(refusal->code == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(refusal->message, ContainsSubstring("5 permits"));
  CHECK(CheckQuotas(*tenant, {.waiters = 1}).has_value());
  CHECK_FALSE(CheckQuotas(*tenant, {.permits = 4}, {.permits = 3}).has_value());
  CHECK(CheckQuotas(*tenant, {.sessions = 1}).has_value());
  CHECK(CheckQuotas(*tenant, {.permits = UINT64_MAX}).has_value());
  held->Set({.permits = 3});
  CHECK_FALSE(CheckQuotas(*tenant, {.waiters = 1}).has_value());
  held.reset();
  CHECK(tenant->usage == Usage{});
}

constexpr Milliseconds kHour = std::chrono::hours(1);

bool Takes(const TenantPtr& tenant, const std::string& client_id, SteadyTime now) {
  return !TakeClient(tenant.get(), client_id, now, kHour).has_value();
}

TEST_CASE("access: so many client ids count, each from its last use") {
  const PolicyPtr policy = Must("[identities.a]\nquotas = { clients = 2 }");
  Tenants tenants;
  const TenantPtr tenant = tenants.Of(Named(policy, "a"));
  const SteadyTime start = SteadyTime() + std::chrono::hours(24);
  const Milliseconds half = kHour / 2;
  CHECK(Takes(tenant, "x", start));
  CHECK(Takes(tenant, "y", start + half));
  const auto refusal = TakeClient(tenant.get(), "z", start + half, kHour);
  REQUIRE(refusal.has_value());
  CHECK(refusal->code == absl::StatusCode::kResourceExhausted);
  CHECK(refusal->reason == Reason::kQuota);
  CHECK_THAT(refusal->message, ContainsSubstring("the quota of a is 2 client ids"));
  CHECK(Takes(tenant, "x", start + kHour));  // Known, though old; and young again.
  CHECK_FALSE(Takes(tenant, "z", start + kHour));
  CHECK(Takes(tenant, "z", start + half + kHour));  // "y" was not used for so long.
  CHECK_FALSE(Takes(tenant, "y", start + half + kHour));
  CHECK(tenant->clients.size() == 2);
}

TEST_CASE("access: a new quota of clients takes away no client that counts") {
  Tenants tenants;
  const PolicyPtr before =
      Must("[identities.a]\nquotas = { clients = 3 }\n[identities.b]\nquotas = { clients = 3 }");
  const SteadyTime now = SteadyTime() + std::chrono::hours(24);
  for (const char* client_id : {"x", "y", "z"})
    REQUIRE(Takes(tenants.Of(Named(before, "a")), client_id, now));
  REQUIRE(Takes(tenants.Of(Named(before, "b")), "x", now));
  // Nothing else stands of either; one of them has gone from the file.
  const PolicyPtr lower = Must("[identities.a]\nquotas = { clients = 1 }");
  tenants.Renew(*lower);
  CHECK(tenants.Of(Named(before, "b"))->clients.size() == 0);
  const TenantPtr tenant = tenants.Of(Named(lower, "a"));
  CHECK(tenant->clients.size() == 3);
  for (const char* client_id : {"x", "y", "z"}) CHECK(Takes(tenant, client_id, now));
  CHECK_FALSE(Takes(tenant, "w", now));
  tenants.Renew(*Must("[identities.a]"));
  CHECK(tenant->clients.size() == 0);
  tenants.Renew(*lower);
  CHECK(Takes(tenant, "w", now));
}

TEST_CASE("access: a tenant outlives changes of the file while it has something") {
  Tenants tenants;
  const PolicyPtr before = Must("[identities.a]\nquotas = { permits = 5 }\n[identities.b]\n");
  const Charge held(tenants.Of(Named(before, "a")), Usage{.permits = 2});
  const PolicyPtr gone = Must("[identities.c]");
  tenants.Renew(*gone);
  const PolicyPtr back = Must("[identities.a]\nquotas = { permits = 3 }");
  tenants.Renew(*back);
  const TenantPtr tenant = tenants.Of(Named(back, "a"));
  CHECK(tenant->usage.permits == 2);
  CHECK(tenant->quotas.permits == 3);
}

}  // namespace
}  // namespace semaphored
