#include "server/otlp/trace_json.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace semaphored::otlp {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kKindServer = 2;    // SPAN_KIND_SERVER
constexpr int kStatusError = 2;   // STATUS_CODE_ERROR
constexpr int kFlagsSampled = 1;  // W3C's trace flags.

std::string TraceId(uint64_t high, uint64_t low) {
  return fmt::format("{:016x}{:016x}", high, low);
}
std::string SpanId(uint64_t id) { return fmt::format("{:016x}", id); }

Json Text(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
Json Number(const char* key, uint64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

Json ToJson(const SpanLink& link) {
  return {{"traceId", TraceId(link.trace_high, link.trace_low)},
          {"spanId", SpanId(link.span)},
          {"attributes", Json::array({Text("semaphored.link", "released_by")})},
          {"flags", kFlagsSampled}};
}

Json ToJson(const Span& span) {
  Json json = {{"traceId", TraceId(span.trace_high, span.trace_low)}, {"spanId", SpanId(span.id)}};
  if (span.parent != 0) json["parentSpanId"] = SpanId(span.parent);
  json["flags"] = kFlagsSampled;
  json["name"] = span.name;
  json["kind"] = kKindServer;
  json["startTimeUnixNano"] = std::to_string(span.began_unix_ns);
  json["endTimeUnixNano"] = std::to_string(span.ended_unix_ns);
  Json& attributes = json["attributes"] = Json::array();
  attributes.push_back(Text("semaphored.semaphore", span.semaphore));
  attributes.push_back(Text("semaphored.outcome", span.outcome));
  if (!span.holder.empty()) attributes.push_back(Text("semaphored.holder", span.holder));
  if (span.permits != 0) attributes.push_back(Number("semaphored.permits", span.permits));
  // As text: it may be above 2^63, which is the most that an attribute can be.
  if (span.token != 0) attributes.push_back(Text("semaphored.token", std::to_string(span.token)));
  if (!span.links.empty()) {
    Json& links = json["links"] = Json::array();
    for (const SpanLink& link : span.links) links.push_back(ToJson(link));
  }
  json["status"] = Json::object();
  if (span.failed) json["status"] = {{"code", kStatusError}, {"message", span.outcome}};
  return json;
}

}  // namespace

std::string TraceRequest(const Resource& resource, const std::vector<Span>& spans) {
  Json all = Json::array();
  for (const Span& span : spans) all.push_back(ToJson(span));
  const Json scope = {{"name", "semaphored"}, {"version", resource.version}};
  const Json of = {{"attributes", Json::array({Text("service.name", "semaphored"),
                                               Text("service.version", resource.version),
                                               Text("service.instance.id", resource.node_id)})}};
  const Json scopes = Json::array({Json{{"scope", scope}, {"spans", std::move(all)}}});
  const Json request = {
      {"resourceSpans", Json::array({Json{{"resource", of}, {"scopeSpans", scopes}}})}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

uint64_t RejectedSpans(const std::string& answer) {
  const Json json = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("partialSuccess")) return 0;
  const Json& partial = json["partialSuccess"];
  if (!partial.is_object() || !partial.contains("rejectedSpans")) return 0;
  const Json& rejected = partial["rejectedSpans"];
  if (rejected.is_number_unsigned()) return rejected.get<uint64_t>();
  uint64_t count = 0;
  if (rejected.is_string()) {
    const std::string& text = rejected.get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), count);
  }
  return count;
}

}  // namespace semaphored::otlp
