#include "adapters/ledger/consul/answers.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;
using ledger::AskedRequest;
using ledger::LedgerStore;

constexpr uint64_t kBlockSize = 16;
// Blocks that may have fallen below a floor since it was last raised: the ledger raises it by 256
// sequence numbers and what one batch has.
constexpr uint64_t kBlocksDropped = 18;
constexpr size_t kBlocksRemembered = 20'000;
// What an answered request costs at most beside its block; forgetting waits for a commit with room.
constexpr size_t kRoomForForgetting = kBlocksDropped + 2;
constexpr size_t kBlocksAskedAtOnce = 60;

}  // namespace

void AnswerBook::Begin() {
  written_.clear();
  expected_.clear();
  floors_.clear();
  raised_.clear();
  if (known_floors_.size() > kBlocksRemembered) known_floors_.clear();
  requests_.clear();
  if (blocks_.size() > kBlocksRemembered) blocks_.clear();
}

bool AnswerBook::Answer(const std::string& client_id, const ledger::Answer& answer) {
  const uint64_t sequence = answer.request.sequence;
  const BlockKey key(client_id, sequence / kBlockSize);
  const bool ends_lease = answer.kind == ledger::Answer::Kind::kGranted;
  if (ends_lease && IsBelowFloor(client_id, sequence)) return true;
  if (!ends_lease) requests_.emplace_back(key, sequence);
  const auto [at, is_new] = written_.try_emplace(key);
  if (is_new) {
    if (const auto known = blocks_.find(key); known != blocks_.end())
      at->second = known->second.answers;
  }
  return at->second.try_emplace(sequence, answer).second || ends_lease;
}

bool AnswerBook::IsBelowFloor(const std::string& client_id, uint64_t sequence) const {
  const auto floor = known_floors_.find(client_id);
  return floor != known_floors_.end() && sequence < floor->second.below;
}

bool AnswerBook::Expect(const std::string& client_id, uint64_t sequence) {
  const BlockKey key(client_id, sequence / kBlockSize);
  requests_.emplace_back(key, sequence);
  expected_[key] = true;
  if (IsBelowFloor(client_id, sequence)) return false;
  const auto known = blocks_.find(key);
  return known == blocks_.end() || !known->second.answers.contains(sequence);
}

void AnswerBook::Forget(const std::string& client_id, uint64_t below) {
  floors_[client_id] = std::max(floors_[client_id], below);
}

void AnswerBook::Write(TransactionRequest* request) {
  const auto index_of = [&](const BlockKey& key) {
    const auto known = blocks_.find(key);
    return known == blocks_.end() ? 0 : known->second.index;
  };
  std::set<std::string> checked;
  // A block that is not there may have been dropped: then there is a floor that is not known here.
  const auto check_floor = [&](const BlockKey& key) {
    if (index_of(key) != 0 || !checked.insert(key.first).second) return;
    const auto floor = known_floors_.find(key.first);
    request->Check(keys_->AnswerFloor(key.first),
                   floor == known_floors_.end() ? 0 : floor->second.index);
  };
  for (const auto& [key, answers] : written_) {
    request->Cas(keys_->AnswerBlock(key.first, key.second), WriteAnswers(answers), index_of(key));
    check_floor(key);
  }
  for (const auto& [key, ignored] : expected_) {
    if (written_.contains(key)) continue;
    request->Check(keys_->AnswerBlock(key.first, key.second), index_of(key));
    check_floor(key);
  }
  for (const auto& [client_id, below] : floors_) {
    if (request->size() + kRoomForForgetting > TransactionRequest::kOperationsMax) return;
    request->Set(keys_->AnswerFloor(client_id), std::to_string(below));
    raised_.push_back(client_id);
    const uint64_t end = below / kBlockSize;
    for (uint64_t block = end - std::min(end, kBlocksDropped); block < end; ++block) {
      request->Delete(keys_->AnswerBlock(client_id, block));
      blocks_.erase({client_id, block});
    }
  }
}

void AnswerBook::Won(uint64_t index) {
  for (const std::string& client_id : raised_)
    known_floors_[client_id] = {index, floors_[client_id]};
  for (auto& [key, answers] : written_) blocks_[key] = {index, std::move(answers)};
  Begin();
}

void AnswerBook::Lost() {
  for (const auto& [key, answers] : written_) blocks_.erase(key);
  for (const auto& [key, ignored] : expected_) blocks_.erase(key);
  Begin();
}

