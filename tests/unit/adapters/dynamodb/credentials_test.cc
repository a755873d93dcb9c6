// Where credentials are found, and when they are fetched anew. Endpoints are servers of the test,
// and the clock is the test's.
#include "adapters/dynamodb/credentials.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <catch2/generators/catch_generators.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/credentials_world.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::dynamodb {
namespace {

using Answer = LoopbackHttp::Answer;
using World = CredentialWorld;
using std::chrono::minutes;
using std::chrono::seconds;

// ---- Environment ----

TEST_CASE("dynamodb credentials: the environment comes first") {
  World world;
  world.folder.Put(".aws/credentials",
                   "[default]\naws_access_key_id=FILE\naws_secret_access_key=filesecret\n");
  CHECK(world.Find() == "FILE/filesecret/");
  world.environment["AWS_ACCESS_KEY_ID"] = "ID";
  CHECK(world.Find() == "UNAUTHENTICATED");
  world.environment["AWS_SECRET_ACCESS_KEY"] = "secret";
  CHECK(world.Find() == "ID/secret/");
  world.environment["AWS_SESSION_TOKEN"] = "token";
  CHECK(world.Find() == "ID/secret/token");
  // Others would be the same.
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK_FALSE(source->Refused(source->Get().value()));
  // A profile that the URL names is meant.
  CHECK(world.Find("default") == "FILE/filesecret/");
  // What is set but empty is not set.
  world.environment["AWS_ACCESS_KEY_ID"] = "";
  world.environment["AWS_SECRET_ACCESS_KEY"] = "";
  CHECK(world.Find() == "FILE/filesecret/");
}

TEST_CASE("dynamodb credentials: where they were looked for is told, and no more") {
  World world;
  world.environment["AWS_SECRET_ACCESS_KEY"] = "hunter2";
  CHECK_FALSE(absl::StrContains(world.Source()->Get().status().message(), "hunter2"));
  world.environment.erase("AWS_SECRET_ACCESS_KEY");
  const absl::Status status = world.Source()->Get().status();
  CHECK(absl::IsUnauthenticated(status));
  for (const char* part : {"AWS_ACCESS_KEY_ID", ".aws/credentials",
                           "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_EC2_METADATA_DISABLED"}) {
    INFO(status.message() << " lacks " << part);
    CHECK(absl::StrContains(status.message(), part));
  }
}

// ---- Files ----

TEST_CASE("dynamodb credentials: profiles of the shared files") {
  World world;
  world.folder.Put(".aws/credentials",
                   "# keys\n"
                   "[default]\n"
                   "aws_access_key_id = ONE\n"
                   "aws_secret_access_key = secret/with+signs== # a comment\r\n"
                   "\n"
                   "[ci]\n"
                   "AWS_ACCESS_KEY_ID=TWO\n"
                   "aws_secret_access_key=second\n"
                   "aws_session_token=token\n"
                   "s3 =\n"
                   "  aws_access_key_id = NESTED\n"
                   "; the rest\n"
                   "[half]\n"
                   "aws_access_key_id=THREE\n");
  world.folder.Put(".aws/config",
                   "[default]\naws_access_key_id=CONFIG\naws_secret_access_key=c\n"
                   "[profile \"other\"]\naws_access_key_id=FOUR\naws_secret_access_key=fourth\n"
                   "[profile plain]\nregion=eu-west-1\n"
                   "[ci2]\naws_access_key_id=NOT\naws_secret_access_key=not\n");
  CHECK(world.Find() == "ONE/secret/with+signs==/");
  CHECK(world.Find("ci") == "TWO/second/token");
  world.environment["AWS_PROFILE"] = "other";
  CHECK(world.Find() == "FOUR/fourth/");
  CHECK(world.Find("ci") == "TWO/second/token");
  for (const char* profile : {"half", "plain", "ci2", "absent"}) {
    INFO(profile);
    world.environment["AWS_PROFILE"] = profile;
    CHECK(world.Find() == "UNAUTHENTICATED");
  }
}

TEST_CASE("dynamodb credentials: other files may be named") {
  World world;
  const std::string keys = "[default]\naws_access_key_id=ONE\naws_secret_access_key=s\n";
  world.environment["AWS_SHARED_CREDENTIALS_FILE"] = world.folder.Put("keys", keys);
  CHECK(world.Find() == "ONE/s/");
  world.environment["AWS_SHARED_CREDENTIALS_FILE"] = "~/keys";
  CHECK(world.Find() == "ONE/s/");
  world.environment["AWS_SHARED_CREDENTIALS_FILE"] = "/nowhere";
  CHECK(world.Find() == "UNAUTHENTICATED");
  world.environment["AWS_CONFIG_FILE"] = world.folder.Put("config", keys);
  CHECK(world.Find() == "ONE/s/");
  world.environment.erase("HOME");
  world.environment.erase("AWS_CONFIG_FILE");
  CHECK(world.Find() == "UNAUTHENTICATED");
}

TEST_CASE("dynamodb credentials: keys in a file that were refused are read again") {
  World world;
  world.folder.Put(".aws/credentials",
                   "[default]\naws_access_key_id=ONE\naws_secret_access_key=s\n");
  const std::shared_ptr<CredentialSource> source = world.Source();
  const Credentials old = source->Get().value();
  world.folder.Put(".aws/credentials",
                   "[default]\naws_access_key_id=TWO\naws_secret_access_key=s\n");
  CHECK(source->Get()->access_key_id == "ONE");
  CHECK(source->Refused(old));
  const Credentials fresh = source->Get().value();
  CHECK(fresh.access_key_id == "TWO");
  // Another lane was refused the old ones too, and need not search.
  CHECK(source->Refused(old));
  CHECK(source->Get()->access_key_id == "TWO");
  // Not over and over.
  CHECK_FALSE(source->Refused(fresh));
  world.now += minutes(1);
  CHECK(source->Refused(fresh));
}

TEST_CASE("dynamodb credentials: a file is looked at again now and then") {
  World world;
  const auto put = [&](const std::string& id) {
    world.folder.Put(".aws/credentials", absl::StrCat("[default]\naws_access_key_id=", id,
                                                      "\naws_secret_access_key=s\n"));
  };
  put("ONE");
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(source->Get()->access_key_id == "ONE");
  put("TWO");
  world.now += minutes(11);
  CHECK(source->Get()->access_key_id == "TWO");
  // A file that is away for a while takes nothing away.
  std::filesystem::remove_all(world.folder.path() + "/.aws");
  world.now += minutes(11);
  CHECK(source->Get()->access_key_id == "TWO");
}

// ---- The container's endpoint ----

TEST_CASE("dynamodb credentials: the container's endpoint, with its token") {
  World world;
  LoopbackHttp server([](const LoopbackHttp::Request&, int) { return Keys("ID", "18:00:00"); });
  world.UseContainer(server);
  CHECK(world.Find() == "ID/secret/token");
  world.environment["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "Basic one";
  CHECK(world.Find() == "ID/secret/token");
  world.environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] =
      world.folder.Put("token", "Bearer two\n");
  CHECK(world.Find() == "ID/secret/token");
  const auto requests = server.requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].method == "GET");
  CHECK(requests[0].path == "/keys");
  CHECK(requests[0].header("authorization").empty());
  CHECK(requests[1].header("authorization") == "Basic one");
  CHECK(requests[2].header("authorization") == "Bearer two");
  world.environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/nowhere";
  CHECK(world.Find() == "UNAUTHENTICATED");
}

