#include "adapters/common/seal.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace semaphored {
namespace {

std::string HexOfSha256(const std::string& text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace

std::string SealOf(std::string_view text, std::string_view secret) {
  const std::string key(secret);
  return HexOfSha256(key + HexOfSha256(key + std::string(text)));
}

bool IsSeal(std::string_view seal, std::string_view text, std::string_view secret) {
  const std::string right = SealOf(text, secret);
  return !secret.empty() && right.size() == seal.size() &&
         CRYPTO_memcmp(right.data(), seal.data(), right.size()) == 0;
}

}  // namespace semaphored
