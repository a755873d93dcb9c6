// Bytes as hexadecimal text, two digits each. (absl's own way back differs between its versions.)
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace semaphored {

// nullopt unless `hex` is an even number of hexadecimal digits, in either case.
std::optional<std::string> BytesOfHex(std::string_view hex);

}  // namespace semaphored
