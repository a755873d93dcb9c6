#include "client/semctl/output.h"

#include <google/protobuf/util/time_util.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/semctl/duration.h"
#include "client/semctl/shown.h"
#include "client/semctl/wording.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

Json ToJson(const v1::SemaphoreSettings& settings) {
  return {{"backfill", settings.backfill()},
          {"longest_hold_ms", settings.longest_hold_ms()},
          {"recall_grace_ms", settings.recall_grace_ms()},
          {"permits_per_holder", settings.permits_per_holder()},
          {"waiters_max", settings.waiters_max()}};
}

Json ToJson(const SlotRanges& ranges) {
  Json json = Json::array();
  for (const v1::SlotRange& range : ranges)
    json.push_back({{"first", range.first()}, {"last", range.last()}});
  return json;
}

// "; tickets: 3 queued, 1 assigned", of those that there are.
std::string TicketsText(const v1::SemaphoreInfo& semaphore) {
  const v1::TicketCounts& counts = semaphore.tickets();
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t count, const char* word) {
    if (count > 0) parts.push_back(absl::StrCat(count, word));
  };
  add(counts.queued(), " queued");
  add(counts.delayed(), " delayed");
  add(counts.assigned(), " assigned");
  add(counts.dead(), " dead");
  add(semaphore.offers(), " free hands of workers");
  return parts.empty() ? "" : absl::StrCat(", tickets: ", absl::StrJoin(parts, ", "));
}

std::string SettingsText(const v1::SemaphoreSettings& settings) {
  std::vector<std::string> parts;
  if (settings.backfill()) parts.emplace_back("backfill");
  if (settings.longest_hold_ms() > 0) {
    parts.push_back("longest hold " + FormatDuration(milliseconds(settings.longest_hold_ms())));
  }
  if (settings.has_recall_grace_ms()) {
    parts.push_back("recall grace " +
                    (settings.recall_grace_ms() == 0
                         ? "none"
                         : FormatDuration(milliseconds(settings.recall_grace_ms()))));
  }
  if (settings.permits_per_holder() > 0) {
    parts.push_back(absl::StrCat("permits per holder ", settings.permits_per_holder()));
  }
  if (settings.waiters_max() > 0) {
    parts.push_back(absl::StrCat("waiters at most ", settings.waiters_max()));
  }
  return parts.empty() ? "as by default" : absl::StrJoin(parts, ", ");
}

}  // namespace

std::string Word(v1::EndCause cause) {
  if (cause == v1::END_CAUSE_UNSPECIFIED) return "";
  return std::string(absl::StripPrefix(v1::EndCause_Name(cause), "END_CAUSE_"));
}

std::string Word(v1::WatchEventKind kind) {
  return std::string(absl::StripPrefix(v1::WatchEventKind_Name(kind), "WATCH_EVENT_KIND_"));
}

std::string Word(v1::WaitReason reason) {
  if (reason == v1::WAIT_REASON_UNSPECIFIED) return "";
  return std::string(absl::StripPrefix(v1::WaitReason_Name(reason), "WAIT_REASON_"));
}

std::string SlotsText(const SlotRanges& ranges) {
  constexpr int kShownMax = 8;
  std::string text;
  for (int i = 0; i < std::min(ranges.size(), kShownMax); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", ranges[i].first());
    if (ranges[i].last() > ranges[i].first()) absl::StrAppend(&text, "-", ranges[i].last());
  }
  return ranges.size() > kShownMax ? text + ",..." : text;
}

Json ToJson(const v1::Lease& lease) {
  return {{"lease_id", lease.lease_id()},    {"semaphore", lease.semaphore()},
          {"slots", ToJson(lease.slots())},  {"token", absl::StrCat(lease.token())},
          {"holder", lease.holder()},        {"ttl_ms", lease.ttl_ms()},
          {"session_id", lease.session_id()}};
}

Json ToJson(const v1::LeaseInfo& info) {
  Json json = ToJson(info.lease());
  json["foreign"] = info.foreign();
  json["recalled"] = info.recalled();
  json["granted_at"] = TimeText(info.granted_at());
  json["node"] = info.node();
  return json;
}

Json ToJson(const v1::WaiterInfo& info) {
  return {{"position", info.position()},  {"holder", info.holder()},
          {"permits", info.permits()},    {"priority", info.priority()},
          {"node", info.node()},          {"queued_at", TimeText(info.queued_at())},
          {"reason", Word(info.reason())}};
}

