#include "server/rpc/gatherer.h"

#include <sys/statvfs.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "server/base/version.h"

namespace semaphored {
namespace {

constexpr std::chrono::seconds kListPatience{1};
constexpr std::chrono::seconds kReactorPatience{2};

// The reactor fills this in, perhaps only when Gather() no longer waits for it.
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
    Environment& environment = server->environment();
    const ServiceLimits& most = environment.limits;
    const SteadyTime now = server->reactor()->clock().Now();
    asked->calls = environment.call_figures;
    asked->unauthenticated = environment.access.unknown.counts();
    if (environment.access.audit != nullptr)
      asked->audit_lines_lost = environment.access.audit->lost();
    asked->commands_under_way = host->jobs_under_way();
    asked->longest_turn = server->reactor()->longest_turn();
    asked->limits = {
        {"calls_max", environment.calls, most.calls_max},
        {"streams_max", environment.streams, most.streams_max},
        {"standard_calls_max", environment.standard_calls.size(), most.standard_calls_max},
        {"answers_bytes_max", environment.unread.bytes(), most.answers_bytes_max},
        {"streams_bytes_max", environment.unread_streams.bytes(), most.streams_bytes_max},
        {"stream_bytes_max", environment.stream_bytes.Get(now), most.stream_bytes_max},
        {"watch_events_max", environment.watch_events.Get(now), most.watch_events_max}};
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

std::vector<LimitFigures> Gatherer::LedgerLimits(const DaemonFigures& figures) const {
  using Limit = ledger::StandingLimit;
  const SessionsFigures& sessions = figures.sessions;
  std::vector<LimitFigures> limits;
  for (size_t i = 0; i < ledger::kStandingLimits; ++i) {
    const auto limit = static_cast<Limit>(i);
    const ledger::LimitUse::Figures use = host_->LimitOf(limit);
    limits.push_back({ledger::NameOf(limit), use.used, use.most});
  }
  const auto listed = [&limits](Limit limit, uint64_t used) {
    limits[static_cast<size_t>(limit)].used = used;
  };
  listed(Limit::kWaitersPerSemaphore, sessions.most_waiters);
  listed(Limit::kTicketsPerSemaphore, sessions.most_tickets);
  listed(Limit::kDeadLettersPerSemaphore, sessions.most_dead_letters);
  // Without a list of the engine's semaphores it is not known which is the fullest.
  if (!sessions.list_age_ms.has_value())
    limits.resize(static_cast<size_t>(Limit::kWaitersPerSemaphore));
  return limits;
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
  figures.ledger_limits = LedgerLimits(figures);
  figures.connections = server_->connection_limit();
  figures.guard = server_->guard_figures();
  figures.engine = host_->engine_figures();
  figures.upkeep = host_->upkeep_figures();
  if (spans_) figures.spans = spans_();
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
