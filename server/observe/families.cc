#include "server/observe/families.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr double kMicrosecond = 1e-6;
constexpr double kMillisecond = 1e-3;

class Families {
 public:
  // What follows goes into this family, until the next one begins.
  void Begin(MetricType type, std::string name, std::string help) {
    DropIfEmpty();
    MetricFamily family;
    family.type = type;
    family.name = std::move(name);
    family.help = std::move(help);
    families_.push_back(std::move(family));
  }
  void Counter(std::string name, std::string help) {
    Begin(MetricType::Counter, std::move(name), std::move(help));
  }
  void Gauge(std::string name, std::string help) {
    Begin(MetricType::Gauge, std::move(name), std::move(help));
  }

  void Add(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (families_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        value;
    families_.back().metric.push_back(std::move(metric));
  }
  void Add(uint64_t value, Labels labels = {}) {
    Add(static_cast<double>(value), std::move(labels));
  }
  void Add(const Histogram<uint64_t>& histogram, const HistogramBounds& bounds, double unit,
           Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    uint64_t count = 0;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      count += histogram.counts[i];
      const double bound = i < bounds.size() ? static_cast<double>(bounds[i]) * unit
                                             : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({count, bound});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = static_cast<double>(histogram.sum) * unit;
    families_.back().metric.push_back(std::move(metric));
  }

  std::vector<MetricFamily> Take() {
    DropIfEmpty();
    return std::move(families_);
  }

 private:
  void DropIfEmpty() {
    if (!families_.empty() && families_.back().metric.empty()) families_.pop_back();
  }

  std::vector<MetricFamily> families_;
};

std::string LabelOf(const SessionsFigures::Named& named) {
  return named.semaphore.empty() ? kRestLabel : named.semaphore;
}

// Shown with 0 too, so that the first one of a kind is seen as an increase.
constexpr EndCause kLosses[] = {
    EndCause::kExpired,      EndCause::kRevoked,    EndCause::kRecalled, EndCause::kDestroyed,
    EndCause::kDisconnected, EndCause::kEngineLost, EndCause::kUnknown};

const char* LossLabel(EndCause cause) {
  switch (cause) {
    case EndCause::kExpired:
      return "expired";
    case EndCause::kRevoked:
      return "revoked";
    case EndCause::kRecalled:
      return "recalled";
    case EndCause::kDestroyed:
      return "destroyed";
    case EndCause::kDisconnected:
      return "disconnected";
    case EndCause::kEngineLost:
      return "engine_lost";
    case EndCause::kNone:
    case EndCause::kReleased:
    case EndCause::kUnknown:
    case EndCause::kWaitExpired:
    case EndCause::kCancelled:
    case EndCause::kExceedsLimit:
    case EndCause::kMoved:
    case EndCause::kCount:
      break;
  }
  return "unknown";
}

bool AlwaysShown(size_t reason) {
  return reason == static_cast<size_t>(Reason::kFull) ||
         reason == static_cast<size_t>(Reason::kWaitExpired);
}

void AddCounted(const SessionsFigures& sessions, Families* out) {
  const auto of_each = [&](auto add) {
    for (const SessionsFigures::Named& named : sessions.semaphores) add(named, LabelOf(named));
  };
  out->Counter("semaphored_grants_total",
               "Leases granted to clients of this daemon, tickets given to its workers included.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.grants, {{"semaphore", name}});
  });
  out->Counter("semaphored_denials_total",
               "Requests for permits that this daemon refused, or whose wait ended, by reason.");
  of_each([&](const auto& each, const auto& name) {
    for (size_t reason = 0; reason < kReasons; ++reason) {
      if (each.here.denials[reason] == 0 && !AlwaysShown(reason)) continue;
      out->Add(
          each.here.denials[reason],
          {{"semaphore", name}, {"reason", std::string(ReasonName(static_cast<Reason>(reason)))}});
    }
  });
  out->Counter("semaphored_releases_total", "Leases that were given back whole.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.releases, {{"semaphore", name}});
  });
  out->Counter("semaphored_losses_total",
               "Leases that ended otherwise than by being given back, by cause.");
  of_each([&](const auto& each, const auto& name) {
    for (const EndCause cause : kLosses) {
      out->Add(each.here.losses[static_cast<size_t>(cause)],
               {{"semaphore", name}, {"cause", LossLabel(cause)}});
    }
  });
  out->Counter("semaphored_recalls_total", "Leases that were asked back.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.recalls, {{"semaphore", name}});
  });
}

