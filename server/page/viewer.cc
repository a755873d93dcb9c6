#include "server/page/viewer.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"

namespace semaphored::page {
namespace {

constexpr Verbs kSees = Verb::kVerify | Verb::kAdminister;

// `lower`: of lower-case letters.
bool Contains(std::string_view text, std::string_view lower) {
  return std::search(text.begin(), text.end(), lower.begin(), lower.end(),
                     [](unsigned char a, char b) {
                       return static_cast<char>(std::tolower(a)) == b;
                     }) != text.end();
}

// Rises with what a viewer looks for.
int64_t RankOf(const SemaphoreLine& line, View::Sort sort) {
  switch (sort) {
    case View::Sort::kHeld:
      return line.held;
    case View::Sort::kWaiting:
      return static_cast<int64_t>(line.waiting);
    case View::Sort::kOldest:
      // The earliest first; those without a waiter last.
      return line.oldest_unix_ms == 0 ? INT64_MIN : -line.oldest_unix_ms;
    case View::Sort::kName:
      break;
  }
  return 0;
}

const char* Bool(bool value) { return value ? "true" : "false"; }

}  // namespace

bool Rights::Sees(std::string_view semaphore) const {
  return identity == nullptr ? policy == nullptr : identity->May(kSees, semaphore);
}

bool Rights::Administers(std::string_view semaphore) const {
  return identity == nullptr ? policy == nullptr : identity->May(Verb::kAdminister, semaphore);
}

bool Rights::AdministersAll() const {
  return identity == nullptr ? policy == nullptr : identity->MayUnder(Verb::kAdminister, "");
}

const std::vector<uint32_t>& Orders::By(View::Sort sort, bool ascending) {
  auto [found, first] = orders_.try_emplace({sort, ascending});
  std::vector<uint32_t>& order = found->second;
  if (!first) return order;
  const std::vector<SemaphoreLine>& lines = listing_->lines;
  order.resize(lines.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  if (sort == View::Sort::kName) {
    if (!ascending) std::ranges::reverse(order);
    return order;
  }
  // The lines stand by name, and what is equal stays so.
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    const int64_t rank_a = RankOf(lines[a], sort);
    const int64_t rank_b = RankOf(lines[b], sort);
    return ascending ? rank_a < rank_b : rank_a > rank_b;
  });
  return order;
}

bool Viewer::Show(const Moment& moment, uint64_t* sent_bytes) {
  std::optional<Rights> rights = rights_now_();
  if (!rights) {
    End();
    return false;
  }
  const bool changed = rights->policy != rights_.policy || rights->writes != rights_.writes;
  rights_ = *std::move(rights);
  if (stream_->unread() > 0) return true;
  sent_bytes_ = 0;
  if (!greeted_ || changed) SendHello();
  switch (view_.kind) {
    case View::Kind::kList:
      SendList(moment);
      break;
    case View::Kind::kSemaphore:
      SendSemaphore(moment);
      break;
    case View::Kind::kSessions:
      SendSessions(moment);
      break;
    case View::Kind::kEngine:
      if (moment.figures != nullptr)
        Send("engine", EngineJson(*moment.figures, rights_.AdministersAll()));
      break;
  }
  SendStatus(moment);
  *sent_bytes += sent_bytes_;
  return true;
}

void Viewer::Send(std::string_view event, const std::string& json) {
  sent_bytes_ += event.size() + json.size();
  stream_->Send(event, json);
}

void Viewer::SendChanged(std::string_view event, std::string json) {
  std::string& before = sent_[std::string(event)];
  if (before == json) return;
  Send(event, json);
  before = std::move(json);
}

void Viewer::AddChanged(std::string_view key, std::string json, std::string* message) {
  std::string& before = sent_[std::string(key)];
  if (before == json) return;
  message->append(",\"").append(key).append("\":").append(json);
  before = std::move(json);
}

void Viewer::SendHello() {
  greeted_ = true;
  const bool known = rights_.identity != nullptr && rights_.identity != rights_.policy->anonymous();
  const std::string user = known ? rights_.identity->name() : "";
  Send("hello", absl::StrCat("{\"node\":", Quoted(options_->node_id),
                             ",\"adapter\":", Quoted(options_->adapter),
                             ",\"version\":", Quoted(options_->version), ",\"user\":", Quoted(user),
                             ",\"certified\":", Bool(known && rights_.certified), ",\"access\":",
                             Bool(rights_.policy != nullptr), ",\"writes\":", Bool(rights_.writes),
                             ",\"tickets\":", Bool(options_->tickets), "}"));
}

void Viewer::SendStatus(const Moment& moment) {
  uint64_t count = 0;
  uint64_t held = 0;
  uint64_t waiting = 0;
  uint64_t dead = 0;
  int64_t age_ms = 0;
  bool more = false;
  if (moment.orders != nullptr) {
    const Listing& listing = moment.orders->listing();
    for (const SemaphoreLine& line : listing.lines) {
      if (!rights_.Sees(line.name)) continue;
      ++count;
      held += line.held;
      waiting += line.waiting;
      dead += line.tickets.dead;
    }
    more = listing.more;
    if (view_.kind == View::Kind::kList)
      age_ms = std::chrono::duration_cast<Milliseconds>(moment.now - listing.begun_at).count();
  }
  Send("status", absl::StrCat("{\"t\":", moment.now_unix_ms, ",\"age\":", age_ms, ",\"ok\":",
                              Bool(moment.complete), ",\"vouched\":", Bool(moment.vouched),
                              ",\"n\":", count, ",\"held\":", held, ",\"waiting\":", waiting,
                              ",\"dead\":", dead, ",\"more\":", Bool(more), "}"));
}

