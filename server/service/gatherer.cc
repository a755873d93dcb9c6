#include "server/service/gatherer.h"

#include <sys/statvfs.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "server/core/version.h"

namespace semaphored {
namespace {

constexpr std::chrono::seconds kListPatience{1};
constexpr std::chrono::seconds kReactorPatience{2};

// What the reactor fills in; it may come to it after nobody waits any more.
struct Asked {
  std::promise<void> done;
  SessionsFigures sessions;
  AllCallFigures calls{};
  UnknownCallers::Counts unauthenticated{};
  uint64_t audit_lines_lost = 0;
  uint64_t commands_under_way = 0;
  SteadyTime::duration longest_turn{};
  std::vector<LimitFigures> limits;
};

}  // namespace

void Gatherer::RefreshList() const {
  auto done = std::make_shared<std::promise<void>>();
  const std::future<void> listed = done->get_future();
  server_->reactor()->Post(
      [sessions = sessions_, done] { sessions->RefreshFigures([done] { done->set_value(); }); });
  listed.wait_for(kListPatience);
}

bool Gatherer::AskReactor(DaemonFigures* figures) const {
  auto asked = std::make_shared<Asked>();
  const std::future<void> done = asked->done.get_future();
  server_->reactor()->Post([asked, server = server_, host = host_, sessions = sessions_] {
    sessions->Figures(&asked->sessions);
    const Environment& environment = server->environment();
    asked->calls = environment.call_figures;
    asked->unauthenticated = environment.access.unknown.counts();
    if (environment.access.audit != nullptr)
      asked->audit_lines_lost = environment.access.audit->lost();
    asked->commands_under_way = host->jobs_under_way();
    asked->longest_turn = server->reactor()->longest_turn();
    asked->limits = {
        {"calls_max", environment.calls, environment.limits.calls_max},
        {"streams_max", environment.streams, environment.limits.streams_max},
        {"answers_bytes_max", environment.unread.bytes(), environment.limits.answers_bytes_max}};
    asked->done.set_value();
  });
  if (done.wait_for(kReactorPatience) != std::future_status::ready) return false;
  figures->sessions = std::move(asked->sessions);
  figures->calls = asked->calls;
  figures->unauthenticated = asked->unauthenticated;
  figures->audit_lines_lost = asked->audit_lines_lost;
  figures->commands_under_way = asked->commands_under_way;
  figures->longest_turn_us =
      std::chrono::duration_cast<std::chrono::microseconds>(asked->longest_turn).count();
  figures->limits = std::move(asked->limits);
  return true;
}

DaemonFigures Gatherer::Gather() const {
  DaemonFigures figures;
  figures.certificate_expires_unix_s = security_->certificate_expires_unix_s();
  struct statvfs disk {};
  if (!store_file_.empty() && statvfs(store_file_.c_str(), &disk) == 0)
    figures.disk_free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  figures.version = kVersion;
  figures.adapter = host_->guarantees().adapter;
  RefreshList();
  figures.complete = AskReactor(&figures);
  figures.guard = server_->guard_figures();
  figures.engine = host_->engine_figures();
  const SteadyTime now = host_->clock().Now();
  figures.vouched = host_->vouch_until() > now;
  if (const SteadyTime sent = membership_->heartbeat_at(); sent != SteadyTime::min()) {
    figures.heartbeat_age_ms = std::chrono::duration_cast<Milliseconds>(now - sent).count();
  }
  const HeartbeatFigures& heartbeats = membership_->figures();
  figures.heartbeats = heartbeats.sent;
  figures.heartbeats_failed = heartbeats.failed;
  figures.nodes_declared_dead = heartbeats.nodes_declared_dead;
  return figures;
}

}  // namespace semaphored
