// Requests for items of one table, and transactions of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/client.h"
#include "adapters/dynamodb/items.h"

namespace semaphored::dynamodb {

// What must hold of an item. All of it; nothing: no condition.
class Condition {
 public:
  static Condition Absent() { return Condition("attribute_not_exists(#pk)"); }
  // There is no item, or one with this flag.
  static Condition AbsentOr(const char* flag);
  static Condition Present() { return Condition("attribute_exists(#pk)"); }
  static Condition None() { return Condition(""); }
  // The attribute is this number; 0: or it is not there.
  static Condition Is(const char* name, uint64_t number) { return None().And(name, number); }
  static Condition IsNot(const char* flag);
  static Condition IsFlag(const char* flag);
  static Condition IsText(const char* name, const std::string& text);
  // The attribute is not there, or is a lower number.
  static Condition Below(const char* name, uint64_t number);

  Condition And(const char* name, uint64_t number) const;
  Condition And(const Condition& other) const;

  bool empty() const { return text_.empty(); }
  // Puts it where a request keeps it.
  void Write(json* operation) const;

 private:
  explicit Condition(std::string text) : text_(std::move(text)) {}
  std::string text_;
  std::map<std::string, std::string> names_;  // By placeholder, without '#'.
  std::map<std::string, json> values_;        // By placeholder, without ':'.
};

// Changes of an item that is there, or is made.
struct Change {
  std::vector<std::pair<std::string, json>> set;
  std::vector<std::pair<std::string, json>> set_if_absent;  // Attributes that stay as they are.
  std::vector<std::pair<std::string, uint64_t>> add;
  std::vector<std::string> remove;
};

json KeyJson(const Key& key);
Request GetItem(const std::string& table, const Key& key);
Request PutItem(const std::string& table, const json& item, const Condition& condition);
Request DeleteItem(const std::string& table, const Key& key, const Condition& condition);
// Answers with the whole item as it then is.
Request UpdateItem(const std::string& table, const Key& key, const Change& change,
                   const Condition& condition);

// Of a partition, strongly consistent, by sort key.
struct Range {
  std::string partition;
  std::string from;  // Included; empty: from the first.
  std::string to;    // Included; empty: to the last.
  bool backward = false;
  uint32_t rows_max = 0;    // 0: all.
  bool eventually = false;  // It may be a little old, and costs half.
  json start;               // LastEvaluatedKey of the page before; null: none.
  std::string older_than;   // Only items whose `asked_at_s` is less than this; empty: all.
};
Request Query(const std::string& table, const Range& range);

// Every item of each range, page by page, the ranges side by side; fewer if rows_max says so.
absl::StatusOr<std::vector<std::vector<json>>> QueryAll(Client* client, const std::string& table,
                                                        std::vector<Range> ranges,
                                                        SteadyTime deadline);

// Carries out requests that may be repeated and whose errors no caller receives: one of them is reported. A
// condition that did not hold is no error.
void RunUpkeep(Client* client, absl::Span<const Request> requests, UpkeepWork work, Upkeep* upkeep,
               SteadyTime deadline);

// Those of them that are there, in any order, strongly consistent. `attributes`: empty, or only
// these and the key.
absl::StatusOr<std::vector<json>> GetItems(Client* client, const std::string& table,
                                           const std::vector<Key>& keys,
                                           const std::vector<std::string>& attributes,
                                           SteadyTime deadline);

// Why one operation of a transaction was refused, or that it was not.
enum class Refusal : uint8_t { kNone, kCondition, kConflict, kBusy, kTooLarge, kOther };
struct Cancelled {
  std::vector<Refusal> refusals;  // In the order of the operations.
  std::string message;            // Of the first that is not one of the first four.
  bool Has(Refusal refusal) const;
};
// What a TransactionCanceledException says. nullopt: it is another error.
std::optional<Cancelled> ReadCancelled(const Reply& reply);

// Operations that are carried out together, or not at all.
class TransactionRequest {
 public:
  static constexpr size_t kItemsMax = 100;        // DynamoDB's own bounds,
  static constexpr size_t kBytesMax = 3'900'000;  // … with some room for what is not text.
  static constexpr size_t kItemBytesMax = 390'000;

  explicit TransactionRequest(const std::string& table) : table_(table) {}

  void Put(const json& item, const Condition& condition = Condition::None());
  void Delete(const Key& key, const Condition& condition = Condition::None());
  void Check(const Key& key, const Condition& condition);
  void Update(const Key& key, const Change& change, const Condition& condition);
  // An item that is deleted is large: it counts among the 4 MB as one that is written.
  void Weigh(size_t bytes) { bytes_ += bytes; }

  size_t size() const { return operations_.size(); }
  bool FitsDynamo() const {
    return size() <= kItemsMax && bytes_ <= kBytesMax && largest_ <= kItemBytesMax;
  }
  // `token`: repeated with the same one it is carried out once, for some minutes.
  Request ToRequest(const std::string& token) const;

 private:
  json Start(const Condition& condition) const;
  void Add(const char* kind, json operation, size_t bytes);

  const std::string table_;
  json operations_ = json::array();
  size_t bytes_ = 0;
  size_t largest_ = 0;
};

}  // namespace semaphored::dynamodb
