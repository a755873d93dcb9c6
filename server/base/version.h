// The version of the daemon; the same as in the top CMakeLists.txt.
#pragma once

namespace semaphored {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace semaphored
