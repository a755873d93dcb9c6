// The client over real gRPC, with its threads, against a daemon that can be silenced, stopped and
// made to forget.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semaphore/client.h"
#include "client/semaphore/connection.h"
#include "client/semaphore/errors.h"
#include "tests/service/client_fake_daemon.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;
using test::FakeDaemon;

constexpr std::chrono::seconds kBound(20);

// Waits until `condition` holds, and says whether it did within the bound.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kBound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

std::unique_ptr<Client> Connect(std::vector<std::string> endpoints, ClientOptions options = {}) {
  options.endpoints = std::move(endpoints);
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(options);
  REQUIRE(client.ok());
  return *std::move(client);
}

TEST_CASE("acquire, hold and release") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 2, .permits = 2});
  REQUIRE(permit.ok());
  CHECK(permit->slots().size() == 2);
  CHECK(permit->token() > 0);
  CHECK(permit->held());
  CHECK_FALSE(permit->fail_open());
  CHECK(daemon.held("db") == 2);
  CHECK(permit->Release().ok());
  CHECK_FALSE(*permit);
  CHECK(daemon.held("db") == 0);
}

TEST_CASE("the destructor gives back, and a moved-from permit holds nothing") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  {
    absl::StatusOr<Permit> first = client->Acquire("db", {.limit = 1});
    REQUIRE(first.ok());
    Permit second = *std::move(first);
    CHECK_FALSE(*first);
    CHECK(second.held());
    CHECK(client->TryAcquire("db").status().code() == absl::StatusCode::kResourceExhausted);
  }
  CHECK(client->Acquire("db").ok());
}

TEST_CASE("a full semaphore: FULL at once, WAIT_EXPIRED after a wait, or cancelled") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> held = client->Acquire("db", {.limit = 1});
  REQUIRE(held.ok());
  CHECK(ErrorReason(client->TryAcquire("db").status()) == "FULL");
  const auto soon = std::chrono::steady_clock::now() + milliseconds(50);
  CHECK(ErrorReason(client->AcquireUntil("db", soon).status()) == "WAIT_EXPIRED");

  std::stop_source stop;
  std::atomic<int> queued{0};
  AcquireOptions options;
  options.cancel = stop.get_token();
  options.on_queued = [&](const QueuePlace& place) { queued = static_cast<int>(place.position); };
  auto waiting = std::async(std::launch::async, [&] { return client->Acquire("db", options); });
  REQUIRE(Eventually([&] { return queued.load() == 1; }));
  stop.request_stop();
  CHECK(waiting.get().status().code() == absl::StatusCode::kCancelled);
  CHECK(Eventually([&] { return daemon.waiting("db") == 0; }));
}

TEST_CASE("callback style: results come on one thread, and callbacks may call the client") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  std::promise<int> all;
  std::vector<std::thread::id> threads;
  std::atomic<int> done{0};
  for (int i = 0; i < 20; ++i) {
    client->AcquireAsync("db", {.limit = 3}, [&](absl::StatusOr<Permit> permit) {
      threads.push_back(std::this_thread::get_id());
      CHECK(permit.ok());
      CHECK(client->Acquire("inner", {.limit = 1}).ok());
      permit->ReleaseAsync([&](const absl::Status& status) {
        CHECK(status.ok());
        if (++done == 20) all.set_value(1);
      });
    });
  }
  REQUIRE(all.get_future().wait_for(kBound) == std::future_status::ready);
  CHECK(std::all_of(threads.begin(), threads.end(), [&](auto id) { return id == threads[0]; }));
}

TEST_CASE("many threads never hold more than the limit") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 3});
        const int now = ++inside;
        int before = most.load();
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(most.load() <= 3);
  CHECK(Eventually([&] { return daemon.held("db") == 0; }));
}

TEST_CASE("a restarted daemon: the permit stays, the waiter goes on") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> held = client->Acquire("db", {.limit = 1});
  REQUIRE(held.ok());
  auto waiting = std::async(std::launch::async, [&] { return client->Acquire("db"); });
  REQUIRE(Eventually([&] { return daemon.waiting("db") == 1; }));
  daemon.Stop();
  daemon.Start();
  REQUIRE(Eventually([&] { return daemon.opens() == 2; }));
  CHECK(held->held());
  CHECK(held->Release().ok());
  REQUIRE(waiting.wait_for(kBound) == std::future_status::ready);
  CHECK(waiting.get().ok());
}

