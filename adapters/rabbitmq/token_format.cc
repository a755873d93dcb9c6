#include "adapters/rabbitmq/token_format.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

// Of more than any semaphore has: what another program has written must not ask for all memory.
constexpr uint32_t kSlotMax = 1'000'000;

// As runs of neighbours: [[first, last], …].
json RunsOf(const std::set<uint32_t>& slots) {
  json runs = json::array();
  for (auto at = slots.begin(); at != slots.end();) {
    const uint32_t first = *at;
    uint32_t last = first;
    while (++at != slots.end() && *at == last + 1) ++last;
    runs.push_back({first, last});
  }
  return runs;
}

// Throws a std::exception if they are none.
std::set<uint32_t> SlotsOf(const json& runs) {
  std::set<uint32_t> slots;
  uint32_t before = 0;
  for (const json& run : runs) {
    const auto first = run.at(0).get<uint32_t>();
    const auto last = run.at(1).get<uint32_t>();
    if (first <= before || last < first || last > kSlotMax)
      throw std::out_of_range("slots that cannot be");
    for (uint32_t slot = first; slot <= last; ++slot) slots.insert(slots.end(), slot);
    before = last;
  }
  return slots;
}

}  // namespace

json SettingsOf(const StoredSemaphore& stored) {
  const SemaphoreRow& row = stored.row;
  const Settings& settings = row.settings;
  json content{{"limit", row.limit},
               {"backfill", settings.backfill},
               {"longest_hold_ms", settings.longest_hold_ms},
               {"recall_grace_ms", settings.recall_grace_ms},
               {"waiters_max", settings.waiters_max},
               {"paused", row.paused},
               {"destroying", row.destroying},
               {"created_at_unix_ms", row.created_at_unix_ms},
               {"owner", row.owner},
               {"incarnation", stored.incarnation},
               {"act", stored.act},
               {"slots", RunsOf(stored.slots)},
               {"doubtful", RunsOf(stored.doubtful)}};
  if (stored.making) content["making"] = true;
  return content;
}

absl::StatusOr<StoredSemaphore> ReadSettings(const std::string& name, const json& content) {
  StoredSemaphore stored;
  SemaphoreRow& row = stored.row;
  row.name = name;
  try {
    content.at("version").get_to(row.revision);
    content.at("limit").get_to(row.limit);
    content.at("backfill").get_to(row.settings.backfill);
    content.at("longest_hold_ms").get_to(row.settings.longest_hold_ms);
    content.at("recall_grace_ms").get_to(row.settings.recall_grace_ms);
    content.at("waiters_max").get_to(row.settings.waiters_max);
    content.at("paused").get_to(row.paused);
    content.at("destroying").get_to(row.destroying);
    content.at("created_at_unix_ms").get_to(row.created_at_unix_ms);
    content.at("owner").get_to(row.owner);
    content.at("incarnation").get_to(stored.incarnation);
    content.at("act").get_to(stored.act);
    stored.slots = SlotsOf(content.at("slots"));
    stored.doubtful = SlotsOf(content.at("doubtful"));
    stored.making = content.value("making", false);
    // It would be written into the registry, which other semaphores share.
    if (stored.incarnation > kGenerationMax)
      throw std::out_of_range("an incarnation that cannot be");
    if (row.limit > kSlotMax) throw std::out_of_range("a limit that cannot be");
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat("rabbitmq: the settings of ", name,
                                            " are not those of a semaphore: ", error.what()));
  }
  return stored;
}

json MergeSettings(const json& a, const json& b) {
  json merged = a.dump() < b.dump() ? a : b;
  try {
    std::set<uint32_t> slots = SlotsOf(a.at("slots"));
    const std::set<uint32_t> others = SlotsOf(b.at("slots"));
    std::set<uint32_t> doubtful = SlotsOf(a.at("doubtful"));
    doubtful.merge(SlotsOf(b.at("doubtful")));
    std::ranges::set_symmetric_difference(slots, others, std::inserter(doubtful, doubtful.end()));
    slots.insert(others.begin(), others.end());
    merged["slots"] = RunsOf(slots);
    merged["doubtful"] = RunsOf(doubtful);
  } catch (const std::exception&) {
    return merged;  // Its reader will say what is wrong with it.
  }
  return merged;
}

std::string TokenText(const Token& token) {
  return json{{"slot", token.slot}, {"base", token.base}}.dump();
}

std::optional<Token> ReadToken(const std::string& text) {
  const json read = json::parse(text, nullptr, /*allow_exceptions=*/false);
  Token token;
  try {
    read.at("slot").get_to(token.slot);
    read.at("base").get_to(token.base);
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (token.slot == 0 || token.slot > kSlotMax) return std::nullopt;
  return token;
}

bool IsVoid(const Token& token, const StoredSemaphore& stored) {
  return token.base >> kCountBits <= stored.incarnation;
}

}  // namespace semaphored::rabbitmq
