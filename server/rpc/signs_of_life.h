// What the messages of a Session or Work stream say of its client: its pings, and the recalls that it acknowledges.
#pragma once

#include <optional>
#include <string>

#include "server/rpc/convert.h"
#include "server/rpc/validate.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class SignsOfLife {
 public:
  // The first message of a stream has arrived.
  void Begin(SteadyTime arrived) {
    ping_id_ = 0;
    ping_arrived_ = arrived;
  }

  // Takes the ping of a later message, and hands its acknowledgements to `sessions`. A problem ends the stream.
  template <typename Message>
  Problem Take(const Message& message, SteadyTime arrived, const Id& session,
               const RequestLimits& limits, Sessions* sessions) {
    const int count = message.acknowledged_recalls_size();
    if (count > limits.commands_per_message_max) {
      return InvalidField("acknowledged_recalls",
                          "must be at most " + std::to_string(limits.commands_per_message_max) +
                              " in one message, not " + std::to_string(count));
    }
    if (message.has_ping()) {
      ping_id_ = message.ping().ping_id();
      ping_arrived_ = arrived;
    }
    for (const pb::RecallAcknowledgement& each : message.acknowledged_recalls()) {
      const std::optional<LeaseName> lease = ParseLeaseId(each.lease_id());
      if (lease) sessions->AcknowledgeRecall(session, lease->claim, each.recall_id());
    }
    return std::nullopt;
  }

  LastPing last_ping(SteadyTime now) const { return {ping_id_, now - ping_arrived_}; }

 private:
  uint64_t ping_id_ = 0;
  SteadyTime ping_arrived_{};
};

}  // namespace semaphored
