#include "adapters/consul/mending.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::consul {

namespace {

// Each makes sixty places, or ends twenty leases with their tickets.
constexpr int kPartsMendedMax = 60;
// Operations of a commit that mends tickets, with room for the others.
constexpr size_t kPayloadsMendedAtOnce = 40;
constexpr int kRefusedMax = 5;

}  // namespace

absl::Status ConsulStore::Mender::ReadAgain(Folder* folder) {
  absl::StatusOr<std::vector<Folder>> now = store_->ReadFew({&folder->name, 1});
  if (now.ok()) *folder = std::move(now->front());
  return now.status();
}

absl::StatusOr<std::optional<uint64_t>> ConsulStore::Mender::Send(const Writer& writer) {
  const absl::StatusOr<TransactionAnswer> answer = client_.Write(writer.request());
  if (!answer.ok()) return answer.status();
  for (const TransactionAnswer::Refusal& refusal : answer->refusals) {
    const Writer::Owner& owner = writer.owners().at(refusal.operation);
    if (owner.about == Writer::About::kPlace) store_->places_.Forget(owner.name);
  }
  return answer->done ? std::optional(answer->landed_at()) : std::nullopt;
}

absl::Status ConsulStore::Mender::Mend(Folder* folder) {
  for (int part = 1; part <= kPartsMendedMax; ++part) {
    Writer whole(store_);
    Writer places(store_);
    Writer* writer = &whole;
    absl::Status status = whole.BuildMending(*folder);
    if (whole.lacking()) {
      writer = &places;
      status = places.BuildPlaces(*folder, *whole.lacking());
    }
    if (!status.ok()) return status;
    // If another daemon was first it has mended it as well.
    const absl::StatusOr<std::optional<uint64_t>> index = Send(*writer);
    if (!index.ok()) return index.status();
    if (absl::Status read = ReadAgain(folder); !read.ok()) return read;
    if (!folder->damage.ok() || !folder->NeedsMending()) return absl::OkStatus();
  }
  return absl::OkStatus();  // What is left is looked for the next time.
}

absl::StatusOr<bool> ConsulStore::Mender::MakePlaces(const Writer::Lacking& lacking) {
  const auto folder = store_->folders_.find(lacking.name);
  if (folder == store_->folders_.end()) return false;
  Writer places(store_);
  if (absl::Status status = places.BuildPlaces(folder->second, lacking); !status.ok())
    return status;
  const absl::StatusOr<std::optional<uint64_t>> index = Send(places);
  if (!index.ok()) return index.status();
  if (*index) places.Win(**index, nullptr);
  return index->has_value();
}

void ConsulStore::Mender::RemoveDeadContenders(const Folder& folder) {
  TransactionRequest request;
  for (const auto& [key, index] : folder.dead_contenders) {
    if (request.size() < TransactionRequest::kOperationsMax) request.DeleteCas(key, index);
  }
  if (request.size() > 0) client_.Write(request).IgnoreError();
}

// Of a semaphore that is none of ours: no more than the record is there.
absl::Status ConsulStore::Mender::RemoveRecord(Folder* folder) {
  TransactionRequest request;
  request.Check(keys_.Lock(folder->name), folder->record_index);
  request.Delete(keys_.Lock(folder->name));
  if (absl::Status status = client_.Write(request).status(); !status.ok()) return status;
  return ReadAgain(folder);
}

absl::StatusOr<std::vector<std::pair<Id, uint32_t>>> ConsulStore::Mender::LonePayloads(
    const Folder& folder) {
  std::vector<std::pair<Id, uint32_t>> lone;
  const std::string under = keys_.Payloads(folder.name);
  const absl::StatusOr<std::vector<std::string>> keys = client_.ListKeys(under);
  if (!keys.ok()) return keys.status();
  TransactionRequest request;
  for (const std::string& key : *keys) {
    const std::optional<Id> id = Keys::IdIn(key, under);
    if (!id || folder.tickets.contains(*id)) continue;
    request.GetTree(key);
    if (request.size() == kPayloadsMendedAtOnce) break;
  }
  if (request.size() == 0) return lone;
  const absl::StatusOr<std::vector<Entry>> entries = client_.Read(request);
  if (!entries.ok()) return entries.status();
  for (const Entry& entry : *entries) {
    if (const std::optional<Id> id = Keys::IdIn(entry.key, under))
      lone.emplace_back(*id, static_cast<uint32_t>(entry.value.size()));
  }
  return lone;
}

