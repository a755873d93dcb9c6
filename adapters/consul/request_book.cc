#include "adapters/consul/request_book.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/client_names.h"
#include "adapters/consul/claim_states.h"
#include "adapters/consul/format.h"

namespace semaphored::consul {
namespace {

using ledger::LedgerStore;
using ledger::NamedRequest;
using ledger::OneShotOf;
using ledger::RequestRow;
using ledger::WrittenClient;

constexpr uint64_t kBlockSize = 16;
constexpr size_t kBlocksRemembered = 20'000;
constexpr size_t kBlocksAskedAtOnce = 60;
// Below a floor that rises: each takes an operation, and the floor another one.
constexpr size_t kBlocksClosedAtOnce = 60;
constexpr int kFindingsMax = 3;
constexpr size_t kForgottenAtOnce = 60;

}  // namespace

// ---- what is known ----

RequestBook::BlockKey RequestBook::KeyOf(const std::string& client_id, uint64_t sequence) {
  return {client_id, sequence / kBlockSize};
}

bool RequestBook::IsBelowFloor(const std::string& client_id, uint64_t sequence) const {
  const auto floor = known_floors_.find(client_id);
  return floor != known_floors_.end() && sequence < floor->second.below;
}

void RequestBook::KeepFloor(const std::string& client_id, const Entry* entry) {
  Floor& known = known_floors_[client_id];
  known = {};
  if (entry == nullptr) return;
  known.index = entry->modify_index;
  (void)absl::SimpleAtoi(entry->value, &known.below);
}

void RequestBook::Keep(const BlockKey& key, const Entry* entry) {
  if (entry == nullptr) {
    blocks_.erase(key);
    return;
  }
  Known known{entry->modify_index, ReadRequestBlock(entry->value)};
  if (known.block.garbled)
    spdlog::error(
        "consul: the requests in the key {} are not understood; none of them is accepted "
        "until it is put back, or removed",
        entry->key);
  blocks_[key] = std::move(known);
}

// With the floors of their clients: as many as fit a request are of one moment.
absl::Status RequestBook::Read(Client* client, const std::set<BlockKey>& blocks) {
  for (auto at = blocks.begin(); at != blocks.end();) {
    TransactionRequest request;
    std::map<std::string, BlockKey> asked;  // By Consul's key.
    std::map<std::string, std::string> clients;
    for (; at != blocks.end() && request.size() + 2 <= kBlocksAskedAtOnce; ++at) {
      const std::string key = keys_->RequestBlock(at->first, at->second);
      request.GetTree(key);
      asked.emplace(key, *at);
      const std::string floor = keys_->RequestFloor(at->first);
      if (clients.emplace(floor, at->first).second) request.GetTree(floor);
    }
    const absl::StatusOr<std::vector<Entry>> entries = client->Read(request);
    if (!entries.ok()) return entries.status();
    for (const auto& [key, block] : asked) Keep(block, nullptr);
    for (const auto& [key, client_id] : clients) KeepFloor(client_id, nullptr);
    for (const Entry& entry : *entries) {
      if (const auto block = asked.find(entry.key); block != asked.end())
        Keep(block->second, &entry);
      if (const auto floor = clients.find(entry.key); floor != clients.end())
        KeepFloor(floor->second, &entry);
    }
  }
  return absl::OkStatus();
}

absl::Status RequestBook::Learn(Client* client, const std::vector<NamedRequest>& requests) {
  std::set<BlockKey> unknown;
  for (const NamedRequest& named : requests) {
    BlockKey key = KeyOf(WrittenClient(named), named.request.sequence);
    if (!blocks_.contains(key)) unknown.insert(std::move(key));
  }
  return unknown.empty() ? absl::OkStatus() : Read(client, unknown);
}

// ---- one commit ----

void RequestBook::Begin() {
  changed_.clear();
  new_.clear();
  if (known_floors_.size() > kBlocksRemembered) known_floors_.clear();
}

RequestBook::Changed& RequestBook::Change(const BlockKey& key) {
  const auto [at, is_new] = changed_.try_emplace(key);
  if (is_new) {
    if (const auto known = blocks_.find(key); known != blocks_.end())
      at->second.block = known->second.block;
  }
  return at->second;
}

bool RequestBook::MayInsert(const std::string& client_id, uint64_t sequence,
                            const RequestBlock* block) const {
  if (IsBelowFloor(client_id, sequence)) return false;
  return block == nullptr || (!block->closed && !block->rows.contains(sequence));
}

bool RequestBook::Insert(const std::string& client_id, const RequestRow& row) {
  const uint64_t sequence = row.request.sequence;
  Changed& changed = Change(KeyOf(client_id, sequence));
  if (!MayInsert(client_id, sequence, &changed.block)) return false;
  changed.inserts = true;
  changed.block.rows.emplace(sequence, row);
  new_.emplace_back(client_id, sequence);
  return true;
}

bool RequestBook::Expect(const std::string& client_id, uint64_t sequence) {
  Changed& changed = Change(KeyOf(client_id, sequence));
  changed.inserts = true;
  new_.emplace_back(client_id, sequence);
  return MayInsert(client_id, sequence, &changed.block);
}

void RequestBook::Update(const std::string& client_id, const RequestRow& row) {
  if (row.state == RequestRow::State::kGranted) return;
  const uint64_t sequence = row.request.sequence;
  RequestBlock& block = Change(KeyOf(client_id, sequence)).block;
  if (block.garbled) return;
  // Its row was removed by hand; where rows are forgotten it is not needed any more.
  if (!block.rows.contains(sequence) && (block.closed || IsBelowFloor(client_id, sequence))) return;
  block.rows[sequence] = row;
}

void RequestBook::Remove(const std::string& client_id, uint64_t sequence) {
  Change(KeyOf(client_id, sequence)).block.rows.erase(sequence);
}

void RequestBook::Write(TransactionRequest* request) {
  std::set<std::string> checked;
  for (auto& [key, changed] : changed_) {
    const auto known = blocks_.find(key);
    const uint64_t index = known == blocks_.end() ? 0 : known->second.index;
    const std::string name = keys_->RequestBlock(key.first, key.second);
    // To write what stands there does not raise its index.
    changed.writes =
        index == 0 ? !changed.block.rows.empty() : changed.block != known->second.block;
    if (changed.writes && changed.block.rows.empty()) {
      request->DeleteCas(name, index);
    } else if (changed.writes) {
      request->Cas(name, WriteRequestBlock(changed.block), index);
    } else if (changed.inserts) {
      request->Check(name, index);
    }
    // A block that is not there may have been forgotten: then there is a floor that is not known here.
    if (OneShotOf(key.first)) continue;
    if (index != 0 || !changed.inserts || !checked.insert(key.first).second) continue;
    const auto floor = known_floors_.find(key.first);
    request->Check(keys_->RequestFloor(key.first),
                   floor == known_floors_.end() ? 0 : floor->second.index);
  }
}

void RequestBook::Won(uint64_t index) {
  for (auto& [key, changed] : changed_) {
    if (!changed.writes) continue;
    if (changed.block.rows.empty()) {
      blocks_.erase(key);
    } else {
      blocks_[key] = {index, std::move(changed.block)};
    }
  }
  if (blocks_.size() > kBlocksRemembered) blocks_.clear();
  Begin();
}

void RequestBook::Lost() {
  for (const auto& [key, changed] : changed_) blocks_.erase(key);
  Begin();
}

absl::StatusOr<bool> RequestBook::LookAgain(Client* client) {
  std::set<BlockKey> blocks;
  for (const auto& [key, changed] : changed_) blocks.insert(key);
  if (absl::Status status = Read(client, blocks); !status.ok()) return status;
  return !std::ranges::all_of(new_, [&](const auto& request) {
    const auto known = blocks_.find(KeyOf(request.first, request.second));
    return MayInsert(request.first, request.second,
                     known == blocks_.end() ? nullptr : &known->second.block);
  });
}

// ---- finding ----

absl::StatusOr<std::vector<LedgerStore::FoundRequest>> RequestBook::Find(
    Client* client, absl::Span<const NamedRequest> requests, uint64_t window) {
  std::map<std::string, std::vector<size_t>> by_client;
  for (size_t i = 0; i < requests.size(); ++i) by_client[WrittenClient(requests[i])].push_back(i);
  for (int finding = 1;; ++finding) {
    std::vector<LedgerStore::FoundRequest> found(requests.size());
    for (const auto& [client_id, places] : by_client) {
      if (absl::Status status = FindOfClient(client, client_id, requests, window, places, &found);
          !status.ok())
        return status;
    }
    const absl::Status status = FindClaims(client, requests, &found);
    if (status.ok()) return found;
    // A wait was given up in between, each time.
    if (!absl::IsNotFound(status)) return status;
    if (finding == kFindingsMax)
      return absl::AbortedError("consul: the request changes all the time; try again");
  }
}

absl::StatusOr<std::set<uint64_t>> RequestBook::List(Client* client,
                                                     const std::string& client_id) const {
  if (OneShotOf(client_id)) return std::set<uint64_t>{0};
  const std::string under = keys_->Client(client_id);
  const absl::StatusOr<std::vector<std::string>> keys = client->ListKeys(under);
  if (!keys.ok()) return keys.status();
  std::set<uint64_t> numbers;
  for (const std::string& key : *keys) {
    if (const std::optional<uint64_t> number = Keys::BlockIn(key, under)) numbers.insert(*number);
  }
  return numbers;
}

absl::Status RequestBook::FindOfClient(Client* client, const std::string& client_id,
                                       absl::Span<const NamedRequest> requests, uint64_t window,
                                       const std::vector<size_t>& places,
                                       std::vector<LedgerStore::FoundRequest>* found) {
  const absl::StatusOr<std::set<uint64_t>> numbers = List(client, client_id);
  if (!numbers.ok()) return numbers.status();
  std::set<BlockKey> blocks;
  for (const size_t place : places)
    blocks.insert(KeyOf(client_id, requests[place].request.sequence));
  const BlockKey newest(client_id, numbers->empty() ? 0 : *numbers->rbegin());
  blocks.insert(newest);
  if (absl::Status status = Read(client, blocks); !status.ok()) return status;
  uint64_t sequence_high = 0;
  for (const BlockKey& key : blocks) {
    const auto known = blocks_.find(key);
    if (known != blocks_.end() && !known->second.block.rows.empty())
      sequence_high = std::max(sequence_high, known->second.block.rows.rbegin()->first);
  }
  for (const size_t place : places) {
    const RequestKey& request = requests[place].request;
    LedgerStore::FoundRequest& result = (*found)[place];
    const auto known = blocks_.find(KeyOf(client_id, request.sequence));
    const RequestBlock* block = known == blocks_.end() ? nullptr : &known->second.block;
    const bool below_window = request.sequence + window <= sequence_high;
    if (block != nullptr) {
      if (const auto row = block->rows.find(request.sequence); row != block->rows.end()) {
        // Below the window the row of a claim that has ended may be there, or not: it counts as gone.
        result.too_old = below_window && !row->second.pinned();
        if (result.too_old) continue;
        result.row = row->second;
        result.row->request = request;
        continue;
      }
    }
    result.too_old = below_window || !MayInsert(client_id, request.sequence, block);
  }
  return absl::OkStatus();
}

absl::Status RequestBook::FindClaims(Client* client, absl::Span<const NamedRequest> requests,
                                     std::vector<LedgerStore::FoundRequest>* found) {
  for (size_t i = 0; i < requests.size();) {
    TransactionRequest request;
    std::vector<size_t> asked;
    for (; i < requests.size() && request.size() + 1 + kAskedForClaim <= kBlocksAskedAtOnce; ++i) {
      const std::optional<RequestRow>& row = (*found)[i].row;
      if (!row || !row->pinned()) continue;
      const BlockKey key = KeyOf(WrittenClient(requests[i]), requests[i].request.sequence);
      request.GetTree(keys_->RequestBlock(key.first, key.second));
      AskForClaim(*keys_, *row, &request);
      asked.push_back(i);
    }
    if (asked.empty()) continue;
    const absl::StatusOr<std::vector<Entry>> entries = client->Read(request);
    if (!entries.ok()) return entries.status();
    for (const size_t place : asked) {
      const RequestKey& key = requests[place].request;
      const std::string block =
          keys_->RequestBlock(WrittenClient(requests[place]), key.sequence / kBlockSize);
      const auto entry = std::ranges::find(*entries, block, &Entry::key);
      if (entry == entries->end()) return absl::NotFoundError("a block");
      const RequestBlock now = ReadRequestBlock(entry->value);
      const auto row = now.rows.find(key.sequence);
      if (row == now.rows.end()) return absl::NotFoundError("a row");
      RequestRow& result = *(*found)[place].row;
      result = row->second;
      result.request = key;
      if (result.pinned()) ReadClaimState(*keys_, *entries, &result);
    }
  }
  return absl::OkStatus();
}

// ---- forgetting ----

void RequestBook::RaiseLater(const std::string& client_id, uint64_t below) {
  uint64_t& rising = rising_[client_id];
  rising = std::max(rising, below);
}

absl::Status RequestBook::RaiseFloors(Client* client) {
  if (rising_.empty()) return absl::OkStatus();
  const auto [client_id, below] = *rising_.begin();
  const absl::StatusOr<bool> all = RaiseFloor(client, client_id, below);
  // What is not done now is done when the floor is to rise again.
  if (!all.ok() || *all) rising_.erase(client_id);
  // Another daemon was first: that is no error.
  return absl::IsAborted(all.status()) ? absl::OkStatus() : all.status();
}

void RequestBook::ForgetLater(const std::vector<Id>& one_shots) {
  forgotten_.insert(forgotten_.end(), one_shots.begin(), one_shots.end());
}

absl::Status RequestBook::ForgetSome(Client* client, bool at_once) {
  if (forgotten_.empty() || (!at_once && forgotten_.size() < kForgottenAtOnce))
    return absl::OkStatus();
  const size_t left = forgotten_.size() - std::min(forgotten_.size(), kForgottenAtOnce);
  const std::vector<Id> one_shots(forgotten_.begin() + static_cast<std::ptrdiff_t>(left),
                                  forgotten_.end());
  forgotten_.resize(left);
  return Forget(client, one_shots);
}

// A row in its last state is written by no daemon any more, unless it goes and the id is used again.
absl::Status RequestBook::Forget(Client* client, const std::vector<Id>& one_shots) {
  TransactionRequest asked;
  for (const Id& one_shot : one_shots)
    asked.GetTree(keys_->RequestBlock(ledger::NameOfOneShot(one_shot), 0));
  const absl::StatusOr<std::vector<Entry>> entries = client->Read(asked);
  if (!entries.ok()) return entries.status();
  TransactionRequest request;
  for (const Entry& entry : *entries) {
    const RequestBlock block = ReadRequestBlock(entry.value);
    if (!block.garbled && !block.pinned()) request.DeleteCas(entry.key, entry.modify_index);
  }
  for (const Id& one_shot : one_shots) blocks_.erase({ledger::NameOfOneShot(one_shot), 0});
  if (request.size() == 0) return absl::OkStatus();
  return client->Write(request).status();
}

// True: all blocks below are closed, or gone.
absl::StatusOr<bool> RequestBook::RaiseFloor(Client* client, const std::string& client_id,
                                             uint64_t below) {
  absl::StatusOr<std::set<uint64_t>> numbers = List(client, client_id);
  if (!numbers.ok()) return numbers.status();
  uint64_t end = below / kBlockSize;
  numbers->erase(numbers->lower_bound(end), numbers->end());
  const bool all = numbers->size() <= kBlocksClosedAtOnce;
  if (!all) {
    end = *std::next(numbers->begin(), kBlocksClosedAtOnce);
    numbers->erase(numbers->lower_bound(end), numbers->end());
  }
  std::set<BlockKey> blocks = {{client_id, end}};  // In any case the floor is read.
  for (const uint64_t number : *numbers) blocks.emplace(client_id, number);
  if (absl::Status status = Read(client, blocks); !status.ok()) return status;
  const Floor floor = known_floors_[client_id];
  const uint64_t raised = std::max(end * kBlockSize, floor.below);
  TransactionRequest request;
  if (raised != floor.below) {
    request.Cas(keys_->RequestFloor(client_id), std::to_string(raised), floor.index);
  } else {
    request.Check(keys_->RequestFloor(client_id), floor.index);
  }
  std::map<BlockKey, RequestBlock> written;
  for (const uint64_t number : *numbers) {
    const auto known = blocks_.find({client_id, number});
    if (known == blocks_.end() || known->second.block.garbled) continue;
    RequestBlock kept = known->second.block;
    kept.closed = true;
    std::erase_if(kept.rows, [](const auto& each) { return !each.second.pinned(); });
    if (kept == known->second.block) continue;
    const std::string key = keys_->RequestBlock(client_id, number);
    if (kept.rows.empty()) {
      request.DeleteCas(key, known->second.index);
    } else {
      request.Cas(key, WriteRequestBlock(kept), known->second.index);
    }
    written.emplace(known->first, std::move(kept));
  }
  if (raised == floor.below && written.empty()) return all;
  const absl::StatusOr<TransactionAnswer> answer = client->Write(request);
  // If its answer is lost nothing is known of them: where that matters the next commit notices.
  for (const auto& [key, kept] : written) blocks_.erase(key);
  if (raised != floor.below) known_floors_.erase(client_id);
  if (!answer.ok()) return answer.status();
  if (!answer->done) return absl::AbortedError("another daemon wrote to them");
  for (const Entry& entry : answer->entries) {
    if (entry.key == keys_->RequestFloor(client_id))
      known_floors_[client_id] = {entry.modify_index, raised};
  }
  return all;
}

}  // namespace semaphored::consul
