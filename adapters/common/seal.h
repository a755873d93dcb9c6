// Seals on what daemons send each other through an engine to which other programs may send, too: only a program
// that has the secret makes one. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace semaphored {

// sha256(secret sha256(secret text)), as hexadecimal text.
std::string SealOf(std::string_view text, std::string_view secret);

// Takes as long wherever the two differ.
bool IsSeal(std::string_view seal, std::string_view text, std::string_view secret);

}  // namespace semaphored
