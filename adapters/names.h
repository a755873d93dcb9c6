// What a semaphore may be called. Every engine keeps names in keys, in queues or in rows of its own, so a name is
// plain text that means one thing everywhere: also in a path.
#pragma once

#include <cstddef>
#include <string_view>

namespace semaphored {

inline constexpr size_t kSemaphoreNameBytesMax = 255;

// 1 to 255 bytes of letters, digits and . _ - / : @ +, without '.' first. The segments between its '/' are not
// empty, "." or "..". Any thread.
bool IsSemaphoreName(std::string_view name);

// Empty, or a name, which one '/' may follow; 255 bytes at most. Any thread.
bool IsSemaphorePrefix(std::string_view prefix);

}  // namespace semaphored
