#include "adapters/common/hex.h"

#include <absl/strings/escaping.h>

#include <string>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("hex: every byte comes back, of digits in either case") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  CHECK(BytesOfHex(absl::BytesToHexString(bytes)) == bytes);
  CHECK(BytesOfHex("fFAa09") == "\xff\xaa\x09");
  CHECK(BytesOfHex("") == "");
}

TEST_CASE("hex: what is not an even number of digits is nothing") {
  for (const char* text :
       {"0", "abc", "0g", "g0", "0x", " 0", "-1", "0/", ":0", "@0", "0`", "\xff\xff"})
    CHECK_FALSE(BytesOfHex(text));
}

}  // namespace
}  // namespace semaphored
