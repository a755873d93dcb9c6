#include "adapters/ledger/dynamodb/commit.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/dynamodb/news_text.h"
#include "adapters/ledger/dynamodb/random.h"
#include "adapters/ledger/dynamodb/table.h"

namespace semaphored::dynamodb {

using ledger::CommitResult;
using ledger::SemaphoreDelta;
using ledger::SessionPtr;
using ledger::Transaction;

namespace {

// History is numbered by wall time, so that semaphores can be shown together, and counts on where
// that stands still: milliseconds, a count, and which lane gave the number.
constexpr int kNumberTimeShift = 12;
constexpr int kNumberLaneBits = 5;
constexpr uint64_t kNumberLanes = uint64_t{1} << kNumberLaneBits;
constexpr uint64_t kLanesOfNode = 7;

constexpr int64_t kMailKeptS = 24 * 3600;

CommitResult Failed(absl::Status status) {
  return {CommitResult::Kind::kFailed, {}, false, {}, std::move(status)};
}

CommitResult LostFor(std::string name) {
  CommitResult result;
  result.kind = CommitResult::Kind::kLost;
  result.stale.push_back(std::move(name));
  return result;
}

bool IsWon(const CommitResult& result) { return result.kind == CommitResult::Kind::kWon; }

// All changes of a row in a batch as one: from what it was to what it is.
template <typename Row>
struct Folded {
  Row before;
  Row after;
};

// In the order in which each was first spoken of. A row that came and went is {nullptr, nullptr}.
template <typename Row, typename Change>
std::vector<Folded<Row>> Fold(const std::vector<Change>& changes) {
  std::vector<Folded<Row>> folded;
  absl::flat_hash_map<Id, size_t> places;
  for (const Change& change : changes) {
    const Id& id = (change.before ? change.before : change.after)->id;
    const auto [at, is_new] = places.try_emplace(id, folded.size());
    if (is_new) folded.push_back({change.before, nullptr});
    folded[at->second].after = change.after;
  }
  return folded;
}

Condition SessionIs(const Session& session) {
  return Condition::Is("epoch", session.epoch)
      .And("node", session.host.number)
      .And("incarnation", session.host.incarnation);
}

}  // namespace

absl::flat_hash_set<std::pair<uint32_t, uint64_t>> RequestsThatWaited(
    const Transaction& transaction) {
  absl::flat_hash_set<std::pair<uint32_t, uint64_t>> waited;
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    for (const auto& waiter : Fold<WaiterPtr>(delta.waiters)) {
      if (waiter.before)
        waited.insert({waiter.before->request.client, waiter.before->request.sequence});
    }
  }
  return waited;
}

std::vector<ledger::AskedRequest> RequestsToCheck(const Transaction& transaction,
                                                  const NameOfClient& name_of_client) {
  std::vector<ledger::AskedRequest> requests = transaction.unanswered;
  const auto waited = RequestsThatWaited(transaction);
  for (const ledger::Answer& answer : transaction.answers) {
    const RequestKey& request = answer.request;
    if (!waited.contains({request.client, request.sequence}))
      requests.push_back({request, name_of_client(request.client)});
  }
  return requests;
}

DynamoStore::Writer::Writer(DynamoStore* store)
    : store_(store),
      name_of_client_(
          [store](uint32_t number) -> const std::string& { return store->names_.NameOf(number); }),
      token_(RandomToken()),
      request_(store->table_) {}

void DynamoStore::Writer::Own(About about, const std::string& name, const Id& session) {
  while (owners_.size() < request_.size()) owners_.push_back({about, name, session});
}

DynamoStore::Writer::Planned* DynamoStore::Writer::Find(const std::string& name) {
  const auto found = std::ranges::find(planned_, name, &Planned::name);
  return found == planned_.end() ? nullptr : &*found;
}

