#include "adapters/dynamodb/requests.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "adapters/common/random.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kKeysAtOnce = 100;  // DynamoDB's own bound.
constexpr int kRoundsMax = 50;       // Of asking for what was left out.
constexpr std::chrono::milliseconds kRoundPause{40};

void Merge(const json& more, const char* where, json* operation) {
  if (more.empty()) return;
  json& there = (*operation)[where];
  if (there.is_null()) there = json::object();
  there.update(more);
}

Refusal RefusalOf(const std::string& code) {
  if (code.empty() || code == "None") return Refusal::kNone;
  if (code == "ConditionalCheckFailed") return Refusal::kCondition;
  if (code == "TransactionConflict") return Refusal::kConflict;
  if (code == "ThrottlingError" || code == "ProvisionedThroughputExceeded" ||
      code == "RequestLimitExceeded")
    return Refusal::kBusy;
  if (code == "ItemCollectionSizeLimitExceeded") return Refusal::kTooLarge;
  return Refusal::kOther;
}

}  // namespace

// ---- conditions ----

Condition Condition::And(const char* name, uint64_t number) const {
  Condition one("");
  one.names_[name] = name;
  if (number == 0) {
    one.text_ = absl::StrCat("attribute_not_exists(#", name, ")");
  } else {
    one.text_ = absl::StrCat("#", name, " = :is_", name);
    one.values_[absl::StrCat("is_", name)] = Number(number);
  }
  return And(one);
}

Condition Condition::IsNot(const char* flag) {
  Condition one(absl::StrCat("attribute_not_exists(#", flag, ")"));
  one.names_[flag] = flag;
  return one;
}

Condition Condition::IsFlag(const char* flag) {
  Condition one(absl::StrCat("attribute_exists(#", flag, ")"));
  one.names_[flag] = flag;
  return one;
}

Condition Condition::AbsentOr(const char* flag) {
  Condition one(absl::StrCat("(attribute_not_exists(#pk) OR attribute_exists(#", flag, "))"));
  one.names_[flag] = flag;
  return one;
}

Condition Condition::IsText(const char* name, const std::string& text) {
  Condition one(absl::StrCat("#", name, " = :is_", name));
  one.names_[name] = name;
  one.values_[absl::StrCat("is_", name)] = Text(text);
  return one;
}

Condition Condition::Below(const char* name, uint64_t number) {
  Condition one(
      absl::StrCat("(attribute_not_exists(#", name, ") OR #", name, " < :below_", name, ")"));
  one.names_[name] = name;
  one.values_[absl::StrCat("below_", name)] = Number(number);
  return one;
}

Condition Condition::And(const Condition& other) const {
  Condition both = *this;
  if (!both.text_.empty() && !other.text_.empty()) both.text_ += " AND ";
  both.text_ += other.text_;
  both.names_.insert(other.names_.begin(), other.names_.end());
  both.values_.insert(other.values_.begin(), other.values_.end());
  return both;
}

void Condition::Write(json* operation) const {
  if (text_.empty()) return;
  (*operation)["ConditionExpression"] = text_;
  json names = json::object();
  if (text_.find("#pk") != std::string::npos) names["#pk"] = kPartitionKey;
  for (const auto& [placeholder, name] : names_) names[absl::StrCat("#", placeholder)] = name;
  Merge(names, "ExpressionAttributeNames", operation);
  json values = json::object();
  for (const auto& [placeholder, value] : values_) values[absl::StrCat(":", placeholder)] = value;
  Merge(values, "ExpressionAttributeValues", operation);
}

// ---- single requests ----

namespace {

void WriteChange(const Change& change, json* operation) {
  std::vector<std::string> set;
  std::vector<std::string> add;
  json names = json::object();
  json values = json::object();
  for (const auto& [name, value] : change.set) {
    set.push_back(absl::StrCat("#", name, " = :to_", name));
    names[absl::StrCat("#", name)] = name;
    values[absl::StrCat(":to_", name)] = value;
  }
  for (const auto& [name, value] : change.set_if_absent) {
    set.push_back(absl::StrCat("#", name, " = if_not_exists(#", name, ", :to_", name, ")"));
    names[absl::StrCat("#", name)] = name;
    values[absl::StrCat(":to_", name)] = value;
  }
  for (const auto& [name, number] : change.add) {
    add.push_back(absl::StrCat("#", name, " :add_", name));
    names[absl::StrCat("#", name)] = name;
    values[absl::StrCat(":add_", name)] = Number(number);
  }
  std::vector<std::string> removed;
  for (const std::string& name : change.remove) {
    removed.push_back(absl::StrCat("#", name));
    names[removed.back()] = name;
  }
  std::string text;
  const auto append = [&](const char* what, const std::vector<std::string>& parts) {
    if (parts.empty()) return;
    absl::StrAppend(&text, text.empty() ? "" : " ", what, " ", absl::StrJoin(parts, ", "));
  };
  append("SET", set);
  append("ADD", add);
  append("REMOVE", removed);
  (*operation)["UpdateExpression"] = text;
  Merge(names, "ExpressionAttributeNames", operation);
  Merge(values, "ExpressionAttributeValues", operation);
}

}  // namespace