absl::StatusOr<bool> AnswerBook::LookAgain(Client* client) {
  std::map<std::string, BlockKey> blocks;  // By Consul's key.
  for (const auto& [block, answers] : written_)
    blocks.emplace(keys_->AnswerBlock(block.first, block.second), block);
  for (const auto& [block, ignored] : expected_)
    blocks.emplace(keys_->AnswerBlock(block.first, block.second), block);
  std::set<std::string> learned;  // Clients whose floor was not known.
  for (auto at = blocks.begin(); at != blocks.end();) {
    TransactionRequest ask;
    std::map<std::string, std::pair<std::string, const Entry*>> floors;  // By Consul's key.
    for (; at != blocks.end() && ask.size() + 2 <= TransactionRequest::kOperationsMax; ++at) {
      const std::string& client_id = at->second.first;
      ask.GetTree(at->first);
      const std::string floor = keys_->AnswerFloor(client_id);
      if (floors.emplace(floor, std::pair(client_id, nullptr)).second) ask.GetTree(floor);
      Keep(client_id, at->second.second, nullptr);
    }
    const Reply reply = client->Ask("/v1/txn?consistent", ask.Body());
    if (!reply.answered()) return reply.status;
    const absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
    if (!answer.ok()) return answer.status();
    for (const Entry& entry : answer->entries) {
      const auto asked = blocks.find(entry.key);
      if (asked != blocks.end()) Keep(asked->second.first, asked->second.second, &entry);
      if (const auto floor = floors.find(entry.key); floor != floors.end())
        floor->second.second = &entry;
    }
    for (const auto& [key, floor] : floors) {
      if (KeepFloor(floor.first, floor.second)) learned.insert(floor.first);
    }
  }
  return std::ranges::any_of(requests_, [&](const auto& request) {
    const auto known = blocks_.find(request.first);
    if (known != blocks_.end() && known->second.answers.contains(request.second)) return true;
    // Whoever decided did not know of it. (One who has waited since before it rose is right.)
    const std::string& client_id = request.first.first;
    return learned.contains(client_id) && IsBelowFloor(client_id, request.second);
  });
}

bool AnswerBook::KeepFloor(const std::string& client_id, const Entry* entry) {
  Floor& known = known_floors_[client_id];
  const uint64_t index = entry == nullptr ? 0 : entry->modify_index;
  if (known.index == index) return false;
  known = {index, 0};
  if (entry != nullptr) (void)absl::SimpleAtoi(entry->value, &known.below);
  return true;
}

void AnswerBook::Keep(const std::string& client_id, uint64_t number, const Entry* entry) {
  if (entry == nullptr) {
    blocks_.erase({client_id, number});
  } else {
    blocks_[{client_id, number}] = {entry->modify_index, ReadAnswers(entry->value)};
  }
}

absl::StatusOr<std::vector<LedgerStore::Found>> AnswerBook::Find(
    Client* client, absl::Span<const AskedRequest> requests, uint64_t window) {
  std::map<std::string, std::vector<size_t>> by_client;
  for (size_t i = 0; i < requests.size(); ++i) by_client[requests[i].client_id].push_back(i);
  std::vector<LedgerStore::Found> found(requests.size());
  for (const auto& [client_id, places] : by_client) {
    if (absl::Status status = FindOfClient(client, client_id, requests, window, places, &found);
        !status.ok())
      return status;
  }
  return found;
}

absl::Status AnswerBook::FindOfClient(Client* client, const std::string& client_id,
                                      absl::Span<const AskedRequest> requests, uint64_t window,
                                      const std::vector<size_t>& places,
                                      std::vector<LedgerStore::Found>* found) {
  const std::string under = keys_->Client(client_id);
  const Reply listed = client->Get(absl::StrCat("/v1/kv/", EscapePath(under), "?keys&consistent"));
  if (!listed.answered()) return listed.status;
  std::map<uint64_t, const Entry*> blocks;
  for (const size_t place : places) blocks[requests[place].request.sequence / kBlockSize] = nullptr;
  uint64_t highest = 0;
  const Json keys = Json::parse(listed.body, nullptr, /*allow_exceptions=*/false);
  if (keys.is_array()) {
    for (const Json& key : keys) {
      if (!key.is_string()) continue;
      highest = std::max(highest, Keys::BlockIn(key.get<std::string>(), under).value_or(0));
    }
  }
  blocks.try_emplace(highest, nullptr);
  std::vector<Entry> entries;
  for (auto block = blocks.begin(); block != blocks.end();) {
    TransactionRequest ask;
    ask.GetTree(keys_->AnswerFloor(client_id));
    for (size_t i = 0; i < kBlocksAskedAtOnce && block != blocks.end(); ++i, ++block)
      ask.GetTree(keys_->AnswerBlock(client_id, block->first));
    const Reply reply = client->Ask("/v1/txn?consistent", ask.Body());
    if (!reply.answered()) return reply.status;
    absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
    if (!answer.ok()) return answer.status();
    for (Entry& entry : answer->entries) entries.push_back(std::move(entry));
  }
  const Entry* floor_entry = nullptr;
  for (const Entry& entry : entries) {
    if (const std::optional<uint64_t> number = Keys::BlockIn(entry.key, under)) {
      blocks[*number] = &entry;
    } else if (entry.key == keys_->AnswerFloor(client_id)) {
      floor_entry = &entry;
    }
  }
  // Of a client who was silent for long it has gone, with all else.
  KeepFloor(client_id, floor_entry);
  const uint64_t floor = known_floors_[client_id].below;
  uint64_t sequence_high = 0;
  for (const auto& [number, entry] : blocks) {
    Keep(client_id, number, entry);
    const auto kept = blocks_.find(BlockKey(client_id, number));
    if (kept != blocks_.end() && !kept->second.answers.empty())
      sequence_high = std::max(sequence_high, kept->second.answers.rbegin()->first);
  }
  for (const size_t place : places) {
    const RequestKey& request = requests[place].request;
    LedgerStore::Found& result = (*found)[place];
    result.too_old = request.sequence < floor;
    const auto block = blocks_.find(BlockKey(client_id, request.sequence / kBlockSize));
    if (block == blocks_.end()) continue;
    const auto answer = block->second.answers.find(request.sequence);
    if (answer == block->second.answers.end()) continue;
    result.answer = answer->second;
    result.answer->request = request;
    result.too_old = result.too_old || request.sequence + window <= sequence_high;
  }
  return absl::OkStatus();
}

}  // namespace semaphored::consul