CommitResult DynamoStore::Writer::Build(const Transaction& transaction) {
  transaction_ = &transaction;
  json lane = ItemWith(LaneKey(store_->options_.self, store_->options_.lane));
  SetNumber(&lane, "commits", store_->commits_ + 1);
  SetText(&lane, "last", token_);
  request_.Put(lane, Condition::Present().And("commits", store_->commits_));
  Own(About::kLane);
  planned_.reserve(transaction.semaphores.size());
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    if (CommitResult added = Add(delta); !IsWon(added)) return added;
  }
  AddHistory(transaction);
  for (size_t i = 0; i < planned_.size(); ++i) AddHead(transaction.semaphores[i], planned_[i]);
  AddFloors();
  AddSessions(transaction);
  AddReads(transaction);
  AddAnswers(transaction);
  AddMail(transaction);
  for (const auto& [key, item] : items_) {
    if (item) {
      request_.Put(*item);
    } else {
      request_.Delete(key);
    }
  }
  Own(About::kOther);
  if (request_.FitsDynamo() && tokens_.size() >> kTokenOrdinalBits == 0) return {};
  return Failed(absl::OutOfRangeError(
      absl::StrCat("dynamodb: this changes more at once than a transaction of DynamoDB takes (",
                   TransactionRequest::kItemsMax, " items, 4 MB, 400 KB for each)")));
}

void DynamoStore::Writer::PutOnce(const Key& key, json item) { items_[key] = std::move(item); }

// ---- semaphores ----

void DynamoStore::Writer::NumberGrants(const SemaphoreDelta& delta, uint64_t revision) {
  uint64_t ordinal = 0;
  for (const ledger::LeaseChange& change : delta.leases) {
    if (change.before) continue;
    tokens_[change.after->id] = TokenOf(store_->token_epoch_, revision, ++ordinal);
  }
}

uint64_t DynamoStore::Writer::TokenOfLease(const Lease& lease) const {
  const auto granted = tokens_.find(lease.id);
  return granted == tokens_.end() ? lease.token : granted->second;
}

CommitResult DynamoStore::Writer::Add(const SemaphoreDelta& delta) {
  Planned planned;
  planned.name = delta.name;
  const int floor = FloorOf(delta.name);
  if (delta.before) {
    const auto known = store_->known_.find(delta.name);
    if (known == store_->known_.end()) return LostFor(delta.name);
    if (!known->second.damage.ok()) return Failed(known->second.damage);
    if (known->second.revision != delta.before->revision) return LostFor(delta.name);
    planned.revision = delta.before->revision + 1;
    planned.head.digest = known->second.digest;
    planned.head.history_number = known->second.history_number;
  } else {
    floors_[floor].checked = true;
    planned.revision = store_->floors_[floor] + 1;
  }
  if (!delta.after) floors_[floor].raised_to = std::max(floors_[floor].raised_to, planned.revision);
  planned.stands = delta.after.has_value();
  if (planned.stands) {
    planned.head.row = *delta.after;
    planned.head.row.revision = planned.revision;
  }
  NumberGrants(delta, planned.revision);
  AddClaims(delta, &planned);
  planned_.push_back(std::move(planned));
  return {};
}