void Viewer::SendList(const Moment& moment) {
  if (moment.orders == nullptr) return;
  const std::vector<SemaphoreLine>& lines = moment.orders->listing().lines;
  uint64_t matched = 0;
  std::vector<std::string> order;
  std::string rows;
  absl::flat_hash_map<std::string, SemaphoreLine> shown;
  for (const uint32_t number : moment.orders->By(view_.sort, view_.ascending)) {
    const SemaphoreLine& line = lines[number];
    if (!rights_.Sees(line.name)) continue;
    if (!view_.search.empty() && !Contains(line.name, view_.search)) continue;
    const uint64_t at = matched++;
    if (at < view_.from || at >= uint64_t{view_.from} + view_.rows) continue;
    order.push_back(line.name);
    const auto before = lines_.find(line.name);
    if (before == lines_.end() || before->second != line) {
      rows.append(rows.empty() ? "" : ",").append(Quoted(line.name)).append(":");
      rows.append(LineJson(line));
    }
    shown.emplace(line.name, line);
  }
  std::string message = absl::StrCat("{\"matched\":", matched);
  if (order != order_ || !sent_.contains("list")) {
    message.append(",\"order\":[");
    for (size_t i = 0; i < order.size(); ++i)
      message.append(i == 0 ? "" : ",").append(Quoted(order[i]));
    message.append("]");
  }
  if (!rows.empty()) message.append(",\"rows\":{").append(rows).append("}");
  message.append("}");
  order_ = std::move(order);
  lines_ = std::move(shown);
  SendChanged("list", std::move(message));
}

void Viewer::SendSemaphore(const Moment& moment) {
  if (moment.look == nullptr) return;
  const auto found = moment.look->semaphores.find(view_.name);
  if (found == moment.look->semaphores.end()) return;
  const SemaphoreLook& look = found->second;
  std::string message;
  if (!rights_.Sees(view_.name) || (look.refusal == nullptr && look.info.row.name.empty()) ||
      (look.refusal != nullptr && look.refusal->code == absl::StatusCode::kNotFound)) {
    sent_.erase("info");
    return SendChanged("semaphore", "{\"gone\":true}");
  }
  if (look.refusal != nullptr)
    return SendChanged("semaphore",
                       absl::StrCat("{\"error\":", Quoted(look.refusal->message), "}"));
  const bool administers = rights_.Administers(view_.name);
  AddChanged("may", Bool(administers && rights_.writes), &message);
  AddChanged("info", InfoJson(look.info), &message);
  AddChanged("leases", LeasesJson(look.info, options_->node_name, administers), &message);
  AddChanged("leases_more", Bool(look.leases_more), &message);
  AddChanged("waiters", WaitersJson(look.info, options_->node_name), &message);
  if (!message.empty()) {
    sent_.erase("semaphore");
    Send("semaphore", absl::StrCat("{", message.substr(1), "}"));
  }
  if (const auto tickets = look.tickets.find(view_.tickets); tickets != look.tickets.end())
    SendChanged("tickets", TicketsJson(tickets->second));
  SendChart(moment);
}

// What was sent stands; further samples follow it.
void Viewer::SendChart(const Moment& moment) {
  if (moment.history == nullptr || (chart_sent_ && chart_tick_ == moment.tick)) return;
  std::vector<History::Sample> samples = moment.history->Of(view_.name);
  if (samples.empty()) return;
  if (chart_sent_)
    std::erase_if(samples, [this](const History::Sample& each) { return each.tick < chart_tick_; });
  Send("chart", ChartJson(samples, moment.tick, !chart_sent_));
  chart_sent_ = true;
  chart_tick_ = moment.tick;
}

// A viewer that administers all names sees all sessions, and where the nodes are; any other the sessions of its own
// identity.
void Viewer::SendSessions(const Moment& moment) {
  const bool all = rights_.AdministersAll();
  if (moment.nodes != nullptr) SendChanged("nodes", all ? *moment.nodes : *moment.node_names);
  if (moment.look == nullptr || !moment.look->sessions) return;
  const SessionList& list = *moment.look->sessions;
  std::vector<const SessionLine*> lines;
  for (const SessionLine& line : list.lines) {
    const bool own = rights_.identity != nullptr &&
                     rights_.identity != rights_.policy->anonymous() &&
                     line.owner == rights_.identity->name();
    if (all || own) lines.push_back(&line);
  }
  std::ranges::sort(lines, {},
                    [](const SessionLine* line) { return std::pair(line->client_id, line->id); });
  SendChanged("sessions", SessionsJson(lines, all ? list.total : lines.size()));
}

}  // namespace semaphored::page
