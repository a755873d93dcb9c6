// The daemon's settings, and where they come from: defaults, then a TOML file, then the environment
// (SEMAPHORED_<KEY>), then flags (--<key>); the later wins.
//
// Every setting has one row in settings_table.cc (key, limits, what it does), from which the flags,
// the file's keys, the environment's names, --help and --print-config are all made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/ledger/rules/rules.h"
#include "server/base/state_folder.h"

namespace semaphored {

// Checked: each value is within its limits, and they fit each other. Numbers named _ms are
// milliseconds.
struct Config {
  // ---- what and where ----
  std::string store;  // See adapters/open.h. ParseConfig makes it a file if it is not given.
  std::string listen =
      "127.0.0.1:7420";                // HOST:PORT, [HOST]:PORT or unix:PATH. Port 0: any free one.
  bool allow_insecure_remote = false;  // Listen on more than this machine, without encryption.
  std::string tls_cert_file;           // Paths of PEM files. Empty: no TLS.
  std::string tls_key_file;
  std::string tls_client_ca_file;    // Empty: clients are not asked for certificates.
  std::string frame_guard = "auto";  // auto, on, off
  std::string tls_client_certificates = "require";  // require, optional
  std::string access_file;                          // Empty: all may do all.
  std::string http_listen = "auto";                 // As metrics_listen, auto or off.
  std::string http_tls = "auto";                    // auto, on, off
  std::string http_writes = "token";                // off, token, on
  std::string http_hosts;                           // Names, with commas between them.
  std::string audit_file;                           // Empty: the daemon's log.
  std::string node_id;     // ParseConfig makes it the host's name and port if it is not given.
  bool health = true;      // Serve grpc.health.v1.Health.
  bool reflection = true;  // Serve gRPC's reflection.

  // ---- liveness ----
  int64_t node_ttl_ms = 10'000;  // Heartbeats come every third of it.
  int64_t ttl_default_ms = 30'000;
  int64_t ttl_min_ms = 1'000;
  int64_t ttl_max_ms = 86'400'000;
  int64_t wait_max_ms = 86'400'000;
  int64_t resume_grace_ms = 1'000;  // A broken session's waiters keep their positions for so long.
  int64_t keepalive_interval_ms = 10'000;
  int64_t keepalive_timeout_ms = 5'000;

  // ---- remembered requests ----
  uint64_t request_window = 1024;
  uint32_t clients_max = 200'000;
  int64_t client_retention_ms = 3'600'000;
  uint32_t one_shot_requests_max = 200'000;
  int64_t request_retention_ms = 600'000;

  // ---- limits ----
  ledger::Limits limits;
  uint32_t limit_max = 1'000'000;
  uint32_t permits_per_request_max = 1'000'000;
  uint32_t name_bytes_max = 255;
  uint32_t holder_bytes_max = 256;
  uint32_t rows_max = 10'000;   // In one answer: of list, history, describe.
  uint32_t calls_max = 50'000;  // Unary calls at once; those that wait count, and take 17 KB each.
  uint32_t streams_max = 100'000;  // Hold, Session, Watch and Work at once, together.
  uint32_t watch_events_max = 10'000;
  uint32_t commands_per_message_max = 1000;
  uint32_t message_bytes_max = 4 << 20;
  uint32_t connections_max = 100'000;
  uint32_t connection_calls_max = 100'000;  // Calls and streams on one connection.
  int64_t handshake_timeout_ms = 10'000;
  uint64_t connections_bytes_max = 1 << 30;
  uint64_t stream_bytes_max = 128 << 20;   // That wait for the reader of one stream.
  uint64_t answers_bytes_max = 256 << 20;  // Of long answers that are not read yet.

  // ---- tickets ----
  uint32_t ticket_attempts_default = 5;
  int64_t work_sweep_ms = 1'000;
  int64_t idle_destroy_after_ms = 86'400'000;  // 0: never.

  // ---- the engine ----
  uint32_t lanes = 0;  // 0: as many as make sense for the engine.
  uint32_t batch_max = 4096;
  int64_t engine_timeout_ms = 5'000;
  int64_t sweep_interval_ms = 5'000;

  // ---- metrics ----
  std::string otlp_endpoint;   // http://HOST:PORT or https://HOST:PORT. Empty: off.
  std::string metrics_listen;  // HOST:PORT or [HOST]:PORT. Empty: off.
  uint32_t metrics_semaphores_max = 100;
  int64_t metrics_list_interval_ms = 15'000;  // 0: never.

  // ---- the process ----
  int64_t shutdown_grace_ms = 5'000;
  std::string log_level = "info";   // trace, debug, info, warn, error, off
  std::string log_format = "text";  // text, json
  std::string log_file;             // Empty: stderr.
};

struct ConfigSources {
  std::vector<std::string> arguments;  // Without the program's name.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string host_name;
  // Called at most once, with the path that was asked for. The error is shown as it is.
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  // Whether state may be kept in this folder. Called at most once.
  std::function<bool(const std::string& path)> may_write = [](const std::string&) { return true; };
};

struct ParsedConfig {
  Config config;  // Only the defaults, when --help or --version was asked for.
  // Not empty: print this to stdout and exit with 0 (--help, --version, --print-config).
  std::string answer;
  // For the log: environment variables that look like a mistyped setting.
  std::vector<std::string> warnings;
  StateFolder
      state;  // Of config.store, if that was not given; else empty. It need not be there yet.
};

// A function of its argument alone. INVALID_ARGUMENT: the message has a line for each mistake, which
// names the key, where it was set, its value, what would be right and, for an unknown key, the nearest
// that exists. The error of read_file otherwise.
absl::StatusOr<ParsedConfig> ParseConfig(const ConfigSources& sources);

// The sources of this process: `argc` and `argv` as main got them, environ, the machine's files and
// host name.
ConfigSources ProcessSources(int argc, char** argv);

// All settings as a TOML file, each with what it does; secrets in URLs are masked.
std::string PrintConfig(const Config& config);

}  // namespace semaphored
