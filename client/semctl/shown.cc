#include "client/semctl/shown.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace semaphore::semctl {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no character of UTF-8 stands here.
};

// The first character of `text`, which is not empty.
Character First(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return {};
    code = code << 6 | (byte & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

bool IsActing(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void Print(const std::string& line, int descriptor, std::FILE* stream) {
  const std::string shown = (isatty(descriptor) == 1 ? Escaped(line) : line) + "\n";
  std::fwrite(shown.data(), 1, shown.size(), stream);
}

}  // namespace

std::string Escaped(std::string_view text, std::string_view keep) {
  std::string result;
  while (!text.empty()) {
    const auto [code, bytes] = First(text);
    if (bytes == 0) {
      absl::StrAppendFormat(&result, "\\x%02x", static_cast<unsigned char>(text[0]));
    } else if (!IsActing(code) || (bytes == 1 && keep.find(text[0]) != std::string_view::npos)) {
      result += text.substr(0, bytes);
    } else if (code == '\n') {
      result += "\\n";
    } else if (code == '\t') {
      result += "\\t";
    } else if (code == '\r') {
      result += "\\r";
    } else {
      absl::StrAppendFormat(&result, "\\u%04x", code);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return result;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = First(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

void PrintLine(const std::string& line) { Print(line, STDOUT_FILENO, stdout); }

void PrintErrorLine(const std::string& line) { Print(line, STDERR_FILENO, stderr); }

void PrintPayload(const std::string& payload) {
  const std::string shown = isatty(STDOUT_FILENO) == 1 ? Escaped(payload, "\n\t") : payload;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

}  // namespace semaphore::semctl
