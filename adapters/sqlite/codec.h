// Bytes of the store's records: numbers as varints, ids as 16 bytes, texts with their length before
// them, and four check bytes at the end that also cover the record's kind and key, so that a record
// that was damaged, or that turned up under another key, is never taken for a good one. Pure
// functions over memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/types.h"

namespace semaphored::sqlite {

static_assert(std::endian::native == std::endian::little,
              "records are written as they lie in memory");

// Which table a record is of; part of its check bytes. The numbers are on disk.
enum class RecordKind : uint8_t {
  kSemaphore = 1,
  kLease = 2,
  kWaiter = 3,
  kSession = 4,
  kRequests = 5,
  kHistory = 6,
  kTicket = 7,
  kPayload = 8,
};

inline constexpr size_t kCheckBytes = 4;

// Eight bytes at a time: a hundred bytes take some 20 ns, which a byte-wise CRC would not.
inline uint32_t CheckOf(RecordKind kind, uint64_t key, std::string_view bytes) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  uint64_t hash = (static_cast<uint64_t>(kind) + 1) * kFactor ^ key;
  auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32;
  };
  mix(bytes.size());
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    mix(word);
    bytes.remove_prefix(sizeof word);
  }
  uint64_t word = 0;
  if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
  mix(word);
  // The last word has only reached the bits above its own: once more, and of that the upper half.
  return static_cast<uint32_t>((hash * kFactor) >> 32);
}

// Appends to a string that outlives it and may be used again, so that a commit allocates next to
// nothing.
class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(out) {}

  void Byte(uint8_t value) { out_->push_back(static_cast<char>(value)); }
  void Number(uint64_t value) {
    char bytes[10];
    size_t count = 0;
    while (value >= 0x80) {
      bytes[count++] = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    bytes[count++] = static_cast<char>(value);
    out_->append(bytes, count);
  }
  // Small for numbers near zero on either side.
  void Signed(int64_t value) {
    Number((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void Text(std::string_view text) {
    Number(text.size());
    out_->append(text);
  }
  void Name(const Id& id) {
    uint64_t words[2] = {id.high, id.low};
    out_->append(reinterpret_cast<const char*>(words), sizeof words);
  }
  // The last call for a record that began at `start` of the string.
  void Seal(RecordKind kind, uint64_t key, size_t start = 0) {
    uint32_t check = CheckOf(kind, key, std::string_view(*out_).substr(start));
    out_->append(reinterpret_cast<const char*>(&check), sizeof check);
  }

 private:
  std::string* out_;
};

// Reads what ByteWriter wrote. Any bytes are safe to read: once something does not fit, ok() is
// false, and stays so, and all that is read is zero or empty.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  // Takes the check bytes off the end. REQUIRES: nothing has been read yet.
  void Unseal(RecordKind kind, uint64_t key) {
    if (rest_.size() < kCheckBytes) return Fail();
    std::string_view body = rest_.substr(0, rest_.size() - kCheckBytes);
    uint32_t check;
    std::memcpy(&check, rest_.data() + body.size(), sizeof check);
    if (check != CheckOf(kind, key, body)) return Fail();
    rest_ = body;
  }
  uint8_t Byte() {
    if (rest_.empty()) {
      Fail();
      return 0;
    }
    auto value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  uint64_t Number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      uint8_t byte = Byte();
      if (!ok_ || (shift == 63 && byte > 1)) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    Fail();
    return 0;
  }
  // A number that must lie between the two.
  uint64_t Number(uint64_t least, uint64_t most) {
    uint64_t value = Number();
    if (value >= least && value <= most) return value;
    Fail();
    return 0;
  }
  uint32_t Number32() { return static_cast<uint32_t>(Number(0, UINT32_MAX)); }
  int64_t Signed() {
    uint64_t value = Number();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  // Points into the bytes that are read.
  std::string_view Text(size_t bytes_max) {
    auto size = static_cast<size_t>(Number(0, bytes_max));
    if (size > rest_.size()) Fail();
    if (!ok_) return {};
    std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  Id Name() {
    uint64_t words[2] = {0, 0};
    if (rest_.size() < sizeof words) {
      Fail();
      return {};
    }
    std::memcpy(words, rest_.data(), sizeof words);
    rest_.remove_prefix(sizeof words);
    return {words[0], words[1]};
  }
  // What has been read since there were `left_before` bytes left. REQUIRES: ok().
  std::string_view Since(const char* from) const {
    return {from, static_cast<size_t>(rest_.data() - from)};
  }
  const char* position() const { return rest_.data(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// All has been read, and nothing more was there.
inline bool Whole(const ByteReader& in) { return in.ok() && in.at_end(); }

// Of a record that cannot be read.
inline absl::Status Damaged(absl::string_view what, uint64_t key) {
  return absl::DataLossError(absl::StrCat("the record of ", what, " ", key, " is damaged"));
}

}  // namespace semaphored::sqlite
