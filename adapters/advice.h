// What a caller can do about an error of a Step, where its code alone would suggest something else. The
// text is for people, and travels with the status.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace semaphored {

inline constexpr char kAdviceUrl[] = "semaphored/advice";

inline absl::Status WithAdvice(absl::Status status, const std::string& advice) {
  status.SetPayload(kAdviceUrl, absl::Cord(advice));
  return status;
}

// Empty: there is none.
inline std::string AdviceIn(const absl::Status& status) {
  const auto advice = status.GetPayload(kAdviceUrl);
  return advice ? std::string(*advice) : "";
}

}  // namespace semaphored
