#include "server/page/sections.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace semaphored::page {
namespace {

using Json = nlohmann::json;

// Of ids, to tell rows apart.
constexpr size_t kKeyDigits = 12;
constexpr size_t kRunsMax = 16;
constexpr size_t kTextBytesShown = 256;
// A number of a script is exact up to here.
constexpr uint64_t kExactMax = uint64_t{1} << 53;

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string KeyOf(const Id& id) { return id.Hex().substr(0, kKeyDigits); }

Json Number(uint64_t number) {
  if (number > kExactMax) return std::to_string(number);
  return number;
}

// Of a text that may have kilobytes, for a list: without it one list could be megabytes, which a stream does not keep.
std::string Beginning(std::string_view text) {
  if (text.size() <= kTextBytesShown) return std::string(text);
  size_t end = kTextBytesShown;
  // Not within a character of UTF-8.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "…";
}

// At most kRunsMax of them: a lease may have as many as it has slots.
Json RunsOf(const Slots& slots) {
  Json runs = Json::array();
  for (const Slots::Run& run : slots.runs()) {
    if (runs.size() == kRunsMax) break;
    runs.push_back({run.first, run.last});
  }
  return runs;
}

// The bound of the bucket in which this share of the steps lies, in milliseconds.
double QuantileMs(const Histogram<uint64_t>& histogram, double share) {
  uint64_t all = 0;
  for (const uint64_t each : histogram.counts) all += each;
  uint64_t seen = 0;
  for (size_t i = 0; i < kHistogramBounds; ++i) {
    seen += histogram.counts[i];
    if (static_cast<double>(seen) >= share * static_cast<double>(all))
      return static_cast<double>(kStepBounds[i]) / 1000;
  }
  return static_cast<double>(kStepBounds.back()) / 1000;
}

Json CallsOf(const DaemonFigures& figures) {
  Json calls = Json::array();
  for (size_t i = 0; i < kMethods; ++i) {
    const CallFigures& call = figures.calls[i];
    if (call.begun == 0) continue;
    const uint64_t ended = call.begun - call.under_way();
    calls.push_back({MethodName(static_cast<Method>(i)), call.under_way(), ended,
                     ended - std::min(ended, call.ended[0])});
  }
  return calls;
}

Json LimitsOf(const DaemonFigures& figures) {
  Json limits = Json::array();
  // Without a guard connections are not counted one by one.
  if (figures.guard.connections > 0)
    limits.push_back({"connections_max", figures.guard.connections, figures.connections.most});
  for (const auto* group : {&figures.limits, &figures.ledger_limits}) {
    for (const LimitFigures& limit : *group)
      limits.push_back({limit.name, Number(limit.used), Number(limit.most)});
  }
  return limits;
}

}  // namespace

std::string Quoted(std::string_view text) { return Text(Json(text)); }

std::string LineJson(const SemaphoreLine& line) {
  const int flags = (line.paused ? 1 : 0) | (line.destroying ? 2 : 0);
  const TicketCounts& tickets = line.tickets;
  return absl::StrCat("[", line.limit, ",", line.held, ",", line.waiting, ",", line.oldest_unix_ms,
                      ",", flags, ",", tickets.queued, ",", tickets.delayed, ",", tickets.assigned,
                      ",", tickets.dead, ",", line.offers, "]");
}

std::string InfoJson(const SemaphoreInfo& info) {
  const Settings& settings = info.row.settings;
  const TicketCounts& tickets = info.tickets;
  return Text({{"limit", info.row.limit},
               {"held", info.held},
               {"waiting", info.waiting},
               {"flags", (info.row.paused ? 1 : 0) | (info.row.destroying ? 2 : 0)},
               {"revision", info.row.revision},
               {"created", info.row.created_at_unix_ms},
               {"offers", info.offers},
               {"counts",
                {{"queued", tickets.queued},
                 {"delayed", tickets.delayed},
                 {"assigned", tickets.assigned},
                 {"dead", tickets.dead}}},
               {"settings",
                {{"backfill", settings.backfill},
                 {"longest_hold_ms", settings.longest_hold_ms},
                 {"recall_grace_ms", settings.recall_grace_ms},
                 {"permits_per_holder", settings.permits_per_holder},
                 {"waiters_max", settings.waiters_max}}}});
}

