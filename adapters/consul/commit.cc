#include "adapters/consul/commit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/common/client_names.h"
#include "adapters/consul/format.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::consul {

using ledger::CommitResult;
using ledger::Failed;
using ledger::LeaseChange;
using ledger::SemaphoreDelta;
using ledger::Transaction;
using ledger::WaiterChange;

namespace {

CommitResult LostFor(std::vector<std::string> stale, bool requests_lost = false) {
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  result.stale = std::move(stale);
  result.requests_lost = requests_lost;
  return result;
}

bool IsWon(const CommitResult& result) { return result.kind == CommitResult::Kind::kWon; }

}  // namespace

bool ConsulStore::Writer::OnlyRequestsRefused(const TransactionAnswer& answer) const {
  return std::ranges::all_of(answer.refusals, [&](const TransactionAnswer::Refusal& refusal) {
    return refusal.operation < owners_.size() &&
           owners_[refusal.operation].about == About::kRequests;
  });
}

void ConsulStore::Writer::Own(About about, const std::string& name, const Id& session) {
  while (owners_.size() < request_.size()) owners_.push_back({about, name, session});
}

// What each part costs at most. (Blocks of requests, and floors, are mostly shared.)
void ConsulStore::Writer::Reserve(const Transaction& transaction) {
  constexpr size_t kOfDestroyed = 7;
  constexpr size_t kOfSession = 3;
  size_t needed = 1;
  size_t permits = 0;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    needed += delta.after ? 2 : kOfDestroyed;
    needed += 2 * delta.tickets.size();
    for (const LeaseChange& change : delta.leases) {
      if (change.after && !change.before) permits += change.after->permits;
      if (change.after && !change.after->detached()) ++needed;
    }
    for (const WaiterChange& change : delta.waiters) {
      if (change.after && !change.after->detached()) ++needed;
    }
  }
  needed += kOfSession * transaction.sessions.size() + transaction.epochs.size();
  needed += 2 * (transaction.reads.size() + transaction.requests.size() +
                 transaction.absent_requests.size());
  new_places_ = std::min<size_t>(permits, kGrantsPerCommitMax);
  needed += new_places_;
  // Always a little, so that what can wait does not wait for ever.
  room_ =
      needed < TransactionRequest::kOperationsMax ? TransactionRequest::kOperationsMax - needed : 1;
}

bool ConsulStore::Writer::TakeRoom() {
  if (room_ == 0) return false;
  --room_;
  return true;
}

CommitResult ConsulStore::Writer::Build(const Transaction& transaction) {
  transaction_ = &transaction;
  Reserve(transaction);
  request_.Cas(store_->lane_key_, std::to_string(store_->commits_ + 1), store_->lane_index_);
  Own(About::kLane);
  uint64_t ordinal = 0;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    for (const LeaseChange& change : delta.leases) {
      if (!change.before) ordinals_[change.after->id] = ++ordinal;
    }
  }
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (CommitResult added = Add(delta); !IsWon(added)) return added;
  }
  if (CommitResult added = AddSessions(transaction); !IsWon(added)) return added;
  if (CommitResult added = AddReads(transaction); !IsWon(added)) return added;
  if (CommitResult added = AddRequests(transaction); !IsWon(added)) return added;
  AddNotice(transaction);
  if (!request_.FitsConsul() || ordinal >> kTokenOrdinalBits != 0) {
    return Failed(absl::OutOfRangeError(
        absl::StrCat("consul: this changes more at once than a transaction of Consul takes (",
                     TransactionRequest::kOperationsMax, " operations, ",
                     TransactionRequest::kBytesMax, " bytes)")));
  }
  return {};
}

// ---- semaphores ----