void AddStanding(const SessionsFigures& sessions, Families* out) {
  const auto of_each = [&](auto add) {
    for (const SessionsFigures::Named& named : sessions.semaphores) add(named, LabelOf(named));
  };
  out->Begin(MetricType::Histogram, "semaphored_wait_seconds",
             "From the request to the grant, of requests that were granted.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.wait_us, kWaitBounds, kMicrosecond, {{"semaphore", name}});
  });
  out->Begin(MetricType::Histogram, "semaphored_hold_seconds",
             "From the grant to the end, of leases that were granted and ended at this daemon.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.hold_us, kHoldBounds, kMicrosecond, {{"semaphore", name}});
  });
  out->Gauge("semaphored_leases", "Leases that this daemon keeps alive.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.leases, {{"semaphore", name}});
  });
  out->Gauge("semaphored_held_permits", "Permits of the leases that this daemon keeps alive.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.held_permits, {{"semaphore", name}});
  });
  out->Gauge("semaphored_waiters", "Requests that wait at this daemon.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.here.waiters, {{"semaphore", name}});
  });
  out->Gauge("semaphored_oldest_waiter_age_seconds",
             "How long the oldest of the requests that wait at this daemon has waited; 0: none.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(static_cast<double>(each.oldest_waiter_age_ms) * kMillisecond, {{"semaphore", name}});
  });
}

void AddListed(const SessionsFigures& sessions, Families* out) {
  const auto of_each = [&](auto add) {
    for (const SessionsFigures::Named& named : sessions.semaphores) {
      if (named.engine.has_value()) add(*named.engine, LabelOf(named));
    }
  };
  out->Gauge("semaphored_engine_limit_permits", "The semaphore's limit, as last listed.");
  of_each([&](const auto& each, const auto& name) { out->Add(each.limit, {{"semaphore", name}}); });
  out->Gauge(
      "semaphored_engine_held_permits",
      "Permits held through all daemons and by other clients of the engine, as last listed.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.held_permits, {{"semaphore", name}});
  });
  out->Gauge("semaphored_engine_waiters", "Requests that wait at all daemons, as last listed.");
  of_each([&](const auto& each, const auto& name) {
    out->Add(each.waiters, {{"semaphore", name}});
  });
  out->Gauge("semaphored_engine_tickets", "Tickets by state, as last listed.");
  of_each([&](const auto& each, const auto& name) {
    const std::pair<const char*, uint64_t> states[] = {{"queued", each.tickets_queued},
                                                       {"delayed", each.tickets_delayed},
                                                       {"assigned", each.tickets_assigned},
                                                       {"dead_letter", each.dead_letters}};
    for (const auto& [state, count] : states)
      out->Add(count, {{"semaphore", name}, {"state", state}});
  });
  if (!sessions.list_age_ms.has_value()) return;
  out->Gauge("semaphored_engine_semaphores", "Semaphores in the last list.");
  out->Add(static_cast<uint64_t>(sessions.listed));
  out->Gauge("semaphored_engine_list_age_seconds", "Age of the last list of the engine.");
  out->Add(static_cast<double>(*sessions.list_age_ms) * kMillisecond);
  out->Gauge("semaphored_engine_list_complete",
             "1 if the last list had all semaphores, 0 if there are more than are listed.");
  out->Add(static_cast<uint64_t>(sessions.list_complete ? 1 : 0));
  out->Gauge("semaphored_engine_oldest_pause_seconds",
             "For how long this daemon's lists have had the semaphore that has been paused the "
             "longest; 0: none is.");
  out->Add(static_cast<double>(sessions.oldest_pause_ms) * kMillisecond);
}

void AddUpkeep(const UpkeepFigures& upkeep, Families* out) {
  out->Counter("semaphored_engine_upkeep_errors_total",
               "Errors of what the daemon does for the engine beside its callers' commands.");
  for (size_t i = 0; i < kUpkeepWorks; ++i)
    out->Add(upkeep.errors[i], {{"work", NameOf(static_cast<UpkeepWork>(i))}});
  out->Gauge("semaphored_engine_history_rows", "Ended leases that the engine keeps.");
  out->Add(upkeep.history_rows);
  out->Gauge("semaphored_engine_history_rows_max", "Ended leases that the engine is to keep.");
  out->Add(upkeep.history_rows_max);
  out->Gauge("semaphored_engine_oldest_snapshot_seconds",
             "For how long the oldest snapshot of the engine has been seen to stand.");
  out->Add(static_cast<double>(upkeep.oldest_snapshot.count()) * kMillisecond);
}

