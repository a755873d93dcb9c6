// What `semctl doctor` learns of one endpoint.
#ifndef SEMAPHORED_CLIENT_SEMCTL_EXAMINATION_H_
#define SEMAPHORED_CLIENT_SEMCTL_EXAMINATION_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "client/semaphore/transport.h"
#include "client/semctl/connection_probe.h"
#include "client/semctl/finding.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

struct Examination {
  std::string endpoint;
  Findings findings;     // In the order of the checks; a check that could not be made is not there.
  bool reached = false;  // A daemon answered, with whatever.
  std::optional<v1::DescribeDaemonResponse> daemon;
};

// Both of a message's way, and the daemon's clocks in between. Times in microseconds.
struct ClockSample {
  int64_t sent_steady = 0;
  int64_t received_steady = 0;
  int64_t received_wall = 0;
  int64_t daemon_steady = 0;
  int64_t daemon_wall = 0;
};

// How far the two wall clocks and the speeds of the two steady clocks differ, as far as the two
// samples show it: what their round trips leave open counts for the daemon.
Finding JudgeClocks(const std::string& endpoint, const ClockSample& first,
                    const ClockSample& second);

// Makes the checks one after the other. Blocks for about four times options.timeout at most.
Examination Examine(const ProbeOptions& options, const std::shared_ptr<Transport>& transport);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_EXAMINATION_H_
