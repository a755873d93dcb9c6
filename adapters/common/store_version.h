// The version of what a store keeps, in engines that have no schema of their own (Consul, DynamoDB, RabbitMQ).
// docs/compatibility.md says where each stands. It rises with a change that a daemon of the version before
// cannot read, or would damage; what such a daemon may ignore raises nothing.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace semaphored {

// UNIMPLEMENTED: a newer semaphored made `what`.
inline absl::Status JudgeVersion(absl::string_view what, uint64_t version, uint64_t known) {
  if (version <= known) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(what, " has version ", version,
                                               ", made by a newer semaphored; this one knows "
                                               "versions up to ",
                                               known));
}

}  // namespace semaphored
