// What the URLs of the engines have in common.
#include "adapters/common/url_options.h"

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored {
namespace {

TEST_CASE("url: its parts") {
  const UrlParts all = SplitUrl("amqps://u:p@[::1]:9/a/b?c=d://e&f");
  CHECK(all.scheme == "amqps");
  CHECK(all.authority == "u:p@[::1]:9");
  CHECK(all.path == "a/b");
  CHECK(all.options == "c=d://e&f");
  CHECK(SplitUrl("x:y").scheme.empty());
  const auto split = [](const char* authority) {
    const std::optional<HostAndPort> place = SplitAuthority(authority);
    return place ? absl::StrCat(place->host, " ", place->port) : "not understood";
  };
  CHECK(split("h:99") == "h 99");
  CHECK(split("h") == "h ");
  CHECK(split("[::1]:99") == "[::1] 99");
  CHECK(split("[::1]") == "[::1] ");
  CHECK(split("[::1") == "not understood");
  CHECK(split("[::1]9") == "not understood");
  int port = 0;
  for (const char* text : {"0", "65536", "x", "-1", ""}) CHECK_FALSE(ReadPort(text, &port));
  CHECK(ReadPort("65535", &port));
  CHECK(port == 65'535);
}

TEST_CASE("url: options, and what is wrong with them") {
  std::string text;
  std::chrono::seconds time{0};
  bool yes = false;
  UrlOptions options(
      [](absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat("x: ", why)); });
  options.Text("text", &text);
  options.Number("time_s", -1, 60, &time);
  options.YesOrNo("sure", &yes);
  CHECK(options.ReadAll("").ok());
  CHECK(options.ReadAll("text=a%3Db=c&&sure=yes&time_s=60").ok());
  CHECK(text == "a=b=c");
  CHECK(time == std::chrono::seconds(60));
  CHECK(yes);
  const auto why = [&](const char* all) { return std::string(options.ReadAll(all).message()); };
  CHECK(why("Text=secret") == "x: the option 'Text' is not known; there are text, time_s and sure");
  CHECK(why("secret") == "x: after the '?' stand options, name=value");
  CHECK(why("text=%zz") == absl::StrCat("x: ", kNotUnescaped));
  CHECK(why("time_s=61") == "x: time_s=61: it must be a number from -1 to 60");
  CHECK(why("sure=perhaps") == "x: sure must be yes or no");
  CHECK(time == std::chrono::seconds(60));
}

}  // namespace
}  // namespace semaphored
