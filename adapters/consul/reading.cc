// What the store reads.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/consul/commit.h"
#include "adapters/consul/folder_tickets.h"
#include "adapters/consul/store.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {

using Json = nlohmann::json;
using ledger::Image;
using ledger::SessionPtr;

namespace {

constexpr size_t kFoldersAtOnce = TransactionRequest::kOperationsMax / 4;
constexpr size_t kFoldersAtOnceWithoutTickets = TransactionRequest::kOperationsMax / 2;
constexpr size_t kFoldersKept = 50'000;
// An agent serves 200 connections of one client; what more there are is looked at in the sweep.
constexpr size_t kFoldersWatchedMax = 64;
constexpr int kReadingsMax = 5;  // Until a moment is found in which each claim has its session.

void TellDamage(const Url& url, const Folder& folder) {
  const std::string damage = folder.WhatWasDone();
  if (damage.empty()) return;
  if (url.ends_with_daemon && folder.has_record() && !folder.lost_places.empty())
    return spdlog::warn("consul: {}: permits have ended with a daemon, or its health check",
                        folder.name);
  spdlog::error(
      "consul: {}: {} while {} permits of ours are held; it is put right, but foreign clients may "
      "have entered meanwhile",
      folder.name, damage, folder.document.Held());
}

}  // namespace

absl::StatusOr<std::vector<Entry>> ConsulStore::AskEntries(const TransactionRequest& request) {
  // Consistent: an answer may rest on it, and a leader that was deposed without noticing must not
  // give it. What is only a hint is asked for without.
  const Reply reply = client_.Ask("/v1/txn?consistent", request.Body());
  if (!reply.answered()) return reply.status;
  absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
  if (!answer.ok()) return answer.status();
  if (!answer->done)
    return absl::PermissionDeniedError(absl::StrCat("consul: ", answer->refusals.front().why));
  return std::move(answer->entries);
}

absl::StatusOr<std::vector<Entry>> ConsulStore::AskTree(const std::string& key) {
  const Reply reply =
      client_.Get(HttpTarget("/v1/kv/", key).Option("recurse").Option("consistent"));
  if (!reply.answered()) return reply.status;
  if (reply.http_status == 404) return std::vector<Entry>();
  return ReadEntries(reply.body);
}

// ---- folders ----

absl::StatusOr<std::vector<Folder>> ConsulStore::ReadFew(absl::Span<const std::string> names,
                                                         bool with_tickets) {
  TransactionRequest request;
  for (const std::string& name : names) {
    request.GetTree(keys_.Folder(name));
    request.GetTree(keys_.Document(name));
    if (!with_tickets) continue;
    request.GetTree(keys_.Pages(name));
    request.GetTree(keys_.Tickets(name));
  }
  const uint64_t reading = ++readings_;
  const absl::StatusOr<std::vector<Entry>> entries = AskEntries(request);
  if (!entries.ok()) return entries.status();
  std::vector<Folder> folders;
  for (const std::string& name : names) {
    const auto known = folders_.find(name);
    folders.push_back(
        ReadFolder(keys_, name, *entries, known == folders_.end() ? nullptr : &known->second,
                   [this](const std::string& client_id) { return names_.NumberOf(client_id); }));
    folders.back().reading = reading;
    if (with_tickets) CheckTickets(&folders.back());
  }
  return folders;
}

absl::StatusOr<std::vector<Folder>> ConsulStore::ReadFolders(absl::Span<const std::string> names,
                                                             bool with_tickets) {
  std::vector<Folder> all;
  const size_t at_once = with_tickets ? kFoldersAtOnce : kFoldersAtOnceWithoutTickets;
  for (size_t at = 0; at < names.size(); at += at_once) {
    absl::StatusOr<std::vector<Folder>> some = ReadFew(names.subspan(at, at_once), with_tickets);
    if (!some.ok()) return some.status();
    std::ranges::move(*some, std::back_inserter(all));
  }
  return all;
}

bool ConsulStore::WaitsForRoom(const Folder& folder) {
  return folder.document.AnyWaiter(
      [&](const WaiterPtr& waiter) { return !waiter->works || folder.document.ticket_count != 0; });
}

