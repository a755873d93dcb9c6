// The rows of one-shot requests: items in partitions by the last digits of their ids, so that a daemon
// can find all of them. They never expire: DynamoDB's clock decides nothing of them. An item whose
// request has ended or is done says which lane wrote that (`written_by`), and is not written again until
// it has gone.
//
//   The lane that wrote it removes it when the ledger says so, if it is still that lane's.
//   A sweep, of one lane of each daemon, removes what it has seen unchanged in two looks that are
//   `retention` apart on its own steady clock: other lives' that have ended, and what was not removed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/requests.h"

namespace semaphored::dynamodb {

// Set in each item whose request has ended or is done.
inline constexpr char kWrittenBy[] = "written_by";
// When the row was inserted; with kWrittenBy, which of two rows of one id it is.
inline constexpr char kAskedAt[] = "asked_at_s";

Key OneShotKey(const Id& one_shot);

class OneShotRows {
 public:
  // `written_by`: this lane, as it writes itself. What fails is reported to `upkeep`.
  OneShotRows(std::string table, std::string written_by, std::shared_ptr<Upkeep> upkeep)
      : table_(std::move(table)), written_by_(std::move(written_by)), upkeep_(std::move(upkeep)) {}

  const std::string& written_by() const { return written_by_; }

  // These may go; ForgetSome does it.
  void ForgetLater(absl::Span<const Id> one_shots);
  // So many are to go that a lane that is never idle removes some, too.
  bool is_behind() const { return forgotten_.size() >= kBehind; }
  // Removes some of those. Blocks for some requests. What fails is left to the sweep.
  void ForgetSome(Client* client, SteadyTime deadline);

  // From now on SweepIfDue sweeps.
  void Sweep(std::chrono::milliseconds retention) { retention_ = retention; }
  // Looks at one partition, 256 times in `retention`. Blocks for a request, and for some if rows go.
  // What fails is tried again.
  void SweepIfDue(Client* client, SteadyTime now, SteadyTime deadline);

 private:
  struct Seen {
    std::string written_by;
    uint64_t asked_at_s = 0;
    SteadyTime since{};
  };
  static constexpr size_t kBehind = 1000;
  using PartitionSeen = absl::flat_hash_map<std::string, Seen>;  // By sort key.

  void SweepPartition(Client* client, int number, SteadyTime now, SteadyTime deadline);

  const std::string table_;
  const std::string written_by_;
  const std::shared_ptr<Upkeep> upkeep_;
  std::vector<Id> forgotten_;
  std::optional<std::chrono::milliseconds> retention_;
  std::optional<SteadyTime> sweep_at_;
  int next_ = 0;
  std::vector<PartitionSeen> seen_;
};

}  // namespace semaphored::dynamodb
