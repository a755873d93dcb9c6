#include "adapters/consul/lock_record.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;

absl::Status Garbled() {
  return absl::DataLossError(
      "its record .lock in Consul is not understood, so it does not show who holds a permit: "
      "nothing is "
      "granted; 'semctl prune' writes it again once no foreign client is left");
}

}  // namespace

absl::StatusOr<LockRecord> ReadLockRecord(const std::string& value, uint64_t flags) {
  if (flags == kLockFlags) {
    return absl::FailedPreconditionError(
        "its key .lock in Consul belongs to a lock (consul lock without -n, or with -n 1), which "
        "is "
        "another primitive; use another name, or remove the lock");
  }
  const Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Garbled();
  if (!json.contains("Limit") && (json.contains("limit") || json.contains("holders"))) {
    return absl::FailedPreconditionError(
        "its record .lock in Consul was written by clients that keep {\"limit\",\"holders\"} with "
        "holders as a list: they and others do not see each other's holders, so it cannot be "
        "shared "
        "with them; stop them, then 'semctl adopt' takes their limit over, and 'semctl prune' "
        "writes or removes the record");
  }
  const auto limit = json.find("Limit");
  const auto holders = json.find("Holders");
  if (flags != kSemaphoreFlags || limit == json.end() || !limit->is_number_integer() ||
      limit->get<int64_t>() < 0 || limit->get<int64_t>() > std::numeric_limits<int32_t>::max())
    return Garbled();
  LockRecord record;
  record.limit = limit->get<uint32_t>();
  if (holders == json.end() || holders->is_null()) return record;
  if (!holders->is_object()) return Garbled();
  // What stands for a holder is the key; their clients do not look at the value.
  for (const auto& [session, ignored] : holders->items()) record.holders.insert(session);
  return record;
}

std::optional<uint32_t> ReadRecipeLimit(const std::string& value) {
  const Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.contains("Limit")) return std::nullopt;
  const auto limit = json.find("limit");
  if (limit == json.end() || !limit->is_number_integer() || limit->get<int64_t>() < 1 ||
      limit->get<int64_t>() > std::numeric_limits<int32_t>::max())
    return std::nullopt;
  return limit->get<uint32_t>();
}

std::string WriteLockRecord(const LockRecord& record) {
  std::string text = absl::StrCat("{\"Limit\":", record.limit, ",\"Holders\":{");
  bool first = true;
  for (const std::string& holder : record.holders) {
    absl::StrAppend(&text, first ? "" : ",",
                    Json(holder).dump(-1, ' ', false, Json::error_handler_t::replace), ":true");
    first = false;
  }
  return text + "}}";
}

}  // namespace semaphored::consul