TEST_CASE("the longest times are long") {
  FakeDaemon daemon(10'000);
  ClientOptions options;
  options.connect_timeout = milliseconds::max();
  options.reconnect_timeout = milliseconds::max();
  options.release_timeout = milliseconds::max();
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()}, options);
  const auto never = std::chrono::steady_clock::time_point::max();
  absl::StatusOr<Permit> held = client->AcquireUntil("db", never, {.limit = 1});
  REQUIRE(held.ok());
  const auto long_ago = std::chrono::steady_clock::time_point::min();
  CHECK(ErrorReason(client->AcquireUntil("db", long_ago).status()) == "FULL");
  auto waiting = std::async(std::launch::async, [&] { return client->AcquireUntil("db", never); });
  REQUIRE(Eventually([&] { return daemon.waiting("db") == 1; }));
  daemon.Stop();
  daemon.Start();
  REQUIRE(Eventually([&] { return daemon.opens() == 2; }));
  CHECK(held->Release().ok());
  REQUIRE(waiting.wait_for(kBound) == std::future_status::ready);
  CHECK(waiting.get().ok());
}

TEST_CASE("a permit is lost when the daemon falls silent, and not before its deadline") {
  FakeDaemon daemon(1'000);
  ClientOptions options;
  options.ttl = milliseconds(1'000);
  options.release_timeout = milliseconds(300);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()}, options);
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
  REQUIRE(permit.ok());
  std::promise<Loss> lost;
  permit->OnLost([&](const Loss& loss) { lost.set_value(loss); });
  const TimePoint before = BootClock::now();
  daemon.set_silent(true);
  auto loss = lost.get_future();
  REQUIRE(loss.wait_for(kBound) == std::future_status::ready);
  CHECK(loss.get().cause == LossCause::kNoContact);
  CHECK(permit->lost().stop_requested());
  CHECK_FALSE(permit->held());
  CHECK(BootClock::now() >= permit->good_until());
  CHECK(permit->good_until() - before <= milliseconds(1'000));
  CHECK(permit->Release().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a permit outlives many TTLs while the daemon answers") {
  FakeDaemon daemon(300);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
  REQUIRE(permit.ok());
  const TimePoint first = permit->good_until();
  CHECK(Eventually([&] { return permit->good_until() > first + milliseconds(1'500); }));
  CHECK_FALSE(permit->lost().stop_requested());
}

TEST_CASE("revoked and recalled permits are told") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  std::promise<LossCause> lost;
  std::promise<milliseconds> recalled;
  AcquireOptions options;
  options.limit = 2;
  options.on_lost = [&](const Loss& loss) { lost.set_value(loss.cause); };
  options.on_recall = [&](const RecallNotice& notice) { recalled.set_value(notice.grace); };
  absl::StatusOr<Permit> permit = client->Acquire("db", options);
  REQUIRE(permit.ok());
  daemon.Recall(permit->lease_id(), 5'000);
  auto grace = recalled.get_future();
  REQUIRE(grace.wait_for(kBound) == std::future_status::ready);
  CHECK(grace.get() == milliseconds(5'000));
  CHECK(permit->held());
  daemon.Revoke(permit->lease_id());
  auto cause = lost.get_future();
  REQUIRE(cause.wait_for(kBound) == std::future_status::ready);
  CHECK(cause.get() == LossCause::kRevoked);
}

TEST_CASE("a lost session: permits are lost, later acquires get a new one") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
  REQUIRE(permit.ok());
  daemon.ForgetSessions();
  REQUIRE(Eventually([&] { return permit->lost().stop_requested(); }));
  CHECK(permit->loss().cause == LossCause::kExpired);
  CHECK(client->Acquire("db", {.limit = 1}).ok());
}

TEST_CASE("the next endpoint is taken when the first does not answer") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({"127.0.0.1:1", daemon.endpoint()});
  CHECK(client->Acquire("db", {.limit = 1}).ok());
}

TEST_CASE("nobody answers: closed by default, open only if chosen") {
  ClientOptions options;
  options.connect_timeout = milliseconds(200);
  const absl::StatusOr<Permit> closed =
      Connect({"127.0.0.1:1"}, options)->Acquire("db", {.limit = 1});
  CHECK(closed.status().code() == absl::StatusCode::kUnavailable);
  CHECK(ErrorReason(closed.status()) == "UNREACHABLE");
  options.fail_open = true;
  const std::unique_ptr<Client> client = Connect({"127.0.0.1:1"}, options);
  absl::StatusOr<Permit> open = client->Acquire("db", {.limit = 1});
  REQUIRE(open.ok());
  CHECK(open->fail_open());
  CHECK(open->slots().empty());
  CHECK(open->token() == 0);
  CHECK(open->held());
  CHECK(open->Release().ok());
}

TEST_CASE("permits outlive their client, waits do not") {
  FakeDaemon daemon(10'000);
  std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
  REQUIRE(permit.ok());
  std::promise<absl::Status> waited;
  client->AcquireAsync("db", {},
                       [&](absl::StatusOr<Permit> second) { waited.set_value(second.status()); });
  REQUIRE(Eventually([&] { return daemon.waiting("db") == 1; }));
  client = nullptr;
  auto status = waited.get_future();
  REQUIRE(status.wait_for(kBound) == std::future_status::ready);
  CHECK(status.get().code() == absl::StatusCode::kCancelled);
  CHECK(permit->held());
  CHECK(daemon.held("db") == 1);
  permit = Permit();
  CHECK(Eventually([&] { return daemon.held("db") == 0; }));
  CHECK(Eventually([&] { return daemon.sessions() == 0; }));
}

TEST_CASE("the last permit may go in a callback") {
  FakeDaemon daemon(10'000);
  std::promise<void> done;
  {
    const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
    absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
    REQUIRE(permit.ok());
    auto kept = std::make_shared<Permit>(*std::move(permit));
    kept->OnLost([kept, &done](const Loss&) mutable {
      kept = nullptr;
      done.set_value();
    });
    daemon.Revoke(kept->lease_id());
  }
  CHECK(done.get_future().wait_for(kBound) == std::future_status::ready);
  CHECK(Eventually([&] { return daemon.sessions() == 0; }));
}

TEST_CASE("what goes with a permit may hold another one") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> inner = client->Acquire("inner", {.limit = 1});
  REQUIRE(inner.ok());
  auto context = std::make_shared<Permit>(*std::move(inner));
  absl::StatusOr<Permit> outer = client->Acquire(
      "outer", {.limit = 1, .on_lost = [context = std::move(context)](const Loss&) {}});
  REQUIRE(outer.ok());
  outer->ReleaseAsync([](const absl::Status&) {});
  CHECK(Eventually([&] { return daemon.held("inner") == 0; }));
  CHECK(client->Acquire("inner", {.limit = 1}).ok());
}

TEST_CASE("a connection may end on the thread of its streams") {
  FakeDaemon daemon(10'000);
  ClientOptions options;
  options.endpoints = {daemon.endpoint()};
  auto connection = std::make_shared<Connection>(options, Transport::Plain());
  const std::shared_ptr<SessionDriver> driver = connection->shared_driver();
  std::promise<void> ended;
  AcquireCall call;
  call.request.set_semaphore("db");
  call.request.set_permits(1);
  call.request.set_limit(1);
  call.done = [&](const absl::StatusOr<std::shared_ptr<LeaseState>>&) {
    connection = nullptr;
    ended.set_value();
  };
  driver->Acquire(std::move(call));
  REQUIRE(ended.get_future().wait_for(kBound) == std::future_status::ready);
  CHECK(Eventually([&] { return daemon.sessions() == 0; }));
}

TEST_CASE("verify, by permit and by slot and token") {
  FakeDaemon daemon(10'000);
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()});
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
  REQUIRE(permit.ok());
  const absl::StatusOr<Verdict> mine = client->Verify(*permit);
  REQUIRE(mine.ok());
  CHECK(mine->held);
  CHECK(mine->good_until > BootClock::now());
  const absl::StatusOr<Verdict> shown =
      client->Verify("db", permit->slots().front(), permit->token());
  REQUIRE(shown.ok());
  CHECK(shown->held);
  const absl::StatusOr<Verdict> wrong = client->Verify("db", 1, permit->token() + 100);
  REQUIRE(wrong.ok());
  CHECK_FALSE(wrong->held);
  CHECK(wrong->ended == "UNKNOWN");
}

TEST_CASE("options that are wrong are named") {
  const auto error = [](ClientOptions options) {
    return std::string(Client::Create(std::move(options)).status().message());
  };
  ClientOptions none;
  none.endpoints.clear();
  CHECK(error(none).find("endpoints") == 0);
  ClientOptions margin;
  margin.ttl = milliseconds(1'000);
  margin.margin = milliseconds(500);
  CHECK(error(margin).find("margin") == 0);
  margin.margin = milliseconds::max();
  CHECK(error(margin).find("margin") == 0);
  ClientOptions holder;
  holder.holder = std::string(257, 'x');
  CHECK(error(holder).find("holder") == 0);
  const auto insecure = [&](SecurityOptions security, const std::string& endpoint) {
    ClientOptions options;
    options.endpoints = {"127.0.0.1:7420", endpoint};
    options.security = std::move(security);
    return error(std::move(options));
  };
  for (const char* endpoint :
       {"10.0.0.1:7420", "example.org:7420", "dns:///example.org:7420", "127.0.0.1.example.org:1",
        "[2001:db8::1]:7420", "ipv4:10.0.0.1:1"}) {
    INFO(endpoint);
    CHECK(insecure({.token = "t"}, endpoint).find("token: is never sent without TLS") == 0);
    CHECK(insecure({.tls = true, .token = "t"}, endpoint).empty());
  }
  for (const char* endpoint : {"localhost:1", "127.1.2.3:1", "[::1]:1", "unix:/run/x", "unix:x",
                               "ipv4:127.0.0.1:1", "dns:///localhost:1"}) {
    INFO(endpoint);
    CHECK(insecure({.token = "t"}, endpoint).empty());
  }
  CHECK(insecure({.token = "two words"}, "unix:x").find("token: must be") == 0);
  CHECK(insecure({.token = "t", .token_file = "f"}, "unix:x").find("token: ") == 0);
  CHECK(insecure({.cert_file = "/dev/null"}, "unix:x").find("key_file: needed") == 0);
  CHECK(insecure({.ca_file = "/dev/null"}, "unix:x").find("ca_file: ") == 0);
}

TEST_CASE("the token is sent with every call, and read again when its file has changed") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("token-" + std::to_string(getpid()))).string();
  const auto write = [&](const std::string& text) {
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
  };
  write("first\n");
  FakeDaemon daemon(10'000);
  ClientOptions options;
  options.security.token_file = path;
  const std::unique_ptr<Client> client = Connect({daemon.endpoint()}, options);
  absl::StatusOr<Permit> permit = client->Acquire("db", {.limit = 1});
  REQUIRE(permit.ok());
  CHECK(daemon.authorization() == "Bearer first");
  write("second, which is longer");  // No token: the one before counts.
  CHECK(client->Verify(*permit).ok());
  CHECK(daemon.authorization() == "Bearer first");
  write("third");
  CHECK(client->Verify(*permit).ok());
  CHECK(daemon.authorization() == "Bearer third");
  write("fourth");
  const int opens = daemon.opens();
  daemon.Stop();
  daemon.Start();
  REQUIRE(Eventually([&] { return daemon.opens() > opens; }));
  CHECK(daemon.authorization() == "Bearer fourth");
  std::filesystem::remove(path);
  CHECK(client->Verify(*permit).ok());
  CHECK(daemon.authorization() == "Bearer fourth");
  CHECK(permit->held());
}

}  // namespace
}  // namespace semaphore
