// Calls that were refused because they showed nothing that stands in the access file: what the log
// says of them. A line for each would let a client that guesses at tokens fill the disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/common/rare_line.h"
#include "server/base/clock.h"

namespace semaphored {

// Why a caller is not known.
enum class UnknownKind : uint8_t {
  kNothing,      // It shows neither token nor certificate, and there is no anonymous identity.
  kToken,        // Its token is no identity's.
  kMalformed,    // Its `authorization` is not one bearer token.
  kCertificate,  // No name of its certificate is an identity's.
  kChanged,      // On a stream: what it shows is another identity's now.
  kCount
};
inline constexpr auto kUnknownKinds = static_cast<size_t>(UnknownKind::kCount);
// "token", for metrics.
const char* UnknownKindName(UnknownKind kind);

class UnknownCallers {
 public:
  using Counts = std::array<uint64_t, kUnknownKinds>;

  // One more, at `now`, from `peer`. What the log is to say of it and of those since the last line;
  // nullopt: nothing yet. Nothing that the caller showed is in it.
  std::optional<std::string> Add(UnknownKind kind, std::string_view peer, SteadyTime now);
  // So far, by kind.
  const Counts& counts() const { return counts_; }

 private:
  RareLine line_;
  Counts counts_{};
};

}  // namespace semaphored