void DynamoStore::Writer::AddClaims(const SemaphoreDelta& delta, Planned* planned) {
  uint64_t& digest = planned->head.digest;
  const auto leases = Fold<LeasePtr>(delta.leases);
  const auto waiters = Fold<WaiterPtr>(delta.waiters);
  absl::flat_hash_map<Id, const Claim*> before;
  for (const auto& lease : leases) {
    if (lease.before) before[lease.before->id] = lease.before.get();
  }
  for (const auto& waiter : waiters) {
    if (waiter.before) before[waiter.before->id] = waiter.before.get();
  }
  const auto stood = [&](const Claim& claim) {
    const auto found = before.find(claim.id);
    return found == before.end() ? nullptr : found->second;
  };
  // What goes first: a place in the queue may be taken by another.
  for (const auto& lease : leases) {
    if (!lease.before) continue;
    digest ^= DigestOf(*lease.before, lease.before->token);
    if (lease.after) continue;
    items_[LeaseKey(delta.name, *lease.before)] = std::nullopt;
    planned->gone.push_back(lease.before->id);
  }
  for (const auto& waiter : waiters) {
    if (!waiter.before) continue;
    digest ^= DigestOf(*waiter.before);
    if (waiter.after &&
        WaiterKey(delta.name, *waiter.after) == WaiterKey(delta.name, *waiter.before))
      continue;
    items_[WaiterKey(delta.name, *waiter.before)] = std::nullopt;
    if (!waiter.after) planned->gone.push_back(waiter.before->id);
  }
  for (const auto& lease : leases) {
    if (!lease.after) continue;
    const uint64_t token = TokenOfLease(*lease.after);
    const uint64_t own = DigestOf(*lease.after, token);
    digest ^= own;
    planned->came.emplace_back(lease.after.get(), false);
    if (lease.before && DigestOf(*lease.before, lease.before->token) == own) continue;
    const Key key = LeaseKey(delta.name, *lease.after);
    PutOnce(key, WriteLease(key, *lease.after, token, name_of_client_));
    IndexClaim(delta.name, *lease.after, stood(*lease.after));
  }
  for (const auto& waiter : waiters) {
    if (!waiter.after) continue;
    digest ^= DigestOf(*waiter.after);
    planned->came.emplace_back(waiter.after.get(), true);
    const Key key = WaiterKey(delta.name, *waiter.after);
    PutOnce(key, WriteWaiter(key, *waiter.after, name_of_client_));
    IndexClaim(delta.name, *waiter.after, stood(*waiter.after));
  }
}

// So that whoever looks for the claims of a session, or of a node, finds the semaphore.
void DynamoStore::Writer::IndexClaim(const std::string& semaphore, const Claim& claim,
                                     const Claim* before) {
  if (before != nullptr && (!claim.detached() || before->host.number == claim.host.number)) return;
  if (claim.detached()) {
    // Those of other nodes were written by them.
    if (claim.host.number != store_->options_.self.number || store_->hosted_at_.contains(semaphore))
      return;
    const Key key = HostAtKey(claim.host.number, semaphore);
    json item = ItemWith(key);
    SetText(&item, "stamp", Stamp());
    PutOnce(key, std::move(item));
    hosted_at_.push_back(semaphore);
    return;
  }
  const auto known = store_->indexed_.find(claim.session);
  if (known != store_->indexed_.end() && known->second.contains(semaphore)) return;
  const Key key = SessionAtKey(claim.session, semaphore);
  PutOnce(key, ItemWith(key));
  indexed_.emplace_back(claim.session, semaphore);
}

void DynamoStore::Writer::AddHead(const SemaphoreDelta& delta, const Planned& planned) {
  const Key key = HeadKey(delta.name);
  const Condition as_known =
      delta.before ? Condition::Is("revision", delta.before->revision) : Condition::Absent();
  if (planned.stands) {
    request_.Put(WriteHead(planned.head), as_known);
  } else if (delta.before) {
    request_.Delete(key, as_known);
  } else {
    request_.Check(key, as_known);  // Made and destroyed again.
  }
  Own(About::kSemaphore, delta.name);
  const Key name = NameKey(delta.name);
  if (planned.stands && (!delta.before || delta.before->limit != delta.after->limit)) {
    json item = ItemWith(name);
    SetNumber(&item, "permits", delta.after->limit);
    PutOnce(name, std::move(item));
  } else if (!planned.stands && delta.before) {
    items_[name] = std::nullopt;
  }
}

void DynamoStore::Writer::AddFloors() {
  for (const auto& [floor, use] : floors_) {
    const uint64_t known = store_->floors_[floor];
    const Condition as_known = Condition::Is("below", known);
    if (use.raised_to > known) {
      Change raise;
      raise.set.emplace_back("below", Number(use.raised_to));
      request_.Update(FloorKey(floor), raise,
                      use.checked ? as_known : Condition::Below("below", use.raised_to));
    } else if (use.checked) {
      request_.Check(FloorKey(floor), as_known);
    }
  }
  Own(About::kFloor);
}

