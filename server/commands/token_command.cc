#include "server/commands/token_command.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

#include "server/access/access.h"

namespace semaphored {
namespace {

constexpr size_t kSecretBytes = 32;

constexpr char kHelp[] =
    R"(Makes a bearer token for a client, and the hash of it for the access file. Neither is kept.

Usage: semaphored token [--hash]

  --hash      Read a token from the standard input, and print its hash only.
  --help, -h  Print this help and end.

Prints two lines: the token, which the client shows (and only the client keeps), and the hash, which
goes into `tokens` of an identity in the access file.

Examples:
  semaphored token
  semaphored token --hash < token
)";

}  // namespace

std::string NewToken() {
  std::string secret(kSecretBytes, '\0');
  size_t done = 0;
  while (done < secret.size()) {
    const ssize_t got = getrandom(secret.data() + done, secret.size() - done, 0);
    if (got < 0 && errno != EINTR) std::abort();  // Cannot happen on a Linux that has the call.
    if (got > 0) done += static_cast<size_t>(got);
  }
  std::string text = absl::WebSafeBase64Escape(secret);
  return "smt_" + text;
}

std::string HashOfToken(std::string_view token) {
  const AccessPolicy::Digest digest = Sha256(token);
  return "sha256:" +
         absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

int RunToken(const TokenCommand& command) {
  const std::vector<std::string>& arguments = command.arguments;
  if (arguments.empty()) {
    const std::string token = NewToken();
    command.out(token + "\n" + HashOfToken(token) + "\n");
    return 0;
  }
  if (arguments.size() == 1 && (arguments[0] == "--help" || arguments[0] == "-h")) {
    command.out(kHelp);
    return 0;
  }
  if (arguments.size() != 1 || arguments[0] != "--hash") {
    command.error("semaphored token: it takes --hash or nothing; --help says more\n");
    return 2;
  }
  std::string token = command.input;
  absl::StripAsciiWhitespace(&token);
  if (token.empty()) {
    command.error(
        "semaphored token: --hash reads a token from the standard input, which is empty\n");
    return 2;
  }
  command.out(HashOfToken(token) + "\n");
  return 0;
}

}  // namespace semaphored