void ConsulStore::Keep(Folder folder) {
  if (folders_.size() >= kFoldersKept && !folders_.contains(folder.name)) {
    folders_.clear();
    shared_.clear();
  }
  const auto known = folders_.find(folder.name);
  if (!folder.trouble.ok() && (known == folders_.end() || known->second.trouble.ok()))
    spdlog::error("consul: {}: {}", folder.name, std::string(folder.trouble.message()));
  if (WaitsForRoom(folder) &&
      (shared_.size() < kFoldersWatchedMax || shared_.contains(folder.name)))
    shared_[folder.name] = SteadyClock::now() + kWatchedFor;
  std::string name = folder.name;
  folders_.insert_or_assign(std::move(name), std::move(folder));
}

// What was known of it stays: it may be put back.
void ConsulStore::KeepDamaged(const Folder& folder) {
  if (folders_.size() >= kFoldersKept) folders_.clear();
  Folder& known = folders_[folder.name];
  if (known.damage.ok()) spdlog::error("{}", std::string(folder.damage.message()));
  known.name = folder.name;
  known.damage = folder.damage;
}

absl::StatusOr<Image> ConsulStore::Load(absl::Span<const std::string> names) {
  for (int reading = 1;; ++reading) {
    absl::StatusOr<std::vector<Folder>> folders = ReadFolders(names);
    if (!folders.ok()) return folders.status();
    for (Folder& folder : *folders) {
      RemoveDeadContenders(folder);
      if (!folder.damage.ok() || !folder.NeedsMending()) continue;
      TellDamage(url_, folder);
      if (absl::Status status = Mend(&folder); !status.ok()) return status;
    }
    Image image;
    const absl::Status status = ReadSessions(*folders, &image);
    // A session was closed between both readings: with it its claims.
    if (absl::IsNotFound(status) && reading < kReadingsMax) continue;
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    for (Folder& folder : *folders) {
      if (!folder.damage.ok()) {
        image.damaged.emplace_back(folder.name, folder.damage);
        KeepDamaged(folder);
        continue;
      }
      if (folder.revision() != 0) image.semaphores.push_back(ToLoaded(folder));
      Keep(std::move(folder));
    }
    AddClients(&image);
    return image;
  }
}

// Nothing is kept: what is remembered here and what the ledger knows must be of the same moment.
// Who is foreign changes no revision, so a commit that was decided without a foreign holder, on a
// record in which it is counted, would land.
absl::StatusOr<Image> ConsulStore::Look(absl::Span<const std::string> names) {
  const absl::StatusOr<std::vector<Folder>> folders = ReadFolders(names);
  if (!folders.ok()) return folders.status();
  Image image;
  for (const Folder& folder : *folders) {
    if (folder.revision() != 0) image.semaphores.push_back(ToLoaded(folder));
  }
  return image;
}

absl::StatusOr<std::vector<std::string>> ConsulStore::Changed(
    absl::Span<const SemaphoreRow* const> semaphores) {
  std::vector<std::string> names;
  std::vector<uint64_t> revisions;
  for (const SemaphoreRow* row : semaphores) names.push_back(row->name);
  std::optional<uint64_t> since;
  if (names.size() > kFoldersAtOnceWithoutTickets * QuietRegions::RequestsFor(names))
    since = quiet_.Since(&client_, keys_, names, SteadyClock::now(), &readings_);
  names.clear();
  for (const SemaphoreRow* row : semaphores) {
    const auto known = folders_.find(row->name);
    const bool stands = since && known != folders_.end() && known->second.reading > *since &&
                        known->second.damage.ok() && known->second.revision() == row->revision;
    if (stands) continue;
    names.push_back(row->name);
    revisions.push_back(row->revision);
  }
  const absl::StatusOr<std::vector<Folder>> folders = ReadFolders(names, /*with_tickets=*/false);
  if (!folders.ok()) return folders.status();
  std::vector<std::string> changed;
  for (size_t i = 0; i < names.size(); ++i) {
    const Folder& now = (*folders)[i];
    const auto known = folders_.find(names[i]);
    if (known == folders_.end() || !now.damage.ok() || now.revision() != revisions[i] ||
        now.document_index != known->second.document_index || now.NeedsMending() ||
        !SameOutside(known->second, now)) {
      changed.push_back(names[i]);
    } else {
      known->second.reading = now.reading;
    }
  }
  return changed;
}

