// What `semctl doctor` finds: one line each.
#ifndef SEMAPHORED_CLIENT_SEMCTL_FINDING_H_
#define SEMAPHORED_CLIENT_SEMCTL_FINDING_H_

#include <string>
#include <vector>

namespace semaphore::semctl {

enum class Grade { kOk, kWarn, kFail };

struct Finding {
  std::string endpoint;
  std::string check;  // "reach", "tls", "rights", "clock", "engine", "version", "nodes".
  Grade grade = Grade::kOk;
  std::string message;
  std::string advice = {};  // What to do; empty if the grade is kOk.
};

using Findings = std::vector<Finding>;

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_FINDING_H_
