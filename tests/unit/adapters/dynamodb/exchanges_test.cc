// Credentials that a profile or a web identity leads to. No test reaches AWS: each exchange is written from AWS's
// documentation, and replayed by a server of the test.
//   STS: docs.aws.amazon.com/STS/latest/APIReference, AssumeRole and AssumeRoleWithWebIdentity
//   IAM Identity Center: docs.aws.amazon.com/singlesignon/latest/PortalAPIReference, GetRoleCredentials
//   profiles, processes: docs.aws.amazon.com/sdkref/latest/guide
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/generators/catch_generators.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/credential_process.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/credentials_world.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::dynamodb {
namespace {

constexpr char kRole[] = "arn:aws:iam::123456789012:role/demo";

// As in the documentation's sample, whose token is broken into lines.
LoopbackHttp::Answer StsKeys(const std::string& act, const std::string& id,
                             const std::string& expiration = "13:00:00") {
  return {200,
          absl::StrCat(
              "<", act, "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <", act,
              "Result>\n    <AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-",
              "role/demo/x</Arn><AssumedRoleId>ARO123EXAMPLE123:x</AssumedRoleId>",
              "</AssumedRoleUser>\n    <Credentials>\n      <AccessKeyId>", id,
              "</AccessKeyId>\n      <SecretAccessKey>wJalr/K7MDENG+EXAMPLEKEY",
              "</SecretAccessKey>\n      <SessionToken>\n       AQoDYXdz/w\n       EXAMPLE==\n",
              "      </SessionToken>\n      <Expiration>2020-01-01T", expiration,
              "Z</Expiration>\n    </Credentials>\n  </", act, "Result>\n</", act, "Response>\n"),
          {kDate},
          false};
}

LoopbackHttp::Answer StsError(int status, const std::string& code) {
  return {status,
          absl::StrCat("<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>",
                       "<Type>Sender</Type><Code>", code,
                       "</Code><Message>User: arn:aws:iam::1:user/x ",
                       "is not allowed</Message></Error></ErrorResponse>"),
          {kDate},
          false};
}

constexpr char kStsFound[] = "/wJalr/K7MDENG+EXAMPLEKEY/AQoDYXdz/wEXAMPLE==";

std::string Message(CredentialWorld& world, const std::string& profile = "") {
  return std::string(world.Source(profile)->Get().status().message());
}

}  // namespace

// ---- Web identity ----

TEST_CASE(
    "dynamodb exchanges: a web identity of the environment, such as EKS gives a service account") {
  CredentialWorld world;
  LoopbackHttp server([](const LoopbackHttp::Request&, int number) {
    return StsKeys("AssumeRoleWithWebIdentity", absl::StrCat("ID", number));
  });
  world.environment["AWS_ENDPOINT_URL_STS"] = server.address();
  world.environment["AWS_WEB_IDENTITY_TOKEN_FILE"] = world.folder.Put("token", "eyJ.first.sig\n");
  CHECK(world.Find() == "UNAUTHENTICATED");  // Of no role.
  world.environment["AWS_ROLE_ARN"] = kRole;
  world.environment["AWS_ROLE_SESSION_NAME"] = "pod 1";
  // It comes before the files.
  world.folder.Put(".aws/credentials", "[default]\naws_access_key_id=F\naws_secret_access_key=f\n");
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(source->Get()->access_key_id == "ID1");
  CHECK(source->Get()->session_token == "AQoDYXdz/wEXAMPLE==");
  // Others come five minutes before these run out, for the token that is in the file then.
  world.folder.Put("token", "eyJ.second.sig\n");
  world.now += std::chrono::minutes(54);
  CHECK(source->Get()->access_key_id == "ID1");
  world.now += std::chrono::minutes(2);
  CHECK(source->Get()->access_key_id == "ID2");
  const auto requests = server.requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].method == "POST");
  CHECK(requests[0].body ==
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%"
        "3A123456789012"
        "%3Arole%2Fdemo&RoleSessionName=pod%201&WebIdentityToken=eyJ.first.sig");
  CHECK(requests[0].header("authorization").empty());
  CHECK(absl::StrContains(requests[1].body, "WebIdentityToken=eyJ.second.sig"));
  world.environment["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/nowhere";
  CHECK(world.Find() == "UNAUTHENTICATED");
}

