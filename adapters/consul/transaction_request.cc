#include "adapters/consul/transaction_request.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/consul/lock_record.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;

uint64_t Number(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number() ? found->get<uint64_t>() : 0;
}

std::string Text(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool ReadEntry(const Json& json, Entry* entry) {
  if (!json.is_object()) return false;
  entry->key = Text(json, "Key");
  entry->session = Text(json, "Session");
  entry->flags = Number(json, "Flags");
  entry->create_index = Number(json, "CreateIndex");
  entry->modify_index = Number(json, "ModifyIndex");
  return absl::Base64Unescape(Text(json, "Value"), &entry->value);
}

}  // namespace

std::string JsonText(const std::string& text) {
  // Most of what is written stands for itself, and each commit writes many.
  const bool plain = std::ranges::all_of(
      text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (plain) return absl::StrCat("\"", text, "\"");
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void TransactionRequest::Add(const char* verb, const std::string& key, const std::string& rest) {
  absl::StrAppend(&text_, count_ == 0 ? "" : ",", "{\"KV\":{\"Verb\":\"", verb,
                  "\",\"Key\":", JsonText(key), rest, "}}");
  ++count_;
}

void TransactionRequest::Set(const std::string& key, const std::string& value) {
  Add("set", key, absl::StrCat(",\"Value\":\"", absl::Base64Escape(value), "\""));
}

void TransactionRequest::Cas(const std::string& key, const std::string& value, uint64_t index,
                             uint64_t flags) {
  Add("cas", key,
      absl::StrCat(",\"Value\":\"", absl::Base64Escape(value), "\",\"Index\":", index,
                   ",\"Flags\":", flags));
}

void TransactionRequest::Lock(const std::string& key, const std::string& value,
                              const std::string& session) {
  Add("lock", key,
      absl::StrCat(",\"Value\":\"", absl::Base64Escape(value), "\",\"Session\":", JsonText(session),
                   ",\"Flags\":", kSemaphoreFlags));
}

void TransactionRequest::DeleteCas(const std::string& key, uint64_t index) {
  Add("delete-cas", key, absl::StrCat(",\"Index\":", index));
}

void TransactionRequest::Check(const std::string& key, uint64_t index) {
  if (index == 0) {
    Add("check-not-exists", key);
  } else {
    Add("check-index", key, absl::StrCat(",\"Index\":", index));
  }
}

absl::Status TransactionAnswer::WhyForbidden() const {
  for (const Refusal& refusal : refusals) {
    if (absl::StrContains(refusal.why, "ermission denied"))
      return absl::PermissionDeniedError(
          absl::StrCat("consul: the token does not allow it: ", refusal.why));
  }
  return absl::OkStatus();
}

absl::Status NotUnderstood() {
  return absl::InternalError("consul: an answer of the agent is not understood");
}

absl::StatusOr<TransactionAnswer> ReadTransactionAnswer(const std::string& body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return NotUnderstood();
  TransactionAnswer answer;
  const auto errors = json.find("Errors");
  if (errors != json.end() && errors->is_array() && !errors->empty()) {
    for (const Json& error : *errors) {
      if (!error.is_object()) return NotUnderstood();
      answer.refusals.push_back({Number(error, "OpIndex"), Text(error, "What")});
    }
    return answer;
  }
  answer.done = true;
  const auto results = json.find("Results");
  if (results == json.end() || results->is_null()) return answer;
  if (!results->is_array()) return NotUnderstood();
  for (const Json& result : *results) {
    const auto entry = result.find("KV");
    if (entry == result.end() || !ReadEntry(*entry, &answer.entries.emplace_back()))
      return NotUnderstood();
  }
  return answer;
}

std::optional<uint64_t> ReadLandedIndex(const std::string& body) {
  // Within a text its quotes would be escaped.
  static constexpr std::string_view kName = "\"ModifyIndex\":";
  const size_t at = body.find(kName);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + kName.size();
  const size_t end = body.find_first_of(",}", begin);
  uint64_t index = 0;
  if (!absl::SimpleAtoi(body.substr(begin, end - begin), &index)) return std::nullopt;
  return index;
}

absl::StatusOr<std::vector<Entry>> ReadEntries(const std::string& body) {
  std::vector<Entry> entries;
  if (body.empty()) return entries;
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return NotUnderstood();
  for (const Json& each : json) {
    if (!ReadEntry(each, &entries.emplace_back())) return NotUnderstood();
  }
  return entries;
}

}  // namespace semaphored::consul