void AddEngine(const DaemonFigures& figures, Families* out) {
  const EngineFigures& engine = figures.engine;
  out->Begin(MetricType::Histogram, "semaphored_engine_step_seconds",
             "How long the engine took for a batch of commands.");
  out->Add(engine.step_us, kStepBounds, kMicrosecond);
  out->Begin(MetricType::Histogram, "semaphored_engine_batch_commands", "Commands in a batch.");
  out->Add(engine.batch, kBatchBounds, 1);
  out->Counter("semaphored_engine_errors_total",
               "Batches, and waits for events, that the engine failed, by status code.");
  for (size_t code = 1; code < kStatusCodes; ++code) {
    out->Add(engine.errors[code],
             {{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
  }
  out->Counter(
      "semaphored_engine_unknown_outcomes_total",
      "Commands whose answer was lost, so that it had to be found out what became of them.");
  out->Add(engine.unknown);
  out->Gauge("semaphored_engine_unsettled_commands",
             "Commands of which it is not known now what became of them.");
  out->Add(engine.unsettled);
  out->Gauge("semaphored_quarantined_semaphores",
             "Semaphores that are left alone, since what the engine keeps of them is damaged.");
  out->Add(engine.quarantined);
  AddUpkeep(figures.upkeep, out);
  out->Gauge("semaphored_engine_last_success_age_seconds",
             "Since the engine last answered well, of the connection that is furthest behind.");
  out->Add(static_cast<double>(engine.last_success_age_ms) * kMillisecond);
  out->Gauge("semaphored_vouched", "1 while this daemon may vouch for its leases, else 0.");
  out->Add(static_cast<uint64_t>(figures.vouched ? 1 : 0));
  out->Gauge("semaphored_heartbeat_age_seconds",
             "Since the last heartbeat that reached the engine was sent.");
  if (figures.heartbeat_age_ms.has_value())
    out->Add(static_cast<double>(*figures.heartbeat_age_ms) * kMillisecond);
  out->Counter("semaphored_heartbeats_total", "Heartbeats that reached the engine.");
  out->Add(figures.heartbeats);
  out->Counter("semaphored_heartbeat_failures_total", "Heartbeats that did not.");
  out->Add(figures.heartbeats_failed);
  out->Counter("semaphored_nodes_declared_dead_total", "Nodes that this daemon declared dead.");
  out->Add(figures.nodes_declared_dead);
}

void AddCalls(const DaemonFigures& figures, Families* out) {
  const auto method = [](size_t i) { return MethodName(static_cast<Method>(i)); };
  out->Counter("semaphored_grpc_calls_total", "gRPC calls that have ended, by method and code.");
  for (size_t i = 0; i < kMethods; ++i) {
    for (size_t code = 0; code < kStatusCodes; ++code) {
      if (figures.calls[i].ended[code] == 0 && code != 0) continue;
      out->Add(figures.calls[i].ended[code],
               {{"method", method(i)},
                {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
    }
  }
  out->Gauge("semaphored_grpc_calls_in_flight",
             "gRPC calls that have begun and not ended; of Session, Work, Hold and Watch, the open "
             "streams.");
  for (size_t i = 0; i < kMethods; ++i) {
    out->Add(figures.calls[i].under_way(), {{"method", method(i)}});
  }
  out->Counter("semaphored_unauthenticated_total",
               "Calls and streams that were refused with UNAUTHENTICATED, by what they showed.");
  for (size_t kind = 0; kind < kUnknownKinds; ++kind) {
    out->Add(figures.unauthenticated[kind],
             {{"kind", UnknownKindName(static_cast<UnknownKind>(kind))}});
  }
  out->Gauge("semaphored_guarded_connections", "Connections that pass the guard.");
  out->Add(figures.guard.connections);
  out->Counter("semaphored_guard_closed_total",
               "Connections that the guard has closed, by reason.");
  for (const auto& [reason, count] : figures.guard.closed) out->Add(count, {{"reason", reason}});
  out->Counter("semaphored_audit_lines_lost_total",
               "Lines of the audit log that were lost, since it could not be written.");
  out->Add(figures.audit_lines_lost);
  out->Gauge("semaphored_reactor_longest_turn_seconds",
             "For how long one turn of the daemon kept all clients waiting, at most, in the last "
             "minute or two.");
  out->Add(static_cast<double>(figures.longest_turn_us) / 1e6);
  out->Gauge("semaphored_certificate_expiry_timestamp_seconds",
             "When the certificate that clients are shown expires, in seconds since 1970. 0: "
             "connections are not encrypted.");
  out->Add(static_cast<double>(figures.certificate_expires_unix_s));
  if (figures.disk_free_bytes) {
    out->Gauge("semaphored_store_disk_free_bytes",
               "What is free where the embedded store's file is.");
    out->Add(*figures.disk_free_bytes);
  }
  out->Gauge("semaphored_engine_commands_under_way",
             "Commands that were handed to the engine's lanes and have not come back.");
  out->Add(figures.commands_under_way);
  out->Gauge("semaphored_sessions", "Sessions that this daemon keeps alive, by state.");
  const SessionsFigures& sessions = figures.sessions;
  out->Add(static_cast<uint64_t>(sessions.sessions_open), {{"state", "connected"}});
  out->Add(static_cast<uint64_t>(sessions.sessions - sessions.sessions_open), {{"state", "away"}});
  out->Gauge("semaphored_workers", "Sessions that carry out tickets.");
  out->Add(static_cast<uint64_t>(sessions.workers));
}

// Of the daemon's own, those that something stands under.
void AddLimits(const DaemonFigures& figures, const ProcessFigures& process, Families* out) {
  std::vector<LimitFigures> limits = figures.limits;
  limits.insert(limits.end(), figures.ledger_limits.begin(), figures.ledger_limits.end());
  const ConnectionLimit& connections = figures.connections;
  const uint64_t descriptors =
      process.open_files - std::min(process.open_files, connections.other_descriptors);
  limits.push_back(
      {"connections_max", descriptors / connections.descriptors_each, connections.most});
  out->Gauge("semaphored_limit_used", "How much of a limit of the daemon's own is in use.");
  for (const LimitFigures& limit : limits) out->Add(limit.used, {{"limit", limit.name}});
  out->Gauge("semaphored_limit_max", "That limit, as it is in force.");
  for (const LimitFigures& limit : limits) out->Add(limit.most, {{"limit", limit.name}});
}

void AddProcess(const DaemonFigures& figures, const ProcessFigures& process, int64_t start_unix_ms,
                Families* out) {
  out->Gauge("semaphored_build_info", "Always 1; the labels say what runs.");
  out->Add(uint64_t{1}, {{"version", figures.version}, {"adapter", figures.adapter}});
  out->Gauge("semaphored_scrape_complete",
             "1: complete; 0: the daemon was too busy to report semaphores, sessions and calls.");
  out->Add(static_cast<uint64_t>(figures.complete ? 1 : 0));
  out->Counter("semaphored_log_lines_lost_total",
               "Lines of the daemon's log that were lost, since it could not be written.");
  out->Add(process.log_lines_lost);
  out->Counter("semaphored_spans_total",
               "Spans of OpenTelemetry, by what became of them; 0 where otlp_endpoint is not set.");
  out->Add(figures.spans.sent, {{"result", "sent"}});
  out->Add(figures.spans.dropped, {{"result", "dropped"}});
  out->Gauge("process_start_time_seconds", "When the process began, in seconds since 1970.");
  out->Add(static_cast<double>(start_unix_ms) * kMillisecond);
  out->Counter("process_cpu_seconds_total", "Processor time, of user and system.");
  out->Add(process.cpu_seconds);
  out->Gauge("process_resident_memory_bytes", "Memory in use.");
  out->Add(process.resident_bytes);
  out->Gauge("process_open_fds", "Open file descriptors.");
  out->Add(process.open_files);
  out->Gauge("process_max_fds", "File descriptors that may be open.");
  out->Add(process.open_files_max);
  out->Gauge("process_threads", "Threads.");
  out->Add(process.threads);
}

// `prefix`: of the names. `whose`: in words.
void AddHttp(const std::string& prefix, const std::string& whose, const http::ServerFigures& server,
             Families* out) {
  out->Gauge(prefix + "_connections", "Connections to " + whose + ".");
  out->Add(server.connections);
  out->Counter(prefix + "_answers_total", "Answers of " + whose + ", by status.");
  for (size_t status = 0; status < http::kStatuses; ++status) {
    out->Add(server.answers[status],
             {{"code", std::to_string(http::StatusNumber(static_cast<http::Status>(status)))}});
  }
  out->Counter(prefix + "_sent_bytes_total", "Bytes that " + whose + " has sent.");
  out->Add(server.sent_bytes);
  out->Counter(prefix + "_closed_total", "Connections that " + whose + " has closed, by reason.");
  for (size_t reason = 0; reason < http::kClosed; ++reason)
    out->Add(server.closed[reason],
             {{"reason", http::ClosedName(static_cast<http::Closed>(reason))}});
}

void AddScrapes(const ScrapeFigures& scrapes, Families* out) {
  out->Begin(MetricType::Histogram, "semaphored_scrape_seconds",
             "How long the daemon took to gather these metrics, before this time.");
  out->Add(scrapes.took_us, kStepBounds, kMicrosecond);
  AddHttp("semaphored_http", "the metrics' HTTP server", scrapes.server, out);
  AddHttp("semaphored_web", "the HTTP server at http_listen", scrapes.web, out);
}

}  // namespace

std::vector<MetricFamily> MakeFamilies(const DaemonFigures& figures, const ProcessFigures& process,
                                       const ScrapeFigures& scrapes, int64_t start_unix_ms) {
  Families families;
  AddProcess(figures, process, start_unix_ms, &families);
  AddScrapes(scrapes, &families);
  AddEngine(figures, &families);
  AddLimits(figures, process, &families);
  if (figures.complete) {
    AddCounted(figures.sessions, &families);
    AddStanding(figures.sessions, &families);
    AddListed(figures.sessions, &families);
    AddCalls(figures, &families);
  }
  return families.Take();
}

}  // namespace semaphored