TEST_CASE("dynamodb exchanges: a web identity of a profile") {
  CredentialWorld world;
  LoopbackHttp server(
      [](const LoopbackHttp::Request&, int) { return StsKeys("AssumeRoleWithWebIdentity", "ID"); });
  world.environment["AWS_ENDPOINT_URL_STS"] = server.address() + "/";
  world.folder.Put(".aws/config",
                   absl::StrCat("[profile web]\nrole_arn=", kRole, "\nduration_seconds=900\n",
                                "web_identity_token_file=", world.folder.Put("token", "t"), "\n"));
  CHECK(world.Find("web") == absl::StrCat("ID", kStsFound));
  CHECK(absl::StrContains(server.requests().at(0).body, "&DurationSeconds=900&"));
}

// ---- Roles ----

TEST_CASE("dynamodb exchanges: a role of a source profile, which has a role of its own") {
  CredentialWorld world;
  LoopbackHttp server([](const LoopbackHttp::Request&, int number) {
    return StsKeys("AssumeRole", absl::StrCat("ASIA", number));
  });
  world.environment["AWS_ENDPOINT_URL_STS"] = server.address();
  world.folder.Put(".aws/credentials",
                   "[keys]\naws_access_key_id=AKIDEXAMPLE\naws_secret_access_key=s\n");
  world.folder.Put(
      ".aws/config",
      absl::StrCat("[profile outer]\nrole_arn=", kRole,
                   "\nsource_profile=inner\nexternal_id=a+b\nregion=us-east-2\n"
                   "[profile inner]\nrole_arn=",
                   kRole, "/in\nsource_profile=keys\n", "[profile loop]\nrole_arn=", kRole,
                   "\nsource_profile=pool\n", "[profile pool]\nrole_arn=", kRole,
                   "\nsource_profile=loop\n", "[profile self]\nrole_arn=", kRole,
                   "\nsource_profile=self\n", "aws_access_key_id=SELF\naws_secret_access_key=s\n",
                   "[profile lost]\nrole_arn=", kRole, "\nsource_profile=absent\n",
                   "[profile person]\nrole_arn=", kRole, "\nsource_profile=keys\n",
                   "mfa_serial=arn:aws:iam::1:mfa/x\n"));
  CHECK(world.Find("outer") == absl::StrCat("ASIA2", kStsFound));
  auto requests = server.requests();
  REQUIRE(requests.size() == 2);
  CHECK(absl::StrContains(requests[0].header("authorization"), "Credential=AKIDEXAMPLE/"));
  CHECK(absl::StrContains(requests[0].header("authorization"), "/eu-west-1/sts/aws4_request"));
  CHECK(absl::StrContains(requests[0].body, "RoleSessionName=semaphored"));
  CHECK(absl::StrContains(requests[1].header("authorization"), "Credential=ASIA1/"));
  CHECK(absl::StrContains(requests[1].header("authorization"), "/us-east-2/sts/aws4_request"));
  CHECK(requests[1].header("x-amz-security-token") == "AQoDYXdz/wEXAMPLE==");
  CHECK(absl::StrContains(requests[1].body, "&ExternalId=a%2Bb"));
  CHECK(world.Find("self") == absl::StrCat("ASIA3", kStsFound));
  for (const char* profile : {"loop", "lost", "person"}) {
    INFO(profile);
    CHECK(world.Find(profile) == "UNAUTHENTICATED");
  }
  CHECK(absl::StrContains(Message(world, "person"), "mfa_serial"));
  CHECK(server.requests().size() == 3);
}

TEST_CASE("dynamodb exchanges: a role of the environment's keys, or of the container's") {
  CredentialWorld world;
  LoopbackHttp sts([](const LoopbackHttp::Request&, int) { return StsKeys("AssumeRole", "ID"); });
  LoopbackHttp container(
      [](const LoopbackHttp::Request&, int) { return Keys("CONTAINER", "18:00:00"); });
  world.environment["AWS_ENDPOINT_URL_STS"] = sts.address();
  for (const char* source : {"Environment", "EcsContainer", "Ec2InstanceMetadata", "Moon"}) {
    world.folder.Put(".aws/config", absl::StrCat("[profile p]\nrole_arn=", kRole,
                                                 "\ncredential_source=", source, "\n"));
    CHECK(world.Find("p") == "UNAUTHENTICATED");
  }
  world.folder.Put(".aws/config", absl::StrCat("[profile p]\nrole_arn=", kRole,
                                               "\ncredential_source=EcsContainer\n"));
  world.UseContainer(container);
  CHECK(world.Find("p") == absl::StrCat("ID", kStsFound));
  CHECK(absl::StrContains(sts.requests().at(0).header("authorization"), "Credential=CONTAINER/"));
}

