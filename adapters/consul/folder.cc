#include "adapters/consul/folder.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "adapters/consul/folder_tickets.h"

namespace semaphored::consul {
namespace {

// Stands in the way of every grant while the semaphore cannot be used.
constexpr Id kBarrier{~uint64_t{0}, ~uint64_t{0}};

// A session's id is a UUID.
Id IdOfSession(const std::string& session) {
  const std::string hex = absl::StrReplaceAll(session, {{"-", ""}});
  if (const std::optional<Id> id = Id::FromHex(hex)) return *id;
  const uint64_t hash = std::hash<std::string>()(session);
  return {hash, hash | 1};
}

// A UUID: a key of the folder itself with such a name is a contender's.
bool IsSessionId(const std::string& name) {
  constexpr size_t kDigits = 32;
  constexpr size_t kDashes = 4;
  return name.size() == kDigits + kDashes &&
         Id::FromHex(absl::StrReplaceAll(name, {{"-", ""}})).has_value();
}

// Slots for those who know none: from the limit downwards, since ours are given from 1 on.
class FreeSlots {
 public:
  explicit FreeSlots(const Folder& folder) : limit_(folder.document.row.limit), next_(limit_) {
    for (const auto& [id, lease] : folder.document.leases)
      taken_.insert(lease->slots.begin(), lease->slots.end());
  }

  uint32_t Take() {
    while (next_ > 0 && taken_.contains(next_)) --next_;
    if (next_ > 0) return next_--;
    // More than the limit are inside.
    uint32_t above = limit_ + 1;
    while (taken_.contains(above)) ++above;
    taken_.insert(above);
    return above;
  }

  // As many as are left up to the limit. By runs: the record of foreign clients may say any limit. REQUIRES: held < limit.
  Slots TakeRest(uint32_t held) {
    std::vector<uint32_t> taken(taken_.begin(), taken_.end());
    std::ranges::sort(taken, std::greater<>());
    std::vector<Slots::Run> runs;
    auto below = taken.begin();
    for (uint32_t left = limit_ - held; left > 0 && next_ > 0;) {
      while (below != taken.end() && *below > next_) ++below;
      const uint32_t end = below == taken.end() ? 0 : *below;
      const uint32_t size = std::min(left, next_ - end);
      if (size > 0) runs.push_back({next_ - size + 1, next_});
      left -= size;
      next_ = size > 0 ? next_ - size : next_ - 1;
    }
    Slots rest;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) rest.Append(*run);
    return rest;
  }

 private:
  const uint32_t limit_;
  uint32_t next_;
  absl::flat_hash_set<uint32_t> taken_;
};

LeasePtr ForeignLease(const Id& id, Slots slots, std::string holder) {
  auto lease = std::make_shared<Lease>();
  lease->id = id;
  lease->session = id;
  lease->permits = static_cast<uint32_t>(slots.size());
  lease->slots = std::move(slots);
  lease->holder = std::move(holder);
  lease->foreign = true;
  return lease;
}

// Orders of ours count on from the last of these: an index is used once, and no commit of ours
// makes a foreign entry.
constexpr int kOrderBits = 16;
uint64_t OrderAfter(uint64_t index) { return (index << kOrderBits) + 1; }

WaiterPtr ForeignWaiter(const std::string& session, uint64_t index) {
  auto waiter = std::make_shared<Waiter>();
  waiter->id = IdOfSession(session);
  waiter->session = waiter->id;
  waiter->order = index << kOrderBits;
  waiter->holder = absl::StrCat("consul session ", session);
  waiter->foreign = true;
  return waiter;
}

// Those of which the document speaks. One that stands as it was known is not read again.
void ReadPages(const std::map<uint64_t, const Entry*>& entries, const Folder* known,
               const ClientNumber& client_number, Folder* folder) {
  for (auto& [number, page] : folder->document.pages) {
    const auto found = entries.find(number);
    if (found == entries.end()) {
      folder->damage = absl::DataLossError(absl::StrCat("consul: a page of the waiters of ",
                                                        folder->name, " is not there: ", number));
      return;
    }
    const Entry& entry = *found->second;
    page.index = entry.modify_index;
    if (known != nullptr) {
      const auto before = known->document.pages.find(number);
      if (before != known->document.pages.end() && before->second.index == page.index)
        page.waiters = before->second.waiters;
    }
    if (page.waiters.empty()) {
      absl::StatusOr<std::vector<WaiterPtr>> waiters =
          ReadPage(folder->name, entry.value, client_number);
      folder->damage = waiters.status();
      if (!waiters.ok()) return;
      page.waiters = *std::move(waiters);
    }
    // The document may be another also where the page is known.
    const std::set<uint32_t> gone(page.gone.begin(), page.gone.end());
    if (gone.size() == page.gone.size() && (gone.empty() || *gone.rbegin() < page.waiters.size()))
      continue;
    folder->damage = absl::DataLossError(absl::StrCat(
        "consul: of a page of the waiters of ", folder->name, " others have gone than it has"));
    return;
  }
}

}  // namespace

