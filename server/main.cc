// semaphored: the daemon. The only file that names concrete things.
//
// Exit codes:
//   0         stopped cleanly
//   1         it could not go on: another process took its node, or the engine declared it dead
//   2         the configuration is wrong
//   3         the store could not be opened or read now, or another daemon has the node id
//   4         an address could not be listened on
//   5         the store cannot be used: a newer daemon's or another program's, too old an engine, or
//             the embedded store is damaged
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
#include "server/backup/backup_service.h"
#include "server/base/clock.h"
#include "server/base/library_lines.h"
#include "server/base/logging.h"
#include "server/base/service_manager.h"
#include "server/base/signals.h"
#include "server/base/standard_files.h"
#include "server/base/version.h"
#include "server/config/config.h"
#include "server/config/reload.h"
#include "server/http_servers.h"
#include "server/join_node.h"
#include "server/lanes/membership.h"
#include "server/lanes/node_lock.h"
#include "server/options.h"
#include "server/otlp/span_exporter.h"
#include "server/rpc/gatherer.h"
#include "server/rpc/host.h"
#include "server/rpc/inside_peer.h"
#include "server/rpc/pulse.h"
#include "server/rpc/security.h"
#include "server/rpc/server.h"
#include "server/sessions/sessions.h"
#include "server/subcommands.h"

