#include "adapters/ledger/consul/answer_block.h"

#include <array>
#include <exception>
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
using ledger::Answer;

constexpr size_t kAnswersMax = 1000;

bool SaysCause(Answer::Kind kind) {
  return kind == Answer::Kind::kGranted || kind == Answer::Kind::kWaitEnded;
}

// The cause of an end, or what is kept of the claim.
std::string WriteAbout(const Answer& answer) {
  if (SaysCause(answer.kind)) return std::to_string(static_cast<int>(answer.cause));
  if (answer.kind != Answer::Kind::kEnqueued)
    return std::to_string(Answer::MarkOf(answer.claim).low);
  return absl::StrCat("\"", ShortText(answer.claim), "\"");
}

// [kind, about, number, semaphore, remaining, changed], without the zeros at its end.
std::string WriteAnswer(const Answer& answer, size_t name) {
  const std::array<uint64_t, 4> rest = {answer.number, name, answer.remaining,
                                        static_cast<uint64_t>(answer.changed)};
  size_t length = rest.size();
  while (length > 0 && rest[length - 1] == 0) --length;
  std::string text = absl::StrCat("[", static_cast<int>(answer.kind), ",", WriteAbout(answer));
  for (size_t i = 0; i < length; ++i) absl::StrAppend(&text, ",", rest[i]);
  return text + "]";
}

// The library throws where a thing is missing or of another kind.
Answer ReadAnswer(const Json& json, const Json& names, uint64_t sequence) {
  constexpr size_t kShortest = 2;  // Zeros behind that are left out.
  const auto rest = [&](size_t place) {
    return json.size() > kShortest + place ? json[kShortest + place].get<uint32_t>() : 0;
  };
  Answer answer;
  answer.request.sequence = sequence;
  answer.kind = static_cast<Answer::Kind>(json.at(0).get<int>());
  const Json& about = json.at(1);
  if (SaysCause(answer.kind)) {
    answer.cause = static_cast<EndCause>(about.get<int>());
  } else if (answer.kind == Answer::Kind::kEnqueued) {
    answer.claim = IdOfShortText(about.get_ref<const std::string&>()).value();
  } else {
    answer.claim = {0, about.get<uint64_t>()};
  }
  answer.number = rest(0);
  answer.semaphore = names.at(rest(1)).get<std::string>();
  answer.remaining = rest(2);
  answer.changed = rest(3) != 0;
  return answer;
}

}  // namespace

// {"first": sequence number, "answers": [one for each from there on; 0: none], "names": [of the
// semaphores]}
std::string WriteAnswers(const Answers& answers) {
  std::map<std::string, size_t> places;
  std::vector<std::string> names;
  std::string text =
      absl::StrCat("{\"first\":", answers.empty() ? 0 : answers.begin()->first, ",\"answers\":[");
  uint64_t next = answers.empty() ? 0 : answers.begin()->first;
  for (const auto& [sequence, answer] : answers) {
    for (; next < sequence; ++next) text += "0,";
    const auto [at, is_new] = places.try_emplace(answer.semaphore, names.size());
    if (is_new) names.push_back(JsonText(answer.semaphore));
    absl::StrAppend(&text, WriteAnswer(answer, at->second), ",");
    ++next;
  }
  if (text.back() == ',') text.pop_back();
  return absl::StrCat(text, "],\"names\":[", absl::StrJoin(names, ","), "]}");
}

Answers ReadAnswers(const std::string& text) {
  Answers answers;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("names") || !json.contains("answers") ||
      !json["answers"].is_array() || json["answers"].size() > kAnswersMax ||
      !json.contains("first") || !json["first"].is_number_unsigned())
    return answers;
  uint64_t sequence = json["first"].get<uint64_t>();
  for (const Json& each : json["answers"]) {
    try {
      if (each.is_array()) answers.emplace(sequence, ReadAnswer(each, json["names"], sequence));
    } catch (const std::exception&) {
      // Nothing is known of this one.
    }
    ++sequence;
  }
  return answers;
}

}  // namespace semaphored::consul
