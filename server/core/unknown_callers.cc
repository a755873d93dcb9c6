#include "server/core/unknown_callers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored {

std::optional<std::string> UnknownCallers::Add(std::string_view peer, SteadyTime now) {
  if (told_at_ && now - *told_at_ < kBetweenLines) {
    ++untold_;
    return std::nullopt;
  }
  told_at_ = now;
  std::string line = absl::StrCat(
      "a call from ", absl::string_view(peer.data(), peer.size()),
      " was refused: it shows neither a token nor a certificate that stands in the access file");
  if (const uint64_t before = std::exchange(untold_, 0); before != 0)
    absl::StrAppend(&line, " (and ", before, before == 1 ? " other" : " others",
                    " since the last such line)");
  return line;
}

}  // namespace semaphored
