#include "adapters/ledger/consul/answer_block.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "adapters/ledger/consul/short_id.h"
#include "adapters/ledger/consul/transaction_request.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;
using ledger::Answer;

constexpr size_t kShortest = 3;  // Zeros behind that are left out.

std::string WriteAnswer(const Answer& answer, size_t name) {
  const uint32_t rest[] = {static_cast<uint32_t>(answer.cause), answer.number, answer.remaining,
                           static_cast<uint32_t>(answer.changed)};
  size_t length = std::size(rest);
  while (length > 0 && rest[length - 1] == 0) --length;
  std::string text = absl::StrCat("[", static_cast<int>(answer.kind), ",", name, ",\"",
                                  ShortText(answer.claim), "\"");
  for (size_t i = 0; i < length; ++i) absl::StrAppend(&text, ",", rest[i]);
  return text + "]";
}

// The library throws where a thing is missing or of another kind.
Answer ReadAnswer(const Json& json, const Json& names, uint64_t sequence) {
  const auto rest = [&](size_t place) {
    return json.size() > kShortest + place ? json.at(kShortest + place).get<uint32_t>() : 0;
  };
  Answer answer;
  answer.request.sequence = sequence;
  answer.kind = static_cast<Answer::Kind>(json.at(0).get<int>());
  answer.semaphore = names.at(json.at(1).get<size_t>()).get<std::string>();
  answer.claim = IdOfShortText(json.at(2).get<std::string>()).value();
  answer.cause = static_cast<EndCause>(rest(0));
  answer.number = rest(1);
  answer.remaining = rest(2);
  answer.changed = rest(3) != 0;
  return answer;
}

}  // namespace

std::string WriteAnswers(const Answers& answers) {
  std::map<std::string, size_t> places;
  std::vector<std::string> names;
  // Sequence numbers are counted from the first, which keeps them short.
  const uint64_t first = answers.empty() ? 0 : answers.begin()->first;
  std::string text = absl::StrCat("{\"first\":", first, ",");
  for (const auto& [sequence, answer] : answers) {
    const auto [at, is_new] = places.try_emplace(answer.semaphore, names.size());
    if (is_new) names.push_back(JsonText(answer.semaphore));
    absl::StrAppend(&text, "\"", sequence - first, "\":", WriteAnswer(answer, at->second), ",");
  }
  return absl::StrCat(text, "\"names\":[", absl::StrJoin(names, ","), "]}");
}

Answers ReadAnswers(const std::string& text) {
  Answers answers;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("names") || !json.contains("first") ||
      !json["first"].is_number_unsigned())
    return answers;
  const uint64_t first = json["first"].get<uint64_t>();
  for (const auto& [key, answer] : json.items()) {
    uint64_t from_first = 0;
    if (!absl::SimpleAtoi(key, &from_first)) continue;
    const uint64_t sequence = first + from_first;
    try {
      answers[sequence] = ReadAnswer(answer, json["names"], sequence);
    } catch (const std::exception&) {
      answers.erase(sequence);
    }
  }
  return answers;
}

}  // namespace semaphored::consul
