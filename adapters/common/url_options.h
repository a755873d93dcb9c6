// Parts of URLs.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace semaphored {

// Percent signs and two hexadecimal digits become bytes; nullopt if that is not what follows a
// percent sign, or it is a zero.
std::optional<std::string> Unescape(absl::string_view text);

}  // namespace semaphored
