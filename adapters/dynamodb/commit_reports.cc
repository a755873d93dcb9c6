// What a commit reports, and does not rest upon: the history, and change notices for other daemons.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/commit.h"
#include "adapters/dynamodb/notice_text.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {

using ledger::Transaction;

namespace {

// History is numbered by wall time, so that semaphores can be shown together, and counts on where
// that stands still: milliseconds, a count, and which lane gave the number.
constexpr int kNumberTimeShift = 12;
constexpr int kNumberLaneBits = 5;
constexpr uint64_t kNumberLanes = uint64_t{1} << kNumberLaneBits;
constexpr uint64_t kLanesOfNode = 7;

constexpr int64_t kNoticesKeptS = int64_t{24} * 3600;

}  // namespace

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

void DynamoStore::Writer::AddNotice(const Transaction& transaction) {
  const int64_t expires_at_s = store_->options_.now_unix_ms() / 1000 + kNoticesKeptS;
  absl::flat_hash_map<std::string, StoredNotice> notices;
  for (const auto& [node, semaphore] : transaction.concerns) {
    const auto [at, is_new] = notices.try_emplace(semaphore);
    StoredNotice& notice = at->second;
    if (is_new) {
      notice.semaphore = semaphore;
      notice.stamp = Stamp();
      const Planned* planned = Find(semaphore);
      if (planned != nullptr && planned->stands) {
        const size_t place = static_cast<size_t>(planned - planned_.data());
        notice.revision = planned->revision;
        notice.details = WriteDetails(
            transaction, transaction.semaphores[place],
            [this](const Lease& lease) { return TokenOfLease(lease); }, planned->head.digest,
            planned->head.history_number);
      }
    }
    const json item = WriteNotice(node, notice, expires_at_s);
    if (request_.size() < TransactionRequest::kItemsMax) {
      request_.Put(item);
    } else {
      // Not over a newer notice, which others may have written by then.
      late_notices_.push_back(
          PutItem(store_->table_, item, Condition::Below("revision", notice.revision)));
    }
  }
}

}  // namespace semaphored::dynamodb