// A ticket that was taken in between makes the commit lose, and is read with the next look.
absl::Status ConsulStore::Mender::MendTickets(Folder* folder, uint32_t* mended) {
  for (int refused = 0; folder->damage.ok() || folder->tickets_damaged;) {
    if (folder->damage.ok() && !folder->has_document()) return absl::OkStatus();
    if (!folder->garbled_tickets.empty() || !folder->has_document())
      return absl::FailedPreconditionError(folder->damage.message());
    const absl::StatusOr<std::vector<std::pair<Id, uint32_t>>> payloads = LonePayloads(*folder);
    if (!payloads.ok()) return payloads.status();
    if (folder->damage.ok() && payloads->empty()) return absl::OkStatus();
    const uint64_t missing = folder->document.ticket_count;
    Writer writer(store_);
    absl::Status status = writer.BuildTicketMending(*folder, *payloads);
    if (!status.ok()) return status;
    const absl::StatusOr<TransactionAnswer> answer = client_.Write(writer.request());
    if (!answer.ok()) return answer.status();
    if (!answer->done && ++refused == kRefusedMax)
      return absl::AbortedError("consul: others were first each time; try again");
    if (answer->done) {
      const uint64_t there = folder->tickets.size() + payloads->size();
      *mended += static_cast<uint32_t>(
          std::max<uint64_t>({1, payloads->size(), missing > there ? missing - there : 0}));
      spdlog::warn("consul: {}: it had {} tickets; it goes on with {}, {} of them made of payloads",
                   folder->name, missing, there, payloads->size());
    }
    if (absl::Status read = ReadAgain(folder); !read.ok()) return read;
  }
  return folder->damage;
}

absl::StatusOr<std::optional<ledger::Pruned>> ConsulStore::Mender::Repair(const std::string& name) {
  absl::StatusOr<std::vector<Folder>> read = store_->ReadFew({&name, 1});
  if (!read.ok()) return read.status();
  Folder& folder = read->front();
  if (!folder.damage.ok() && !folder.tickets_damaged)
    return std::optional<ledger::Pruned>(ledger::Pruned());
  uint32_t mended = 0;
  if (absl::Status status = MendTickets(&folder, &mended); !status.ok()) {
    if (!absl::IsFailedPrecondition(status)) return status;
    ledger::Pruned pruned;
    pruned.unresolved = 1;
    pruned.message = std::string(status.message());
    return std::optional<ledger::Pruned>(std::move(pruned));
  }
  const size_t before = folder.record.holders.size();
  const bool understood = folder.record_understood;
  // No client uses the record: it is as if there were none.
  if (!understood && folder.contenders.empty()) folder.FindTrouble(absl::OkStatus());
  const bool mends =
      folder.has_document() && folder.record_understood && (!understood || folder.NeedsMending());
  const bool removes = !folder.has_document() && !understood && folder.record_understood;
  if (mends || removes) {
    absl::Status status = mends ? Mend(&folder) : RemoveRecord(&folder);
    if (!status.ok()) return status;
  }
  ledger::Pruned pruned;
  if (!folder.record_understood) {
    // Also if a client has written it so just now.
    pruned.unresolved = std::max<uint32_t>(1, static_cast<uint32_t>(folder.contenders.size()));
    pruned.message = absl::StrCat("consul: foreign clients are there (", pruned.unresolved,
                                  "), and the record .lock does not say which of them hold a "
                                  "permit; end them first, or their sessions");
    return std::optional<ledger::Pruned>(std::move(pruned));
  }
  const size_t after = folder.record.holders.size();
  pruned.removed = before > after ? static_cast<uint32_t>(before - after) : 0;
  pruned.added = after > before ? static_cast<uint32_t>(after - before) : 0;
  if ((mends || removes) && pruned.removed + pruned.added == 0) pruned.removed = 1;
  pruned.removed += mended;
  return std::optional<ledger::Pruned>(pruned);
}

