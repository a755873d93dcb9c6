#include "tests/unit/adapters/rabbitmq/fixture.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

std::string TestUrl(const std::string& options) {
  const char* file = std::getenv("SEMAPHORED_TEST_RABBITMQ_URL_FILE");
  if (file == nullptr)
    throw std::runtime_error(
        "SEMAPHORED_TEST_RABBITMQ_URL_FILE names the file with the URL of a RabbitMQ for tests; "
        "ctest sets it");
  std::ifstream stream(file);
  std::string url;
  if (!std::getline(stream, url)) throw std::runtime_error(absl::StrCat("no URL in ", file));
  // What a test does not ask for, it waits for as long as a busy machine takes.
  const bool asks =
      absl::StrContains(options, "?timeout_ms") || absl::StrContains(options, "&timeout_ms");
  return asks ? url + options : url + options + (options.empty() ? "?" : "&") + "timeout_ms=20000";
}

uint16_t TestPort() { return static_cast<uint16_t>(ReadUrl(TestUrl()).value().port); }

std::string TestUrlThrough(uint16_t port, const std::string& options) {
  std::string url = TestUrl(options);
  const std::string there = absl::StrCat(":", TestPort());
  return url.replace(url.find(there), there.size(), absl::StrCat(":", port));
}

std::unique_ptr<Connection> Connect(const std::string& options) {
  auto connection = std::make_unique<Connection>(ReadUrl(TestUrl(options)).value(), "unit test");
  if (const absl::Status status = connection->Open(); !status.ok())
    throw std::runtime_error(status.ToString());
  return connection;
}

std::string NewName() {
  static int count = 0;
  return absl::StrCat("unit ", getpid(), " ", ++count);
}

bool ComesToHave(Connection& connection, const std::string& queue, uint32_t ready) {
  const Channel channel = connection.OpenChannel().value();
  const auto until = SteadyClock::now() + std::chrono::seconds(5);
  bool has = false;
  while (!(has = connection.DeclarePassively(channel, queue).value().ready == ready) &&
         SteadyClock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  connection.CloseChannel(channel).IgnoreError();
  return has;
}

}  // namespace semaphored::rabbitmq
