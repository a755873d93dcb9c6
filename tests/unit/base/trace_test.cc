#include "server/base/trace.h"

#include <catch2/catch_test_macros.hpp>

namespace semaphored {

TEST_CASE("trace: a traceparent is read", "[trace]") {
  const auto trace = ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  REQUIRE(trace.has_value());
  CHECK(trace->present());
  CHECK(trace->TraceId() == "0af7651916cd43dd8448eb211c80319c");
  CHECK(trace->SpanId() == "b7ad6b7169203331");
  CHECK(trace->sampled);
  CHECK_FALSE(TraceContext{}.present());
  const auto left_out = ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02");
  REQUIRE(left_out.has_value());
  CHECK_FALSE(left_out->sampled);
}

TEST_CASE("trace: a later version may say more", "[trace]") {
  const std::string later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  CHECK(ParseTraceparent(later).has_value());
  CHECK(ParseTraceparent(later + "-what-will-be").has_value());
  CHECK_FALSE(ParseTraceparent(later + ".what").has_value());
}

TEST_CASE("trace: what is no traceparent", "[trace]") {
  for (const char* text : {"", "nonsense", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
                           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x"}) {
    INFO(text);
    CHECK_FALSE(ParseTraceparent(text).has_value());
  }
}

}  // namespace semaphored
