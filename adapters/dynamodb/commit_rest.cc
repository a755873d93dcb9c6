// What a commit writes, or rests upon, beside the semaphores themselves: sessions, what was only
// read, requests, history, and word for other daemons.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/commit.h"
#include "adapters/dynamodb/news_text.h"
#include "adapters/dynamodb/table.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::dynamodb {

using ledger::SessionPtr;
using ledger::Transaction;

namespace {

// History is numbered by wall time, so that semaphores can be shown together, and counts on where
// that stands still: milliseconds, a count, and which lane gave the number.
constexpr int kNumberTimeShift = 12;
constexpr int kNumberLaneBits = 5;
constexpr uint64_t kNumberLanes = uint64_t{1} << kNumberLaneBits;
constexpr uint64_t kLanesOfNode = 7;

constexpr int64_t kMailKeptS = int64_t{24} * 3600;

Condition SessionIs(const Session& session) {
  return Condition::Is("epoch", session.epoch)
      .And("node", session.host.number)
      .And("incarnation", session.host.incarnation);
}

}  // namespace

std::vector<ledger::NamedRequest> RequestsToCheck(const Transaction& transaction,
                                                  const NameOfClient& name_of_client) {
  const auto is_numbered = [](const RequestKey& request) { return request.one_shot.empty(); };
  std::vector<ledger::NamedRequest> requests;
  for (const ledger::NamedRequest& absent : transaction.absent_requests) {
    if (is_numbered(absent.request)) requests.push_back(absent);
  }
  for (const ledger::RequestChange& change : transaction.requests) {
    if (change.op == ledger::RequestChange::Op::kInsert && is_numbered(change.row.request))
      requests.push_back({change.row.request, name_of_client(change.row.request.client)});
  }
  return requests;
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
  for (const auto& session : ledger::NetChanges(transaction.sessions)) {
    spoken_of.insert(session.id);
    if (session.before || session.after) AddSession(session.before, session.after);
  }
  for (const ledger::EpochCondition& condition : transaction.epochs) {
    // What this batch itself makes of a session is looked at by the condition on its row.
    if (!spoken_of.insert(condition.session).second) continue;
    request_.Check(SessionKey(condition.session), Condition::Is("epoch", condition.epoch));
    Own(About::kSession, "", condition.session);
  }
}

// ---- conditions, requests, history, mail ----

void DynamoStore::Writer::AddReads(const Transaction& transaction) {
  if (transaction.reads.size() > kReadsMax) return;
  for (const ledger::ReadCondition& read : transaction.reads) {
    request_.Check(HeadKey(read.semaphore), read.revision == 0
                                                ? Condition::Absent()
                                                : Condition::Is("revision", read.revision));
    Own(About::kSemaphore, read.semaphore);
  }
}

void DynamoStore::Writer::AddRequests(const Transaction& transaction) {
  std::set<Key> keys;
  for (const ledger::RequestChange& change : transaction.requests) {
    const std::string& client_id = name_of_client_(change.row.request.client);
    const RequestBook::Write write = store_->requests_.WriteOf(client_id, change);
    keys.insert(write.key);
    if (write.removes) {
      request_.Delete(write.key, write.condition);
    } else {
      request_.Update(write.key, write.change, write.condition);
    }
  }
  for (const ledger::NamedRequest& named : transaction.absent_requests) {
    const Key key = RequestBook::RowKeyOf(named);
    if (keys.insert(key).second) request_.Check(key, RequestBook::Absent());
  }
  Own(About::kRequest);
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
    store_->history_of_ = key.partition;
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
    const json item = WriteWord(node, word, expires_at_s);
    if (request_.size() < TransactionRequest::kItemsMax) {
      request_.Put(item);
    } else {
      // Not over newer word, which others may have written by then.
      late_mail_.push_back(
          PutItem(store_->table_, item, Condition::Below("revision", word.revision)));
    }
  }
}

}  // namespace semaphored::dynamodb
