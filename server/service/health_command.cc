#include "server/service/health_command.h"

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/standard/services.pb.h"
#include "server/core/config_checks.h"
#include "server/core/settings.h"
#include "server/service/wire.h"

namespace semaphored {
namespace {

namespace standard = ::semaphored::standard;

enum ExitCode { kServes = 0, kDoesNotServe = 1, kBadArguments = 2 };

constexpr int64_t kTimeoutDefaultMs = 3'000;
constexpr int64_t kTimeoutMostMs = 600'000;

constexpr char kHelp[] =
    R"(Asks a daemon whether it serves, over the standard health service (grpc.health.v1.Health).

Usage: semaphored health [--address ADDRESS] [--timeout DURATION] [SETTINGS]

  --address ADDRESS   Where it listens: HOST:PORT, [HOST]:PORT or unix:PATH. Default: what the
                      settings (--config, --listen, SEMAPHORED_CONFIG, SEMAPHORED_LISTEN) say.
  --timeout DURATION  How long it may take to answer. Default 3s.
  --help, -h          Print this help and end.

Exit codes: 0 it serves; 1 it does not, or was not reached in time; 2 the arguments are wrong.

Examples:
  semaphored health
  semaphored health --config /etc/semaphored.toml
  semaphored health --address db-locks.example:7420 --timeout 1s
)";

struct Arguments {
  bool help = false;
  std::optional<std::string> address;
  std::optional<std::string> timeout;
  std::vector<std::string> settings;  // All the others.
};

// Takes `--NAME VALUE` or `--NAME=VALUE` at *i. False: it is something else.
bool TakeOption(const std::vector<std::string>& arguments, const std::string& name, size_t* i,
                std::optional<std::string>* value) {
  const std::string& argument = arguments[*i];
  if (argument == name && *i + 1 < arguments.size()) {
    *value = arguments[++*i];
    return true;
  }
  if (argument.rfind(name + "=", 0) != 0) return false;
  *value = argument.substr(name.size() + 1);
  return true;
}

Arguments Read(const std::vector<std::string>& arguments) {
  Arguments result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") {
      result.help = true;
    } else if (!TakeOption(arguments, "--address", &i, &result.address) &&
               !TakeOption(arguments, "--timeout", &i, &result.timeout)) {
      result.settings.push_back(arguments[i]);
    }
  }
  return result;
}

std::string Line(absl::string_view text) { return absl::StrCat("semaphored health: ", text, "\n"); }

// Where the daemon with these settings listens.
absl::StatusOr<std::string> AddressOf(const HealthCommand& command, Arguments arguments) {
  if (arguments.address) return *arguments.address;
  ConfigSources sources = command.sources;
  sources.arguments = std::move(arguments.settings);
  absl::StatusOr<ParsedConfig> parsed = ParseConfig(sources);
  if (!parsed.ok()) return parsed.status();
  return parsed->config.listen;
}

int Ask(const HealthCommand& command, const std::string& target, int64_t timeout_ms) {
  grpc::GenericStub stub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN)));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                    Serialize(standard::HealthCheckRequest()), &queue);
  call->StartCall();
  call->Finish(&answer, &status, &call);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  standard::HealthCheckResponse response;
  if (!status.ok()) {
    command.error(Line(absl::StrCat(target, ": ", status.error_message())));
    return kDoesNotServe;
  }
  if (!Parse(&answer, &response) || response.status() != standard::HealthCheckResponse::SERVING) {
    command.error(Line(absl::StrCat(target, ": it is reached, but does not serve")));
    return kDoesNotServe;
  }
  command.out(absl::StrCat("serving on ", target, "\n"));
  return kServes;
}

}  // namespace

std::string ReachableAddress(const std::string& address) {
  const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(address);
  if (!parsed.ok()) return "";
  if (parsed->host.empty()) return absl::StrCat("unix:", parsed->port);
  if (parsed->port == "0") return "";
  std::string host = parsed->host;
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  const bool bracketed = host.find(':') != std::string::npos;
  return absl::StrCat(bracketed ? "[" : "", host, bracketed ? "]:" : ":", parsed->port);
}

int RunHealth(const HealthCommand& command) {
  Arguments arguments = Read(command.sources.arguments);
  if (arguments.help) {
    command.out(kHelp);
    return kServes;
  }
  int64_t timeout_ms = kTimeoutDefaultMs;
  if (arguments.timeout) {
    const std::optional<int64_t> read = ParseDurationMs(*arguments.timeout);
    if (!read || *read < 1 || *read > kTimeoutMostMs) {
      command.error(Line(absl::StrCat("--timeout '", *arguments.timeout,
                                      "': should be a duration such as 500ms or 3s, at most 10m")));
      return kBadArguments;
    }
    timeout_ms = *read;
  }
  const absl::StatusOr<std::string> address = AddressOf(command, std::move(arguments));
  if (!address.ok()) {
    command.error(Line(address.status().message()));
    return kBadArguments;
  }
  const std::string target = ReachableAddress(*address);
  if (target.empty()) {
    command.error(Line(absl::StrCat(
        "'", *address, "': should be HOST:PORT, [HOST]:PORT or unix:PATH, with a port above 0")));
    return kBadArguments;
  }
  return Ask(command, target, timeout_ms);
}

}  // namespace semaphored
