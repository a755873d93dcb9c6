// The rows of requests. Those of one client stand in blocks by their sequence numbers, a key each, so
// that a commit that writes many rows of a client writes one key.
//
//   A row is inserted under the condition that its block stands at the index at which this store knows
//   it, so that no other daemon has written the row. A block that is not there may have been forgotten:
//   then the client's floor, a key of its own, must stand as it is known, too.
//   What this store does not know it takes for absent. If the commit says that this is wrong, the
//   blocks are read, and the commit is written again, unless one of the rows that it inserts is there.
//   A block that stands has all rows of its sequence numbers, unless it is closed: then those that are
//   not in it are too old.
//
// A floor is raised in a transaction that also deletes or closes the blocks below it; a closed block
// keeps the rows of claims that wait or stand.
//
// A one-shot request has a block of its own, as if it were the only one of its client
// (adapters/common/client_names.h). It has no floor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/consul/client.h"
#include "adapters/consul/document.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/ledger/store.h"

namespace semaphored::consul {

class RequestBook {
 public:
  explicit RequestBook(const Keys* keys) : keys_(keys) {}

  // As LedgerStore::FindRequests. Remembers the blocks. Blocks for two requests for each client, and
  // one for those claims that wait or stand.
  absl::StatusOr<std::vector<ledger::LedgerStore::FoundRequest>> Find(
      Client* client, absl::Span<const ledger::NamedRequest> requests, uint64_t window);

  // Reads the blocks of these requests that are not known: so that rows which are there can be
  // changed. Blocks for a request, if there is one to read.
  absl::Status Learn(Client* client, const std::vector<ledger::NamedRequest>& requests);

  // One commit: Begin, then the next four in any order, then Write; then Won, if it has, or Lost, if
  // one of its inserts is why it has not. Begin again takes all back.
  void Begin();
  // False: the row is there, or the request is too old to know.
  bool Insert(const std::string& client_id, const ledger::RequestRow& row);
  // The row must not be there. False: as with Insert.
  bool Expect(const std::string& client_id, uint64_t sequence);
  // A grant writes nothing: whether a claim waits or stands is the document's to say.
  void Update(const std::string& client_id, const ledger::RequestRow& row);
  void Remove(const std::string& client_id, uint64_t sequence);
  // Adds the conditions and writes: all of them operations that are refused only if another daemon
  // has written a block, or raised a floor.
  void Write(TransactionRequest* request);
  void Won(uint64_t index);
  // The commit was refused because of a block or a floor: reads all that it spoke of, so that it can
  // be written again. True: one of its inserts is there meanwhile, or too old. Blocks for a request or
  // two.
  absl::StatusOr<bool> LookAgain(Client* client);
  // Nothing is known any more of what the commit spoke of.
  void Lost();

  // The client's floor is to rise; RaiseFloors does it.
  void RaiseLater(const std::string& client_id, uint64_t below);
  // Raises the floor of one client of those, if there is one. Blocks for three requests. What fails is
  // done when the client's floor is to rise again.
  absl::Status RaiseFloors(Client* client);

  // The rows of these one-shot requests may go; ForgetSome does it.
  void ForgetLater(const std::vector<Id>& one_shots);
  // Removes some of those, if they are in their last state; with `at_once` also if they are few. Blocks
  // for two requests at most. What fails is left to the sweep (request_sweep.h).
  absl::Status ForgetSome(Client* client, bool at_once);

 private:
  using BlockKey = std::pair<std::string, uint64_t>;  // Client and number.
  struct Known {
    uint64_t index = 0;
    RequestBlock block;
  };
  // Requests with lower sequence numbers may have been forgotten.
  struct Floor {
    uint64_t index = 0;  // 0: there is none, or it is not known.
    uint64_t below = 0;
  };
  // A block that the commit under way writes or looks at.
  struct Changed {
    RequestBlock block;  // As it is to be.
    bool inserts = false;
    bool writes = false;  // Set by Write.
  };

  static BlockKey KeyOf(const std::string& client_id, uint64_t sequence);
  Changed& Change(const BlockKey& key);
  // Whether a request may be accepted that has this row in the block, or none.
  bool MayInsert(const std::string& client_id, uint64_t sequence, const RequestBlock* block) const;
  bool IsBelowFloor(const std::string& client_id, uint64_t sequence) const;
  // nullptr: there is none.
  void KeepFloor(const std::string& client_id, const Entry* entry);
  void Keep(const BlockKey& key, const Entry* entry);
  absl::Status Read(Client* client, const std::set<BlockKey>& blocks);
  // The numbers of the blocks that the client has.
  absl::StatusOr<std::set<uint64_t>> List(Client* client, const std::string& client_id) const;
  absl::Status FindOfClient(Client* client, const std::string& client_id,
                            absl::Span<const ledger::NamedRequest> requests, uint64_t window,
                            const std::vector<size_t>& places,
                            std::vector<ledger::LedgerStore::FoundRequest>* found);
  // What has become of the claims that wait or stand. NOT_FOUND: one of the rows has gone.
  absl::Status FindClaims(Client* client, absl::Span<const ledger::NamedRequest> requests,
                          std::vector<ledger::LedgerStore::FoundRequest>* found);
  absl::StatusOr<bool> RaiseFloor(Client* client, const std::string& client_id, uint64_t below);
  absl::Status Forget(Client* client, const std::vector<Id>& one_shots);

  const Keys* const keys_;
  absl::flat_hash_map<BlockKey, Known> blocks_;
  absl::flat_hash_map<std::string, Floor> known_floors_;  // By client.
  std::map<std::string, uint64_t> rising_;                // By client.
  std::vector<Id> forgotten_;                             // One-shot requests that may go.
  std::map<BlockKey, Changed> changed_;                   // By the commit under way.
  std::vector<std::pair<std::string, uint64_t>> new_;     // That it inserts, or expects absent.
};

}  // namespace semaphored::consul