uint64_t Folder::revision() const {
  if (has_document()) return document.row.revision;
  return has_record() && trouble.ok() ? record_made : 0;
}

void Folder::FindTrouble(const absl::Status& record_status) {
  record_understood = record_status.ok();
  trouble = record_status;
  const uint32_t limit = document.row.limit;
  if (!trouble.ok() || !has_record() || !has_document() || record.limit == limit ||
      contenders.empty())
    return;
  trouble = absl::FailedPreconditionError(absl::StrCat(
      "foreign clients share it with a limit of ", record.limit, ", and its own is ", limit,
      ": nothing is granted until both are the same (resize it, or stop them)"));
}

std::set<std::string> Folder::ForeignHolders() const {
  std::set<std::string> holders;
  for (const std::string& holder : record.holders) {
    if (contenders.contains(holder)) holders.insert(holder);
  }
  return holders;
}

LockRecord Folder::WantedRecord(uint32_t limit, uint32_t held) const {
  LockRecord wanted;
  wanted.limit = limit;
  wanted.holders = ForeignHolders();
  for (size_t i = 0; i < held; ++i) wanted.holders.insert(document.places.at(i));
  return wanted;
}

bool Folder::WaitsForRoom() const {
  return document.AnyWaiter(
      [this](const WaiterPtr& waiter) { return !waiter->works || document.ticket_count != 0; });
}

bool Folder::NeedsMending() const {
  if (!has_document() || !trouble.ok()) return false;
  const uint32_t held = document.Held();
  if (!lost_places.empty() || document.places.size() < held || !has_record()) return true;
  return record != WantedRecord(document.row.limit, held);
}

std::string Folder::WhatWasDone() const {
  const size_t held = document.Held();
  if (held == 0) return "";
  if (!has_record()) return "the record .lock was removed";
  if (!lost_places.empty()) return "sessions were ended";
  const auto is_counted = [&](const std::string& place) { return record.holders.contains(place); };
  if (std::ranges::count_if(document.places, is_counted) < static_cast<ptrdiff_t>(held))
    return "the record .lock was overwritten without our holders";
  return "";
}

bool SameOutside(const Folder& before, const Folder& now) {
  const auto alive = [](const Folder& folder) {
    std::set<std::string> sessions;
    for (const auto& [session, index] : folder.contenders) sessions.insert(session);
    for (const std::string& place : folder.document.places) {
      if (!folder.lost_places.contains(place)) sessions.insert(place);
    }
    return sessions;
  };
  return before.record_index == now.record_index && alive(before) == alive(now);
}

