// Spans as a request of OTLP over HTTP, in JSON (https://opentelemetry.io/docs/specs/otlp/): ids in
// hexadecimal, 64-bit numbers as text, enums as numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/base/spans.h"

namespace semaphored::otlp {

// Of what the spans are.
struct Resource {
  std::string version;
  std::string node_id;
};

// An ExportTraceServiceRequest. Bytes that are not UTF-8 become U+FFFD.
std::string TraceRequest(const Resource& resource, const std::vector<Span>& spans);

// How many spans the answer says were not taken; 0 for one that says nothing of it.
uint64_t RejectedSpans(const std::string& answer);

}  // namespace semaphored::otlp