TEST_CASE(
    "dynamodb exchanges: what the Security Token Service refuses, and what it fails to answer") {
  CredentialWorld world;
  std::atomic<int> number = 0;
  const std::vector<LoopbackHttp::Answer> answers = {
      StsError(403, "AccessDenied"), StsError(503, "ServiceUnavailable"),
      StsError(400, "Throttling"),   {200, "no XML", {kDate}, false},
      {200, "<a/>", {kDate}, false}, {0, "", {}, true}};
  LoopbackHttp server([&](const LoopbackHttp::Request&, int) { return answers.at(number); });
  world.environment["AWS_ENDPOINT_URL_STS"] = server.address();
  world.environment["AWS_PROFILE"] = "p";
  world.folder.Put(".aws/credentials",
                   "[keys]\naws_access_key_id=AKID\naws_secret_access_key=hunter2\n");
  world.folder.Put(".aws/config",
                   absl::StrCat("[profile p]\nrole_arn=", kRole, "\nsource_profile=keys\n"));
  CHECK(world.Find() == "UNAUTHENTICATED");
  CHECK(absl::StrContains(Message(world), "AccessDenied"));
  CHECK_FALSE(absl::StrContains(Message(world), "user/x"));
  CHECK_FALSE(absl::StrContains(Message(world), "hunter2"));
  for (number = 1; number < static_cast<int>(answers.size()); ++number) {
    INFO(number);
    CHECK(world.Find() == "UNAVAILABLE");
  }
}

TEST_CASE("dynamodb exchanges: nothing secret goes to another machine without TLS") {
  CredentialWorld world;
  world.environment["AWS_WEB_IDENTITY_TOKEN_FILE"] = world.folder.Put("token", "t");
  world.environment["AWS_ROLE_ARN"] = kRole;
  world.environment["AWS_ENDPOINT_URL_STS"] = "http://sts.example.com";
  CHECK(world.Find() == "UNAUTHENTICATED");
  CHECK(absl::StrContains(Message(world), "AWS_ENDPOINT_URL_STS"));
}

// ---- IAM Identity Center ----

TEST_CASE("dynamodb exchanges: a session of IAM Identity Center") {
  CredentialWorld world;
  LoopbackHttp server([](const LoopbackHttp::Request& request, int number) {
    if (request.header("x-amz-sso_bearer_token") != "the-token")
      return LoopbackHttp::Answer{
          401, R"({"message":"Session token not found or invalid"})", {}, false};
    // Until 13:00 of the day.
    return LoopbackHttp::Answer{
        200,
        absl::StrCat(R"({"roleCredentials":{"accessKeyId":"ID)", number,
                     R"(","secretAccessKey":"secret","sessionToken":"token",)",
                     R"("expiration":1577883600000}})"),
        {kDate},
        false};
  });
  world.environment["AWS_ENDPOINT_URL_SSO"] = server.address();
  world.environment["AWS_PROFILE"] = "dev";
  world.folder.Put(".aws/config",
                   "[profile dev]\nsso_session = my-sso\nsso_account_id = 123456789012\n"
                   "sso_role_name = SampleRole\n"
                   "[sso-session my-sso]\nsso_region = us-east-1\n"
                   "sso_start_url = https://my-sso-portal.awsapps.com/start\n"
                   "[profile old]\nsso_start_url=https://my-sso-portal.awsapps.com/start\n"
                   "sso_region=us-east-1\nsso_account_id=1\nsso_role_name=R\n"
                   "[profile half]\nsso_session=my-sso\n[profile none]\nsso_session=absent\n");
  CHECK(world.Find() == "UNAUTHENTICATED");
  CHECK(absl::StrContains(Message(world), "aws sso login"));
  // Each file is called after the SHA-1 of the session's name, or of the start URL.
  const std::string by_name = ".aws/sso/cache/0ad374308c5a4e22f723adf10145eafad7c4031c.json";
  const std::string by_url = ".aws/sso/cache/c7aaaf71fcc8777ae2475525ed049d39fe16c484.json";
  const std::string text = R"({"accessToken":"the-token","expiresAt":"2020-01-01T20:00:00Z"})";
  world.folder.Put(by_name, text);
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(source->Get()->access_key_id == "ID1");
  CHECK(server.requests().at(0).path ==
        "/federation/credentials?account_id=123456789012&role_name=SampleRole");
  world.now += std::chrono::minutes(56);
  CHECK(source->Get()->access_key_id == "ID2");
  world.folder.Put(by_url, text);
  CHECK(world.Find("old") == "ID3/secret/token");
  world.folder.Put(by_name, R"({"accessToken":"hunter2"})");
  CHECK(world.Find() == "UNAUTHENTICATED");
  CHECK_FALSE(absl::StrContains(Message(world), "hunter2"));
  CHECK(world.Find("half") == "UNAUTHENTICATED");
  CHECK(world.Find("none") == "UNAUTHENTICATED");
}

