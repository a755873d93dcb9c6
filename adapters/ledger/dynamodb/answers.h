// What clients were answered, for the case that they ask again: an item each, by client and
// sequence number. It goes by the table's TTL, so that nobody has to know all clients; it stays for
// at least twice the time for which a client may be silent, and a day. (DynamoDB refuses requests
// of a machine whose wall clock is wrong by more than minutes.)
//
// That an answer is not there is the condition of every commit that makes it. It proves that there
// never was one only while it would still be there; so
//   * the first time a lane hears of a client, and again after half of that time, it asks for the
//   client's highest answered number. Above it nothing was answered before.
//   * below it, if a higher one was answered longer than half of that time ago, the client has not
//   been silent and the request is too old: its answer may have gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/ledger/store.h"

namespace semaphored::dynamodb {

class AnswerBook {
 public:
  struct Options {
    std::string table;
    // For how long a client may be silent and its answers are still to be there.
    std::chrono::milliseconds retention = std::chrono::hours(1);
    // A request that is lower by more than an answered one is too old, whatever else.
    uint64_t slack = 8192;
    std::function<int64_t()> now_unix_ms;  // For what is stored.
  };

  explicit AnswerBook(Options options);

  // As LedgerStore::FindAnswers. Blocks for a request or three for each.
  absl::StatusOr<std::vector<ledger::LedgerStore::Found>> Find(
      Client* client, absl::Span<const ledger::AskedRequest> requests, uint64_t window,
      SteadyTime deadline);

  // Before a commit that answers these requests, or rests upon their not being answered. True: one
  // of them has been, or is too old. False: none was before the last moment that this lane has
  // asked, and that no answer is there proves the rest. Mostly asks nobody.
  absl::StatusOr<bool> AnyAnswered(Client* client,
                                   const std::vector<ledger::AskedRequest>& requests,
                                   SteadyTime now, SteadyTime deadline);

  json Write(const std::string& client_id, const ledger::Answer& answer) const;

 private:
  // The highest number that the client had been answered at this moment.
  struct Seen {
    uint64_t sequence_high = 0;
    SteadyTime at{};
  };

  absl::Status Look(Client* client, const std::vector<ledger::AskedRequest>& requests,
                    SteadyTime now, SteadyTime deadline);
  int64_t NowS() const { return options_.now_unix_ms() / 1000; }

  const Options options_;
  const std::chrono::seconds kept_;
  absl::flat_hash_map<std::string, Seen> seen_;  // By client.
};

}  // namespace semaphored::dynamodb
