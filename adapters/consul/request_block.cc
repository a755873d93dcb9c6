#include "adapters/consul/request_block.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "adapters/consul/short_id.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;
using ledger::RequestRow;
using Rows = std::map<uint64_t, RequestRow>;

constexpr int kVersion = 1;
constexpr size_t kRowsMax = 1000;
constexpr size_t kFieldsMin = 3;

std::string TextOf(const Id& id) { return id.empty() ? "" : ShortText(id); }

Id IdOf(const Json& json) {
  const std::string& text = json.get_ref<const std::string&>();
  return text.empty() ? Id() : IdOfShortText(text).value();
}

// [state, fingerprint, claim, semaphore, cause, number, remaining, changed], without the zeros at its
// end.
std::string WriteRow(const RequestRow& row, size_t name) {
  const std::array<uint64_t, 5> rest = {name, static_cast<uint64_t>(row.cause), row.number,
                                        row.remaining, static_cast<uint64_t>(row.changed)};
  size_t length = rest.size();
  while (length > 0 && rest[length - 1] == 0) --length;
  std::string text = absl::StrCat("[", static_cast<int>(row.state), ",\"", TextOf(row.fingerprint),
                                  "\",\"", TextOf(row.claim), "\"");
  for (size_t i = 0; i < length; ++i) absl::StrAppend(&text, ",", rest[i]);
  return text + "]";
}

uint64_t NumberOf(const Json& json, uint64_t most) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > most)
    throw std::out_of_range("a number");
  return json.get<uint64_t>();
}

// The library throws where a thing is missing or of another kind.
RequestRow ReadRow(const Json& json, const Json& names, uint64_t sequence) {
  const auto rest = [&](size_t place, uint64_t most = std::numeric_limits<uint32_t>::max()) {
    const bool is_there = json.size() > kFieldsMin + place;
    return is_there ? static_cast<uint32_t>(NumberOf(json[kFieldsMin + place], most)) : 0;
  };
  RequestRow row;
  row.request.sequence = sequence;
  row.state = static_cast<RequestRow::State>(
      NumberOf(json.at(0), static_cast<uint64_t>(RequestRow::State::kDone)));
  if (row.state < RequestRow::State::kWaiting) throw std::out_of_range("the state");
  row.fingerprint = IdOf(json.at(1));
  row.claim = IdOf(json.at(2));
  row.semaphore = names.at(rest(0)).get<std::string>();
  row.cause = static_cast<EndCause>(rest(1, static_cast<uint64_t>(EndCause::kEngineLost)));
  row.number = rest(2);
  row.remaining = rest(3);
  row.changed = rest(4, 1) != 0;
  return row;
}

RequestBlock ReadBlock(const Json& json) {
  if (json.at("version").get<int>() != kVersion) throw std::out_of_range("the version");
  RequestBlock block;
  block.closed = json.value("closed", 0) != 0;
  const Json& names = json.at("names");
  const Json& rows = json.at("rows");
  if (!rows.is_array() || rows.size() > kRowsMax) throw std::out_of_range("the rows");
  uint64_t sequence = NumberOf(json.at("first"), std::numeric_limits<uint64_t>::max() - kRowsMax);
  for (const Json& each : rows) {
    if (each.is_array()) {
      block.rows.emplace(sequence, ReadRow(each, names, sequence));
    } else {
      (void)NumberOf(each, 0);
    }
    ++sequence;
  }
  return block;
}

}  // namespace

bool RequestBlock::pinned() const {
  return std::ranges::any_of(rows, [](const auto& each) { return each.second.pinned(); });
}

// {"version": 1, "first": sequence number, "rows": [one for each from there on; 0: none], "names": [of
// the semaphores]}, and "closed": 1 if it is.
std::string WriteRequestBlock(const RequestBlock& block) {
  const Rows& rows = block.rows;
  std::map<std::string, size_t> places;
  std::vector<std::string> names;
  uint64_t next = rows.empty() ? 0 : rows.begin()->first;
  std::string text = absl::StrCat("{\"version\":", kVersion, ",\"first\":", next, ",\"rows\":[");
  for (const auto& [sequence, row] : rows) {
    for (; next < sequence; ++next) text += "0,";
    const auto [at, is_new] = places.try_emplace(row.semaphore, names.size());
    if (is_new) names.push_back(JsonText(row.semaphore));
    absl::StrAppend(&text, WriteRow(row, at->second), ",");
    ++next;
  }
  if (text.back() == ',') text.pop_back();
  return absl::StrCat(text, "],\"names\":[", absl::StrJoin(names, ","), "]",
                      block.closed ? ",\"closed\":1}" : "}");
}

RequestBlock ReadRequestBlock(const std::string& text) {
  // The library throws where a thing is missing or of another kind.
  try {
    return ReadBlock(Json::parse(text));
  } catch (const std::exception&) {
    RequestBlock garbled;
    garbled.closed = garbled.garbled = true;
    return garbled;
  }
}

}  // namespace semaphored::consul