// ---- sessions ----

void DynamoStore::Writer::AddSession(const SessionPtr& before, const SessionPtr& after) {
  const Id& id = (before ? before : after)->id;
  if (after) {
    request_.Put(WriteSession(*after, name_of_client_),
                 before ? SessionIs(*before) : Condition::Absent());
  } else {
    request_.Delete(SessionKey(id), SessionIs(*before));
  }
  Own(About::kSession, "", id);
  sessions_.emplace_back(id, after);
  const uint32_t node_before = before ? before->host.number : 0;
  const uint32_t node_after = after ? after->host.number : 0;
  if (node_before == node_after) return;
  if (before) items_[HostedSessionKey(node_before, id)] = std::nullopt;
  if (after) {
    const Key key = HostedSessionKey(node_after, id);
    PutOnce(key, ItemWith(key));
  }
}

void DynamoStore::Writer::AddSessions(const Transaction& transaction) {
  absl::flat_hash_set<Id> spoken_of;
  for (const auto& session : Fold<SessionPtr>(transaction.sessions)) {
    if (!session.before && !session.after) continue;
    spoken_of.insert((session.before ? session.before : session.after)->id);
    AddSession(session.before, session.after);
  }
  for (const ledger::SessionChange& change : transaction.sessions)
    spoken_of.insert((change.before ? change.before : change.after)->id);
  for (const ledger::EpochCondition& condition : transaction.epochs) {
    // What this batch itself makes of a session is looked at by the condition on its row.
    if (!spoken_of.insert(condition.session).second) continue;
    request_.Check(SessionKey(condition.session), Condition::Is("epoch", condition.epoch));
    Own(About::kSession, "", condition.session);
  }
}

// ---- conditions, answers, history, mail ----

void DynamoStore::Writer::AddReads(const Transaction& transaction) {
  if (transaction.reads.size() > kReadsMax) return;
  for (const ledger::ReadCondition& read : transaction.reads) {
    request_.Check(HeadKey(read.semaphore), read.revision == 0
                                                ? Condition::Absent()
                                                : Condition::Is("revision", read.revision));
    Own(About::kSemaphore, read.semaphore);
  }
}

void DynamoStore::Writer::AddAnswers(const Transaction& transaction) {
  const auto waited = RequestsThatWaited(transaction);
  std::set<Key> keys;
  for (const ledger::Answer& answer : transaction.answers) {
    const RequestKey& request = answer.request;
    const json item = store_->answers_.Write(name_of_client_(request.client), answer);
    if (!keys.insert(KeyOf(item)).second) continue;
    request_.Put(item, waited.contains({request.client, request.sequence}) ? Condition::None()
                                                                           : Condition::Absent());
  }
  for (const ledger::AskedRequest& asked : transaction.unanswered) {
    const Key key = AnswerKey(asked.client_id, asked.request.sequence);
    if (keys.insert(key).second) request_.Check(key, Condition::Absent());
  }
  Own(About::kAnswer);
}

uint64_t DynamoStore::Writer::NextHistoryNumber(const HistoryRow& row) {
  Planned* planned = Find(row.semaphore);
  uint64_t last = store_->history_high_;
  if (planned != nullptr) last = std::max(last, planned->head.history_number);
  const uint64_t lane =
      (store_->options_.self.number * kLanesOfNode + store_->options_.lane) % kNumberLanes;
  const auto ended_at = static_cast<uint64_t>(std::max<int64_t>(row.ended_at_unix_ms, 0));
  uint64_t number = (ended_at << kNumberTimeShift) | lane;
  if (number <= last) number = (((last >> kNumberLaneBits) + 1) << kNumberLaneBits) | lane;
  if (planned != nullptr) planned->head.history_number = number;
  store_->history_high_ = number;
  return number;
}