// ---- Processes ----

TEST_CASE("dynamodb exchanges: a process that prints credentials") {
  CredentialWorld world;
  const auto says = [&world](const std::string& command) {
    world.folder.Put(".aws/config",
                     absl::StrCat("[profile p]\ncredential_process = ", command, "\n"));
  };
  const std::string good = world.folder.Put(
      "good.json",
      R"({"Version": 1, "AccessKeyId": "ID", "SecretAccessKey": "s", "SessionToken": "t",)"
      R"( "Expiration": "2020-01-01T13:00:00+00:00"})");
  says(absl::StrCat("cat ", good));
  CHECK(world.Find("p") == "ID/s/t");
  // Run again every ten minutes.
  const std::string count = world.folder.path() + "/count";
  says(absl::StrCat("echo run >>", count, "; cat ", good));
  const std::shared_ptr<CredentialSource> source = world.Source("p");
  const auto runs = [&count] {
    std::ifstream file(count);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  CHECK(source->Get().ok());
  world.now += std::chrono::minutes(9);
  CHECK(source->Get().ok());
  CHECK(runs() == 1);
  world.now += std::chrono::minutes(2);
  CHECK(source->Get().ok());
  CHECK(runs() == 2);
  for (const char* command :
       {"exit 3", "kill -9 $$", "echo hunter2", "echo '{\"Version\": 2}'", "true",
        "echo '{\"Version\": 1, \"AccessKeyId\": \"x\"}'", "/nowhere/program"}) {
    INFO(command);
    says(command);
    CHECK(world.Find("p") == "UNAUTHENTICATED");
    CHECK_FALSE(absl::StrContains(Message(world, "p"), "hunter2"));
  }
  says("echo hunter2 >&2; exit 3");
  CHECK(absl::StrContains(Message(world, "p"), "exit code 3"));
  says("yes");  // Without an end.
  CHECK(world.Find("p") == "UNAVAILABLE");
}

TEST_CASE("dynamodb exchanges: a process that does not end is killed, and what it has started") {
  CredentialWorld world;
  const std::string pid_file = world.folder.path() + "/pid";
  Lookup lookup;
  lookup.deadline = SteadyClock::now() + std::chrono::milliseconds(300);
  const absl::StatusOr<Found> found =
      FindByProcess(absl::StrCat("sleep 600 & echo $! >", pid_file, "; wait"), lookup);
  CHECK(absl::IsUnavailable(found.status()));
  pid_t pid = 0;
  std::ifstream(pid_file) >> pid;
  REQUIRE(pid > 0);
  // Killed, or at least on its way: init reaps it.
  const SteadyTime bound = SteadyClock::now() + std::chrono::seconds(20);
  const auto runs = [pid] {
    std::string state;
    std::ifstream status(absl::StrCat("/proc/", pid, "/stat"));
    std::string number;
    std::string name;
    status >> number >> name >> state;
    return !state.empty() && state != "Z";
  };
  while (runs() && SteadyClock::now() < bound) std::this_thread::yield();
  CHECK_FALSE(runs());
}

}  // namespace semaphored::dynamodb
