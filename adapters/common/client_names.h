// Numbers for the names of clients, as the ledger speaks of them. One store's; single-threaded.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {

// A store that names clients writes a one-shot request as that of a client of its own, whose name no
// client can have: a client id is printable. Its sequence number is 0.
inline constexpr char kOneShotMark = '\x01';

inline std::string NameOfOneShot(const Id& one_shot) { return kOneShotMark + one_shot.Hex(); }

// nullopt: it is the name of a client, or empty.
inline std::optional<Id> OneShotOf(std::string_view name) {
  if (name.empty() || name.front() != kOneShotMark) return std::nullopt;
  return Id::FromHex(name.substr(1));
}

// What the store writes as the client of the request. `name_of_client` gives the names by number.
template <typename NameOfClient>
std::string WrittenClient(const RequestKey& request, const NameOfClient& name_of_client) {
  if (!request.one_shot.empty()) return NameOfOneShot(request.one_shot);
  return name_of_client(request.client);
}

inline std::string WrittenClient(const NamedRequest& named) {
  return WrittenClient(named.request, [&](uint32_t) { return named.client_id; });
}

// And back.
template <typename NumberOfClient>
RequestKey WrittenRequest(const std::string& name, uint64_t sequence,
                          const NumberOfClient& number_of_client) {
  if (const std::optional<Id> one_shot = OneShotOf(name)) return {0, 0, *one_shot};
  return {number_of_client(name), sequence};
}

class ClientNames {
 public:
  // Numbers below 2^31 are given by the ledger.
  uint32_t NumberOf(const std::string& client_id) {
    if (client_id.empty()) return 0;
    const auto [at, is_new] = numbers_.try_emplace(client_id, next_);
    if (is_new) names_.emplace(next_++, client_id);
    return at->second;
  }

  // Empty: no client has it.
  const std::string& NameOf(uint32_t number) const {
    static const std::string kNone;
    const auto found = names_.find(number);
    return found == names_.end() ? kNone : found->second;
  }

  void Learn(const NewClient& added) {
    names_[added.number] = added.client_id;
    numbers_[added.client_id] = added.number;
  }

  void Forget(uint32_t number) {
    const auto found = names_.find(number);
    if (found == names_.end()) return;
    EraseNumber(found->second, number);
    names_.erase(found);
  }

  // Now and then only: when there are twice as many as were kept last.
  void ForgetBut(const std::function<bool(uint32_t)>& in_use) {
    if (names_.size() < 2 * kept_) return;
    absl::erase_if(names_, [&](const auto& client) {
      if (in_use(client.first)) return false;
      EraseNumber(client.second, client.first);
      return true;
    });
    kept_ = std::max<size_t>(names_.size(), kKeptMin);
  }

 private:
  // The client may have another number by now: its name was used in a commit that was lost, and again later.
  void EraseNumber(const std::string& client_id, uint32_t number) {
    const auto found = numbers_.find(client_id);
    if (found != numbers_.end() && found->second == number) numbers_.erase(found);
  }

  static constexpr size_t kKeptMin = 1000;
  absl::flat_hash_map<std::string, uint32_t> numbers_;
  absl::flat_hash_map<uint32_t, std::string> names_;
  uint32_t next_ = 1u << 31;
  size_t kept_ = kKeptMin;
};

}  // namespace semaphored::ledger