TEST_CASE("dynamodb credentials: a container's endpoint that is somebody else's machine") {
  World world;
  world.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] =
      GENERATE("http://example.com/keys", "http://169.254.169.254/keys", "ftp://127.0.0.1/keys",
               "http://127.0.0.1@example.com/keys", "http://127.evil.example/keys",
               "http://localhost.example/keys");
  CHECK(world.Find() == "UNAUTHENTICATED");
}

TEST_CASE("dynamodb credentials: an endpoint that has none to give") {
  World world;
  const Answer answer = GENERATE(
      Answer{500, "", {}, false}, Answer{200, "<html>", {}, false}, Answer{200, "{}", {}, false},
      Answer{200, R"({"Code":"AssumeRoleUnauthorizedAccess"})", {}, false},
      Answer{0, "", {}, true});
  LoopbackHttp server([&](const LoopbackHttp::Request&, int) { return answer; });
  world.UseContainer(server);
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(absl::IsUnavailable(source->Get().status()));
  // Not asked again at once, by none of the lanes.
  const size_t asked = server.requests().size();
  CHECK(absl::IsUnavailable(source->Get().status()));
  CHECK(server.requests().size() == asked);
  world.now += seconds(3);
  CHECK_FALSE(source->Get().ok());
  CHECK(server.requests().size() > asked);
}

// ---- When they run out ----

TEST_CASE("dynamodb credentials: those that run out are fetched anew before they do") {
  World world;
  // Good for an hour, and the next for another.
  LoopbackHttp server([](const LoopbackHttp::Request&, int number) {
    return Keys(absl::StrCat("ID", number), "13:00:00");
  });
  world.UseContainer(server);
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(source->Get()->access_key_id == "ID1");
  world.now += minutes(54);
  CHECK(source->Get()->access_key_id == "ID1");
  world.now += minutes(2);
  CHECK(source->Get()->access_key_id == "ID2");
  world.now += minutes(54);
  CHECK(source->Get()->access_key_id == "ID2");
  CHECK(server.requests().size() == 2);
}

