// Inside the client: one lease as its Permit, the machine that keeps it alive and the thread of
// losses share it.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_LEASE_STATE_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_LEASE_STATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore {

// A point in time that threads share. Reads and writes are atomic; no order with anything else is
// promised.
class SharedDeadline {
 public:
  explicit SharedDeadline(TimePoint at) : at_(at.time_since_epoch().count()) {}

  TimePoint get() const { return TimePoint(BootClock::duration(at_.load())); }
  void set(TimePoint at) { at_.store(at.time_since_epoch().count()); }

 private:
  std::atomic<BootClock::rep> at_;
};

// How a promise of `valid_for` that was made at `made`, or later, is counted here; see
// ClientOptions::margin.
TimePoint GoodUntil(TimePoint made, std::chrono::milliseconds valid_for,
                    std::chrono::milliseconds margin);

// Invariants: `lost` is written once. When it is true, `loss` is set and never changes again.
struct LeaseState {
  LeaseState(std::string semaphore, std::string lease_id, std::vector<std::uint32_t> slots,
             std::uint64_t token, std::shared_ptr<SharedDeadline> session_deadline);

  // Set before the lease is shared.
  const std::string semaphore;
  const std::string lease_id;
  const std::vector<std::uint32_t> slots;
  const std::uint64_t token;
  std::chrono::milliseconds ttl{0};
  bool fail_open = false;
  std::function<void(const RecallNotice&)> on_recall;

  // One for all the leases of a session.
  const std::shared_ptr<SharedDeadline> session_deadline;
  // The number of the stream on which its last recall came, and the recall's. Of LeaseKeeper.
  std::pair<std::uint64_t, std::uint64_t> last_recall{};
  // When a recall revokes this lease.
  SharedDeadline recall_deadline{kNever};
  std::atomic<bool> lost{false};

  TimePoint GoodUntil() const;
  bool Held(TimePoint now) const;

  // Calls back on a loss; see Permit::OnLost.
  void AddLossCallback(std::function<void(const Loss&)> callback);
  // The first call wins, and returns true: the caller then sees to it that TellLoss is called,
  // without locks held.
  bool MarkLost(LossCause cause, std::string message);
  // Requests stop and runs the callbacks. REQUIRES: MarkLost returned true to the caller, once.
  void TellLoss();
  Loss GetLoss() const;
  // Whether it has functions of the application, whose destructors may call the client.
  bool HasCallbacks() const;
  std::stop_token stop_token() const { return stop_.get_token(); }

 private:
  mutable std::mutex mutex_;
  Loss loss_;
  bool told_ = false;
  std::vector<std::function<void(const Loss&)>> callbacks_;
  std::stop_source stop_;
};

// The single slots, in the order of the ranges.
std::vector<std::uint32_t> SlotsOf(
    const google::protobuf::RepeatedPtrField<::semaphore::v1::SlotRange>& ranges);

// What a release of permits that had been lost before is answered: NOT_FOUND, "NOT_HELD".
absl::Status NotHeld(const Loss& loss);

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_LEASE_STATE_H_
