// What fails without a caller that receives the error is counted.
#include "adapters/common/upkeep.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "adapters/common/client_names.h"
#include "adapters/consul/format.h"
#include "adapters/consul/request_sweep.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/consul/daemon.h"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::consul {
namespace {

using std::chrono::seconds;

// What Consul answers, read to its end.
std::string AnswerOf(uint16_t port, const std::string& request) {
  const int socket_to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(socket_to, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(socket_to, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char buffer[65536];
    for (ssize_t got = 0; (got = recv(socket_to, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<size_t>(got));
  }
  close(socket_to);
  return answer;
}

// Passes requests on to Consul, but for those that the test answers itself.
class ConsulFront {
 public:
  using Instead = std::function<std::optional<LoopbackHttp::Answer>(const LoopbackHttp::Request&)>;

  explicit ConsulFront(const TestPrefix& prefix)
      : consul_(prefix.port()),
        http_([this](const LoopbackHttp::Request& request, int) { return Handle(request); }) {}

  uint16_t port() const {
    const std::string address = http_.address();
    return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  void Answer(Instead instead) {
    const std::lock_guard lock(mutex_);
    instead_ = std::move(instead);
  }

 private:
  LoopbackHttp::Answer Handle(const LoopbackHttp::Request& request) {
    {
      const std::lock_guard lock(mutex_);
      if (instead_) {
        if (std::optional<LoopbackHttp::Answer> answer = instead_(request)) return *answer;
      }
    }
    // A question that is kept for long would keep the test's end waiting.
    const std::string path = absl::StrReplaceAll(request.path, {{"wait=50s", "wait=1s"}});
    const std::string text =
        AnswerOf(consul_, absl::StrCat(request.method, " ", path, " HTTP/1.0\r\nContent-Length: ",
                                       request.body.size(), "\r\n\r\n", request.body));
    const size_t head = text.find("\r\n\r\n");
    if (head == std::string::npos) return {500, "no answer", {}, false};
    LoopbackHttp::Answer answer;
    answer.status = std::stoi(text.substr(text.find(' ') + 1));
    answer.body = text.substr(head + 4);
    const size_t index = text.find("X-Consul-Index: ");
    if (index < head)
      answer.headers.push_back(text.substr(index, text.find("\r\n", index) - index));
    return answer;
  }

  const uint16_t consul_;
  std::mutex mutex_;
  Instead instead_;
  LoopbackHttp http_;
};

std::optional<LoopbackHttp::Answer> Forbidden() {
  return LoopbackHttp::Answer{403, "Permission denied", {}, false};
}

struct Fronted {
  TestPrefix prefix;
  Keys keys = prefix.keys();
  ConsulFront front{prefix};
  Daemon daemon{prefix, "a", "?session_ttl_s=10", front.port()};

  uint64_t errors(UpkeepWork work) const {
    return daemon.upkeep().figures().errors[static_cast<size_t>(work)];
  }
  bool Counts(UpkeepWork work) {
    return daemon.IdleUntil([&] { return errors(work) > 0; });
  }
};

TEST_CASE("consul: a first start goes on when the answer of its first write is lost", "[consul]") {
  const bool lands = GENERATE(true, false);
  const TestPrefix prefix;
  const std::string version = prefix.keys().Version();
  ConsulFront front(prefix);
  int lost = 0;
  front.Answer([&](const LoopbackHttp::Request& request) {
    const bool writes =
        absl::StrContains(request.body, version) && absl::StrContains(request.body, "\"cas\"");
    if (!writes || ++lost > 1) return std::optional<LoopbackHttp::Answer>();
    if (lands) prefix.Put(version, "1");
    return std::optional(LoopbackHttp::Answer{200, "", {}, /*lose=*/true});
  });
  const auto engine = OpenEngine(prefix.UrlText("", front.port()));
  INFO(engine.status().ToString());
  CHECK(engine.ok());
  CHECK(lost == (lands ? 1 : 2));
  CHECK(prefix.Value(version) == "1");
}

TEST_CASE("consul upkeep: sessions and requests that are not looked after are counted",
          "[consul]") {
  Fronted fronted;
  fronted.front.Answer([&](const LoopbackHttp::Request& request) {
    const bool listed = absl::StrContains(request.path, fronted.keys.Requests()) &&
                        absl::StrContains(request.path, "keys");
    return listed || absl::StrContains(request.path, "/v1/session/node/") ? Forbidden()
                                                                          : std::nullopt;
  });
  CHECK(fronted.Counts(UpkeepWork::kSessions));
  CHECK(fronted.Counts(UpkeepWork::kRequests));
  CHECK(fronted.errors(UpkeepWork::kNotices) == 0);
}

TEST_CASE("consul upkeep: notices that were heard and cannot be deleted are counted", "[consul]") {
  Fronted fronted;
  const std::string notices = fronted.keys.Notices(fronted.daemon.self().number);
  fronted.front.Answer([&](const LoopbackHttp::Request& request) {
    return absl::StrContains(request.body, notices) && absl::StrContains(request.body, "\"delete\"")
               ? Forbidden()
               : std::nullopt;
  });
  // More than are kept.
  for (int i = 0; i < 300; ++i)
    fronted.prefix.Put(fronted.keys.Notices(fronted.daemon.self().number, absl::StrCat("s", i)),
                       "1", 0);
  CHECK(fronted.Counts(UpkeepWork::kNotices));
}

TEST_CASE("consul upkeep: keys of dead nodes that cannot be deleted are counted", "[consul]") {
  Fronted fronted;
  { const Daemon ended(fronted.prefix, "b"); }
  NodeStore& nodes = fronted.daemon.nodes();
  const auto observed = nodes.Observe().value();
  for (const NodeStore::Node& node : observed) {
    if (node.node_id == "b") REQUIRE(nodes.DeclareDead(node).value());
  }
  fronted.front.Answer([](const LoopbackHttp::Request& request) {
    return absl::StrContains(request.body, "delete-tree") ? Forbidden() : std::nullopt;
  });
  CHECK(nodes.Observe()->size() == 2);
  CHECK(fronted.errors(UpkeepWork::kNodes) == 1);
}

// Such an answer looks like that to a condition that did not hold.
TEST_CASE("consul upkeep: a sweep whose token does not let it delete fails, and is soon repeated",
          "[consul]") {
  TestPrefix prefix;
  const Keys keys = prefix.keys();
  ConsulFront front(prefix);
  Client client(prefix.ParsedUrl("", front.port()));
  RequestSweep sweep(&keys, seconds(1000));
  RequestBlock block;
  block.rows[0] = MakeRow(0, ledger::RequestRow::State::kDone);
  const std::string one_shot = ledger::NameOfOneShot({1, 1});
  prefix.Put(keys.RequestBlock(one_shot, 0), WriteRequestBlock(block), 0);
  prefix.Put(keys.RequestBlock("silent", 0), WriteRequestBlock(block), 0);
  const SteadyTime start = SteadyClock::now();
  REQUIRE(sweep.SweepIfDue(&client, start).ok());
  front.Answer([](const LoopbackHttp::Request& request) {
    return absl::StrContains(request.body, "\"delete")
               ? std::optional<LoopbackHttp::Answer>(
                     {409,
                      R"({"Results":null,"Errors":[{"OpIndex":0,"What":"Permission denied: x"}]})",
                      {},
                      false})
               : std::nullopt;
  });
  CHECK(absl::IsPermissionDenied(sweep.SweepIfDue(&client, start + seconds(1000))));
  CHECK(sweep.SweepIfDue(&client, start + seconds(1059)).ok());
  CHECK(absl::IsPermissionDenied(sweep.SweepIfDue(&client, start + seconds(1060))));
  front.Answer(nullptr);
  CHECK(sweep.SweepIfDue(&client, start + seconds(1120)).ok());
  CHECK(prefix.Tree(keys.Client(one_shot)).empty());
  CHECK(prefix.Tree(keys.Client("silent")).empty());
}

}  // namespace
}  // namespace semaphored::consul