Folder ReadFolder(const Keys& keys, const std::string& name, absl::Span<const Entry> entries,
                  const Folder* known, const ClientNumber& client_number) {
  Folder folder;
  folder.name = name;
  folder.document.row.name = name;
  const std::string document_key = keys.Document(name);
  const std::string record_key = keys.Lock(name);
  const std::string folder_key = keys.Folder(name);
  const std::string tickets_key = keys.Tickets(name);
  const std::string pages_key = keys.Pages(name);
  std::map<uint64_t, const Entry*> pages;
  bool is_known = false;                    // The document stands as it was known.
  absl::flat_hash_set<std::string> direct;  // Sessions with an entry in this very folder.
  absl::Status record_status;
  for (const Entry& entry : entries) {
    if (entry.key == document_key) {
      folder.document_index = entry.modify_index;
      if (known != nullptr && known->document_index == entry.modify_index) {
        folder.document = known->document;
        is_known = true;
        continue;
      }
      absl::StatusOr<Document> document =
          ReadDocument(name, entry.value, entry.create_index, entry.modify_index, client_number);
      folder.damage = document.status();
      if (document.ok()) folder.document = *std::move(document);
      continue;
    }
    if (entry.key.starts_with(pages_key)) {
      if (const auto number = Keys::BlockIn(entry.key, pages_key)) pages[*number] = &entry;
      continue;
    }
    if (ReadTicketEntry(tickets_key, entry, known, &folder)) continue;
    if (!entry.key.starts_with(folder_key)) continue;
    if (entry.key == record_key) {
      folder.record_value = entry.value;
      folder.record_index = entry.modify_index;
      folder.record_made = entry.create_index;
      absl::StatusOr<LockRecord> record = ReadLockRecord(entry.value, entry.flags);
      record_status = record.status();
      if (record.ok()) folder.record = *std::move(record);
      // The holder of another primitive: it counts as a client that uses the folder.
      if (!record_status.ok() && !entry.session.empty())
        folder.contenders.try_emplace(entry.session, entry.create_index);
      continue;
    }
    if (entry.session.empty()) {
      if (IsSessionId(entry.key.substr(folder_key.size())))
        folder.dead_contenders[entry.key] = entry.modify_index;
      continue;
    }
    // Foreign clients take a session for alive wherever below they find it.
    folder.contenders.try_emplace(entry.session, entry.create_index);
    if (entry.key == folder_key + entry.session) direct.insert(entry.session);
  }
  if (!is_known && folder.damage.ok()) ReadPages(pages, known, client_number, &folder);
  for (const std::string& place : folder.document.places) {
    folder.contenders.erase(place);
    if (!direct.contains(place)) folder.lost_places.insert(place);
  }
  folder.FindTrouble(record_status);
  if (!folder.has_document()) {
    folder.document.row.limit = folder.record.limit;
    folder.document.row.revision = folder.revision();
  }
  return folder;
}

ledger::LoadedSemaphore ToLoaded(const Folder& folder) {
  ledger::LoadedSemaphore loaded;
  loaded.row = folder.document.row;
  for (const auto& [id, lease] : folder.document.leases) loaded.leases.push_back(lease);
  folder.document.AnyWaiter([&](const WaiterPtr& waiter) {
    loaded.waiters.push_back(waiter);
    return false;
  });
  for (const auto& [id, stored] : folder.tickets) loaded.tickets.push_back(stored.ticket);
  FreeSlots slots(folder);
  uint32_t held = folder.document.Held();
  for (const std::string& session : folder.ForeignHolders()) {
    loaded.leases.push_back(ForeignLease(IdOfSession(session), {slots.Take()},
                                         absl::StrCat("consul session ", session)));
    ++held;
  }
  for (const auto& [session, index] : folder.contenders) {
    if (folder.record.holders.contains(session)) continue;
    loaded.waiters.push_back(ForeignWaiter(session, index));
    // Waiters of ours that come from now on are later in the order.
    loaded.row.next_order = std::max(loaded.row.next_order, OrderAfter(index));
  }
  if (!folder.trouble.ok() && held < loaded.row.limit) {
    loaded.leases.push_back(ForeignLease(kBarrier, slots.TakeRest(held),
                                         absl::StrCat("no holder: ", folder.trouble.message())));
  }
  return loaded;
}

}  // namespace semaphored::consul
