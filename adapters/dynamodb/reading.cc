// What the store reads.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"
#include "adapters/dynamodb/commit.h"
#include "adapters/dynamodb/store.h"

namespace semaphored::dynamodb {

using ledger::Image;
using ledger::SessionPtr;

namespace {

// Until all that is read of a semaphore is of one moment.
constexpr int kReadingsMax = 14;
// From this reading on the writers of a semaphore that has changed meanwhile are made to pause.
constexpr int kReadingsBeforePause = 3;
constexpr std::chrono::milliseconds kPauseStep{5};
constexpr int kSessionReadingsMax = 5;  // Until a moment is found in which each claim has its own.

absl::Status NotOfOneMoment(const std::string& name) {
  return absl::UnavailableError(
      absl::StrCat("dynamodb: ", name, " changes faster than it can be read"));
}

absl::Status ByHand(const std::string& name) {
  return absl::DataLossError(absl::StrCat(
      "dynamodb: ", name, ": its leases, waiters and tickets are not those that its HEAD has ",
      "counted: items were changed by hand. See what stands there, then: semctl prune ", name));
}

std::vector<Key> HeadKeys(absl::Span<const std::string> names) {
  std::vector<Key> keys;
  keys.reserve(names.size());
  for (const std::string& name : names) keys.push_back(HeadKey(name));
  return keys;
}

ledger::LoadedSemaphore LoadedOf(Folder folder) {
  return {std::move(folder.head.row), std::move(folder.leases), std::move(folder.waiters),
          std::move(folder.tickets)};
}

}  // namespace

NumberOfClient DynamoStore::ClientNumbers() {
  return [this](const std::string& client_id) { return names_.NumberOf(client_id); };
}

// ---- semaphores ----

Folder DynamoStore::ReadFolder(const std::string& name, const std::vector<json>& items) {
  Folder folder;
  folder.name = name;
  uint64_t digest = 0;
  try {
    for (const json& item : items) {
      const std::string sort = KeyOf(item).sort;
      if (sort == kHead) {
        folder.head = ReadHead(name, item);
        folder.exists = true;
      } else if (absl::StartsWith(sort, kLeases)) {
        folder.leases.push_back(ReadLease(item, ClientNumbers()));
        digest ^= DigestOf(*folder.leases.back(), folder.leases.back()->token);
      } else if (absl::StartsWith(sort, kQueue) && IsTicket(item)) {
        folder.tickets.push_back(ReadTicket(item));
        digest ^= DigestOf(*folder.tickets.back());
      } else if (absl::StartsWith(sort, kQueue) || absl::StartsWith(sort, kOffers)) {
        folder.waiters.push_back(ReadWaiter(item, ClientNumbers()));
        digest ^= DigestOf(*folder.waiters.back());
      }
    }
  } catch (const std::exception& why) {
    folder.damage = absl::DataLossError(
        absl::StrCat("dynamodb: an item of ", name, " is not understood: ", why.what()));
    return folder;
  }
  folder.is_moment = digest == folder.head.digest && (folder.exists || items.empty());
  for (const LeasePtr& lease : folder.leases)
    lease->longest_hold_ms = folder.head.row.settings.longest_hold_ms;
  return folder;
}

absl::StatusOr<std::vector<Folder>> DynamoStore::ReadFolders(
    const std::vector<std::string>& names) {
  std::vector<Folder> folders(names.size());
  std::vector<size_t> open(names.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  std::map<size_t, uint64_t> revisions;  // With which they were found not to be of one moment.
  std::map<size_t, uint64_t> last;       // By the last reading of each that is not of one moment.
  for (int reading = 1;; ++reading) {
    std::vector<Range> ranges;
    for (const size_t i : open) ranges.emplace_back().partition = PartitionOf(names[i]);
    const auto items = QueryAll(&client_, table_, std::move(ranges), Deadline());
    if (!items.ok()) return items.status();
    std::vector<size_t> more;
    for (size_t at = 0; at < open.size(); ++at) {
      const size_t i = open[at];
      folders[i] = ReadFolder(names[i], (*items)[at]);
      if (!folders[i].damage.ok() || folders[i].is_moment) continue;
      const uint64_t revision = folders[i].head.row.revision;
      const bool stands_still = revisions.contains(i) && revisions[i] == revision;
      const auto before = last.find(i);
      if (reading >= kReadingsBeforePause && before != last.end() && before->second != revision) {
        last[i] = MakeWritersPause(names[i]);
      } else {
        last[i] = revision;
      }
      if (reading < kReadingsMax) {
        if (reading > kReadingsMax / 2 - 1) revisions.try_emplace(i, revision);
        more.push_back(i);
      } else if (stands_still) {
        folders[i].damage = ByHand(names[i]);
      } else {
        // The others that were read with it are not to suffer for it.
        folders[i].damage = NotOfOneMoment(names[i]);
      }
    }
    if (more.empty()) return folders;
    open = std::move(more);
    std::this_thread::sleep_for(Skewed(kPauseStep * reading));
  }
}

// Raises the revision and nothing else: the commits of others that are under way are lost, and these read the
// semaphore before they try again, while this one reads it too. Returns the revision; 0: it was not raised.
uint64_t DynamoStore::MakeWritersPause(const std::string& name) {
  Change change;
  change.add.emplace_back("revision", 1);
  const Reply reply =
      client_.Repeat(UpdateItem(table_, HeadKey(name), change, Condition::Present()), Deadline());
  if (!reply.answered()) return 0;
  try {
    return NumberIn(reply.body.at("Attributes"), "revision");
  } catch (const std::exception&) {
    return 0;
  }
}

void DynamoStore::Keep(const Folder& folder) {
  if (known_.size() >= known_max_ && !known_.contains(folder.name)) {
    // Those with waiters or leases of ours are counted.
    absl::erase_if(known_, [](const auto& each) { return each.second.own.empty(); });
    known_max_ = std::max(kSemaphoresKept, 2 * known_.size());
  }
  Known& known = known_[folder.name];
  if (!folder.damage.ok()) {
    // What was known of it stays: it may be put back.
    if (known.damage.ok()) spdlog::error("{}", std::string(folder.damage.message()));
    known.damage = folder.damage;
    return;
  }
  known.damage = absl::OkStatus();
  while (!known.own.empty()) RemoveOwn(&known, known.own.begin()->first);
  known.revision = folder.exists ? folder.head.row.revision : 0;
  known.digest = folder.head.digest;
  known.history_number = folder.head.history_number;
  for (const LeasePtr& lease : folder.leases) AddOwn(&known, *lease, /*waits=*/false);
  for (const WaiterPtr& waiter : folder.waiters) AddOwn(&known, *waiter, /*waits=*/true);
  for (const TicketPtr& ticket : folder.tickets) {
    if (IsCountedHere(*ticket)) AddCounted(&known, ticket->id);
  }
}

absl::StatusOr<Image> DynamoStore::Load(absl::Span<const std::string> names) {
  const std::vector<std::string> wanted(names.begin(), names.end());
  for (int reading = 1;; ++reading) {
    absl::StatusOr<std::vector<Folder>> folders = ReadFolders(wanted);
    if (!folders.ok()) return folders.status();
    Image image;
    const absl::Status status = ReadSessions(*folders, &image);
    // A session was closed between both readings: with it its claims.
    if (absl::IsNotFound(status) && reading < kSessionReadingsMax) continue;
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    for (Folder& folder : *folders) {
      Keep(folder);
      if (!folder.damage.ok()) {
        image.damaged.emplace_back(folder.name, folder.damage);
      } else if (folder.exists) {
        image.semaphores.push_back(LoadedOf(std::move(folder)));
      }
    }
    AddClients(&image);
    TellInterest();
    return image;
  }
}

// By the heads alone. One that is not understood is left out.
absl::StatusOr<Image> DynamoStore::Look(absl::Span<const std::string> names) {
  const absl::StatusOr<std::vector<json>> items =
      GetItems(&client_, table_, HeadKeys(names), {}, Deadline());
  if (!items.ok()) return items.status();
  Image image;
  for (const json& item : *items) {
    try {
      const std::string name = KeyOf(item).partition.substr(PartitionOf("").size());
      Head head = ReadHead(name, item);
      image.semaphores.push_back({std::move(head.row), {}, {}, {}, head.counts});
    } catch (const std::exception&) {
      continue;
    }
  }
  return image;
}

absl::StatusOr<std::vector<uint64_t>> DynamoStore::ReadRevisions(
    absl::Span<const std::string> names) {
  const std::vector<Key> keys = HeadKeys(names);
  const absl::StatusOr<std::vector<json>> items =
      GetItems(&client_, table_, keys, {"revision"}, Deadline());
  if (!items.ok()) return items.status();
  absl::flat_hash_map<std::string, uint64_t> revisions;  // By partition.
  for (const json& item : *items) {
    try {
      revisions[KeyOf(item).partition] = NumberIn(item, "revision");
    } catch (const std::exception&) {
      // It is read whole, and found damaged.
    }
  }
  std::vector<uint64_t> found;
  found.reserve(names.size());
  for (const Key& key : keys) {
    const auto revision = revisions.find(key.partition);
    found.push_back(revision == revisions.end() ? 0 : revision->second);
  }
  return found;
}

absl::StatusOr<std::vector<std::string>> DynamoStore::Changed(
    absl::Span<const SemaphoreRow* const> semaphores) {
  std::vector<std::string> names;
  for (const SemaphoreRow* row : semaphores) names.push_back(row->name);
  const absl::StatusOr<std::vector<uint64_t>> revisions = ReadRevisions(names);
  if (!revisions.ok()) return revisions.status();
  std::vector<std::string> changed;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto known = known_.find(names[i]);
    const bool damaged = known != known_.end() && !known->second.damage.ok();
    if ((*revisions)[i] != semaphores[i]->revision || damaged)
      changed.push_back(std::move(names[i]));
  }
  return changed;
}

absl::Status DynamoStore::ReadFloors() {
  Range range;
  range.partition = kFloors;
  const auto items = QueryAll(&client_, table_, {range}, Deadline());
  if (!items.ok()) return items.status();
  for (const json& item : items->front()) {
    try {
      const uint64_t floor = FromSortable(KeyOf(item).sort);
      floors_.at(floor) = std::max(floors_.at(floor), NumberIn(item, "below"));
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: an item under FLOOR is not understood");
    }
  }
  return absl::OkStatus();
}

// ---- payloads ----

absl::StatusOr<std::vector<PayloadPtr>> DynamoStore::ReadPayloads(
    absl::Span<const TicketAt> tickets) {
  std::map<Key, PayloadPtr> payloads;
  for (const TicketAt& at : tickets) payloads[PayloadKey(at.semaphore, at.ticket)] = nullptr;
  std::vector<Key> keys;
  keys.reserve(payloads.size());
  for (const auto& [key, payload] : payloads) keys.push_back(key);
  const absl::StatusOr<std::vector<json>> items = GetItems(&client_, table_, keys, {}, Deadline());
  if (!items.ok()) return items.status();
  for (const json& item : *items) {
    try {
      payloads[KeyOf(item)] = ReadPayload(item);
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: the payload of a ticket is not understood");
    }
  }
  std::vector<PayloadPtr> found;
  found.reserve(tickets.size());
  for (const TicketAt& at : tickets) found.push_back(payloads[PayloadKey(at.semaphore, at.ticket)]);
  return found;
}

// ---- sessions and clients ----

absl::StatusOr<std::vector<SessionPtr>> DynamoStore::ReadRows(const std::vector<Id>& sessions) {
  std::vector<Key> keys;
  keys.reserve(sessions.size());
  for (const Id& id : sessions) keys.push_back(SessionKey(id));
  const absl::StatusOr<std::vector<json>> items = GetItems(&client_, table_, keys, {}, Deadline());
  if (!items.ok()) return items.status();
  std::vector<SessionPtr> rows;
  for (const json& item : *items) {
    try {
      rows.push_back(ReadSession(item, ClientNumbers()));
    } catch (const std::exception&) {
      return absl::DataLossError("dynamodb: the row of a session is not understood");
    }
    sessions_[rows.back()->id] = rows.back();
  }
  return rows;
}

absl::Status DynamoStore::ReadSessions(const std::vector<Folder>& folders, Image* image) {
  std::set<Id> wanted;
  const auto want = [&](const Claim& claim) {
    if (!claim.detached()) wanted.insert(claim.session);
  };
  for (const Folder& folder : folders) {
    for (const LeasePtr& lease : folder.leases) want(*lease);
    for (const WaiterPtr& waiter : folder.waiters) want(*waiter);
  }
  if (wanted.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<SessionPtr>> rows = ReadRows({wanted.begin(), wanted.end()});
  if (!rows.ok()) return rows.status();
  image->sessions = *std::move(rows);
  if (image->sessions.size() == wanted.size()) return absl::OkStatus();
  for (const SessionPtr& session : image->sessions) wanted.erase(session->id);
  for (const Id& id : wanted) sessions_.erase(id);
  return absl::NotFoundError("a session");
}

void DynamoStore::AddClients(Image* image) {
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

}  // namespace semaphored::dynamodb
