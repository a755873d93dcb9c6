// A request to /v1/txn: operations that are carried out together, or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace semaphored::consul {

// One key as Consul has it.
struct Entry {
  std::string key;
  std::string value;
  std::string session;  // Empty: none.
  uint64_t flags = 0;
  uint64_t create_index = 0;
  uint64_t modify_index = 0;
  friend bool operator==(const Entry&, const Entry&) = default;
};

class TransactionRequest {
 public:
  static constexpr size_t kOperationsMax = 64;  // Consul's own bound.
  // Consul takes 512 KiB by default.
  static constexpr size_t kBytesMax = 500'000;

  void Set(const std::string& key, const std::string& value);
  // Only if the key stands at this index; 0: only if it is not there.
  void Cas(const std::string& key, const std::string& value, uint64_t index, uint64_t flags = 0);
  // Takes the key for this session, which must be alive.
  void Lock(const std::string& key, const std::string& value, const std::string& session);
  void Delete(const std::string& key) { Add("delete", key); }
  // Only if the key stands at this index, or is not there.
  void DeleteCas(const std::string& key, uint64_t index);
  void DeleteTree(const std::string& key) { Add("delete-tree", key); }
  // The key must stand at this index; 0: it must not be there.
  void Check(const std::string& key, uint64_t index);
  void GetTree(const std::string& key) { Add("get-tree", key); }

  size_t size() const { return count_; }
  bool FitsConsul() const { return count_ <= kOperationsMax && text_.size() <= kBytesMax; }
  std::string Body() const { return "[" + text_ + "]"; }

 private:
  // `rest` begins with a comma, or is empty.
  void Add(const char* verb, const std::string& key, const std::string& rest = "");

  std::string text_;
  size_t count_ = 0;
};

struct TransactionAnswer {
  bool done = false;
  std::vector<Entry> entries;  // Of those operations that have something to tell, in order.
  // Not done: which operations were refused, and why.
  struct Refusal {
    size_t operation = 0;
    std::string why;
  };
  std::vector<Refusal> refusals;

  // Done: the index at which it landed. 0: it was refused, or its first operation has nothing to tell.
  uint64_t landed_at() const { return entries.empty() ? 0 : entries.front().modify_index; }

  // PERMISSION_DENIED: the token does not allow one of the operations. Such an answer looks like
  // that to a condition that did not hold, and trying again is of no use.
  absl::Status WhyForbidden() const;
};

// The body of an answer with 200 or 409. INTERNAL: it is none.
absl::StatusOr<TransactionAnswer> ReadTransactionAnswer(const std::string& body);

// The index at which a transaction landed, of the body of an answer with 200 (with 409 it did not
// land). No more is read than that, since each commit does. nullopt: it is not understood, or it
// reports no operation. REQUIRES: its first operation writes; one that only looks has
// the index at which its key stood before.
std::optional<uint64_t> ReadLandedIndex(const std::string& body);

// The body of GET /v1/kv/…; empty for 404.
absl::StatusOr<std::vector<Entry>> ReadEntries(const std::string& body);

// INTERNAL.
absl::Status NotUnderstood();

// Text as JSON writes it, with its quotes; bytes that are no UTF-8 are replaced.
std::string JsonText(const std::string& text);

}  // namespace semaphored::consul