void DynamoStore::Writer::AddHistory(const Transaction& transaction) {
  const std::chrono::seconds kept = store_->options_.url.history;
  if (kept.count() == 0) return;
  const int64_t expires_at_s = store_->options_.now_unix_ms() / 1000 + kept.count();
  for (const HistoryRow& row : transaction.history) {
    const Key key = HistoryKey(row.semaphore, NextHistoryNumber(row));
    json item = WriteLease(key, *row.lease, TokenOfLease(*row.lease), name_of_client_);
    SetSigned(&item, "ended_at_unix_ms", row.ended_at_unix_ms);
    SetNumber(&item, "cause", static_cast<uint64_t>(row.cause));
    SetSigned(&item, kExpiresAt, expires_at_s);
    PutOnce(key, std::move(item));
  }
  for (const Planned& planned : planned_) {
    // Of one that was just made, it is what was before.
    if (planned.stands || planned.head.history_number == 0) continue;
    const Key key = PastKey(planned.name);
    json item = ItemWith(key);
    SetSigned(&item, kExpiresAt, expires_at_s);
    PutOnce(key, std::move(item));
  }
}

std::string DynamoStore::Writer::Stamp() const {
  const StoreOptions& options = store_->options_;
  return absl::StrCat(options.self.number, ".", options.self.incarnation, ".", options.lane, ".",
                      store_->commits_ + 1);
}

void DynamoStore::Writer::AddMail(const Transaction& transaction) {
  const int64_t expires_at_s = store_->options_.now_unix_ms() / 1000 + kMailKeptS;
  absl::flat_hash_map<std::string, Word> words;
  for (const auto& [node, semaphore] : transaction.concerns) {
    const auto [at, is_new] = words.try_emplace(semaphore);
    Word& word = at->second;
    if (is_new) {
      word.semaphore = semaphore;
      word.stamp = Stamp();
      const Planned* planned = Find(semaphore);
      if (planned != nullptr && planned->stands) {
        const size_t place = static_cast<size_t>(planned - planned_.data());
        word.revision = planned->revision;
        word.details = WriteNews(
            transaction, transaction.semaphores[place],
            [this](const Lease& lease) { return TokenOfLease(lease); }, planned->head.digest,
            planned->head.history_number);
      }
    }
    PutOnce(MailKey(node, semaphore), WriteWord(node, word, expires_at_s));
  }
}

// ---- won ----

void DynamoStore::Writer::Win(Transaction* transaction) {
  ledger::SetTokens(tokens_, transaction);
  for (auto& [id, session] : sessions_) {
    if (session) {
      store_->sessions_[id] = session;
      continue;
    }
    store_->sessions_.erase(id);
    const auto indexed = store_->indexed_.find(id);
    if (indexed == store_->indexed_.end()) continue;
    for (const std::string& name : indexed->second)
      store_->leftovers_.push_back(SessionAtKey(id, name));
    store_->indexed_.erase(indexed);
  }
  for (const auto& [session, name] : indexed_) {
    if (store_->sessions_.contains(session)) store_->indexed_[session].insert(name);
  }
  for (const std::string& name : hosted_at_) store_->hosted_at_[name] = {Stamp(), std::nullopt};
  for (const auto& [floor, use] : floors_)
    store_->floors_[floor] = std::max(store_->floors_[floor], use.raised_to);
  for (size_t i = 0; i < planned_.size(); ++i) {
    const Planned& planned = planned_[i];
    Known& known = store_->known_[planned.name];
    for (const Id& id : planned.gone) store_->RemoveOwn(&known, id);
    for (const auto& [claim, waits] : planned.came) store_->AddOwn(&known, *claim, waits);
    known.revision = planned.stands ? planned.revision : 0;
    known.digest = planned.stands ? planned.head.digest : 0;
    known.history_number = planned.head.history_number;
    transaction->semaphores[i].revision = planned.revision;
  }
}

}  // namespace semaphored::dynamodb
