// What Protobuf's reader lets pass and JSON does not: names without quotes, single quotes, a comma at the end. And a
// field that stands twice in an object, of which it takes the last one: a proxy that checks requests may read the first.
#pragma once

#include <optional>
#include <string_view>

#include "server/base/reason.h"

namespace semaphored::web {

// Refused: INVALID_ARGUMENT, with the path of the field where one stands twice, be it in both of its forms (ttlMs and
// ttl_ms). REQUIRES: Protobuf has taken the text, so it is no deeper and has no more kinds of fields than a message. Any
// thread.
std::optional<Refusal> CheckJson(std::string_view text);

}  // namespace semaphored::web
