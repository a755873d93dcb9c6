#include "adapters/consul/places.h"

#include <spdlog/spdlog.h>

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "adapters/consul/pulse.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;

constexpr int kRenewalsInTtl = 12;
constexpr std::chrono::seconds kRetryRenewal{5};
constexpr size_t kMadeAhead = 2;
constexpr char kNoSuchNode[] = "Missing node registration";

}  // namespace

Places::Places(Client* client, const Url& url, NodeRef self)
    : client_(client), url_(url), own_(url.ends_with_daemon ? self : NodeRef{}) {
  Group& own = groups_[{own_.number, own_.incarnation}];
  if (url_.ends_with_daemon) {
    own.check = Pulse::CheckOf(url_, self);
  } else {
    own.node = NodeOf(url_);
  }
}

Places::~Places() {
  if (!url_.ends_with_daemon) return;
  for (const std::string& session : groups_[{own_.number, own_.incarnation}].sessions)
    (void)client_->Put(HttpTarget("/v1/session/destroy/", session), "");  // Or with the check.
}

std::string Places::NodeOf(const Url& url) {
  return absl::StrCat("semaphored-", absl::StrReplaceAll(url.prefix, {{"/", "-"}}));
}

std::string Places::NameOf(NodeRef key) const {
  const std::string name = absl::StrCat("semaphored ", url_.prefix);
  return url_.ends_with_daemon ? absl::StrCat(name, " ", key.number, ".", key.incarnation) : name;
}

absl::Status Places::Register() {
  return client_
      ->Ask("/v1/catalog/register",
            absl::StrCat("{\"Node\":", JsonText(NodeOf(url_)),
                         ",\"Address\":\"semaphored.invalid\",\"NodeMeta\":{\"external-node\":"
                         "\"true\"}}"))
      .status;
}

absl::Status Places::Start() {
  Group& own = groups_[{own_.number, own_.incarnation}];
  if (url_.ends_with_daemon) {
    absl::StatusOr<std::string> first = Make(own_, own);
    if (!first.ok()) return first.status();
    own.sessions.insert(*std::move(first));
    return absl::OkStatus();
  }
  if (absl::Status status = Register(); !status.ok()) return status;
  return Refresh();
}

absl::Status Places::Refresh() {
  absl::StatusOr<std::vector<Listed>> sessions = List(own_);
  if (!sessions.ok()) return sessions.status();
  Group own = groups_[{own_.number, own_.incarnation}];
  own.sessions.clear();
  for (Listed& session : *sessions) own.sessions.insert(std::move(session.id));
  groups_.clear();
  groups_[{own_.number, own_.incarnation}] = std::move(own);
  doubtful_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Places::Listed>> Places::List(NodeRef key) {
  const HttpTarget target = url_.ends_with_daemon
                                ? HttpTarget("/v1/session/list")
                                : HttpTarget("/v1/session/node/", groups_[{0, 0}].node);
  const Reply reply = client_->Get(HttpTarget(target).Option("consistent"));
  if (!reply.answered()) return reply.status;
  const Json json = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  std::vector<Listed> sessions;
  if (json.is_null()) return sessions;
  if (!json.is_array()) return NotUnderstood();
  const std::string name = NameOf(key);
  for (const Json& each : json) {
    if (each.is_object() && each.value("Name", "") == name)
      sessions.push_back({each.value("ID", ""), each.value("Node", "")});
  }
  return sessions;
}

absl::StatusOr<Places::Group*> Places::Find(NodeRef key) {
  const auto [at, is_new] = groups_.try_emplace({key.number, key.incarnation});
  Group& group = at->second;
  if (!group.sessions.empty() || key == own_) return &group;
  absl::StatusOr<std::vector<Listed>> sessions = List(key);
  if (!sessions.ok() || sessions->empty()) {
    groups_.erase(at);
    if (!sessions.ok()) return sessions.status();
    return static_cast<Group*>(nullptr);
  }
  group.check = Pulse::CheckOf(url_, key);
  group.node = sessions->front().node;
  for (Listed& session : *sessions) group.sessions.insert(std::move(session.id));
  return &group;
}

absl::StatusOr<NodeRef> Places::HostFor(NodeRef host) {
  const absl::StatusOr<Group*> group = Find(KeyOf(host));
  if (!group.ok()) return group.status();
  return *group == nullptr ? own_ : KeyOf(host);
}

absl::StatusOr<std::string> Places::Make(NodeRef key, const Group& group) {
  const std::string body = absl::StrCat(
      "{", group.node.empty() ? "" : absl::StrCat("\"Node\":", JsonText(group.node), ","),
      "\"Name\":", JsonText(NameOf(key)),
      group.check.empty()
          ? ",\"NodeChecks\":[],\"Checks\":[]"
          : absl::StrCat(",\"Checks\":[\"serfHealth\",", JsonText(group.check), "]"),
      ",\"Behavior\":\"delete\",\"LockDelay\":\"0s\",\"TTL\":\"", url_.session_ttl.count(), "s\"}");
  const HttpTarget path = "/v1/session/create";
  // An agent refuses a check that the servers do not know yet: it is asked again.
  Reply reply = group.check.empty() ? client_->Put(path, body) : client_->Ask(path, body);
  // The node was removed from the catalogue.
  if (!reply.answered() && !url_.ends_with_daemon && absl::StrContains(reply.body, kNoSuchNode)) {
    spdlog::error("consul: the node {} was removed from the catalogue; it is made again",
                  group.node);
    if (absl::Status status = Register(); !status.ok()) return status;
    reply = client_->Put(path, body);
  }
  if (!reply.answered()) return reply.status;
  const Json json = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("ID") || !json["ID"].is_string()) return NotUnderstood();
  return json["ID"].get<std::string>();
}

