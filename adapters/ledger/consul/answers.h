// What clients were answered, for the case that they ask again. The answers of one client stand in
// blocks by their sequence numbers, a key each, so that a commit that answers many requests of a
// client writes one key. A block's index is the condition that nobody else has answered one of them
// meanwhile.
//
// This is what a store knows of them: the blocks that it has written or read, with the indexes at
// which they stood. What it does not know it takes for absent; if the commit says that this is
// wrong, they are read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "adapters/ledger/consul/answer_block.h"
#include "adapters/consul/client.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/ledger/store.h"

namespace semaphored::consul {

class AnswerBook {
 public:
  explicit AnswerBook(const Keys* keys) : keys_(keys) {}

  // Asks the engine for these requests, and remembers the blocks. Blocks for a few requests.
  absl::StatusOr<std::vector<ledger::LedgerStore::Found>> Find(
      Client* client, absl::Span<const ledger::AskedRequest> requests, uint64_t window);

  // One commit: Begin, then Answer and Expect in any order, then Write; then Won, if it has, or
  // Lost, if it was one of the answers for which it has not. Begin again takes all back.
  void Begin();
  // False: it has been answered already. That a request was granted is remembered when the lease
  // ends, if it is not too old for that; it may have been before.
  bool Answer(const std::string& client_id, const ledger::Answer& answer);
  // The request must not have been answered. False: it has, or is too old to know.
  bool Expect(const std::string& client_id, uint64_t sequence);
  // The floor of a client rises: adds what can be done within the room of the request.
  void Forget(const std::string& client_id, uint64_t below);
  // Adds the conditions and writes: all of them operations that are refused only if one of the
  // requests may have been answered.
  void Write(TransactionRequest* request);
  void Won(uint64_t index);
  // The commit was refused because of a block: reads all that it spoke of, so that it can be
  // written anew. True: one of its requests has been answered meanwhile. Blocks for a request or
  // two.
  absl::StatusOr<bool> LookAgain(Client* client);
  // Nothing is known any more of what the commit spoke of.
  void Lost();

 private:
  using BlockKey = std::pair<std::string, uint64_t>;  // Client and number.
  struct Block {
    uint64_t index = 0;
    Answers answers;
  };

  absl::Status FindOfClient(Client* client, const std::string& client_id,
                            absl::Span<const ledger::AskedRequest> requests, uint64_t window,
                            const std::vector<size_t>& places,
                            std::vector<ledger::LedgerStore::Found>* found);
  void Keep(const std::string& client_id, uint64_t number, const Entry* entry);

  const Keys* const keys_;
  // What a client was answered below its floor may have been dropped: whoever asks for it again is
  // too late.
  struct Floor {
    uint64_t index = 0;  // 0: there is none, or it is not known.
    uint64_t below = 0;
  };
  bool IsBelowFloor(const std::string& client_id, uint64_t sequence) const;
  // nullptr: there is none. True: it was not known so.
  bool KeepFloor(const std::string& client_id, const Entry* entry);

  absl::flat_hash_map<BlockKey, Block> blocks_;
  absl::flat_hash_map<std::string, Floor> known_floors_;  // By client.
  std::map<BlockKey, Answers> written_;                   // By the commit under way.
  std::map<BlockKey, bool> expected_;
  std::map<std::string, uint64_t> floors_;
  std::vector<std::string> raised_;  // Clients whose floor the commit under way raises.
  // That it answers, or expects unanswered, but for those whose leases end.
  std::vector<std::pair<BlockKey, uint64_t>> requests_;
};

}  // namespace semaphored::consul
