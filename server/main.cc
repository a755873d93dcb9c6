// semaphored: the daemon. The only file that names concrete things.
//
// Exit codes:
//   0         stopped cleanly
//   1         it could not go on: another process took its node, or the engine declared it dead
//   2         the configuration is wrong
//   3         the store could not be opened
//   4         the address could not be listened on
//   130, 143  a second SIGINT or SIGTERM
#include <grpc/support/log.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "adapters/open.h"
#include "server/core/clock.h"
#include "server/core/config.h"
#include "server/core/logging.h"
#include "server/core/membership.h"
#include "server/core/reload.h"
#include "server/core/service_manager.h"
#include "server/core/sessions.h"
#include "server/core/signals.h"
#include "server/core/version.h"
#include "server/metrics/exporter.h"
#include "server/service/gatherer.h"
#include "server/service/host.h"
#include "server/service/pulse.h"
#include "server/service/security.h"
#include "server/service/server.h"
#include "server/subcommands.h"

namespace semaphored {
namespace {

enum ExitCode { kClean = 0, kCannotGoOn = 1, kBadConfig = 2, kBadStore = 3, kCannotListen = 4 };

// A message of a status, as a line of the log: "UNAVAILABLE: …" would tell people nothing.
std::string Text(const absl::Status& status) {
  const auto message = status.message();  // absl's own string_view in Debian.
  return absl::StrReplaceAll(MaskSecrets({message.data(), message.size()}), {{"\n", "; "}});
}

// Each mistake of the configuration on a line of its own.
void PrintMistakes(const absl::Status& status) {
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n'))
    std::fprintf(stderr, "semaphored: %s\n", MaskSecrets({line.data(), line.size()}).c_str());
}

// Left out after a second if stdout is a pipe that is not read: the log has it too.
void SayOnStdout(const std::string& line) {
  pollfd ready{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 1000) > 0 && write(STDOUT_FILENO, line.data(), line.size()) < 0)
    spdlog::warn("stdout: {}", std::generic_category().message(errno));
}

// What gRPC has to say goes into our log: its errors are of interest when connections fail, the
// rest is not.
void LogGrpc(gpr_log_func_args* line) {
  if (line->severity == GPR_LOG_SEVERITY_ERROR)
    spdlog::warn("grpc: {}", MaskSecrets(line->message));
}

void AskFatal(Signals* signals, const absl::Status& why) {
  spdlog::critical("cannot go on: {}", Text(why));
  signals->AskFatal();
}

ServerOptions ServerOptionsOf(const Config& config) {
  ServerOptions options;
  options.listen = config.listen;
  options.health = config.health;
  options.reflection = config.reflection;
  options.keepalive_interval_ms = config.keepalive_interval_ms;
  options.keepalive_timeout_ms = config.keepalive_timeout_ms;
  options.message_bytes_max = static_cast<int>(config.message_bytes_max);
  options.connections_max = config.connections_max;
  options.connection_calls_max = static_cast<int>(config.connection_calls_max);
  options.handshake_timeout_ms = config.handshake_timeout_ms;
  options.connections_bytes_max = config.connections_bytes_max;
  options.client_retention = Milliseconds(config.client_retention_ms);
  options.limits.stream_bytes_max = config.stream_bytes_max;
  options.limits.answers_bytes_max = config.answers_bytes_max;
  // As long as it takes to notice that a connection is dead.
  options.limits.unread_max =
      Milliseconds(config.keepalive_interval_ms + config.keepalive_timeout_ms);
  options.limits.calls_max = config.calls_max;
  options.limits.streams_max = config.streams_max;
  options.limits.watch_events_max = config.watch_events_max;
  RequestLimits& requests = options.limits.requests;
  requests.permits_per_request_max = config.permits_per_request_max;
  requests.limit_max = config.limit_max;
  requests.wait_max_ms = config.wait_max_ms;
  requests.ttl_default_ms = config.ttl_default_ms;
  requests.ttl_min_ms = config.ttl_min_ms;
  requests.ttl_max_ms = config.ttl_max_ms;
  requests.commands_per_message_max = static_cast<int>(config.commands_per_message_max);
  requests.rows_max = config.rows_max;
  requests.name_bytes_max = config.name_bytes_max;
  requests.holder_bytes_max = config.holder_bytes_max;
  requests.payload_bytes_max = config.limits.payload_bytes_max;
  requests.ticket_attempts_default = config.ticket_attempts_default;
  return options;
}

ledger::LedgerOptions LedgerOptionsOf(const Config& config, NodeRef self, const Clock& clock) {
  ledger::LedgerOptions options;
  options.self = self;
  options.limits = config.limits;
  options.request_window = config.request_window;
  options.clients_max = config.clients_max;
  options.client_retention = Milliseconds(config.client_retention_ms);
  options.one_shot_requests_max = config.one_shot_requests_max;
  options.request_retention = Milliseconds(config.request_retention_ms);
  options.sweep_interval = Milliseconds(config.sweep_interval_ms);
  options.now_unix_ms = [&clock] { return clock.NowUnixMs(); };
  options.now = [&clock] { return clock.Now(); };
  return options;
}

uint32_t LanesOf(const Config& config, const Engine& engine) {
  const uint32_t most = std::max(engine.guarantees().lanes_max, 1u);
  return config.lanes == 0 ? most : std::min(config.lanes, most);
}

// For how long what a lane has read is good enough to vouch.
Milliseconds LaneVouchOf(const Config& config, const Engine& engine) {
  const Milliseconds vouch(config.node_ttl_ms - config.node_ttl_ms / 10);
  const int64_t most_ms = engine.guarantees().vouch_max_ms;
  return most_ms > 0 ? std::min(vouch, Milliseconds(most_ms)) : vouch;
}

Host::Options HostOptionsOf(const Config& config, const Engine& engine,
                            const Membership* membership, Signals* signals) {
  Host::Options options;
  options.guarantees = engine.guarantees();
  options.vouch_until = [membership] { return membership->vouch_until(); };
  options.node_name = [membership](const NodeRef& node) { return membership->NameOf(node); };
  options.lane_vouch = LaneVouchOf(config, engine);
  options.on_fatal = [signals](const absl::Status& why) { AskFatal(signals, why); };
  options.lane.batch_max = config.batch_max;
  options.lane.engine_timeout = Milliseconds(config.engine_timeout_ms);
  options.lane.lanes = LanesOf(config, engine);
  return options;
}

SessionsOptions SessionsOptionsOf(const Config& config, const Engine& engine) {
  SessionsOptions options;
  options.resume_grace_ms = config.resume_grace_ms;
  options.node_ttl_ms = config.node_ttl_ms;
  options.sweep_interval_ms = config.sweep_interval_ms;
  options.read_vouch_ms = LaneVouchOf(config, engine).count();
  options.list_rows_max = config.rows_max;
  options.limit_max = config.limit_max;
  options.work_sweep_ms = config.work_sweep_ms;
  options.idle_destroy_after_ms = config.idle_destroy_after_ms;
  if (!config.metrics_listen.empty())
    options.metrics_semaphores_max = config.metrics_semaphores_max;
  options.metrics_list_interval_ms = config.metrics_list_interval_ms;
  options.log_leases = true;
  return options;
}

absl::Status OpenLanes(const Config& config, NodeRef self, const Clock& clock, Engine* engine,
                       Host* host) {
  for (uint32_t lane = LanesOf(config, *engine); lane > 0; --lane) {
    auto adapter = engine->OpenLane(LedgerOptionsOf(config, self, clock));
    if (!adapter.ok()) return adapter.status();
    host->AddLane(*std::move(adapter));
  }
  return absl::OkStatus();
}

// Learns what an earlier life of this daemon left behind. Blocks as long as pages of it come, and for at
// most `patience` without one.
absl::Status TakeOver(Reactor* reactor, Sessions* sessions, std::chrono::milliseconds patience) {
  auto done = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> ready = done->get_future();
  reactor->Post([sessions, done] {
    sessions->TakeOver({}, [done](absl::Status status) { done->set_value(std::move(status)); });
  });
  uint64_t pages = 0;
  while (ready.wait_for(patience) == std::future_status::timeout) {
    const uint64_t before = std::exchange(pages, sessions->pages_taken_over());
    if (pages != before) continue;
    return absl::UnavailableError(
        "the engine did not tell in time what an earlier life of this node left behind");
  }
  return ready.get();
}

// What the running daemon is told by SIGHUP.
struct Reloads {
  const ConfigSources& sources;  // Those of the start.
  Config config;                 // In force.
  Server* server;
  Security* security;
  ServiceManager* manager;
};

// The configuration is read again; what is reloadable of it is put in force, all of it or nothing.
void Reload(Reloads* reloads) {
  std::vector<SettingChange> changes;
  absl::StatusOr<Config> read = ReadAgain(reloads->sources, reloads->config, &changes);
  if (!read.ok()) {
    spdlog::error("SIGHUP: all settings stay as they were: {}", Text(read.status()));
    return;
  }
  const auto tell = [&changes] {
    for (const SettingChange& change : changes) {
      if (change.reloadable) {
        spdlog::info("SIGHUP: {}: {} -> {}", change.key, change.from, change.to);
      } else {
        spdlog::warn("SIGHUP: {}: {} -> {} needs a restart; {} stays in force", change.key,
                     change.from, change.to, change.from);
      }
    }
    spdlog::info("SIGHUP: the configuration was read: {} setting(s) differ", changes.size());
  };
  // At the more talkative of the two levels: "log_level: info -> error" should be seen. (The level
  // was checked with the configuration.)
  if (!spdlog::should_log(spdlog::level::info)) (void)SetLogLevel(read->log_level);
  tell();
  (void)SetLogLevel(read->log_level);
  reloads->server->SetLimits(ServerOptionsOf(*read).limits);
  reloads->config = *std::move(read);
  // Certificates, tokens and rules: together or none of them. It logs why not.
  if (reloads->security->Reload().ok()) spdlog::info("SIGHUP: certificates and rules were read");
}

// Serves until it is time to stop. The exit code.
int WaitForEnd(Signals* signals, Pulse* pulse, Reloads* reloads, const std::string& serving) {
  ServiceManager* manager = reloads->manager;
  manager->Ready(serving);
  while (true) {
    const Signals::Event event = signals->Wait(manager->alive_interval());
    switch (event.kind) {
      case Signals::Event::Kind::kStop:
      case Signals::Event::Kind::kFatal: {
        const bool fatal = event.kind == Signals::Event::Kind::kFatal;
        const std::string why = fatal ? "cannot go on" : sigdescr_np(event.signal);
        spdlog::info("stopping: {}", why);
        manager->Stopping("stopping: " + why);
        return fatal ? kCannotGoOn : kClean;
      }
      case Signals::Event::Kind::kReload:
        manager->Reloading();
        Reload(reloads);
        manager->Ready(serving);
        break;
      case Signals::Event::Kind::kTimeout:
        break;
    }
    if (manager->alive_interval() && pulse->Beats()) manager->Alive();
  }
}

// Set when leases are vouched for, for the first time.
using FirstTouch = std::promise<void>;

MembershipThread::Callbacks MembershipCallbacks(Reactor* reactor, Host* host, Sessions* sessions,
                                                Membership* membership, Signals* signals,
                                                ServiceManager* manager,
                                                std::shared_ptr<FirstTouch> first_touch) {
  MembershipThread::Callbacks callbacks;
  // A lane that cannot find out what became of a commit, say, vouches for nothing either: then the
  // log says so, and streams are told to go to another daemon.
  callbacks.vouch_until = [host] { return host->vouch_until(); };
  callbacks.on_fatal = [signals](const absl::Status& why) { AskFatal(signals, why); };
  callbacks.on_heartbeat_failed = [](const absl::Status& why) {
    spdlog::warn("no heartbeat reached the engine: {}", Text(why));
  };
  callbacks.on_vouch_change = [reactor, sessions, manager, first_touch](bool vouched) mutable {
    if (vouched) {
      if (first_touch) std::exchange(first_touch, nullptr)->set_value();
      spdlog::info("in touch with the engine: leases are vouched for");
      manager->Status("in touch with the engine");
    } else {
      spdlog::error("out of touch with the engine: nothing is vouched for");
      manager->Status("out of touch with the engine: nothing is vouched for");
    }
    reactor->Post([sessions] { sessions->OnVouchChange(); });
  };
  callbacks.on_dead = [reactor, sessions, membership](std::vector<NodeRef> dead) {
    spdlog::warn("{} dead node(s): their leases are kept for their TTL", dead.size());
    reactor->Post([sessions, membership, dead = std::move(dead)] {
      sessions->TakeOver(dead, [membership, dead](const absl::Status& status) {
        if (status.ok()) return;
        spdlog::error("cannot take over from dead nodes, trying again: {}", Text(status));
        membership->TellAgain(dead);
      });
    });
  };
  return callbacks;
}

// Null if metrics are off. What it asks must outlive it.
absl::StatusOr<std::unique_ptr<Exporter>> StartMetrics(const Config& config, const Clock& clock,
                                                       const Gatherer& gatherer) {
  if (config.metrics_listen.empty()) return nullptr;
  auto exporter = StartExporter(config.metrics_listen, clock.NowUnixMs(),
                                [&gatherer] { return gatherer.Gather(); });
  if (exporter.ok()) spdlog::info("metrics at http://{}/metrics", (*exporter)->address());
  return exporter;
}

SecurityOptions SecurityOptionsOf(const Config& config) {
  SecurityOptions options;
  options.certificates = {config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file};
  if (!config.tls_client_ca_file.empty()) {
    options.client_certificates = config.tls_client_certificates == "optional"
                                      ? ClientCertificates::kOptional
                                      : ClientCertificates::kRequired;
  }
  options.access_file = config.access_file;
  options.audit_file = config.audit_file;
  return options;
}

ServerOptions WithSecurity(ServerOptions options, Security* security) {
  options.credentials = security->credentials();
  options.access = security->policy();
  options.audit = security->audit();
  return options;
}

MembershipOptions MembershipOptionsOf(const Config& config, const Engine& engine) {
  MembershipOptions options;
  options.node_ttl = Milliseconds(config.node_ttl_ms);
  options.exclusive = engine.guarantees().exclusive;
  options.node_id = config.node_id;
  return options;
}

// Serves until it is time to stop, unless it cannot: the exit code. `grace` is then the one in
// force.
int ListenAndServe(Reloads* reloads, Signals* signals, Host* host, Milliseconds* grace) {
  Server& server = *reloads->server;
  if (absl::Status status = server.Listen(); !status.ok()) {
    spdlog::critical("{}", Text(status));
    return kCannotListen;
  }
  const Config& config = reloads->config;
  spdlog::info("semaphored {} on {}: node {}, store {}", kVersion, server.address(), config.node_id,
               MaskSecrets(config.store));
  SayOnStdout("serving on " + server.address() + "\n");
  Pulse pulse(server.reactor(), host, Milliseconds(config.engine_timeout_ms) * 2);
  const int code = WaitForEnd(signals, &pulse, reloads, "serving on " + server.address());
  *grace = Milliseconds(reloads->config.shutdown_grace_ms);
  signals->EndAtNextSignal();
  return code;
}

int Serve(const ConfigSources& sources, const Config& config, Security* security,
          Signals* signals) {
  const Clock& clock = SystemClock();
  ServiceManager manager(ServiceManager::FromEnvironment());
  absl::StatusOr<std::unique_ptr<Engine>> engine = OpenEngine(config.store);
  if (!engine.ok()) {
    spdlog::critical("cannot open the store: {}", Text(engine.status()));
    return kBadStore;
  }
  absl::StatusOr<NodeRef> self = (*engine)->nodes().Join(config.node_id);
  if (!self.ok()) {
    spdlog::critical("cannot join as node '{}': {}", config.node_id, Text(self.status()));
    return kBadStore;
  }

  Server server(&clock, WithSecurity(ServerOptionsOf(config), security));
  Host* lanes = nullptr;
  Membership membership(&(*engine)->nodes(), *self, &clock, MembershipOptionsOf(config, **engine),
                        [&lanes](SteadyTime since) { return lanes->progress_at() > since; });
  Host host(server.reactor(), HostOptionsOf(config, **engine, &membership, signals));
  lanes = &host;
  if (absl::Status status = OpenLanes(config, *self, clock, engine->get(), &host); !status.ok()) {
    spdlog::critical("cannot open the store: {}", Text(status));
    return kBadStore;
  }
  std::unique_ptr<Sessions> sessions = MakeSessions(&host, SessionsOptionsOf(config, **engine));
  host.SetSessions(sessions.get());
  server.Serve(&host, sessions.get());
  security->SetOnPolicy(
      [&server](std::shared_ptr<const AccessPolicy> access) { server.SetAccess(access); });
  server.SetAccess(security->policy());  // It may have changed in between.
  server.Run();

  const Gatherer gatherer(&server, &host, sessions.get(), &membership);
  auto metrics = StartMetrics(config, clock, gatherer);

  int code = kClean;
  Milliseconds grace(config.shutdown_grace_ms);
  {
    auto first_touch = std::make_shared<FirstTouch>();
    std::future<void> touched = first_touch->get_future();
    MembershipThread thread(
        &membership, &clock,
        MembershipCallbacks(server.reactor(), &host, sessions.get(), &membership, signals, &manager,
                            std::move(first_touch)));
    absl::Status ready =
        TakeOver(server.reactor(), sessions.get(), Milliseconds(config.engine_timeout_ms) * 2);
    // Whoever is told that we serve should not be refused because the first heartbeat is still on
    // its way. If it does not come, they are told why.
    if (ready.ok()) touched.wait_for(Milliseconds(config.engine_timeout_ms));
    if (!ready.ok()) {
      spdlog::critical("cannot read the store: {}", Text(ready));
      code = kBadStore;
    } else if (!metrics.ok()) {
      spdlog::critical("{}", Text(metrics.status()));
      code = kCannotListen;
    } else {
      Reloads reloads{sources, config, &server, security, &manager};
      code = ListenAndServe(&reloads, signals, &host, &grace);
    }
  }
  // While the reactor still answers it.
  metrics = nullptr;
  security->SetOnPolicy(nullptr);
  server.Stop(grace);
  host.StopLanes();
  spdlog::info("stopped");
  return code;
}

// The folder for the embedded store, where no store was named.
absl::Status MakeOwnFolder(const StateFolder& state) {
  if (state.path.empty()) return absl::OkStatus();
  spdlog::info("no store is set: the state is kept in {} ({})", state.path, state.why);
  return MakeStateFolder(state.path);
}

int Main(int argc, char** argv) {
  if (const std::optional<int> code = RunSubcommand(argc, argv)) return *code;
  const ConfigSources sources = ProcessSources(argc, argv);
  absl::StatusOr<ParsedConfig> parsed = ParseConfig(sources);
  if (!parsed.ok()) {
    PrintMistakes(parsed.status());
    return kBadConfig;
  }
  if (!parsed->answer.empty()) {
    std::fputs(parsed->answer.c_str(), stdout);
    return kClean;
  }
  const Config& config = parsed->config;
  HidePasswords(argc, argv);
  if (absl::Status status = InitLogging({config.log_level, config.log_format, config.log_file});
      !status.ok()) {
    std::fprintf(stderr, "semaphored: %s\n", Text(status).c_str());
    return kBadConfig;
  }
  gpr_set_log_function(LogGrpc);
  // Debian's absl, on which gRPC's locks are built, watches for lock cycles: one twentieth of the
  // daemon's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  for (const std::string& warning : parsed->warnings) spdlog::warn("{}", warning);
  if (absl::Status status = MakeOwnFolder(parsed->state); !status.ok()) {
    spdlog::critical("{}", Text(status));
    return kBadStore;
  }
  static Signals signals;
  absl::StatusOr<std::unique_ptr<Security>> security = Security::Open(SecurityOptionsOf(config));
  if (!security.ok()) {
    spdlog::critical("{}", Text(security.status()));
    return kBadConfig;
  }
  (*security)->StartLooking();
  return Serve(sources, config, security->get(), &signals);
}

}  // namespace
}  // namespace semaphored

int main(int argc, char** argv) { return semaphored::Main(argc, argv); }