// ---- sessions ----

std::string ConsulStore::WriteSession(const Session& session) const {
  return absl::StrCat("[", JsonText(names_.NameOf(session.client)), ",", session.host.number, ",",
                      session.host.incarnation, ",", session.epoch, ",", session.ttl_ms, ",",
                      static_cast<int>(session.release_on_disconnect), ",",
                      JsonText(session.holder), ",", static_cast<int>(session.closing), ",",
                      JsonText(session.owner), "]");
}

absl::StatusOr<SessionAtIndex> ConsulStore::ReadSession(const Entry& entry) {
  try {
    const Json json = Json::parse(entry.value);
    auto session = std::make_shared<Session>();
    session->id = Id::FromHex(entry.key.substr(keys_.Sessions().size())).value();
    session->client = names_.NumberOf(json.at(0).get<std::string>());
    session->host = {json.at(1).get<uint32_t>(), json.at(2).get<uint32_t>()};
    session->epoch = json.at(3).get<uint32_t>();
    session->ttl_ms = json.at(4).get<int64_t>();
    session->release_on_disconnect = json.at(5).get<int>() != 0;
    session->holder = json.at(6).get<std::string>();
    session->closing = json.at(7).get<int>() != 0;
    session->owner = json.at(8).get<std::string>();
    return SessionAtIndex{std::move(session), entry.modify_index};
  } catch (const std::exception&) {
    return absl::DataLossError(
        absl::StrCat("consul: the session ", entry.key, " is not understood"));
  }
}

// NOT_FOUND: a claim's session is not there.
absl::Status ConsulStore::ReadSessions(const std::vector<Folder>& folders, Image* image) {
  absl::flat_hash_set<Id> wanted;
  for (const Folder& folder : folders) {
    for (const auto& [id, lease] : folder.document.leases) {
      if (!lease->detached()) wanted.insert(lease->session);
    }
    folder.document.AnyWaiter([&](const WaiterPtr& waiter) {
      if (!waiter->detached()) wanted.insert(waiter->session);
      return false;
    });
  }
  absl::flat_hash_set<Id> found;
  for (auto at = wanted.begin(); at != wanted.end();) {
    TransactionRequest request;
    for (; at != wanted.end() && request.size() < TransactionRequest::kOperationsMax; ++at)
      request.GetTree(keys_.Session(*at));
    const absl::StatusOr<std::vector<Entry>> entries = AskEntries(request);
    if (!entries.ok()) return entries.status();
    for (const Entry& entry : *entries) {
      absl::StatusOr<SessionAtIndex> session = ReadSession(entry);
      if (!session.ok()) return session.status();
      found.insert(session->session->id);
      image->sessions.push_back(session->session);
      const Id id = session->session->id;
      sessions_[id] = *std::move(session);
    }
  }
  return found.size() == wanted.size() ? absl::OkStatus() : absl::NotFoundError("a session");
}

void ConsulStore::AddClients(Image* image) {
  absl::flat_hash_set<uint32_t> seen;
  const auto add = [&](uint32_t number) {
    if (number == 0 || !seen.insert(number).second) return;
    image->clients.push_back({number, names_.NameOf(number), 0});
  };
  for (const ledger::LoadedSemaphore& semaphore : image->semaphores) {
    for (const LeasePtr& lease : semaphore.leases) add(lease->request.client);
    for (const WaiterPtr& waiter : semaphore.waiters) add(waiter->request.client);
  }
  for (const SessionPtr& session : image->sessions) add(session->client);
}