namespace semaphored {
namespace {

enum ExitCode {
  kClean = 0,
  kCannotGoOn = 1,
  kBadConfig = 2,
  kBadStore = 3,
  kCannotListen = 4,
  kUnusableStore = 5  // As kBadStore, and another start would end alike.
};

// Of what the store's engine says at the start.
int ExitCodeOf(const absl::Status& status, const Config& config) {
  const bool damaged = absl::IsDataLoss(status) && config.store.starts_with("sqlite:");
  return damaged || absl::IsUnimplemented(status) ? kUnusableStore : kBadStore;
}

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
  if (line->severity != GPR_LOG_SEVERITY_ERROR) return;
  // Never destroyed: threads log until the process has ended.
  static LibraryLines& lines = *new LibraryLines();
  if (const auto text = lines.Next(line->file, line->line, line->message, SystemClock().Now())) {
    spdlog::warn("grpc: {}", *text);
  }
}

void AskFatal(Signals* signals, const absl::Status& why) {
  spdlog::critical("cannot go on: {}", Text(why));
  signals->AskFatal();
}

Host::Options HostOptionsOf(const Config& config, const Engine& engine,
                            const Membership* membership, Signals* signals) {
  Host::Options options;
  options.guarantees = engine.guarantees();
  options.upkeep = engine.upkeep();
  options.vouch_until = [membership] { return membership->vouch_until(); };
  options.node_name = [membership](const NodeRef& node) { return membership->NameOf(node); };
  options.lane_vouch = LaneVouchOf(config, engine);
  options.on_fatal = [signals](const absl::Status& why) { AskFatal(signals, why); };
  options.lane.batch_max = config.batch_max;
  options.lane.engine_timeout = Milliseconds(config.engine_timeout_ms);
  options.lane.lanes = LanesOf(config, engine);
  // No heartbeat is sent while a lane waits, and the node TTL goes on.
  options.lane.backoff_max = std::clamp(Milliseconds(config.node_ttl_ms / 20),
                                        options.lane.backoff_min, options.lane.backoff_max);
  return options;
}

absl::Status OpenLanes(const Config& config, NodeRef self, const Clock& clock, Engine* engine,
                       Host* host) {
  const size_t lanes = LanesOf(config, *engine);
  const auto owners = std::make_shared<ledger::OwnerBook>();
  for (size_t lane = 0; lane < lanes; ++lane) {
    ledger::LedgerOptions options = LedgerOptionsOf(config, self, clock);
    options.owners = {.book = owners, .lane = lane, .lanes = lanes};
    options.watched = host->watched();
    options.use = std::make_shared<ledger::LimitUse>();
    auto adapter = engine->OpenLane(options);
    if (!adapter.ok()) return adapter.status();
    host->AddLane(*std::move(adapter), options.use);
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

// What a SIGHUP puts in force in the running daemon.
struct Reloads {
  const ConfigSources& sources;  // Those of the start.
  Config config;                 // In force.
  Server* server;
  HttpServers* http;
  Security* security;
  ServiceManager* manager;
};

// The configuration is read again; what is reloadable of it is put in force, all of it or nothing.
void Reload(Reloads* reloads) {
  if (absl::Status status = ReopenLog(); !status.ok()) spdlog::error("SIGHUP: {}", Text(status));
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
  reloads->http->Reload(*read);
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

MembershipThread::Callbacks MembershipCallbacks(Server* server, Reactor* reactor, Host* host,
                                                Sessions* sessions, Membership* membership,
                                                Signals* signals, ServiceManager* manager,
                                                std::shared_ptr<FirstTouch> first_touch) {
  MembershipThread::Callbacks callbacks;
  // A lane that cannot find out what became of a commit, say, vouches for nothing either: then the
  // log says so, and streams end with NOT_VOUCHED, so that clients go to another daemon.
  callbacks.vouch_until = [host] { return host->vouch_until(); };
  callbacks.on_fatal = [signals](const absl::Status& why) { AskFatal(signals, why); };
  callbacks.on_heartbeat_failed = [](const absl::Status& why) {
    spdlog::warn("no heartbeat reached the engine: {}", Text(why));
  };
  callbacks.on_vouch_change = [server, manager, first_touch](bool vouched) mutable {
    if (vouched) {
      if (first_touch) std::exchange(first_touch, nullptr)->set_value();
      spdlog::info("in touch with the engine: leases are vouched for");
      manager->Status("in touch with the engine");
    } else {
      spdlog::error("out of touch with the engine: nothing is vouched for");
      manager->Status("out of touch with the engine: nothing is vouched for");
    }
    server->OnVouchChange();
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

ServerOptions WithSecurity(ServerOptions options, Security* security) {
  options.tls = security->tls();
  options.access = security->policy();
  options.audit = security->audit();
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
  reloads->http->Open(&server);
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

// What a daemon has before it touches its engine: addresses that no other process has.
struct Start {
  const ConfigSources& sources;
  const Config& config;
  Security* security;
  Signals* signals;
  ServiceManager* manager;
  Server* server;
  HttpServers* http;
};

// Takes over what an earlier life left behind, then serves until it is time to stop. The exit code.
int TakeOverAndServe(Start* start, Host* host, Sessions* sessions, Membership* membership,
                     Milliseconds* grace) {
  const Config& config = start->config;
  Reactor* const reactor = start->server->reactor();
  auto first_touch = std::make_shared<FirstTouch>();
  std::future<void> touched = first_touch->get_future();
  MembershipThread thread(
      membership, &reactor->clock(),
      MembershipCallbacks(start->server, reactor, host, sessions, membership, start->signals,
                          start->manager, std::move(first_touch)));
  const absl::Status ready =
      TakeOver(reactor, sessions, Milliseconds(config.engine_timeout_ms) * 2);
  if (!ready.ok()) {
    spdlog::critical("cannot read the store: {}", Text(ready));
    return ExitCodeOf(ready, config);
  }
  // A client that has read that we serve should not be refused because the first heartbeat is still
  // on its way. If it does not come, clients get the reason.
  touched.wait_for(Milliseconds(config.engine_timeout_ms));
  Reloads reloads{start->sources, config,          start->server,
                  start->http,    start->security, start->manager};
  if (web::Web* const web = start->http->web())
    web->SetFeed(web::StartFeed(
        config, {start->server, host, sessions, membership, start->http->gatherer()}));
  return ListenAndServe(&reloads, start->signals, host, grace);
}

// Null: spans are off.
std::unique_ptr<otlp::SpanExporter> StartSpans(const Config& config) {
  if (config.otlp_endpoint.empty()) return nullptr;
  return std::make_unique<otlp::SpanExporter>(config.otlp_endpoint,
                                              otlp::Resource{kVersion, config.node_id});
}

// Null: the engine keeps its back-ups itself.
std::unique_ptr<BackUpService> StartBackUps(const Config& config, Engine* engine) {
  const std::string file = EmbeddedFile(config.store);
  if (file.empty()) return nullptr;
  return std::make_unique<BackUpService>(
      file, [engine](int64_t bytes_per_second, BackUpService::Progress progress) {
        return engine->BackUp({bytes_per_second, std::move(progress)});
      });
}

int ServeAs(NodeRef self, Engine* engine, Start* start) {
  const Config& config = start->config;
  Server& server = *start->server;
  const Clock& clock = server.reactor()->clock();
  Host* lanes = nullptr;
  Membership membership(&engine->nodes(), self, &clock, MembershipOptionsOf(config, *engine),
                        [&lanes](SteadyTime since) { return lanes->progress_at() > since; });
  Host host(server.reactor(), HostOptionsOf(config, *engine, &membership, start->signals));
  lanes = &host;
  if (absl::Status status = OpenLanes(config, self, clock, engine, &host); !status.ok()) {
    spdlog::critical("cannot open the store: {}", Text(status));
    return ExitCodeOf(status, config);
  }
  std::unique_ptr<otlp::SpanExporter> spans = StartSpans(config);
  SessionsOptions options = SessionsOptionsOf(config, *engine);
  options.spans = spans.get();
  std::unique_ptr<Sessions> sessions = MakeSessions(&host, options);
  host.SetSessions(sessions.get());
  server.Serve(&host, sessions.get());
  start->security->SetOnPolicy(
      [&server](std::shared_ptr<const AccessPolicy> access) { server.SetAccess(access); });
  server.SetAccess(start->security->policy());  // It may have changed in between.
  server.Run();
  const Gatherer gatherer(&server, &host, sessions.get(), &membership, start->security,
                          EmbeddedFile(config.store),
                          [&spans] { return spans == nullptr ? SpanFigures() : spans->figures(); });
  start->http->Show(&gatherer);

  std::unique_ptr<BackUpService> back_ups = StartBackUps(config, engine);
  Milliseconds grace(config.shutdown_grace_ms);
  const int code = TakeOverAndServe(start, &host, sessions.get(), &membership, &grace);
  back_ups.reset();
  // While the reactor still answers them.
  start->http->StopMetrics();
  if (web::Web* const web = start->http->web()) web->SetFeed(nullptr);
  start->security->SetOnPolicy(nullptr);
  server.Stop(grace, [start] {
    if (web::Web* const web = start->http->web()) web->Close();
  });
  start->http->StopWeb();
  host.StopLanes();
  if (absl::Status status = membership.Leave(); !status.ok())
    spdlog::warn("the engine does not know that this daemon has stopped: {}", Text(status));
  // Last: no permit waits for a collector that is slow, or whose name is not found.
  if (spans != nullptr) spans->Stop();
  spdlog::info("stopped");
  return code;
}

// Binds the addresses, then opens the engine and takes the node id: a second start by mistake ends
// at the first of these that a living daemon has.
int Serve(const ConfigSources& sources, const Config& config, Security* security,
          Signals* signals) {
  const Clock& clock = SystemClock();
  ServiceManager manager(ServiceManager::FromEnvironment());
  ServerOptions options = WithSecurity(ServerOptionsOf(config), security);
  options.inside_key = NewInsideKey();
  Server server(&clock, options);
  HttpServers http;
  Start start{sources, config, security, signals, &manager, &server, &http};
  absl::Status bound = server.Bind();
  if (bound.ok()) bound = http.Start(config, clock, security, options.inside_key);
  if (!bound.ok()) {
    spdlog::critical("{}", Text(bound));
    return kCannotListen;
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine = OpenEngine(config.store);
  if (!engine.ok()) {
    spdlog::critical("cannot open the store: {}", Text(engine.status()));
    return ExitCodeOf(engine.status(), config);
  }
  NodeLock lock = OpenNodeLock(sources, config, **engine);
  const absl::StatusOr<NodeRef> self =
      JoinNode(sources, config, server.address(), clock, engine->get(), &lock, signals, &manager);
  if (absl::IsCancelled(self.status())) {
    spdlog::info("stopping before it serves");
    return kClean;
  }
  if (!self.ok()) {
    spdlog::critical("cannot join as node '{}': {}", config.node_id, Text(self.status()));
    return ExitCodeOf(self.status(), config);
  }
  return ServeAs(*self, engine->get(), &start);
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
    return IfWritten(kClean);
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

int main(int argc, char** argv) {
  semaphored::OccupyStandardFiles();
  return semaphored::Main(argc, argv);
}
