// layout=slots, as the broker keeps it: the queues of amqp-locks, so that its clients and ours
// share a semaphore.
//
//   <name>-A-<i>   a durable queue for each slot; how many there are in a row from 1 is the limit
//   <name>-B-<i>   an exclusive queue: the client whose connection has declared it holds slot i
//   <name>         an exclusive queue: the mutex of administrative acts
//
// All have the arguments {"x-max-length": 0} and never keep a message: an empty one that is
// published to a queue, mandatory and with confirms, comes back if there is no such queue.
//
// Used by one thread at a time; all calls block for some round trips. Errors are UNAVAILABLE when
// the broker cannot be asked, RESOURCE_EXHAUSTED when it takes no messages now, and what is said
// below.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/common/upkeep.h"
#include "adapters/rabbitmq/connection.h"

namespace semaphored::rabbitmq {

// So far beyond the first gap the broker is searched for A queues that are there by mistake.
inline constexpr uint32_t kOvershoot = 16;
// The broker takes some milliseconds to make a queue, and nothing else is done meanwhile.
inline constexpr uint32_t kSlotsMax = 1000;

std::string SlotQueue(const std::string& name, uint32_t slot);
std::string HolderQueue(const std::string& name, uint32_t slot);
// Why this layout can have no such semaphore; empty: it can.
std::string WhyNoSlots(const std::string& name, uint32_t size);

// What probing has found.
struct SlotView {
  uint32_t size = 0;          // A[1] to A[size] are there, A[size + 1] is not. 0: no semaphore.
  uint32_t looked = 0;        // The highest slot that was probed.
  std::set<uint32_t> strays;  // A queues beyond the first gap.
  std::set<uint32_t> taken;   // Slots with a B queue, of any connection.
};

class SlotBroker {
 public:
  // Both outlive the broker. B queues and mutexes are `holding`'s, which is open when a call is
  // made. Probes go through `probing`, opened when it is needed: a broker that runs out of memory
  // reads no more from a connection that publishes, and that one has to be given up. A caller that
  // holds nothing may pass the same connection as both. `upkeep`: where errors of the upkeep are reported.
  SlotBroker(Connection* holding, Connection* probing,
             std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>());

  // Probes slots 1 to `at_least`, on to the first gap, and `beyond` it. One round trip if
  // `at_least` lies above the size and nothing is asked beyond.
  absl::StatusOr<SlotView> Look(const std::string& name, uint32_t at_least, uint32_t beyond = 0);

  enum class Attempt : uint8_t {
    kTaken,   // Ours; and the slot was there after it had become ours.
    kHeld,    // Another connection was first.
    kNoSlot,  // It has been removed.
  };
  // For a slot without a B queue of ours: the broker would let this connection have it again.
  absl::StatusOr<Attempt> TryTake(const std::string& name, uint32_t slot);
  // NOT_FOUND: its B queue is another connection's.
  absl::Status Free(const std::string& name, uint32_t slot);
  // Whether its B queue is there and `holding`'s.
  absl::StatusOr<bool> IsOurs(const std::string& name, uint32_t slot);
  // Whether its A queue is there. Publishes nothing.
  absl::StatusOr<bool> HasSlot(const std::string& name, uint32_t slot);

  // ---- Administration, each under the mutex, and with what overshooting finds deleted first.
  // UNAVAILABLE: another connection has the mutex, for longer than is waited for it; or, if *begun
  // has been set, it broke off midway, and QuietSize shows what became of it. Slots are added all
  // at once or not at all, and removed one by one. ----

  // ALREADY_EXISTS; INVALID_ARGUMENT: WhyNoSlots.
  absl::Status Create(const std::string& name, uint32_t size, bool* begun);
  // Holders keep what they have. One that is not there is no error.
  absl::Status Destroy(const std::string& name, bool* begun);
  // Adds slots, or removes them from the top; holders keep what they have. ABORTED: it is not of
  // size `from`. INVALID_ARGUMENT: WhyNoSlots.
  absl::Status Resize(const std::string& name, uint32_t from, uint32_t to, bool* begun);
  // The size while no connection is changing it, read under the mutex: also what a connection that
  // broke had still sent has been carried out.
  absl::StatusOr<uint32_t> QuietSize(const std::string& name);
  // How many there were.
  absl::StatusOr<uint32_t> DeleteStrays(const std::string& name);

 private:
  class Mutex;
  // A channel of its own on a connection, opened again when the broker has closed it.
  struct Work {
    Channel channel = 0;
    uint64_t life = 0;
  };

  absl::StatusOr<Channel> ChannelOn(Connection* connection, Work* work);
  absl::StatusOr<std::vector<bool>> Exist(const std::vector<std::string>& queues);
  absl::StatusOr<std::vector<bool>> ExistOnce(const std::vector<std::string>& queues);
  absl::StatusOr<QueueState> Declare(const std::string& queue, const QueueOptions& options);
  absl::Status Delete(const std::string& queue);
  absl::Status MakeSlots(const std::string& name, uint32_t from, uint32_t to);
  absl::Status DeleteSlots(const std::string& name, const std::set<uint32_t>& slots);
  absl::StatusOr<std::unique_ptr<Mutex>> Lock(const std::string& name);

  Connection* holding_;
  Connection* probing_;
  const std::shared_ptr<Upkeep> upkeep_;
  Work held_;
  Work probes_;
  // After probes that were not answered none are sent for a while: each would cost a time-out.
  SteadyTime probes_from_{};
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace semaphored::rabbitmq
