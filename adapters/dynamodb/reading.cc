// What the store reads.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "adapters/dynamodb/store.h"

namespace semaphored::dynamodb {

using ledger::Image;
using ledger::SessionPtr;

namespace {

constexpr int kSessionReadingsMax = 5;  // Until a moment is found in which each claim has its own.

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

absl::StatusOr<Image> DynamoStore::Load(absl::Span<const std::string> names) {
  const std::vector<std::string> wanted(names.begin(), names.end());
  for (int reading = 1;; ++reading) {
    absl::StatusOr<std::vector<Folder>> folders = folders_.Read(wanted);
    if (!folders.ok()) return folders.status();
    Image image;
    const absl::Status status = ReadSessions(*folders, &image);
    // A session was closed between both readings: with it its claims.
    if (absl::IsNotFound(status) && reading < kSessionReadingsMax) continue;
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    for (Folder& folder : *folders) {
      memory_.Keep(folder);
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
    const LaneMemory::Known* known = memory_.Find(names[i]);
    const bool damaged = known != nullptr && !known->damage.ok();
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
    memory_.SeeSession(rows.back());
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
  for (const Id& id : wanted) memory_.ForgetSession(id);
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
