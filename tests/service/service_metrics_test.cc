// The daemon's figures as Prometheus reads them.
#include <prometheus/text_serializer.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/observe/exporter.h"
#include "server/observe/families.h"

namespace semaphored {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("metrics: a label is escaped, and large counts are exact", "[metrics]") {
  DaemonFigures figures;
  figures.complete = true;
  SessionsFigures::Named odd;
  odd.semaphore = "a\"b\\c\nd";
  odd.here.grants = 123'456'789'012'345;
  odd.here.wait_us.Observe(kWaitBounds, 1'000);
  odd.here.wait_us.Observe(kWaitBounds, 1'001);
  odd.here.wait_us.Observe(kWaitBounds, 7'200'000'001);
  figures.sessions.semaphores = {odd, {}};
  const std::string text =
      prometheus::TextSerializer().Serialize(MakeFamilies(figures, ProcessFigures{}, {}, 0));
  CHECK_THAT(text, ContainsSubstring(
                       "semaphored_grants_total{semaphore=\"a\\\"b\\\\c\\nd\"} 123456789012345\n"));
  CHECK_THAT(text, ContainsSubstring("semaphored_grants_total{semaphore=\"(rest)\"} 0\n"));
  const std::string wait = "semaphored_wait_seconds_bucket{semaphore=\"a\\\"b\\\\c\\nd\",le=";
  CHECK_THAT(text, ContainsSubstring(wait + "\"0.001\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring(wait + "\"0.005\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring(wait + "\"7200\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring(wait + "\"+Inf\"} 3\n"));
}

TEST_CASE("metrics: without the reactor's answer there is the rest", "[metrics]") {
  DaemonFigures figures;
  figures.engine.unknown = 7;
  const std::string text =
      prometheus::TextSerializer().Serialize(MakeFamilies(figures, ProcessFigures{}, {}, 0));
  CHECK_THAT(text, ContainsSubstring("semaphored_scrape_complete 0\n"));
  CHECK_THAT(text, ContainsSubstring("semaphored_engine_unknown_outcomes_total 7\n"));
  CHECK_THAT(text, !ContainsSubstring("semaphored_grants_total"));
  CHECK_THAT(text, !ContainsSubstring("semaphored_heartbeat_age_seconds"));
}

TEST_CASE("metrics: an address in use is an error", "[metrics]") {
  const auto gather = [] { return DaemonFigures{}; };
  auto first = StartExporter("127.0.0.1:0", SystemClock(), gather);
  REQUIRE(first.ok());
  CHECK((*first)->address() != "127.0.0.1:0");
  const auto second = StartExporter((*first)->address(), SystemClock(), gather);
  CHECK(absl::IsUnavailable(second.status()));
}

}  // namespace semaphored
