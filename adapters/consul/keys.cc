#include "adapters/consul/keys.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "adapters/common/client_names.h"
#include "adapters/names.h"

namespace semaphored::consul {
namespace {

constexpr std::string_view kLock = "/.lock";
constexpr size_t kBlockDigits = 16;

// One segment of a key, with any text in it: never "." or "..", which paths take for other segments.
std::string Part(const std::string& text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string part;
  const bool dots = text == "." || text == "..";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       (c == '.' && !dots) || absl::StrContains("_-:@", c);
    if (plain) {
      part += c;
    } else {
      part += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return part;
}

// A key that another program wrote may have any text in the name's place.
std::optional<std::string> Valid(std::string_view name) {
  if (!IsSemaphoreName(name)) return std::nullopt;
  return std::string(name);
}

}  // namespace

std::string Keys::Client(const std::string& client_id) const {
  return absl::StrCat(own_, "q/", Part(client_id), "/");
}

std::string Keys::OneShots() const {
  return absl::StrCat(Requests(), Part(std::string(1, ledger::kOneShotMark)));
}

std::string Keys::RequestBlock(const std::string& client_id, uint64_t block) const {
  return absl::StrCat(Client(client_id), absl::Hex(block, absl::kZeroPad16));
}

std::string Keys::Page(const std::string& name, uint64_t number) const {
  return absl::StrCat(Pages(name), absl::Hex(number, absl::kZeroPad16));
}

std::optional<std::string> Keys::NameOfPage(std::string_view key) const {
  const std::string under = Pages();
  if (!key.starts_with(under) || key.size() < under.size() + kBlockDigits) return std::nullopt;
  return NameIn(key.substr(0, key.size() - kBlockDigits), under);
}

std::string Keys::Node(const std::string& node_id) const { return Nodes() + Part(node_id); }

std::optional<std::string> Keys::NameIn(std::string_view key, std::string_view under) {
  if (!key.starts_with(under) || !key.ends_with('!')) return std::nullopt;
  return Valid(key.substr(under.size(), key.size() - under.size() - 1));
}

std::optional<Id> Keys::IdIn(std::string_view key, std::string_view under) {
  if (!key.starts_with(under)) return std::nullopt;
  return Id::FromHex(key.substr(under.size()));
}

std::optional<uint64_t> Keys::BlockIn(std::string_view key, std::string_view under) {
  uint64_t block = 0;
  if (!key.starts_with(under) || key.size() != under.size() + kBlockDigits) return std::nullopt;
  key.remove_prefix(under.size());
  if (!absl::SimpleHexAtoi(absl::string_view(key.data(), key.size()), &block)) return std::nullopt;
  return block;
}

std::optional<std::string> Keys::NameOfLock(std::string_view key) const {
  if (!key.starts_with(prefix_) || key.starts_with(own_) || !key.ends_with(kLock) ||
      key.size() <= prefix_.size() + kLock.size())
    return std::nullopt;
  return Valid(key.substr(prefix_.size(), key.size() - prefix_.size() - kLock.size()));
}

}  // namespace semaphored::consul
