#include "server/rpc/health_command.h"

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/standard/services.pb.h"
#include "server/access/certificates.h"
#include "server/config/config_checks.h"
#include "server/config/settings.h"
#include "server/rpc/wire.h"

namespace semaphored {
namespace {

namespace standard = ::semaphored::standard;

enum ExitCode { kServes = 0, kDoesNotServe = 1, kBadArguments = 2 };

constexpr int64_t kTimeoutDefaultMs = 3'000;
constexpr int64_t kTimeoutMostMs = 600'000;

constexpr char kHelp[] =
    R"(Asks a daemon whether it serves, over the standard health service (grpc.health.v1.Health).

Usage: semaphored health [--address ADDRESS] [--timeout DURATION] [--liveness] [TLS] [SETTINGS]

  --address ADDRESS   Where it listens: HOST:PORT, [HOST]:PORT or unix:PATH. Default: what the
                      settings (--config, --listen, SEMAPHORED_CONFIG, SEMAPHORED_LISTEN) say.
  --timeout DURATION  How long it may take to answer. Default 3s.
  --liveness          Ask only whether it answers, as a supervisor does that restarts it. Without this
                      the daemon must also be in touch with its engine, so that it can vouch for what
                      it grants, as a load balancer wants to know.
  --help, -h          Print this help and end.

  --tls               With --address: it is served with TLS. Without --address the settings say so.
  --ca-file FILE      By what the daemon's certificate is verified. Default: with --address, the
                      system's own; else it is not verified, as nothing secret is sent or received.
  --server-name NAME  The name that its certificate must have, if not the address's.
  --cert-file FILE    The certificate to show, with --key-file FILE. Default: if the settings
                      require one of clients, the daemon's own.

Exit codes: 0 it serves; 1 it does not, or was not reached in time; 2 the arguments are wrong.

Examples:
  semaphored health
  semaphored health --config /etc/semaphored.toml
  semaphored health --address db-locks.example:7420 --timeout 1s
  semaphored health --liveness
)";

struct Arguments {
  bool help = false;
  bool liveness = false;
  std::optional<std::string> address;
  std::optional<std::string> timeout;
  bool tls = false;
  std::optional<std::string> ca_file;
  std::optional<std::string> server_name;
  std::optional<std::string> cert_file;
  std::optional<std::string> key_file;
  std::vector<std::string> settings;  // All the others.

  bool wants_tls() const { return tls || ca_file || server_name || cert_file || key_file; }
};

// How to reach a daemon.
struct Target {
  std::string address;
  bool tls = false;
  std::string ca_file;  // Empty: the certificate is not verified.
  bool verify = false;
  std::string server_name;
  std::string cert_file;  // Empty: none is shown.
  std::string key_file;
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
    } else if (arguments[i] == "--liveness") {
      result.liveness = true;
    } else if (arguments[i] == "--tls") {
      result.tls = true;
    } else if (!TakeOption(arguments, "--address", &i, &result.address) &&
               !TakeOption(arguments, "--timeout", &i, &result.timeout) &&
               !TakeOption(arguments, "--ca-file", &i, &result.ca_file) &&
               !TakeOption(arguments, "--server-name", &i, &result.server_name) &&
               !TakeOption(arguments, "--cert-file", &i, &result.cert_file) &&
               !TakeOption(arguments, "--key-file", &i, &result.key_file)) {
      result.settings.push_back(arguments[i]);
    }
  }
  return result;
}

std::string Line(absl::string_view text) { return absl::StrCat("semaphored health: ", text, "\n"); }

// Where the daemon with these settings listens, and how.
absl::StatusOr<Target> TargetOf(const HealthCommand& command, const Arguments& arguments) {
  Target target;
  target.tls = arguments.wants_tls();
  // Another machine's daemon is verified; our own settings' is who listens at our own address.
  target.verify = arguments.address.has_value() || arguments.ca_file.has_value();
  target.ca_file = arguments.ca_file.value_or("");
  target.server_name = arguments.server_name.value_or("");
  target.cert_file = arguments.cert_file.value_or("");
  target.key_file = arguments.key_file.value_or("");
  if (target.cert_file.empty() != target.key_file.empty())
    return absl::InvalidArgumentError("--cert-file and --key-file must be given together");
  if (arguments.address) {
    target.address = *arguments.address;
    return target;
  }
  ConfigSources sources = command.sources;
  sources.arguments = arguments.settings;
  sources.may_write = [](const std::string&) { return true; };  // The store is not asked.
  absl::StatusOr<ParsedConfig> parsed = ParseConfig(sources);
  if (!parsed.ok()) return parsed.status();
  const Config& config = parsed->config;
  target.address = config.listen;
  target.tls |= !config.tls_cert_file.empty();
  const bool required =
      !config.tls_client_ca_file.empty() && config.tls_client_certificates == "require";
  if (target.cert_file.empty() && required) {
    target.cert_file = config.tls_cert_file;
    target.key_file = config.tls_key_file;
  }
  return target;
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  if (path.empty()) return "";
  absl::StatusOr<std::string> text = ReadSmallFile(path, kBytesMax);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text.status().message()));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(const Target& target,
                                                         const std::string& address) {
  if (!target.tls) return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  absl::StatusOr<std::string> roots = ReadPem(target.ca_file);
  if (!roots.ok()) return roots.status();
  absl::StatusOr<std::string> certificate = ReadPem(target.cert_file);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadPem(target.key_file);
  if (!key.ok()) return key.status();
  grpc::ChannelArguments arguments;
  if (!target.server_name.empty()) arguments.SetSslTargetNameOverride(target.server_name);
  if (target.verify) {
    return grpc::CreateCustomChannel(address, grpc::SslCredentials({*roots, *key, *certificate}),
                                     arguments);
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  if (!certificate->empty()) {
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            std::vector<grpc::experimental::IdentityKeyCertPair>{{*key, *certificate}}));
    options.watch_identity_key_cert_pairs();
  }
  return grpc::CreateCustomChannel(address, grpc::experimental::TlsCredentials(options), arguments);
}

int Ask(const HealthCommand& command, const std::shared_ptr<grpc::Channel>& channel,
        const std::string& target, int64_t timeout_ms, bool liveness) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN)));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  standard::HealthCheckRequest request;
  if (liveness) request.set_service("liveness");
  auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", Serialize(request), &queue);
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
    command.error(Line(absl::StrCat(
        target, ": it is reached, but does not serve, or is out of touch with its engine")));
    return kDoesNotServe;
  }
  command.out(absl::StrCat(liveness ? "alive" : "serving", " on ", target, "\n"));
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
  const Arguments arguments = Read(command.sources.arguments);
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
  const absl::StatusOr<Target> target = TargetOf(command, arguments);
  if (!target.ok()) {
    command.error(Line(target.status().message()));
    return kBadArguments;
  }
  const std::string address = ReachableAddress(target->address);
  if (address.empty()) {
    command.error(Line(
        absl::StrCat("'", target->address,
                     "': should be HOST:PORT, [HOST]:PORT or unix:PATH, with a port above 0")));
    return kBadArguments;
  }
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = ChannelTo(*target, address);
  if (!channel.ok()) {
    command.error(Line(channel.status().message()));
    return kBadArguments;
  }
  return Ask(command, *channel, address, timeout_ms, arguments.liveness);
}

}  // namespace semaphored
