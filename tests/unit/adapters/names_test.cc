#include "adapters/names.h"

#include <string>

#include "adapters/common/http_target.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored {
namespace {

TEST_CASE("names: no segment of a name is empty, a dot or two") {
  for (const std::string& name : {std::string("a"), std::string("a/b/c"), std::string("aZ9._-/:@+"),
                                  std::string("a/.b"), std::string("a/..b"), std::string("a..b/c."),
                                  std::string("a/..."), std::string(255, 'n')}) {
    INFO(name);
    CHECK(IsSemaphoreName(name));
    CHECK(IsSemaphorePrefix(name));
    CHECK(IsSemaphorePrefix(name + "/") == (name.size() < 255));
  }
  for (const std::string& name :
       {std::string("."), std::string(".."), std::string(".a"), std::string("/"), std::string("/a"),
        std::string("a//b"), std::string("a/./b"), std::string("a/../b"), std::string("a/.."),
        std::string("a/."), std::string("a/../../../agent/monitor"), std::string("../a"),
        std::string("a b"), std::string("a#b"), std::string("a%2e"), std::string("a\\b"),
        std::string("a\0b", 3), std::string(256, 'n')}) {
    INFO(name);
    CHECK_FALSE(IsSemaphoreName(name));
    CHECK_FALSE(IsSemaphorePrefix(name));
  }
  CHECK_FALSE(IsSemaphoreName(""));
  CHECK(IsSemaphorePrefix(""));
  CHECK_FALSE(IsSemaphoreName("a/"));
  CHECK(IsSemaphorePrefix("a/"));
  CHECK_FALSE(IsSemaphorePrefix("a//"));
  CHECK_FALSE(IsSemaphorePrefix("a/../"));
}

TEST_CASE("http target: each segment and each value is encoded") {
  const auto url = [](const HttpTarget& target) { return target.UrlAt("http://h:1"); };
  CHECK(url("/v1/txn") == "http://h:1/v1/txn");
  CHECK(url(HttpTarget("/v1/kv/", "a/b")) == "http://h:1/v1/kv/a/b");
  CHECK(url(HttpTarget("/v1/kv/", "a/")) == "http://h:1/v1/kv/a/");
  CHECK(url(HttpTarget("/v1/kv/", "a?b&c#d e%2e+:@")) ==
        "http://h:1/v1/kv/a%3Fb%26c%23d%20e%252e%2B%3A%40");
  CHECK(url(HttpTarget("/v1/kv/", std::string("\0\xff\n", 3))) == "http://h:1/v1/kv/%00%FF%0A");
  CHECK(url(HttpTarget("/v1/kv/", "a").Option("keys").Option("dc", "x&y=z/w")) ==
        "http://h:1/v1/kv/a?keys&dc=x%26y%3Dz%2Fw");
  CHECK(url(HttpTarget("/v1/txn?consistent").Option("dc", "d")) ==
        "http://h:1/v1/txn?consistent&dc=d");
}

TEST_CASE("http target: a path that climbs has no URL") {
  for (const char* resource : {"..", ".", "a/..", "a/../b", "a/./b", "/a", "a//b", "a//", "/"}) {
    INFO(resource);
    CHECK(HttpTarget("/v1/kv/", resource).Option("keys").UrlAt("http://h:1").empty());
  }
}

}  // namespace
}  // namespace semaphored
