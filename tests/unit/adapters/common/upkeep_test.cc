#include "adapters/common/upkeep.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

uint64_t ErrorsOf(const Upkeep& upkeep, UpkeepWork work) {
  return upkeep.figures().errors[static_cast<size_t>(work)];
}

TEST_CASE("upkeep: errors are counted by work, and logged once in ten seconds for each") {
  std::ostringstream written;
  const auto before = spdlog::default_logger();
  auto logger = std::make_shared<spdlog::logger>(
      "upkeep", std::make_shared<spdlog::sinks::ostream_sink_mt>(written));
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);

  Upkeep upkeep;
  SteadyTime now = SteadyTime() + std::chrono::hours(1);
  const absl::Status refused = absl::PermissionDeniedError("postgres: permission denied (42501)");
  for (int i = 0; i < 1000; ++i) upkeep.Failed(UpkeepWork::kHistory, refused, now);
  upkeep.Failed(UpkeepWork::kNodes, refused, now);
  now += RareLine::kBetween;
  upkeep.Failed(UpkeepWork::kHistory, refused, now);
  spdlog::set_default_logger(before);

  CHECK(ErrorsOf(upkeep, UpkeepWork::kHistory) == 1001);
  CHECK(ErrorsOf(upkeep, UpkeepWork::kNodes) == 1);
  CHECK(ErrorsOf(upkeep, UpkeepWork::kRequests) == 0);
  CHECK(written.str() ==
        "upkeep of the engine: history: postgres: permission denied (42501)\n"
        "upkeep of the engine: nodes: postgres: permission denied (42501)\n"
        "upkeep of the engine: history: postgres: permission denied (42501)"
        " (and 999 others since the last such line)\n");
}

TEST_CASE("upkeep: each work has a name of its own") {
  std::set<std::string> names;
  for (size_t i = 0; i < kUpkeepWorks; ++i) names.insert(NameOf(static_cast<UpkeepWork>(i)));
  CHECK(names.size() == kUpkeepWorks);
  CHECK(!names.contains(""));
}

}  // namespace
}  // namespace semaphored
