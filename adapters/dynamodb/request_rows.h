// The requests of clients as rows (adapters/ledger/state/request.h): an item for each, in a partition
// for each client. Each item keeps the time at which it was first inserted.
//
// What goes. An item whose claim waits or stands does not expire. The commit that ends the claim, or
// that carries out a request without one, sets the time of expiry, K from then; DynamoDB removes
// the item some time after that. A request that its client gives up leaves a mark: an item that counts
// as no row and expires in the same way. Nothing goes because of the ledger's floors.
//
// That a request has no row is the condition of the commit that inserts one. Where the row may have
// expired it proves nothing. So a commit lands only if the request is not late: the client has no item
// with a higher number that was inserted more than L ago. This holds whatever the daemon knew:
//   1. A lane reads the client's highest number once in each generation (generation.h). No item makes
//      a request above it late. One that is not above it is looked up before the commit, and refused
//      if an item above it is older than M.
//   2. The generation is a condition of the commit. A generation ends with the first insert after G,
//      by whatever daemon. A client that is not silent for Q makes one. So what a commit rests
//      upon is younger than G + Q when it lands, also if its daemon was stopped in between; and an item
//      that was younger than M is then younger than L = M + G + Q.
//   3. Let the row of request s be inserted at x, and expire at x + K or later. While it stands,
//      all that the client inserts from x + L on is above s, since s would make it late. So an item
//      above s is inserted between x + L and x + L + Q. It stands when s expires, and is older than M
//      then, since K > 2 L + Q. The same holds for that item in place of s, and so on: from the expiry
//      of s on there is always an item above s that is older than M. It is read by every lane that
//      could take s for new, and s is refused.
// K is 24 hours, or 12 times the time after which a silent client is forgotten, whichever is longer.
// M = K/6, G = Q = K/12. The rest of K is for wall clocks: DynamoDB refuses requests of a machine whose
// clock is wrong by a quarter of an hour. A client that makes no request for Q or longer may find
// that one is carried out again K after it was, even if the client holds something.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/dynamodb/generation.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/ledger/store.h"

namespace semaphored::dynamodb {

class RequestBook {
 public:
  struct Options {
    std::string table;
    // A client that has been silent for so long is forgotten.
    std::chrono::milliseconds retention = std::chrono::hours(1);
    // A request that is lower by more than one with an item is too old, whatever else.
    uint64_t slack = 8192;
    std::function<int64_t()> now_unix_ms;  // For what is stored.
    std::string written_by;                // This lane, in rows of one-shot requests.
  };

  explicit RequestBook(Options options);

  // As LedgerStore::FindRequests. Blocks for one to three requests for each.
  absl::StatusOr<std::vector<ledger::LedgerStore::FoundRequest>> Find(
      Client* client, absl::Span<const ledger::NamedRequest> requests, uint64_t window,
      SteadyTime deadline);

  // Before a commit that inserts these requests, or requires that they are absent. True: one of them
  // has a row, or is too old, so that the commit must not be sent. Mostly sends nothing.
  absl::StatusOr<bool> AnyLost(Client* client, const std::vector<ledger::NamedRequest>& requests,
                               SteadyTime deadline);

  // What the change writes, and on which condition. An insert without a condition of its own that
  // AnyLost was asked about may carry out a request twice; but for a one-shot request, whose row is
  // there until no daemon counts on it (one_shots.h), so that its absence says enough.
  struct Write {
    Key key;
    Change change;
    Condition condition;
    bool removes = false;  // The item goes; then there is no change.
  };
  Write WriteOf(const std::string& client_id, const ledger::RequestChange& change) const;
  // The condition on a request that must be absent.
  static Condition Absent();
  static Key RowKeyOf(const ledger::NamedRequest& named);

  // That of the lane's item. What was read in another generation is forgotten.
  uint64_t generation() const { return generation_.number; }
  void SetGeneration(const Generation& generation);
  // As CurrentGeneration: before the lane is opened, and when its item has another one than is known
  // here.
  absl::Status LearnGeneration(Client* client, SteadyTime deadline);

 private:
  absl::Status LookUpClients(Client* client, const std::vector<ledger::NamedRequest>& requests,
                             SteadyTime deadline);
  // A clock that has stopped is behind by no more than a generation.
  int64_t NowS() const { return std::max(options_.now_unix_ms() / 1000, generation_.BeganAt()); }
  // Items that were inserted before this second make lower requests late.
  int64_t LateBeforeS() const { return NowS() - kept_.count() / 6; }
  std::chrono::seconds GenerationLength() const { return kept_ / 12; }

  const Options options_;
  const std::chrono::seconds kept_;  // K.
  Generation generation_;
  // The highest number with an item, by client, as it was read in this generation.
  absl::flat_hash_map<std::string, uint64_t> highest_;
};

}  // namespace semaphored::dynamodb
