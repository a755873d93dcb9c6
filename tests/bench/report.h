// What a run of the load generator found, and how it is printed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/histogram.h"

namespace semaphored::bench {

struct Report {
  // What was run: "session", "contended unary", "etcd" …
  std::string title;
  // In the order in which they are printed. The unit is the end of the name: `cycles_per_s`.
  std::vector<std::pair<std::string, double>> figures;
  std::vector<std::pair<std::string, Histogram>> latencies;
  // Anything that did not go as it should. A run with errors proves nothing.
  uint64_t errors = 0;
  std::string first_error;

  void Figure(std::string name, double value) { figures.emplace_back(std::move(name), value); }
  void Latency(std::string name, const Histogram& histogram) {
    latencies.emplace_back(std::move(name), histogram);
  }
  // Counts an error and keeps the text of the first.
  void Error(const std::string& text);
};

// One line of JSON: {"title", "figures": {…}, "latency_us": {name: {count, p50, p90, p99, max}},
// "errors", "first_error"}.
std::string ToJson(const Report& report);

// A table for people.
std::string ToText(const Report& report);

}  // namespace semaphored::bench