absl::StatusOr<ledger::SharedStore::SessionAt> ConsulStore::LoadSession(const Id& session) {
  TransactionRequest request;
  request.GetTree(keys_.Session(session));
  request.GetTree(keys_.Index(session));
  const absl::StatusOr<std::vector<Entry>> entries = AskEntries(request);
  if (!entries.ok()) return entries.status();
  SessionAt at;
  sessions_.erase(session);
  indexed_.erase(session);
  for (const Entry& entry : *entries) {
    if (std::optional<std::string> name = Keys::NameIn(entry.key, keys_.Index(session))) {
      at.semaphores.push_back(*std::move(name));
      continue;
    }
    absl::StatusOr<SessionAtIndex> read = ReadSession(entry);
    if (!read.ok()) return read.status();
    at.session = read->session;
    sessions_[session] = *std::move(read);
  }
  if (at.session) indexed_[session].insert(at.semaphores.begin(), at.semaphores.end());
  return at;
}

absl::StatusOr<ledger::SharedStore::Hosted> ConsulStore::HostedBy(absl::Span<const NodeRef> nodes) {
  absl::flat_hash_map<uint32_t, uint32_t> incarnations;  // The last of each node's that counts.
  for (const NodeRef& node : nodes) {
    uint32_t& incarnation = incarnations[node.number];
    incarnation = std::max(incarnation, node.incarnation);
  }
  const auto is_there = [&](const NodeRef& host) {
    const auto node = incarnations.find(host.number);
    return node != incarnations.end() && host.incarnation <= node->second;
  };
  Hosted hosted;
  const absl::StatusOr<std::vector<Entry>> sessions = AskTree(keys_.Sessions());
  if (!sessions.ok()) return sessions.status();
  absl::flat_hash_set<Id> theirs;
  for (const Entry& entry : *sessions) {
    absl::StatusOr<SessionAtIndex> session = ReadSession(entry);
    if (!session.ok()) return session.status();
    if (!is_there(session->session->host)) continue;
    theirs.insert(session->session->id);
    hosted.sessions.push_back(session->session);
    const Id id = session->session->id;
    sessions_[id] = *std::move(session);
  }
  const auto is_theirs = [&](const Claim& claim) {
    return claim.detached() ? is_there(claim.host) : theirs.contains(claim.session);
  };
  std::set<std::string> names;
  const absl::StatusOr<std::vector<Entry>> documents = AskTree(keys_.Documents());
  if (!documents.ok()) return documents.status();
  for (const Entry& entry : *documents) {
    const std::optional<std::string> name = Keys::NameIn(entry.key, keys_.Documents());
    if (!name) continue;
    const absl::StatusOr<Document> document =
        ReadDocument(*name, entry.value, entry.create_index, entry.modify_index,
                     [](const std::string&) { return 0; });
    if (!document.ok()) {
      // The others are not to wait for it.
      spdlog::error("{}", std::string(document.status().message()));
      continue;
    }
    const bool has =
        std::ranges::any_of(document->leases,
                            [&](const auto& each) { return is_theirs(*each.second); }) ||
        std::ranges::any_of(document->waiters,
                            [&](const auto& each) { return is_theirs(*each.second); }) ||
        std::ranges::any_of(document->delays, is_there);
    if (has) names.insert(*name);
  }
  // A waiter that has moved to a page since the documents were read was in its document then.
  const absl::StatusOr<std::vector<Entry>> pages = AskTree(keys_.Pages());
  if (!pages.ok()) return pages.status();
  for (const Entry& entry : *pages) {
    const std::optional<std::string> name = keys_.NameOfPage(entry.key);
    if (!name) continue;
    const absl::StatusOr<std::vector<WaiterPtr>> waiters =
        ReadPage(*name, entry.value, [](const std::string&) { return 0; });
    if (!waiters.ok()) {
      spdlog::error("{}", std::string(waiters.status().message()));
    } else if (std::ranges::any_of(*waiters, [&](const auto& each) { return is_theirs(*each); })) {
      names.insert(*name);
    }
  }
  hosted.semaphores.assign(names.begin(), names.end());
  return hosted;
}

// ---- names and history ----

absl::StatusOr<std::vector<std::string>> ConsulStore::Names(const std::string& prefix,
                                                            const std::string& after,
                                                            uint32_t rows_max) {
  return lists_.Page(prefix, after, rows_max, SteadyClock::now());
}

absl::StatusOr<std::vector<HistoryRow>> ConsulStore::ReadHistory(const std::string&, uint64_t,
                                                                 uint32_t) {
  return absl::UnimplementedError("consul: no history is kept");
}

}  // namespace semaphored::consul