CommitResult ConsulStore::Writer::Add(const SemaphoreDelta& delta) {
  const auto known = store_->folders_.find(delta.name);
  const uint64_t revision = delta.before ? delta.before->revision : 0;
  if (known == store_->folders_.end()) return LostFor({delta.name});
  if (!known->second.damage.ok()) return Failed(known->second.damage);
  if (known->second.revision() != revision) return LostFor({delta.name});
  if (!delta.before && !delta.after) return {};  // Made and destroyed again.
  Planned planned;
  planned.folder = known->second;
  Apply(delta, &planned);
  if (!failure_.ok()) return Failed(failure_);
  if (!ApplyTickets(delta, &planned)) return LostFor({delta.name});
  if (!delta.after) {
    if (absl::Status status = Destroy(known->second, &planned); !status.ok())
      return Failed(std::move(status));
  } else {
    Document& document = planned.folder.document;
    planned.is_new = !planned.folder.has_document();
    document.changes = planned.is_new ? 0 : document.changes + 1;
    planned.only_touched = delta.leases.empty() && delta.waiters.empty() && delta.tickets.empty() &&
                           delta.before && *delta.before == *delta.after;
    document.row = *delta.after;
    document.row.revision = revision;
    if (absl::Status status = Write(&planned); !status.ok()) return Failed(std::move(status));
  }
  folders_.push_back(std::move(planned));
  return {};
}

absl::Status ConsulStore::Writer::CheckTtl(const Claim& claim) const {
  // A session may end so long after the last daemon was there; a lease must not be good for longer.
  const int64_t most_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(store_->url_.session_ttl).count();
  if (claim.ttl_ms <= most_ms) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("consul: a TTL of ", claim.ttl_ms,
                                            " ms is more than session_ttl_s of the store allows (",
                                            most_ms, " ms)"));
}

void ConsulStore::Writer::Apply(const SemaphoreDelta& delta, Planned* planned) {
  Document& document = planned->folder.document;
  for (const LeaseChange& change : delta.leases) {
    if (change.before) document.leases.erase(change.before->id);
    if (!change.after) continue;
    if (!change.before || change.before->ttl_ms != change.after->ttl_ms)
      failure_.Update(CheckTtl(*change.after));
    document.leases[change.after->id] = change.after;
  }
  for (const WaiterChange& change : delta.waiters) {
    if (change.before) document.RemoveWaiter(change.before->id);
    if (!change.after || change.after->foreign) continue;
    if (!change.before || change.before->ttl_ms != change.after->ttl_ms)
      failure_.Update(CheckTtl(*change.after));
    document.waiters[change.after->id] = change.after;
  }
  IndexClaims(delta, planned);
}

// A claim that was in the session before has been written there, be it by another daemon.
void ConsulStore::Writer::IndexClaims(const SemaphoreDelta& delta, Planned* planned) {
  absl::flat_hash_map<Id, Id>
      sessions;  // By claim, as it was before this commit; empty: it is new.
  const auto see = [&](const Claim* before, const Claim* after) {
    sessions.try_emplace((before != nullptr ? before : after)->id,
                         before != nullptr ? before->session : Id());
  };
  for (const WaiterChange& change : delta.waiters) see(change.before.get(), change.after.get());
  for (const LeaseChange& change : delta.leases) see(change.before.get(), change.after.get());
  const auto index = [&](const Claim& claim) {
    if (claim.detached() || sessions.at(claim.id) == claim.session) return;
    const std::string& name = planned->folder.name;
    const auto known = store_->indexed_.find(claim.session);
    if (known != store_->indexed_.end() && known->second.contains(name)) return;
    const std::pair<Id, std::string> entry(claim.session, name);
    if (std::ranges::find(planned->indexed, entry) != planned->indexed.end()) return;
    planned->indexed.push_back(entry);
    request_.Set(store_->keys_.Index(claim.session, name), "");
    Own(About::kNotice);
  };
  for (const WaiterChange& change : delta.waiters) {
    if (change.after && !change.after->foreign) index(*change.after);
  }
  for (const LeaseChange& change : delta.leases) {
    if (change.after) index(*change.after);
  }
}

absl::Status ConsulStore::Writer::Destroy(const Folder& before, Planned* planned) {
  planned->gone = true;
  const size_t places = before.document.places.size();
  if (places > room_ && places > before.document.Held()) {
    lacking_ = {before.name, {}, 0};
    return absl::OutOfRangeError("consul: it has too many places to be destroyed at once");
  }
  const Folder& folder = planned->folder;
  const Keys& keys = store_->keys_;
  request_.Check(keys.Document(folder.name), folder.document_index);
  if (folder.has_document()) request_.Delete(keys.Document(folder.name));
  if (folder.document.ticket_count != 0) {
    request_.DeleteTree(keys.Tickets(folder.name));
    request_.DeleteTree(keys.Payloads(folder.name));
  }
  if (!folder.document.pages.empty()) request_.DeleteTree(keys.Pages(folder.name));
  // What cannot be understood is not ours to remove.
  if (folder.record_understood) {
    request_.Check(keys.Lock(folder.name), folder.record_index);
    if (folder.has_record()) request_.Delete(keys.Lock(folder.name));
  }
  for (const std::string& place : folder.document.places)
    request_.Delete(keys.Folder(folder.name) + place);
  Own(About::kSemaphore, folder.name);
  return absl::OkStatus();
}

