// Spans on their way to a collector: the form of the request, and a collector that does not do its part.
#include "server/otlp/span_exporter.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "server/otlp/trace_json.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::otlp {
namespace {

using Json = nlohmann::json;

Span MakeSpan(uint64_t id) {
  Span span;
  span.name = "wait";
  span.trace_high = 0x0af7651916cd43dd;
  span.trace_low = 0x8448eb211c80319c;
  span.id = id;
  span.parent = 0xb7ad6b7169203331;
  span.began_unix_ns = 1'544'712'660'000'000'000;
  span.ended_unix_ns = 1'544'712'661'000'000'001;
  span.semaphore = "team/db";
  span.holder = "bad \xff byte";
  span.permits = 2;
  span.token = UINT64_MAX;
  span.outcome = "GRANTED";
  return span;
}

std::string Attribute(const Json& span, const std::string& key) {
  for (const Json& attribute : span["attributes"]) {
    if (attribute["key"] != key) continue;
    const Json& value = attribute["value"];
    return value.contains("stringValue") ? value["stringValue"] : value["intValue"];
  }
  return "";
}

// Until the exporter has done so much, or a generous while has passed.
template <typename Condition>
bool SoonTrue(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST_CASE("otlp: a request has the form of the JSON mapping") {
  Span span = MakeSpan(7);
  span.links.push_back({1, 2, 3});
  Span failed = MakeSpan(8);
  failed.parent = 0;
  failed.failed = true;
  failed.outcome = "FULL";
  const Json request = Json::parse(TraceRequest({"1.2.3", "node-a"}, {span, failed}));
  const Json& resource = request["resourceSpans"][0];
  CHECK(Attribute(resource["resource"], "service.name") == "semaphored");
  CHECK(Attribute(resource["resource"], "service.instance.id") == "node-a");
  const Json& scope = resource["scopeSpans"][0];
  CHECK(scope["scope"] == Json({{"name", "semaphored"}, {"version", "1.2.3"}}));
  const Json& sent = scope["spans"][0];
  CHECK(sent["traceId"] == "0af7651916cd43dd8448eb211c80319c");
  CHECK(sent["spanId"] == "0000000000000007");
  CHECK(sent["parentSpanId"] == "b7ad6b7169203331");
  CHECK(sent["name"] == "wait");
  CHECK(sent["kind"] == 2);
  CHECK(sent["startTimeUnixNano"] == "1544712660000000000");
  CHECK(sent["endTimeUnixNano"] == "1544712661000000001");
  CHECK(Attribute(sent, "semaphored.semaphore") == "team/db");
  CHECK(Attribute(sent, "semaphored.permits") == "2");
  CHECK(Attribute(sent, "semaphored.token") == "18446744073709551615");
  CHECK(Attribute(sent, "semaphored.holder") == "bad \xef\xbf\xbd byte");
  CHECK(sent["links"][0]["traceId"] == "00000000000000010000000000000002");
  CHECK(sent["links"][0]["spanId"] == "0000000000000003");
  CHECK(sent["status"] == Json::object());
  const Json& refused = scope["spans"][1];
  CHECK_FALSE(refused.contains("parentSpanId"));
  CHECK_FALSE(refused.contains("links"));
  CHECK(refused["status"] == Json({{"code", 2}, {"message", "FULL"}}));
}

TEST_CASE("otlp: what an answer says of spans that were not taken") {
  CHECK(RejectedSpans("") == 0);
  CHECK(RejectedSpans("{}") == 0);
  CHECK(RejectedSpans("[") == 0);
  CHECK(RejectedSpans(R"({"partialSuccess":[]})") == 0);
  CHECK(RejectedSpans(R"({"partialSuccess":{"rejectedSpans":-1}})") == 0);
  CHECK(RejectedSpans(R"({"partialSuccess":{"rejectedSpans":3}})") == 3);
  CHECK(RejectedSpans(R"({"partialSuccess":{"rejectedSpans":"4"}})") == 4);
}

TEST_CASE("otlp: spans are sent, and what waits at a stop too") {
  LoopbackHttp collector([](const LoopbackHttp::Request&, int) {
    return LoopbackHttp::Answer{200, R"({"partialSuccess":{"rejectedSpans":"1"}})", {}, false};
  });
  SpanExporter exporter(collector.address() + "/", {"1", "n"});
  for (uint64_t id = 1; id <= 10; ++id) exporter.Push(MakeSpan(id));
  exporter.Stop();
  CHECK(exporter.figures().sent == 9);
  CHECK(exporter.figures().dropped == 1);
  exporter.Push(MakeSpan(11));
  CHECK(exporter.figures().dropped == 2);
  const auto requests = collector.requests();
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].method == "POST");
  CHECK(requests[0].path == "/v1/traces");
  CHECK(requests[0].header("content-type") == "application/json");
}

TEST_CASE("otlp: a collector that is busy is asked again, one that refuses is not") {
  LoopbackHttp collector([](const LoopbackHttp::Request&, int number) {
    return LoopbackHttp::Answer{number == 1 ? 503 : number == 2 ? 200 : 400, "", {}, false};
  });
  SpanExporter exporter(collector.address(), {"1", "n"});
  exporter.Push(MakeSpan(1));
  REQUIRE(SoonTrue([&] { return exporter.figures().sent == 1; }));
  exporter.Push(MakeSpan(2));
  REQUIRE(SoonTrue([&] { return exporter.figures().dropped == 1; }));
  CHECK(collector.requests().size() == 3);
}

TEST_CASE("otlp: a collector that hangs costs spans, and neither time nor memory") {
  // It takes connections, and reads nothing.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(listener, 16) == 0);
  REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  SpanExporter exporter("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), {"1", "n"});
  constexpr uint64_t kMany = 3 * SpanExporter::kSpansMax;
  for (uint64_t id = 1; id <= kMany; ++id) exporter.Push(MakeSpan(id));
  const uint64_t dropped = exporter.figures().dropped;
  CHECK(dropped >= kMany - SpanExporter::kSpansMax - SpanExporter::kBatch);
  const auto began = std::chrono::steady_clock::now();
  exporter.Stop();
  // Twice kRequestTime, and what a busy machine takes. Each batch that waits would take as long again.
  CHECK(std::chrono::steady_clock::now() - began < 6 * SpanExporter::kRequestTime);
  CHECK(exporter.figures().sent == 0);
  CHECK(exporter.figures().dropped == kMany);
  close(listener);
}

}  // namespace
}  // namespace semaphored::otlp
