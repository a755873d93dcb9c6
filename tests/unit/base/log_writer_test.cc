#include "server/base/log_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

constexpr Milliseconds kLogBound{20'000};

// A pipe of 4 KiB. The writing end stays open, as LogWriter asks.
struct NarrowPipe {
  NarrowPipe() {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    from = ends[0];
    to = ends[1];
  }
  ~NarrowPipe() { close(from); }

  void WaitUntilFull() const {
    const auto until = std::chrono::steady_clock::now() + kLogBound;
    pollfd room{to, POLLOUT, 0};
    while (poll(&room, 1, 0) != 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    REQUIRE(poll(&room, 1, 0) == 0);
  }

  // Reads until `end` has come.
  std::string ReadTo(const std::string& end) const {
    std::string text;
    char some[4096];
    while (text.size() < end.size() || text.substr(text.size() - end.size()) != end) {
      const ssize_t got = read(from, some, sizeof some);
      REQUIRE(got > 0);
      text.append(some, static_cast<size_t>(got));
    }
    return text;
  }

  int from = -1;
  int to = -1;
};

std::string LostText(uint64_t lost) { return fmt::format("lost {}\n", lost); }
std::string NumberedLine(uint64_t number) { return fmt::format("{:09}\n", number); }

// What is read is what was written, in order: where a line is missing, "lost N" stands for N lines.
uint64_t MissingFrom(const std::string& text) {
  uint64_t next = 0;
  uint64_t missing = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    if (line.starts_with("lost ")) {
      missing += std::stoull(line.substr(5));
      next += std::stoull(line.substr(5));
    } else if (line != "end") {
      REQUIRE(std::stoull(line) == next);
      ++next;
    }
  }
  return missing;
}

TEST_CASE("log writer: lines are written in order") {
  const NarrowPipe pipe;
  LogWriter writer(pipe.to, LostText);
  for (int i = 0; i < 300; ++i) writer.Write(NumberedLine(i));
  CHECK(writer.Flush(kLogBound));
  CHECK(MissingFrom(pipe.ReadTo(NumberedLine(299))) == 0);
  CHECK(writer.lost() == 0);
  CHECK(writer.waiting_bytes() == 0);
}

TEST_CASE(
    "log writer: a pipe that is not read holds up no thread, and a million lines are bounded") {
  const NarrowPipe pipe;
  LogWriter writer(pipe.to, LostText, {.bytes_max = 100'000});
  for (int i = 0; i < 1'000'000; ++i) {
    writer.Write(NumberedLine(i));
    if (i % 1000 == 0) REQUIRE(writer.waiting_bytes() <= 100'000);
    // From here on the thread writes nothing more, and makes no room.
    if (i == 1000) pipe.WaitUntilFull();
  }
  CHECK_FALSE(writer.TryWrite("refused, and longer than the others\n"));
  CHECK_FALSE(writer.Flush(Milliseconds(1)));
  const uint64_t lost = writer.lost();
  CHECK(lost > 980'000);
  CHECK(lost < 1'000'000);

  std::string text;
  std::thread reader([&] { text = pipe.ReadTo("end\n"); });
  REQUIRE(writer.Flush(kLogBound));
  CHECK(writer.TryWrite("end\n"));
  reader.join();
  CHECK(MissingFrom(text) == lost);
  CHECK(text.find("refused") == std::string::npos);
  CHECK(writer.lost() == lost);
}

TEST_CASE("log writer: several threads, and a reader that is slow") {
  const NarrowPipe pipe;
  LogWriter writer(pipe.to, LostText, {.bytes_max = 10'000});
  std::string text;
  std::thread reader([&] { text = pipe.ReadTo("end\n"); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int line = 0; line < 5'000; ++line) writer.Write("line\n");
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(writer.Flush(kLogBound));
  writer.Write("end\n");
  reader.join();
  uint64_t lines = 0;
  uint64_t missing = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    if (text.compare(at, 5, "line\n") == 0) ++lines;
    if (text.compare(at, 5, "lost ") == 0) missing += std::stoull(text.substr(at + 5));
  }
  CHECK(lines + missing == 20'000);
  CHECK(missing == writer.lost());
}

TEST_CASE("log writer: what a full disk refuses is kept, and a flush does not wait for it") {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(full >= 0);
  LogWriter writer(full, LostText, {.bytes_max = 1000, .retry_interval = kLogBound});
  for (int i = 0; i < 1000; ++i) writer.Write(NumberedLine(i));
  const auto begun = std::chrono::steady_clock::now();
  CHECK_FALSE(writer.Flush(kLogBound));
  CHECK(std::chrono::steady_clock::now() - begun < kLogBound / 2);
  CHECK(writer.waiting_bytes() > 0);
  CHECK(writer.waiting_bytes() <= 1000);
  // There is room again.
  const NarrowPipe pipe;
  REQUIRE(dup2(pipe.to, full) == full);
  CHECK(writer.Flush(kLogBound));
  writer.Write("end\n");
  CHECK(MissingFrom(pipe.ReadTo("end\n")) == writer.lost());
}

}  // namespace
}  // namespace semaphored