Json ToJson(const v1::SemaphoreInfo& semaphore) {
  Json json = {
      {"semaphore", semaphore.semaphore()}, {"limit", semaphore.limit()},
      {"held", semaphore.held()},           {"waiting", semaphore.waiting()},
      {"paused", semaphore.paused()},       {"destroying", semaphore.destroying()},
      {"revision", semaphore.revision()},   {"created_at", TimeText(semaphore.created_at())}};
  if (semaphore.offers() > 0) json["offers"] = semaphore.offers();
  if (semaphore.has_tickets()) {
    json["tickets"] = {{"queued", semaphore.tickets().queued()},
                       {"delayed", semaphore.tickets().delayed()},
                       {"assigned", semaphore.tickets().assigned()},
                       {"dead", semaphore.tickets().dead()}};
  }
  if (semaphore.has_settings()) json["settings"] = ToJson(semaphore.settings());
  return json;
}

Json ToJson(const v1::HistoryRow& row) {
  return {{"number", row.number()},
          {"semaphore", row.semaphore()},
          {"holder", row.holder()},
          {"slots", ToJson(row.slots())},
          {"token", absl::StrCat(row.token())},
          {"granted_at", TimeText(row.granted_at())},
          {"ended_at", TimeText(row.ended_at())},
          {"cause", Word(row.cause())}};
}

Json ToJson(const v1::WatchResponse& event) {
  return {{"time", TimeText(event.time())},
          {"kind", Word(event.kind())},
          {"semaphore", ToJson(event.semaphore())},
          {"holder", event.holder()},
          {"slots", ToJson(event.slots())},
          {"token", absl::StrCat(event.token())},
          {"cause", Word(event.cause())}};
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  return time.seconds() == 0 ? "" : google::protobuf::util::TimeUtil::ToString(time);
}

std::string FormatTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "-";
  const time_t seconds = time.seconds();
  tm local{};
  localtime_r(&seconds, &local);
  char text[40];
  strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &local);
  return text;
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    PrintLine(line);
  }
}

void PrintJson(const Json& json) { PrintLine(LineOf(json)); }

std::string Summary(const v1::SemaphoreInfo& semaphore) {
  return absl::StrCat("limit ", semaphore.limit(), ", ", semaphore.held(), " held, ",
                      semaphore.waiting(), " waiting", TicketsText(semaphore),
                      semaphore.paused() ? ", paused" : "",
                      semaphore.destroying() ? ", being destroyed" : "");
}

void PrintSemaphore(const v1::SemaphoreInfo& semaphore) {
  PrintLine(absl::StrFormat("%s: %s", semaphore.semaphore(), Summary(semaphore)));
  PrintLine(absl::StrCat("settings: ", SettingsText(semaphore.settings())));
  PrintLine(absl::StrFormat("revision %u, created %s", semaphore.revision(),
                            FormatTime(semaphore.created_at())));
}

void PrintRows(const v1::DescribeSemaphoreResult& described) {
  if (described.leases_size() > 0) {
    std::vector<std::vector<std::string>> rows = {
        {"", "SLOTS", "TOKEN", "LEASE", "HOLDER", "SINCE", "TTL", "NODE", ""}};
    for (const v1::LeaseInfo& lease : described.leases()) {
      rows.push_back({"  held", SlotsText(lease.lease().slots()),
                      absl::StrCat(lease.lease().token()), lease.lease().lease_id(),
                      lease.lease().holder(), FormatTime(lease.granted_at()),
                      FormatDuration(milliseconds(lease.lease().ttl_ms())), lease.node(),
                      lease.recalled() ? "recalled" : (lease.foreign() ? "foreign" : "")});
    }
    PrintTable(rows);
  }
  if (described.waiters_size() > 0) {
    std::vector<std::vector<std::string>> rows = {
        {"", "POSITION", "PERMITS", "PRIORITY", "HOLDER", "SINCE", "NODE", "WHY"}};
    for (const v1::WaiterInfo& waiter : described.waiters()) {
      rows.push_back({"  waits", absl::StrCat(waiter.position()), absl::StrCat(waiter.permits()),
                      absl::StrCat(waiter.priority()), waiter.holder(),
                      FormatTime(waiter.queued_at()), waiter.node(), Text(waiter.reason())});
    }
    PrintTable(rows);
  }
}

}  // namespace semaphore::semctl