absl::StatusOr<bool> ConsulStore::Mender::ReplaceRecord(const Folder& folder,
                                                        const LockRecord& record) {
  TransactionRequest request;
  request.Cas(keys_.Lock(folder.name), WriteLockRecord(record), folder.record_index,
              kSemaphoreFlags);
  const absl::StatusOr<TransactionAnswer> answer = client_.Write(request);
  if (!answer.ok()) return answer.status();
  return answer->done;
}

// No limit: there is nothing to adopt.
ledger::Adoptable ConsulStore::Mender::FindAdoptable(const Folder& folder) const {
  const std::string key = keys_.Lock(folder.name);
  ledger::Adoptable found;
  const bool theirs = folder.damage.ok() && !folder.has_document() && !folder.record_understood;
  found.limit = theirs ? ReadRecipeLimit(folder.record_value).value_or(0) : 0;
  found.clients = static_cast<uint32_t>(folder.contenders.size());
  found.changes =
      absl::StrCat(key, ": ", folder.record_value, " becomes ", WriteLockRecord({found.limit, {}}));
  if (found.limit == 0) {
    found.clients = 0;
    found.refusal = absl::StrCat("consul: no record {\"limit\",\"holders\"} to adopt is at ", key,
                                 ": create the semaphore");
  } else if (found.limit > store_->guarantees_.limit_max) {
    found.clients = 0;
    found.refusal =
        absl::StrCat("consul: ", key, " has ", found.limit, " permits, and a semaphore at most ",
                     store_->guarantees_.limit_max);
  } else if (found.clients > 0) {
    found.refusal = absl::StrCat("consul: clients of the recipe are there (", found.clients,
                                 "): stop them first, or end their sessions");
  }
  return found;
}

// The record becomes the one that HashiCorp's clients write: from then on there is a semaphore, and its first use
// makes our document.
absl::StatusOr<std::optional<ledger::Adoptable>> ConsulStore::Mender::Adopt(const std::string& name,
                                                                            uint32_t limit) {
  const absl::StatusOr<std::vector<Folder>> read = store_->ReadFew({&name, 1});
  if (!read.ok()) return read.status();
  const Folder& folder = read->front();
  ledger::Adoptable found = FindAdoptable(folder);
  if (found.refusal.empty() && limit == found.limit) {
    const absl::StatusOr<bool> replaced = ReplaceRecord(folder, {limit, {}});
    if (!replaced.ok()) return replaced.status();
    found.made = *replaced;
    if (!found.made) found.refusal = "consul: the record was written meanwhile: look at it again";
  }
  return std::optional<ledger::Adoptable>(std::move(found));
}

// ---- as the store offers it ----

absl::Status ConsulStore::WhyUnusable(const std::string& name) {
  const auto known = folders_.find(name);
  if (known == folders_.end() || known->second.trouble.ok()) return absl::OkStatus();
  const std::string why = absl::StrCat("consul: ", name, ": ", known->second.trouble.message());
  // Where only the limits differ, another one is what helps.
  return known->second.record_understood ? absl::FailedPreconditionError(why)
                                         : absl::DataLossError(why);
}

absl::StatusOr<std::optional<ledger::Pruned>> ConsulStore::Repair(const std::string& name) {
  return Mender(this).Repair(name);
}

absl::StatusOr<std::optional<ledger::Adoptable>> ConsulStore::Adopt(const std::string& name,
                                                                    uint32_t limit) {
  return Mender(this).Adopt(name, limit);
}

}  // namespace semaphored::consul
