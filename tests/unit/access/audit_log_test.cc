#include "server/access/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/access/denied_acts.h"

namespace semaphored {
namespace {

using Catch::Matchers::ContainsSubstring;

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/audit-log-XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("audit log: lines are appended in order, to a file that is its owner's alone") {
  const Folder folder;
  const std::string path = folder / "audit";
  for (int life = 0; life < 2; ++life) {
    auto log = AuditLog::Open(path);
    REQUIRE(log.ok());
    for (int i = 0; i < 100; ++i) (*log)->Write(std::to_string(100 * life + i));
  }
  const std::vector<std::string> lines = Lines(path);
  REQUIRE(lines.size() == 200);
  for (int i = 0; i < 200; ++i) CHECK(lines[i] == std::to_string(i));
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
}

TEST_CASE("audit log: opened anew, it leaves a file that was moved away alone") {
  const Folder folder;
  const std::string path = folder / "audit";
  auto log = AuditLog::Open(path);
  REQUIRE(log.ok());
  (*log)->Write("before");
  (*log)->Flush();
  std::filesystem::rename(path, path + ".1");
  (*log)->Reopen();
  (*log)->Write("after");
  (*log)->Flush();
  CHECK(Lines(path + ".1") == std::vector<std::string>{"before"});
  CHECK(Lines(path) == std::vector<std::string>{"after"});
  CHECK((*log)->lost() == 0);
}

TEST_CASE("audit log: what cannot be written is counted, and told where it is missing") {
  const Folder folder;
  const std::string path = folder / "audit";
  std::filesystem::create_symlink("/dev/full", path);
  auto log = AuditLog::Open(path);
  REQUIRE(log.ok());
  for (int i = 0; i < 3; ++i) {
    (*log)->Write("lost");
    (*log)->Flush();
  }
  CHECK((*log)->lost() == 3);
  std::filesystem::remove(path);
  (*log)->Reopen();
  (*log)->Flush();
  (*log)->Write("kept");
  (*log)->Flush();
  CHECK(Lines(path) == std::vector<std::string>{R"({"lost_lines":3})", "kept"});
  CHECK((*log)->lost() == 3);
}

TEST_CASE("audit log: a line that was written in part is ended before the next one") {
  const Folder folder;
  const std::string path = folder / "audit";
  std::ofstream(path) << "{\"time\":";
  auto log = AuditLog::Open(path);
  REQUIRE(log.ok());
  (*log)->Write("whole");
  (*log)->Flush();
  CHECK(Lines(path) == std::vector<std::string>{"{\"time\":", "whole"});
}

TEST_CASE("audit log: what waits is bounded in bytes") {
  const Folder folder;
  const std::string path = folder / "pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  std::signal(SIGPIPE, SIG_IGN);  // As the daemon does.
  // Nothing is read from it until the end.
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  auto log = AuditLog::Open(path);
  REQUIRE(log.ok());
  constexpr size_t kLineBytes = 1 << 20;
  for (int i = 0; i < 40; ++i) (*log)->Write(std::string(kLineBytes, 'x'));
  // Those that are being written count, too.
  CHECK((*log)->lost() == 40 - AuditLog::kBytesMax / kLineBytes);
  close(reader);  // What waits fails now, and the log ends.
}

TEST_CASE("denied acts: a line a second for each identity, with the number of the others") {
  DeniedActs acts;
  SteadyTime now{};
  CHECK(acts.Add("a", now) == 0);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(acts.Add("a", now));
  CHECK(acts.Add("b", now) == 0);
  now += DeniedActs::kBetweenLines;
  CHECK(acts.Add("a", now) == 5);
  CHECK(acts.Add("b", now) == 0);
  CHECK_FALSE(acts.Add("a", now));
}

TEST_CASE("audit log: a place that cannot be written to is an error that names the setting") {
  const auto log = AuditLog::Open("/nowhere/at/all");
  REQUIRE_FALSE(log.ok());
  CHECK_THAT(std::string(log.status().message()),
             ContainsSubstring("audit_file") && ContainsSubstring("/nowhere/at/all"));
}

}  // namespace
}  // namespace semaphored