absl::StatusOr<Places::Taken> Places::Take(NodeRef host, size_t count,
                                           const std::set<std::string>& taken) {
  if (doubtful_) {
    if (absl::Status status = Refresh(); !status.ok()) return status;
  }
  Taken found;
  found.host = KeyOf(host);
  absl::StatusOr<Group*> group = Find(found.host);
  if (!group.ok()) return group.status();
  if (*group == nullptr) {
    found.host = own_;
    group = Find(own_);
  }
  for (const std::string& session : (*group)->sessions) {
    if (found.sessions.size() == count) return found;
    if (!taken.contains(session)) found.sessions.push_back(session);
  }
  // Some more, since the next request mostly needs some more too. One whose making was not answered
  // is found at the next renewal.
  const size_t missing = count - found.sessions.size();
  for (size_t i = 0; i < missing + (missing == 0 ? 0 : kMadeAhead); ++i) {
    absl::StatusOr<std::string> made = Make(found.host, **group);
    // That daemon has just ended.
    if (!made.ok() && found.host != own_) {
      groups_.erase({found.host.number, found.host.incarnation});
      return Take(own_, count, taken);
    }
    if (!made.ok()) return made.status();
    (*group)->sessions.insert(*made);
    if (found.sessions.size() < count) found.sessions.push_back(*std::move(made));
  }
  return found;
}

void Places::Forget(const std::string& session) {
  for (auto& [key, group] : groups_) group.sessions.erase(session);
  doubtful_ = true;
}

absl::Status Places::RenewIfDue(SteadyTime now) {
  if (now < renew_at_) return absl::OkStatus();
  renew_at_ = now + url_.session_ttl / kRenewalsInTtl;
  if (absl::Status status = Refresh(); !status.ok()) {
    renew_at_ = now + kRetryRenewal;
    return status;
  }
  absl::Status renewed;
  std::set<std::string>& sessions = groups_[{own_.number, own_.incarnation}].sessions;
  std::erase_if(sessions, [&](const std::string& session) {
    const Reply reply = client_->Ask(HttpTarget("/v1/session/renew/", session), "");
    renewed.Update(reply.status);
    return reply.http_status == 404;
  });
  if (!renewed.ok()) renew_at_ = now + kRetryRenewal;
  return renewed;
}

}  // namespace semaphored::consul
