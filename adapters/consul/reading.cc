// What the store reads.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/node_lives.h"
#include "adapters/consul/commit.h"
#include "adapters/consul/folder_tickets.h"
#include "adapters/consul/format.h"
#include "adapters/consul/mending.h"
#include "adapters/consul/store.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {

using ledger::Image;
using ledger::SessionPtr;

namespace {

constexpr size_t kFoldersAtOnce = TransactionRequest::kOperationsMax / 4;
constexpr size_t kFoldersAtOnceWithoutTickets = TransactionRequest::kOperationsMax / 2;
constexpr size_t kFoldersKept = 50'000;
// An agent serves 200 connections of one client; what more there are is looked at in the sweep.
constexpr size_t kFoldersWatchedMax = 64;
// A row and a payload each, and of payloads what a client may be sent at once.
constexpr size_t kPayloadsReadAtOnce = 16;
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

void AddClients(const ledger::ClientNames& names, Image* image) {
  absl::flat_hash_set<uint32_t> seen;
  const auto add = [&](uint32_t number) {
    if (number == 0 || !seen.insert(number).second) return;
    image->clients.push_back({number, names.NameOf(number), 0});
  };
  for (const ledger::LoadedSemaphore& semaphore : image->semaphores) {
    for (const LeasePtr& lease : semaphore.leases) add(lease->request.client);
    for (const WaiterPtr& waiter : semaphore.waiters) add(waiter->request.client);
  }
  for (const SessionPtr& session : image->sessions) add(session->client);
}

absl::Status PayloadDamaged(const std::string& key, const std::string& why) {
  return absl::DataLossError(absl::StrCat("consul: the payload in the key ", key, " ", why));
}

}  // namespace

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
  const absl::StatusOr<std::vector<Entry>> entries = client_.Read(request);
  if (!entries.ok()) return entries.status();
  std::vector<Folder> folders;
  for (const std::string& name : names) {
    const auto known = folders_.find(name);
    folders.push_back(ReadFolder(keys_, name, *entries,
                                 known == folders_.end() ? nullptr : &known->second, number_of_));
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

void ConsulStore::Keep(Folder folder) {
  if (folders_.size() >= kFoldersKept && !folders_.contains(folder.name)) {
    folders_.clear();
    shared_.clear();
  }
  const auto known = folders_.find(folder.name);
  if (!folder.trouble.ok() && (known == folders_.end() || known->second.trouble.ok()))
    spdlog::error("consul: {}: {}", folder.name, std::string(folder.trouble.message()));
  if (folder.WaitsForRoom() &&
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
  Mender mender(this);
  for (int reading = 1;; ++reading) {
    absl::StatusOr<std::vector<Folder>> folders = ReadFolders(names);
    if (!folders.ok()) return folders.status();
    for (Folder& folder : *folders) {
      mender.RemoveDeadContenders(folder);
      if (!folder.damage.ok() || !folder.NeedsMending()) continue;
      TellDamage(url_, folder);
      if (absl::Status status = mender.Mend(&folder); !status.ok()) return status;
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
    AddClients(names_, &image);
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

absl::StatusOr<SessionPtr> ConsulStore::KeepSession(const Entry& entry,
                                                    absl::FunctionRef<bool(const Session&)> keeps) {
  const std::optional<Id> id = Keys::IdIn(entry.key, keys_.Sessions());
  if (!id)
    return absl::DataLossError(absl::StrCat("consul: the key ", entry.key, " is no session's"));
  absl::StatusOr<Session> read = ReadSession(*id, entry.value, number_of_);
  if (!read.ok()) return read.status();
  SessionPtr session = std::make_shared<Session>(*std::move(read));
  if (keeps(*session)) sessions_[*id] = {session, entry.modify_index};
  return session;
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
    const absl::StatusOr<std::vector<Entry>> entries = client_.Read(request);
    if (!entries.ok()) return entries.status();
    for (const Entry& entry : *entries) {
      absl::StatusOr<SessionPtr> session = KeepSession(entry);
      if (!session.ok()) return session.status();
      found.insert((*session)->id);
      image->sessions.push_back(*std::move(session));
    }
  }
  return found.size() == wanted.size() ? absl::OkStatus() : absl::NotFoundError("a session");
}

absl::StatusOr<ledger::SharedStore::SessionAt> ConsulStore::LoadSession(const Id& session) {
  TransactionRequest request;
  request.GetTree(keys_.Session(session));
  request.GetTree(keys_.Index(session));
  const absl::StatusOr<std::vector<Entry>> entries = client_.Read(request);
  if (!entries.ok()) return entries.status();
  SessionAt at;
  sessions_.erase(session);
  indexed_.erase(session);
  for (const Entry& entry : *entries) {
    if (std::optional<std::string> name = Keys::NameIn(entry.key, keys_.Index(session))) {
      at.semaphores.push_back(*std::move(name));
      continue;
    }
    absl::StatusOr<SessionPtr> read = KeepSession(entry);
    if (!read.ok()) return read.status();
    at.session = *std::move(read);
  }
  if (at.session) indexed_[session].insert(at.semaphores.begin(), at.semaphores.end());
  return at;
}

absl::StatusOr<ledger::SharedStore::Hosted> ConsulStore::HostedBy(absl::Span<const NodeRef> nodes) {
  const NodeLives lives(nodes);
  Hosted hosted;
  const absl::StatusOr<std::vector<Entry>> sessions = client_.ReadTree(keys_.Sessions());
  if (!sessions.ok()) return sessions.status();
  absl::flat_hash_set<Id> theirs;
  for (const Entry& entry : *sessions) {
    // There may be very many of others.
    absl::StatusOr<SessionPtr> session =
        KeepSession(entry, [&](const Session& each) { return lives.Contain(each.host); });
    if (!session.ok()) return session.status();
    if (!lives.Contain((*session)->host)) continue;
    theirs.insert((*session)->id);
    hosted.sessions.push_back(*std::move(session));
  }
  const auto is_theirs = [&](const Claim& claim) {
    return claim.detached() ? lives.Contain(claim.host) : theirs.contains(claim.session);
  };
  std::set<std::string> names;
  const absl::StatusOr<std::vector<Entry>> documents = client_.ReadTree(keys_.Documents());
  if (!documents.ok()) return documents.status();
  for (const Entry& entry : *documents) {
    const std::optional<std::string> name = Keys::NameIn(entry.key, keys_.Documents());
    if (!name) continue;
    const absl::StatusOr<Document> document =
        ReadDocument(*name, entry.value, entry.create_index, entry.modify_index, NoNumber);
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
        std::ranges::any_of(document->delays,
                            [&](const NodeRef& host) { return lives.Contain(host); });
    if (has) names.insert(*name);
  }
  // A waiter that has moved to a page since the documents were read was in its document then.
  const absl::StatusOr<std::vector<Entry>> pages = client_.ReadTree(keys_.Pages());
  if (!pages.ok()) return pages.status();
  for (const Entry& entry : *pages) {
    const std::optional<std::string> name = keys_.NameOfPage(entry.key);
    if (!name) continue;
    const absl::StatusOr<std::vector<WaiterPtr>> waiters = ReadPage(*name, entry.value, NoNumber);
    if (!waiters.ok()) {
      spdlog::error("{}", std::string(waiters.status().message()));
    } else if (std::ranges::any_of(*waiters, [&](const auto& each) { return is_theirs(*each); })) {
      names.insert(*name);
    }
  }
  hosted.semaphores.assign(names.begin(), names.end());
  return hosted;
}

// ---- payloads, names and history ----

absl::StatusOr<std::vector<PayloadPtr>> ConsulStore::ReadPayloads(
    absl::Span<const TicketAt> tickets) {
  std::vector<PayloadPtr> payloads;
  for (size_t at = 0; at < tickets.size(); at += kPayloadsReadAtOnce) {
    absl::Status status = ReadSomePayloads(tickets.subspan(at, kPayloadsReadAtOnce), &payloads);
    if (!status.ok()) return status;
  }
  return payloads;
}

absl::Status ConsulStore::ReadSomePayloads(absl::Span<const TicketAt> tickets,
                                           std::vector<PayloadPtr>* payloads) {
  TransactionRequest request;
  for (const TicketAt& at : tickets) {
    request.GetTree(keys_.Ticket(at.semaphore, at.ticket));
    request.GetTree(keys_.Payload(at.semaphore, at.ticket));
  }
  const absl::StatusOr<std::vector<Entry>> entries = client_.Read(request);
  if (!entries.ok()) return entries.status();
  const auto find = [&](const std::string& key) {
    const auto found = std::ranges::find(*entries, key, &Entry::key);
    return found == entries->end() ? nullptr : &*found;
  };
  for (const TicketAt& at : tickets) {
    const Entry* row = find(keys_.Ticket(at.semaphore, at.ticket));
    PayloadPtr& payload = payloads->emplace_back();
    if (row == nullptr) continue;
    const absl::StatusOr<TicketPtr> ticket = ReadTicket(at.ticket, row->value);
    if (!ticket.ok()) return ticket.status();
    const std::string key = keys_.Payload(at.semaphore, at.ticket);
    const Entry* entry = find(key);
    const size_t bytes = (*ticket)->payload_bytes;
    if (entry == nullptr && bytes > 0) return PayloadDamaged(key, "was removed");
    if (entry != nullptr && entry->value.size() != bytes)
      return PayloadDamaged(key, absl::StrCat("has ", entry->value.size(), " bytes, not ", bytes));
    payload = std::make_shared<const std::string>(entry == nullptr ? "" : entry->value);
  }
  return absl::OkStatus();
}

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