TEST_CASE("dynamodb credentials: while no others come, the old ones are used until they run out") {
  World world;
  std::atomic<bool> gives = true;
  LoopbackHttp server([&](const LoopbackHttp::Request&, int number) {
    return gives ? Keys(absl::StrCat("ID", number), "13:00:00") : Answer{503, "", {}, false};
  });
  world.UseContainer(server);
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(source->Get()->access_key_id == "ID1");
  gives = false;
  world.now += minutes(56);
  CHECK(source->Get()->access_key_id == "ID1");
  CHECK(source->Get()->access_key_id == "ID1");
  CHECK(server.requests().size() == 2);  // Half a minute is between two attempts.
  world.now += minutes(5);
  CHECK(absl::IsUnavailable(source->Get().status()));
  gives = true;
  world.now += seconds(3);
  CHECK(source->Get()->access_key_id == "ID4");
}

TEST_CASE("dynamodb credentials: an endpoint that gives what has run out") {
  World world;
  LoopbackHttp server([](const LoopbackHttp::Request&, int number) {
    return Keys(absl::StrCat("ID", number), "11:00:00");
  });
  world.UseContainer(server);
  const std::shared_ptr<CredentialSource> source = world.Source();
  CHECK(source->Get()->access_key_id == "ID1");
  CHECK(source->Get()->access_key_id == "ID1");
  world.now += seconds(61);
  CHECK(source->Get()->access_key_id == "ID2");
}

TEST_CASE("dynamodb credentials: one thread fetches, the others go on or wait") {
  World world;
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::promise<void> arrived;
  LoopbackHttp server([&](const LoopbackHttp::Request&, int number) {
    if (number == 2) {
      arrived.set_value();
      gone.wait_for(seconds(10));
    }
    return Keys(absl::StrCat("ID", number), "13:00:00");
  });
  world.UseContainer(server);
  const std::shared_ptr<CredentialSource> source = world.Source();
  const Credentials first = source->Get().value();
  SECTION("still good") {
    world.now += minutes(56);
    std::future<std::string> fetching =
        std::async(std::launch::async, [&] { return source->Get()->access_key_id; });
    arrived.get_future().wait();
    CHECK(source->Get()->access_key_id == "ID1");
    go.set_value();
    CHECK(fetching.get() == "ID2");
  }
  SECTION("refused") {
    CHECK(source->Refused(first));
    std::future<std::string> fetching =
        std::async(std::launch::async, [&] { return source->Get()->access_key_id; });
    arrived.get_future().wait();
    CHECK(source->Refused(first));
    std::future<std::string> waiting =
        std::async(std::launch::async, [&] { return source->Get()->access_key_id; });
    go.set_value();
    CHECK(fetching.get() == "ID2");
    CHECK(waiting.get() == "ID2");
    CHECK(server.requests().size() == 2);
  }
}

// ---- The instance's metadata ----

Answer Metadata(const LoopbackHttp::Request& request) {
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  if (request.path == "/latest/api/token" && request.method == "PUT" &&
      !request.header("x-aws-ec2-metadata-token-ttl-seconds").empty())
    return {200, "the-token", {}, false};
  if (request.header("x-aws-ec2-metadata-token") != "the-token") return {401, "", {}, false};
  if (request.path == roles) return {200, "the-role\n", {}, false};
  if (request.path == roles + "the-role") return Keys("ID", "18:00:00");
  return {404, "", {}, false};
}

TEST_CASE("dynamodb credentials: the instance's metadata, version 2") {
  World world;
  LoopbackHttp server([](const LoopbackHttp::Request& request, int) { return Metadata(request); });
  world.UseInstance(server);
  CHECK(world.Find() == "ID/secret/token");
  CHECK(server.requests().size() == 3);
  world.environment["AWS_EC2_METADATA_DISABLED"] = "True";
  CHECK(world.Find() == "UNAUTHENTICATED");
  CHECK(server.requests().size() == 3);
}

TEST_CASE("dynamodb credentials: metadata of version 1 is not asked") {
  World world;
  LoopbackHttp server([](const LoopbackHttp::Request& request, int) {
    return request.method == "PUT" ? Answer{404, "", {}, false} : Keys("ID", "18:00:00");
  });
  world.UseInstance(server);
  CHECK(world.Find() == "UNAUTHENTICATED");
  CHECK(server.requests().size() == 1);
}

TEST_CASE("dynamodb credentials: an instance without a role") {
  World world;
  LoopbackHttp server([](const LoopbackHttp::Request& request, int) {
    return request.method == "PUT" ? Answer{200, "t", {}, false} : Answer{404, "", {}, false};
  });
  world.UseInstance(server);
  const absl::Status status = world.Source()->Get().status();
  CHECK(absl::IsUnauthenticated(status));
  CHECK(absl::StrContains(status.message(), "the instance has no role"));
}

TEST_CASE("dynamodb credentials: metadata that fails after its token is not known") {
  World world;
  LoopbackHttp server([](const LoopbackHttp::Request& request, int) {
    return request.method == "PUT" ? Answer{200, "t", {}, false} : Answer{503, "", {}, false};
  });
  world.UseInstance(server);
  CHECK(world.Find() == "UNAVAILABLE");
}

}  // namespace
}  // namespace semaphored::dynamodb
