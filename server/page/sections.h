// What the feed sends, as JSON. Every text of a caller's stands in it as a string of JSON, so that the page shows it
// as text. Pure functions. The page (server/web/page.html) reads what is written here, field by field.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/types.h"
#include "server/figures/metrics.h"
#include "server/page/history.h"
#include "server/page/look.h"

namespace semaphored::page {

// Of the daemon, for people.
struct NodeLine {
  enum class State : uint8_t { kAlive = 0, kStopped = 1, kDead = 2, kSelf = 3 };
  std::string node_id;
  State state = State::kAlive;
  std::string host;
  std::string address;
  int64_t pid = 0;
  int64_t since_unix_ms = 0;
};

using NodeName = std::function<std::string(const NodeRef&)>;

// A string of JSON; what is not UTF-8 in it is replaced.
std::string Quoted(std::string_view text);

// [limit, held, waiting, oldest_unix_ms, flags, queued, delayed, assigned, dead, offers]; flags: 1 paused, 2 being destroyed.
std::string LineJson(const SemaphoreLine& line);

// {"limit", "held", "waiting", "flags", "revision", "created", "offers", "counts": {…}, "settings": {…}}
std::string InfoJson(const SemaphoreInfo& info);
// [[key, [[first, last], …], holder, granted_unix_ms, node, flags, token, ttl_ms, lease_id], …]; flags: 1 recalled, 2 foreign,
// 4 it has more runs of slots than are shown.
// `with_ids`: for administrators, who may revoke; else the lease ids, which are secrets of the holders, are left out.
std::string LeasesJson(const SemaphoreInfo& info, const NodeName& names, bool with_ids);
// [[key, position, holder, permits, priority, queued_unix_ms, node, reason], …]
std::string WaitersJson(const SemaphoreInfo& info, const NodeName& names);
// {"rows": [[id, state, priority, attempt, max_attempts, content_type, bytes, enqueued_unix_ms, position, holder,
//            [[attempt, text, unix_ms]]], …], "more"}: the beginning of the last reason, if there is one.
std::string TicketsJson(const TicketList& list);
// {"now", "step", "reset", "samples": [[tick, held, waiting, limit], …]}
std::string ChartJson(const std::vector<History::Sample>& samples, uint32_t now, bool reset);

// {"rows": [[node_id, state, host, address, pid, since_unix_ms], …]}. `with_places`: for those who administer all names;
// for others host and address are empty, and pid is 0.
std::string NodesJson(const std::vector<NodeLine>& nodes, bool with_places);
// {"total", "rows": [[id's first digits, client_id, holder, owner, open, ttl_ms, claims, free_hands], …]}
std::string SessionsJson(const std::vector<const SessionLine*>& lines, uint64_t total);
// `with_figures`: for those who administer all names; for others no more than DescribeDaemon shows.
std::string EngineJson(const DaemonFigures& figures, bool with_figures);

}  // namespace semaphored::page