json KeyJson(const Key& key) { return ItemWith(key); }

Request GetItem(const std::string& table, const Key& key) {
  return {"GetItem", {{"TableName", table}, {"Key", KeyJson(key)}, {"ConsistentRead", true}}};
}

Request PutItem(const std::string& table, const json& item, const Condition& condition) {
  Request request{"PutItem", {{"TableName", table}, {"Item", item}}};
  condition.Write(&request.body);
  return request;
}

Request DeleteItem(const std::string& table, const Key& key, const Condition& condition) {
  Request request{"DeleteItem", {{"TableName", table}, {"Key", KeyJson(key)}}};
  condition.Write(&request.body);
  return request;
}

Request UpdateItem(const std::string& table, const Key& key, const Change& change,
                   const Condition& condition) {
  Request request{"UpdateItem",
                  {{"TableName", table}, {"Key", KeyJson(key)}, {"ReturnValues", "ALL_NEW"}}};
  WriteChange(change, &request.body);
  condition.Write(&request.body);
  return request;
}

Request Query(const std::string& table, const Range& range) {
  std::string keys = "#pk = :pk";
  json names = {{"#pk", kPartitionKey}};
  json values = {{":pk", Text(range.partition)}};
  if (!range.from.empty()) values[":from"] = Text(range.from);
  if (!range.to.empty()) values[":to"] = Text(range.to);
  if (!range.from.empty() || !range.to.empty()) names["#sk"] = kSortKey;
  if (!range.from.empty() && !range.to.empty()) {
    keys += " AND #sk BETWEEN :from AND :to";
  } else if (!range.from.empty()) {
    keys += " AND #sk >= :from";
  } else if (!range.to.empty()) {
    keys += " AND #sk <= :to";
  }
  json body = {{"TableName", table},
               {"ConsistentRead", !range.eventually},
               {"ScanIndexForward", !range.backward},
               {"KeyConditionExpression", keys}};
  if (!range.older_than.empty()) {
    body["FilterExpression"] = "#asked < :older";
    names["#asked"] = "asked_at_s";
    values[":older"] = {{"N", range.older_than}};
  }
  body["ExpressionAttributeNames"] = std::move(names);
  body["ExpressionAttributeValues"] = std::move(values);
  if (range.rows_max != 0) body["Limit"] = range.rows_max;
  if (!range.start.is_null()) body["ExclusiveStartKey"] = range.start;
  return {"Query", std::move(body)};
}

absl::StatusOr<std::vector<std::vector<json>>> QueryAll(Client* client, const std::string& table,
                                                        std::vector<Range> ranges,
                                                        SteadyTime deadline) {
  std::vector<std::vector<json>> items(ranges.size());
  std::vector<size_t> open(ranges.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    std::vector<Request> requests;
    requests.reserve(open.size());
    for (const size_t i : open) requests.push_back(Query(table, ranges[i]));
    std::vector<Reply> replies = client->RepeatAll(requests, deadline);
    std::vector<size_t> more;
    for (size_t at = 0; at < open.size(); ++at) {
      Reply& reply = replies[at];
      if (!reply.answered()) return reply.status;
      Range& range = ranges[open[at]];
      std::vector<json>& all = items[open[at]];
      if (const auto found = reply.body.find("Items"); found != reply.body.end()) {
        for (json& item : *found) all.push_back(std::move(item));
      }
      const auto last = reply.body.find("LastEvaluatedKey");
      if (last == reply.body.end() || !last->is_object()) continue;
      if (range.rows_max != 0 && all.size() >= range.rows_max) continue;
      range.start = *last;
      more.push_back(open[at]);
    }
    open = std::move(more);
  }
  return items;
}

void RunUpkeep(Client* client, absl::Span<const Request> requests, UpkeepWork work, Upkeep* upkeep,
               SteadyTime deadline) {
  if (requests.empty()) return;
  for (const Reply& reply : client->RepeatAll(requests, deadline)) {
    if (reply.answered() || reply.error == "ConditionalCheckFailedException") continue;
    return upkeep->Failed(work, reply.status);
  }
}

