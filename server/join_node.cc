#include "server/join_node.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <vector>

#include "server/base/logging.h"
#include "server/lanes/daemon_card.h"
#include "server/lanes/joining.h"

namespace semaphored {
namespace {

// Beside what is left of the node TTL, for the service manager: until the next report, and some.
constexpr Milliseconds kPatience(30'000);

// SIGHUP and spurious wake-ups do not shorten it. False: the daemon is to stop.
bool WaitFor(Signals* signals, const Clock& clock, Milliseconds time) {
  const SteadyTime end = clock.Now() + time;
  for (SteadyTime now = clock.Now(); now < end; now = clock.Now()) {
    const Signals::Event event = signals->Wait(std::chrono::ceil<Milliseconds>(end - now));
    if (event.kind == Signals::Event::Kind::kStop || event.kind == Signals::Event::Kind::kFatal)
      return false;
  }
  return true;
}

}  // namespace

NodeLock OpenNodeLock(const ConfigSources& sources, const Config& config, const Engine& engine) {
  const bool needed = !engine.guarantees().exclusive && engine.guarantees().shares_claims;
  return NodeLock(needed ? LockFolders(sources.environment) : std::vector<std::string>{},
                  LockName(config.node_id, MaskSecrets(config.store)));
}

absl::StatusOr<NodeRef> JoinNode(const ConfigSources& sources, const Config& config,
                                 const std::string& address, const Clock& clock, Engine* engine,
                                 NodeLock* lock, Signals* signals, ServiceManager* manager) {
  JoinOptions options;
  options.node_id = config.node_id;
  options.node_ttl = Milliseconds(config.node_ttl_ms);
  options.card = [&] {
    DaemonCard card{sources.host_name, address, getpid(), clock.NowUnixMs(), lock->Claim()};
    return WriteCard(card);
  };
  options.has_ended = [lock](const std::string& card) {
    return lock->HasEnded(ReadCard(card).lock);
  };
  options.wait = [&](Milliseconds time) { return WaitFor(signals, clock, time); };
  options.report = [manager](const std::string& line, Milliseconds left) {
    spdlog::info("{}", line);
    manager->Starting(line, left + kPatience);
  };
  absl::StatusOr<NodeRef> self = JoinWithCare(&engine->nodes(), &clock, options);
  if (self.ok() && !lock->trouble().empty()) {
    spdlog::info("no lock file ({}): if this daemon is killed, its next start waits for a node TTL",
                 lock->trouble());
  }
  return self;
}

}  // namespace semaphored