absl::Status ConsulStore::Writer::Write(Planned* planned) {
  Folder& folder = planned->folder;
  if (folder.MayWriteRecord(folder.document.row.limit)) {
    if (absl::Status status = PlanPlaces(planned); !status.ok()) return status;
    PlanRecord(planned);
  }
  WriteTickets(planned);
  WritePages(planned);
  WriteOwnDocument(planned);
  return absl::OkStatus();
}

void ConsulStore::Writer::WriteOwnDocument(Planned* planned) {
  const Folder& folder = planned->folder;
  const Keys& keys = store_->keys_;
  if (planned->writes_document) {
    request_.Cas(keys.Document(folder.name),
                 WriteDocument(folder.document, store_->name_of_, ordinals_),
                 folder.document_index);
  } else {
    request_.Check(keys.Document(folder.name), folder.document_index);
  }
  Own(About::kSemaphore, folder.name);
}

void ConsulStore::Writer::PlanRecord(Planned* planned) {
  Folder& folder = planned->folder;
  const std::string key = store_->keys_.Lock(folder.name);
  LockRecord wanted = folder.WantedRecord(folder.document.row.limit, folder.document.Held());
  planned->writes_record = !folder.has_record() || wanted != folder.record;
  if (planned->writes_record) {
    folder.record = std::move(wanted);
    folder.record_value = WriteLockRecord(folder.record);
    request_.Cas(key, folder.record_value, folder.record_index, kSemaphoreFlags);
  } else if (!planned->only_touched) {
    request_.Check(key, folder.record_index);
  }
  Own(About::kSemaphore, folder.name);
}

// ---- sessions ----

CommitResult ConsulStore::Writer::AddSessions(const Transaction& transaction) {
  const Keys& keys = store_->keys_;
  absl::flat_hash_set<Id> checked;
  for (const auto& [id, before, after, steps] : ledger::NetChanges(transaction.sessions)) {
    // What this batch itself makes of a session is looked at by the condition on its row.
    checked.insert(id);
    if (!before && !after) continue;
    uint64_t index = 0;
    if (before) {
      const auto known = store_->sessions_.find(id);
      if (known == store_->sessions_.end() || known->second.session->epoch != before->epoch ||
          known->second.session->host != before->host)
        return LostFor({});
      index = known->second.index;
    }
    if (after) {
      request_.Cas(keys.Session(id), WriteSession(*after, store_->name_of_), index);
    } else {
      request_.Check(keys.Session(id), index);
      request_.Delete(keys.Session(id));
      request_.DeleteTree(keys.Index(id));
    }
    Own(About::kSession, "", id);
    sessions_.emplace_back(id, after);
  }
  for (const ledger::EpochCondition& condition : transaction.epochs) {
    if (!checked.insert(condition.session).second) continue;
    const auto known = store_->sessions_.find(condition.session);
    if (known == store_->sessions_.end() || known->second.session->epoch != condition.epoch)
      return LostFor({});
    request_.Check(keys.Session(condition.session), known->second.index);
    Own(About::kSession, "", condition.session);
  }
  return {};
}

// ---- conditions, requests, notices ----

CommitResult ConsulStore::Writer::AddReads(const Transaction& transaction) {
  const Keys& keys = store_->keys_;
  for (const ledger::ReadCondition& read : transaction.reads) {
    const auto known = store_->folders_.find(read.semaphore);
    if (known == store_->folders_.end() || known->second.revision() != read.revision)
      return LostFor({read.semaphore});
    request_.Check(keys.Document(read.semaphore), known->second.document_index);
    request_.Check(keys.Lock(read.semaphore), known->second.record_index);
    Own(About::kSemaphore, read.semaphore);
  }
  return {};
}