std::string LeasesJson(const SemaphoreInfo& info, const NodeName& names, bool with_ids) {
  Json rows = Json::array();
  for (const LeasePtr& lease : info.leases) {
    const int flags = (lease->recall.pending() ? 1 : 0) | (lease->foreign ? 2 : 0) |
                      (lease->slots.runs().size() > kRunsMax ? 4 : 0);
    Json row = {KeyOf(lease->id),
                RunsOf(lease->slots),
                lease->holder,
                lease->granted_at_unix_ms,
                lease->foreign ? "" : names(lease->host),
                flags,
                Number(lease->token),
                lease->ttl_ms};
    if (with_ids && !lease->foreign)
      row.push_back(absl::StrCat(info.row.name, "#", lease->id.Hex()));
    rows.push_back(std::move(row));
  }
  return Text(rows);
}

std::string WaitersJson(const SemaphoreInfo& info, const NodeName& names) {
  Json rows = Json::array();
  for (const WaiterInfo& each : info.waiters) {
    const Waiter& waiter = *each.waiter;
    rows.push_back({KeyOf(waiter.id), each.position, waiter.holder, waiter.permits, waiter.priority,
                    waiter.queued_at_unix_ms, waiter.foreign ? "" : names(waiter.host),
                    static_cast<int>(each.reason)});
  }
  return Text(rows);
}

std::string TicketsJson(const TicketList& list) {
  Json rows = Json::array();
  for (const TicketInfo& info : list.tickets) {
    const Ticket& ticket = *info.ticket;
    Json reasons = Json::array();
    if (!ticket.reasons.empty()) {
      const TicketReason& last = ticket.reasons.back();
      reasons.push_back({last.attempt, Beginning(last.text), last.at_unix_ms});
    }
    const auto holder = list.holders.find(ticket.id);
    rows.push_back({ticket.id.Hex(), static_cast<int>(ticket.state), ticket.priority,
                    ticket.attempt, ticket.max_attempts, ticket.content_type, ticket.payload_bytes,
                    ticket.enqueued_at_unix_ms, info.position,
                    holder == list.holders.end() ? "" : holder->second, std::move(reasons)});
  }
  return Text({{"rows", std::move(rows)}, {"more", list.more}});
}

std::string ChartJson(const std::vector<History::Sample>& samples, uint32_t now, bool reset) {
  Json rows = Json::array();
  for (const History::Sample& each : samples)
    rows.push_back({each.tick, each.held, each.waiting, each.limit});
  return Text(
      {{"now", now}, {"step", History::kTickMs}, {"reset", reset}, {"samples", std::move(rows)}});
}

std::string NodesJson(const std::vector<NodeLine>& nodes, bool with_places) {
  Json rows = Json::array();
  for (const NodeLine& node : nodes)
    rows.push_back({node.node_id, static_cast<int>(node.state), with_places ? node.host : "",
                    with_places ? node.address : "", with_places ? node.pid : 0,
                    node.since_unix_ms});
  return Text(Json::object({{"rows", std::move(rows)}}));
}

std::string SessionsJson(const std::vector<const SessionLine*>& lines, uint64_t total) {
  Json rows = Json::array();
  for (const SessionLine* line : lines)
    rows.push_back({KeyOf(line->id), line->client_id, line->holder, line->owner, line->open,
                    line->ttl_ms, line->claims, line->free_hands});
  return Text({{"total", total}, {"rows", std::move(rows)}});
}

std::string EngineJson(const DaemonFigures& figures, bool with_figures) {
  if (!with_figures)
    return Text(
        {{"adapter", figures.adapter}, {"version", figures.version}, {"vouched", figures.vouched}});
  const EngineFigures& engine = figures.engine;
  uint64_t steps = 0;
  for (const uint64_t each : engine.step_us.counts) steps += each;
  uint64_t errors = 0;
  for (const uint64_t each : engine.errors) errors += each;
  Json json = {{"adapter", figures.adapter},
               {"version", figures.version},
               {"complete", figures.complete},
               {"vouched", figures.vouched},
               {"beat_ms", nullptr},
               {"beats_failed", figures.heartbeats_failed},
               {"step_p50_ms", QuantileMs(engine.step_us, 0.5)},
               {"step_p99_ms", QuantileMs(engine.step_us, 0.99)},
               {"turn_us", figures.longest_turn_us},
               {"steps", steps},
               {"commands", engine.batch.sum},
               {"errors", errors},
               {"unknown", engine.unknown},
               {"unsettled", engine.unsettled},
               {"quarantined", engine.quarantined},
               {"success_ms", engine.last_success_age_ms},
               {"nodes_dead", figures.nodes_declared_dead},
               {"disk_free", nullptr},
               {"calls", CallsOf(figures)},
               {"limits", LimitsOf(figures)}};
  if (figures.heartbeat_age_ms) json["beat_ms"] = *figures.heartbeat_age_ms;
  if (figures.disk_free_bytes) json["disk_free"] = *figures.disk_free_bytes;
  return Text(json);
}

}  // namespace semaphored::page
