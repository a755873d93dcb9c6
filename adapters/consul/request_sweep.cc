#include "adapters/consul/request_sweep.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/consul/claim_states.h"
#include "adapters/consul/format.h"

namespace semaphored::consul {
namespace {

constexpr int kSweepsInRetention = 4;
constexpr std::chrono::minutes kAfterError{1};
constexpr size_t kAskedAtOnce = 60;
constexpr size_t kForgottenAtOnce = 100;
// What deleting a block costs, and what is to be left for the others of a transaction.
constexpr size_t kDeleting = 2;

std::string ClientOf(const std::string& key) { return key.substr(0, key.rfind('/') + 1); }

bool HasEnded(const Entry& entry) {
  const RequestBlock block = ReadRequestBlock(entry.value);
  return !block.garbled && !block.pinned();
}

}  // namespace

absl::Status RequestSweep::SweepIfDue(Client* client, SteadyTime now) {
  if (now < sweep_at_) return absl::OkStatus();
  const std::chrono::milliseconds pause = retention_ / kSweepsInRetention;
  absl::Status status = Sweep(client, now);
  sweep_at_ = now + (status.ok() ? pause : std::min<std::chrono::milliseconds>(pause, kAfterError));
  return status;
}

absl::Status RequestSweep::Sweep(Client* client, SteadyTime now) {
  const absl::StatusOr<std::vector<std::string>> keys = client->ListKeys(keys_->Requests());
  if (!keys.ok()) return keys.status();
  std::map<std::string, std::string> newest;  // Block of each client.
  for (const std::string& key : *keys) {
    const std::string under = ClientOf(key);
    if (!Keys::BlockIn(key, under)) continue;
    std::string& known = newest[under];
    known = std::max(known, key);
  }
  std::erase_if(seen_, [&](const auto& seen) { return !newest.contains(seen.first); });
  std::vector<std::string> silent;
  std::vector<std::string> asked;
  for (const auto& [under, key] : newest) {
    asked.push_back(key);
    if (asked.size() < kAskedAtOnce) continue;
    if (absl::Status status = Look(client, asked, now, &silent); !status.ok()) return status;
    asked.clear();
  }
  if (absl::Status status = Look(client, asked, now, &silent); !status.ok()) return status;
  silent.resize(std::min(silent.size(), kForgottenAtOnce));
  for (const std::string& under : silent) {
    if (absl::Status status = Forget(client, under, now); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RequestSweep::Look(Client* client, const std::vector<std::string>& newest,
                                SteadyTime now, std::vector<std::string>* silent) {
  if (newest.empty()) return absl::OkStatus();
  TransactionRequest request;
  for (const std::string& key : newest) request.GetTree(key);
  const absl::StatusOr<std::vector<Entry>> entries = client->Read(request);
  if (!entries.ok()) return entries.status();
  std::vector<Entry> ended;
  for (const Entry& entry : *entries) {
    const std::string under = ClientOf(entry.key);
    Seen& seen = seen_[under];
    if (entry.modify_index > seen.index) {
      seen = {entry.modify_index, now};
    } else if (now - seen.since >= retention_) {
      if (entry.key.starts_with(keys_->OneShots()) && HasEnded(entry)) {
        ended.push_back(entry);
      } else {
        silent->push_back(under);
      }
    }
  }
  return ended.empty() ? absl::OkStatus() : Delete(client, ended);
}

absl::Status RequestSweep::Delete(Client* client, const std::vector<Entry>& entries) {
  TransactionRequest request;
  for (const Entry& entry : entries) request.DeleteCas(entry.key, entry.modify_index);
  // If one of them is refused, the next sweep finds the others again.
  return client->Write(request).status();
}

absl::StatusOr<bool> RequestSweep::HasClaims(Client* client,
                                             const std::vector<Entry>& blocks) const {
  std::vector<ledger::RequestRow> pinned;
  for (const Entry& entry : blocks) {
    const RequestBlock block = ReadRequestBlock(entry.value);
    if (block.garbled) return true;
    for (const auto& [sequence, row] : block.rows) {
      if (row.pinned()) pinned.push_back(row);
    }
  }
  for (size_t at = 0; at < pinned.size();) {
    TransactionRequest request;
    const size_t first = at;
    for (; at < pinned.size() && request.size() + kAskedForClaim <= kAskedAtOnce; ++at)
      AskForClaim(*keys_, pinned[at], &request);
    const absl::StatusOr<std::vector<Entry>> entries = client->Read(request);
    if (!entries.ok()) return entries.status();
    for (size_t i = first; i < at; ++i) {
      ReadClaimState(*keys_, *entries, &pinned[i]);
      if (pinned[i].pinned()) return true;
    }
  }
  return false;
}

absl::Status RequestSweep::Forget(Client* client, const std::string& under, SteadyTime now) {
  const absl::StatusOr<std::vector<Entry>> entries = client->ReadTree(under);
  if (!entries.ok()) return entries.status();
  std::vector<Entry> blocks;
  uint64_t index = 0;
  for (const Entry& entry : *entries) {
    if (!Keys::BlockIn(entry.key, under)) continue;
    blocks.push_back(entry);
    index = std::max(index, entry.modify_index);
  }
  Seen& seen = seen_[under];
  // An older block was written to: a request that had waited for long.
  if (index > seen.index) {
    seen = {index, now};
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> has_claims = HasClaims(client, blocks);
  if (!has_claims.ok()) return has_claims.status();
  if (*has_claims) {
    // Looked at again when as much time has passed: it must not keep the others waiting.
    seen.since = now;
    seen.claim_is_gone = false;
    return absl::OkStatus();
  }
  // Its claim has ended at some time since the last look, and no row says so: the time counts from here.
  if (under.starts_with(keys_->OneShots()) && !std::exchange(seen.claim_is_gone, true)) {
    seen.since = now;
    return absl::OkStatus();
  }
  // The newest block goes last, so that what is left of an interrupted work is found again.
  for (size_t at = 0; at < blocks.size();) {
    TransactionRequest request;
    request.Check(blocks.back().key, blocks.back().modify_index);
    for (;
         at < blocks.size() && request.size() + 2 * kDeleting < TransactionRequest::kOperationsMax;
         ++at) {
      request.Check(blocks[at].key, blocks[at].modify_index);
      request.Delete(blocks[at].key);
    }
    if (at == blocks.size()) request.Delete(absl::StrCat(under, Keys::kFloor));
    const absl::StatusOr<TransactionAnswer> answer = client->Write(request);
    // Refused: it is back.
    if (!answer.ok() || !answer->done) return answer.status();
  }
  return absl::OkStatus();
}

}  // namespace semaphored::consul