CommitResult ConsulStore::Writer::AddRequests(const Transaction& transaction) {
  RequestBook& book = store_->requests_;
  book.Begin();
  for (const ledger::RequestChange& change : transaction.requests) {
    const ledger::RequestRow& row = change.row;
    const std::string client_id = ledger::WrittenClient(row.request, store_->name_of_);
    switch (change.op) {
      case ledger::RequestChange::Op::kInsert:
        if (!book.Insert(client_id, row)) return LostFor({}, /*requests_lost=*/true);
        break;
      case ledger::RequestChange::Op::kUpdate:
        book.Update(client_id, row);
        break;
      case ledger::RequestChange::Op::kRemove:
        book.Remove(client_id, row.request.sequence);
        break;
    }
  }
  for (const ledger::NamedRequest& named : transaction.absent_requests) {
    if (!book.Expect(ledger::WrittenClient(named), named.request.sequence))
      return LostFor({}, /*requests_lost=*/true);
  }
  book.Write(&request_);
  Own(About::kRequests);
  return {};
}

// A notice that is lost costs a sweep; so it goes along where there is room. A revision names the semaphore's life, too: that
// of a new one begins at Consul's index, which is above each that the former one of the name has had.
void ConsulStore::Writer::AddNotice(const Transaction& transaction) {
  for (const auto& [node, semaphore] : transaction.concerns) {
    if (request_.size() >= TransactionRequest::kOperationsMax) return;
    const auto planned = std::ranges::find(
        folders_, semaphore,
        [](const Planned& each) -> const std::string& { return each.folder.name; });
    const bool known = planned != folders_.end() && !planned->gone && !planned->is_new;
    const uint64_t revision = known ? planned->folder.document.row.revision + 1 : 0;
    // To write what stands there already changes nothing, and would notify no daemon.
    request_.Set(store_->keys_.Notices(node, semaphore),
                 revision != 0 ? std::to_string(revision)
                               : absl::StrCat("unknown, ", store_->self_.number, " ", store_->lane_,
                                              " ", store_->commits_));
  }
  Own(About::kNotice);
}

// ---- won ----

void ConsulStore::Writer::Win(uint64_t index, Transaction* transaction) {
  if (transaction != nullptr) {
    absl::flat_hash_map<Id, uint64_t> tokens;
    for (const auto& [claim, ordinal] : ordinals_) tokens[claim] = TokenOf(index, ordinal);
    ledger::SetTokens(tokens, transaction);
  }
  for (Planned& planned : folders_) {
    Folder& folder = planned.folder;
    if (planned.gone) {
      Folder none;
      none.name = folder.name;
      none.document.row.name = folder.name;
      none.contenders = std::move(folder.contenders);
      store_->Keep(std::move(none));
      continue;
    }
    if (planned.writes_document) folder.document_index = index;
    for (auto& [number, page] : folder.document.pages) {
      if (page.index == 0) page.index = index;
    }
    for (const auto& [id, ticket] : planned.tickets) {
      if (const auto stored = folder.tickets.find(id); stored != folder.tickets.end())
        stored->second.index = index;
    }
    if (planned.writes_record) {
      if (folder.record_index == 0) folder.record_made = index;
      folder.record_index = index;
    }
    const absl::Status trouble = folder.record_understood ? absl::OkStatus() : folder.trouble;
    folder.FindTrouble(trouble);
    if (transaction == nullptr) {
      store_->Keep(std::move(folder));
      continue;
    }
    // Its row still has the revision before.
    uint64_t& revision = folder.document.row.revision;
    revision = planned.is_new ? index : revision + 1;
    const auto delta =
        std::ranges::find(transaction->semaphores, folder.name, &SemaphoreDelta::name);
    if (delta != transaction->semaphores.end()) delta->revision = revision;
    for (const auto& [session, name] : planned.indexed) store_->indexed_[session].insert(name);
    store_->Keep(std::move(folder));
  }
  for (auto& [id, session] : sessions_) {
    if (session) {
      store_->sessions_[id] = {session, index};
    } else {
      store_->sessions_.erase(id);
      store_->indexed_.erase(id);
    }
  }
  if (transaction != nullptr) store_->requests_.Won(index);
}

}  // namespace semaphored::consul
