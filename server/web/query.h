// What follows the question mark of a URL.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/base/reason.h"

namespace semaphored::web {

// Calls `take` with each name and value, decoded, until it refuses one. Refused: what it refuses; INVALID_ARGUMENT
// where % is not followed by two hexadecimal digits.
std::optional<Refusal> ForEachParameter(
    std::string_view query,
    const std::function<std::optional<Refusal>(const std::string& name, std::string value)>& take);

}  // namespace semaphored::web
