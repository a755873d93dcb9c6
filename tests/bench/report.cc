#include "tests/bench/report.h"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace semaphored::bench {
namespace {

double Micros(int64_t duration_ns) { return static_cast<double>(duration_ns) / 1000.0; }

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char line[256];
  std::snprintf(line, sizeof(line), format, args...);
  return line;
}

}  // namespace

void Report::Error(const std::string& text) {
  if (errors++ == 0) first_error = text;
}

std::string ToJson(const Report& report) {
  nlohmann::ordered_json json;
  json["title"] = report.title;
  json["figures"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : report.figures) json["figures"][name] = value;
  json["latency_us"] = nlohmann::ordered_json::object();
  for (const auto& [name, histogram] : report.latencies) {
    json["latency_us"][name] = {{"count", histogram.count()},
                                {"p50", Micros(histogram.QuantileNs(0.50))},
                                {"p90", Micros(histogram.QuantileNs(0.90))},
                                {"p99", Micros(histogram.QuantileNs(0.99))},
                                {"max", Micros(histogram.max_ns())}};
  }
  json["errors"] = report.errors;
  json["first_error"] = report.first_error;
  // An error's text may carry any bytes; the output must stay JSON.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ToText(const Report& report) {
  std::string text = report.title + "\n";
  for (const auto& [name, value] : report.figures) {
    text += Format("  %-32s %14.1f\n", name.c_str(), value);
  }
  if (!report.latencies.empty()) {
    text += Format("  %-18s %10s %10s %10s %10s %10s\n", "latency in us", "count", "p50", "p90",
                   "p99", "max");
  }
  for (const auto& [name, histogram] : report.latencies) {
    text += Format("  %-18s %10llu %10.0f %10.0f %10.0f %10.0f\n", name.c_str(),
                   static_cast<unsigned long long>(histogram.count()),
                   Micros(histogram.QuantileNs(0.50)), Micros(histogram.QuantileNs(0.90)),
                   Micros(histogram.QuantileNs(0.99)), Micros(histogram.max_ns()));
  }
  text += Format("  %-32s %14llu\n", "errors", static_cast<unsigned long long>(report.errors));
  if (report.errors > 0) text += "  first error: " + report.first_error + "\n";
  return text;
}

}  // namespace semaphored::bench