absl::StatusOr<std::vector<json>> GetItems(Client* client, const std::string& table,
                                           const std::vector<Key>& keys,
                                           const std::vector<std::string>& attributes,
                                           SteadyTime deadline) {
  json left = json::array();
  for (const Key& key : keys) left.push_back(KeyJson(key));
  json how = {{"ConsistentRead", true}};
  if (!attributes.empty()) {
    json names = {{"#pk", kPartitionKey}, {"#sk", kSortKey}};
    std::string projection = "#pk, #sk";
    for (const std::string& name : attributes) {
      names[absl::StrCat("#", name)] = name;
      absl::StrAppend(&projection, ", #", name);
    }
    how["ProjectionExpression"] = projection;
    how["ExpressionAttributeNames"] = std::move(names);
  }
  std::vector<json> items;
  for (int round = 0; !left.empty(); ++round) {
    if (round > 0) std::this_thread::sleep_for(Skewed(kRoundPause));
    if (round == kRoundsMax)
      return absl::UnavailableError("dynamodb: BatchGetItem leaves out what is asked for");
    std::vector<Request> requests;
    for (size_t at = 0; at < left.size(); at += kKeysAtOnce) {
      json part = how;
      part["Keys"] = json::array();
      for (size_t i = at; i < std::min(left.size(), at + kKeysAtOnce); ++i)
        part["Keys"].push_back(left[i]);
      requests.push_back({"BatchGetItem", {{"RequestItems", {{table, std::move(part)}}}}});
    }
    left = json::array();
    for (Reply& reply : client->RepeatAll(requests, deadline)) {
      if (!reply.answered()) return reply.status;
      for (json& item : reply.body["Responses"][table]) items.push_back(std::move(item));
      const json& rest = reply.body["UnprocessedKeys"];
      if (!rest.is_object() || !rest.contains(table)) continue;
      for (const json& key : rest[table]["Keys"]) left.push_back(key);
    }
  }
  return items;
}

// ---- transactions ----

bool Cancelled::Has(Refusal refusal) const {
  return std::ranges::find(refusals, refusal) != refusals.end();
}

std::optional<Cancelled> ReadCancelled(const Reply& reply) {
  if (reply.error != "TransactionCanceledException" || !reply.body.is_object()) return std::nullopt;
  const auto reasons = reply.body.find("CancellationReasons");
  if (reasons == reply.body.end() || !reasons->is_array()) return std::nullopt;
  Cancelled cancelled;
  for (const json& reason : *reasons) {
    const auto text = [&](const char* name) {
      const auto found = reason.is_object() ? reason.find(name) : reason.end();
      return found != reason.end() && found->is_string() ? found->get<std::string>() : "";
    };
    const std::string code = text("Code");
    cancelled.refusals.push_back(RefusalOf(code));
    if (cancelled.message.empty() && cancelled.refusals.back() > Refusal::kConflict)
      cancelled.message = absl::StrCat(code, ": ", text("Message"));
  }
  return cancelled;
}

namespace {

size_t SizeOf(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace).size();
}

}  // namespace

json TransactionRequest::Start(const Condition& condition) const {
  json operation = {{"TableName", table_}};
  condition.Write(&operation);
  return operation;
}

void TransactionRequest::Add(const char* kind, json operation, size_t bytes) {
  bytes_ += bytes;
  largest_ = std::max(largest_, bytes);
  operations_.push_back({{kind, std::move(operation)}});
}

void TransactionRequest::Put(const json& item, const Condition& condition) {
  json operation = Start(condition);
  // As text it is longer than as DynamoDB counts it; bytes of no text by a third.
  size_t bytes = SizeOf(item);
  for (const json& attribute : item) {
    if (const auto binary = attribute.find("B"); binary != attribute.end())
      bytes -= binary->get_ref<const std::string&>().size() / 4;
  }
  operation["Item"] = item;
  Add("Put", std::move(operation), bytes);
}

void TransactionRequest::Delete(const Key& key, const Condition& condition) {
  json operation = Start(condition);
  operation["Key"] = KeyJson(key);
  Add("Delete", std::move(operation), 0);
}

void TransactionRequest::Check(const Key& key, const Condition& condition) {
  json operation = Start(condition);
  operation["Key"] = KeyJson(key);
  Add("ConditionCheck", std::move(operation), 0);
}

void TransactionRequest::Update(const Key& key, const Change& change, const Condition& condition) {
  json operation = Start(condition);
  operation["Key"] = KeyJson(key);
  WriteChange(change, &operation);
  size_t bytes = 0;
  for (const auto& [name, value] : change.set) bytes += name.size() + SizeOf(value);
  Add("Update", std::move(operation), bytes);
}

Request TransactionRequest::ToRequest(const std::string& token) const {
  return {"TransactWriteItems", {{"ClientRequestToken", token}, {"TransactItems", operations_}}};
}

}  // namespace semaphored::dynamodb
