#include "adapters/dynamodb/credential_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/steady_clock.h"
#include "nlohmann/json.hpp"

extern char** environ;

namespace semaphored::dynamodb {
namespace {

using nlohmann::json;

constexpr size_t kOutputBytesMax = 65'536;
constexpr char kWho[] = "the profile's credential_process";

absl::Status Unusable(absl::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("dynamodb: no credentials: ", kWho, " ", why));
}

// A program, and the end of the pipe that it prints to.
class Process {
 public:
  explicit Process(const std::string& command);
  // Kills it and what it has started, unless it has been waited for.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool started() const { return pid_ > 0; }
  // What it prints until it closes its output; nullopt: it took too long, or printed too much.
  std::optional<std::string> Read(SteadyTime deadline) const;
  // Its status as waitpid has it; nullopt: it has not ended by then.
  std::optional<int> Wait(SteadyTime deadline);

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

Process::Process(const std::string& command) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "sh";
  std::string option = "-c";
  std::string text = command;
  const std::array<char*, 4> arguments = {shell.data(), option.data(), text.data(), nullptr};
  if (posix_spawn(&pid_, "/bin/sh", &actions, &attributes, arguments.data(), environ) != 0)
    pid_ = -1;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  output_ = ends[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (output_ >= 0) close(output_);
}

std::optional<std::string> Process::Read(SteadyTime deadline) const {
  std::string output;
  std::array<char, 4096> piece{};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    pollfd ready{output_, POLLIN, 0};
    const int count = poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    const ssize_t bytes = read(output_, piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return output;
    output.append(piece.data(), static_cast<size_t>(bytes));
    if (output.size() > kOutputBytesMax) return std::nullopt;
  }
}

std::optional<int> Process::Wait(SteadyTime deadline) {
  // It has closed its output, and is about to end; one that goes on all the same is looked at now and then.
  constexpr timespec kPause{0, 5'000'000};
  for (;;) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return status;
    }
    if (SteadyClock::now() >= deadline) return std::nullopt;
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace

absl::StatusOr<Found> FindByProcess(const std::string& command, const Lookup& lookup) {
  Process process(command);
  if (!process.started()) return Unusable("cannot be started");
  const std::optional<std::string> output = process.Read(lookup.deadline);
  if (!output) return NoAnswer(kWho, "it took too long, or printed too much");
  const std::optional<int> status = process.Wait(lookup.deadline);
  if (!status) return NoAnswer(kWho, "it took too long");
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    return Unusable(WIFEXITED(*status) ? absl::StrCat("ended with exit code ", WEXITSTATUS(*status))
                                       : absl::StrCat("was ended by signal ", WTERMSIG(*status)));
  const json body = json::parse(*output, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || body.value("Version", json()) != 1)
    return Unusable("did not print JSON with \"Version\": 1");
  Found found;
  found.credentials.access_key_id = JsonText(body, "AccessKeyId");
  found.credentials.secret_access_key = JsonText(body, "SecretAccessKey");
  found.credentials.session_token = JsonText(body, "SessionToken");
  if (found.credentials.access_key_id.empty() || found.credentials.secret_access_key.empty())
    return Unusable("printed no AccessKeyId or no SecretAccessKey");
  return found;
}

}  // namespace semaphored::dynamodb
