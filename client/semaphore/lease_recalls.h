// Inside the client: recalls of the session's leases, as the daemon reports them and the application acknowledges them.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_LEASE_RECALLS_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_LEASE_RECALLS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/semaphore/client.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/lease_state.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore {

// A recall that the application is to hear of, once on each stream.
struct Recalled {
  std::shared_ptr<LeaseState> lease;
  RecallNotice notice;
  std::uint64_t recall_id = 0;  // 0: cannot be acknowledged
  std::uint64_t stream = 0;     // the number of the one on which it came
};

class LeaseRecalls {
 public:
  using LeasePtr = std::shared_ptr<LeaseState>;
  // A recall, and when the message was sent from whose arrival it counts.
  struct Sent {
    v1::LeaseRecall recall;
    TimePoint sent;
  };

  explicit LeaseRecalls(std::chrono::milliseconds margin) : margin_(margin) {}

  // A stream is opened: what was not acknowledged on the one before never will be there.
  void BeginStream() { ++stream_; }
  // The stream is no more. What the daemon recalls, it recalls again on the next one.
  void EndStream();

  // A lease that is kept is recalled: its recall_deadline is set, unless it is lost.
  void Add(const LeasePtr& lease, const Sent& sent);
  // The same of a lease that is not known yet: its grant may still be on its way.
  void AddEarly(const std::string& lease_id, Sent recall);
  // Of a lease whose grant comes now; nullopt: it was not recalled.
  std::optional<Sent> TakeEarly(const std::string& lease_id);
  // The recalls since the last call.
  std::vector<Recalled> TakeRecalled() { return std::exchange(recalled_, {}); }

  // Of a lease that is kept. Sent on the stream on which the recall came, or never.
  void Acknowledge(const Recalled& recalled);
  bool has_acknowledgements() const { return !acknowledgements_.empty(); }
  // As many as one message takes.
  std::vector<v1::RecallAcknowledgement> TakeAcknowledgements();

  // A lease whose grace has passed by `now`, each once; it may have been given back since. nullopt: there is no more. A lease
  // that is no more is null.
  std::optional<LeasePtr> TakeOver(TimePoint now);
  // When the next grace has passed; kNever: none passes.
  TimePoint NextOver() const { return graces_.empty() ? kNever : graces_.begin()->first; }

 private:
  const std::chrono::milliseconds margin_;
  std::uint64_t stream_ = 0;
  std::multimap<TimePoint, std::weak_ptr<LeaseState>> graces_;  // by their ends
  std::map<std::string, Sent> early_;
  std::vector<Recalled> recalled_;
  std::vector<v1::RecallAcknowledgement> acknowledgements_;  // to be sent
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_LEASE_RECALLS_H_
