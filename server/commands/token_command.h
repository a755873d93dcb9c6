// `semaphored token`: makes a bearer token, and the hash of it that the access file holds.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace semaphored {

struct TokenCommand {
  std::vector<std::string> arguments;  // Those after "token".
  std::string input;                   // Of --hash: the token, as it was read from stdin.
  std::function<void(const std::string& text)> out;
  std::function<void(const std::string& text)> error;
};

// The exit code of the process: 0 done; 2 the arguments are wrong.
int RunToken(const TokenCommand& command);

// "smt_" and 43 characters of base64url, of 32 bytes from the kernel.
std::string NewToken();
// "sha256:" and 64 hexadecimal digits.
std::string HashOfToken(std::string_view token);

}  // namespace semaphored
