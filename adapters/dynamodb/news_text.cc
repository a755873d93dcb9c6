#include "adapters/dynamodb/news_text.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {

using ledger::News;
using nlohmann::json;

namespace {

// With them a word is below 1 KB, which is what a write is counted by.
constexpr size_t kClaimsMax = 8;
constexpr size_t kBytesMax = 800;

ledger::QueuePlace PlaceIn(const json& row) {
  return {row.at(0).get<int32_t>(), row.at(1).get<uint64_t>()};
}

std::vector<Id> IdsIn(const json& texts) {
  std::vector<Id> ids;
  for (const json& text : texts) ids.push_back(Id::FromHex(text.get<std::string>()).value());
  return ids;
}

}  // namespace

std::string WriteNews(const ledger::Transaction& transaction, const ledger::SemaphoreDelta& delta,
                      const std::function<uint64_t(const Lease&)>& token_of, uint64_t digest,
                      uint64_t history_number) {
  const std::optional<ledger::NewsAndGrants> told = NewsOf(transaction, delta, kClaimsMax);
  if (!told) return "";
  json ended = json::array();
  json left = json::array();
  json granted = json::array();
  json gone = json::array();
  json let_in = json::array();
  for (const News::End& end : told->news.ended)
    ended.push_back({end.slot, static_cast<int>(end.cause)});
  for (const News::Leave& leave : told->news.left)
    left.push_back({leave.place.priority, leave.place.order, static_cast<int>(leave.cause)});
  for (size_t i = 0; i < told->news.granted.size(); ++i) {
    const News::Grant& grant = told->news.granted[i];
    granted.push_back({grant.place.priority, grant.place.order,
                       std::vector<uint32_t>(grant.slots.begin(), grant.slots.end()),
                       token_of(*told->grants[i]), grant.granted_at_unix_ms});
    let_in.push_back(told->grants[i]->id.Hex());
  }
  for (const ledger::LeaseChange& change : delta.leases) {
    if (change.before) gone.push_back(change.before->id.Hex());
  }
  for (const ledger::WaiterChange& change : delta.waiters) {
    if (change.cause != EndCause::kNone) gone.push_back(change.before->id.Hex());
  }
  const json text = {{"next_order", told->news.next_order},
                     {"ended", std::move(ended)},
                     {"left", std::move(left)},
                     {"granted", std::move(granted)},
                     {"gone", std::move(gone)},
                     {"let_in", std::move(let_in)},
                     {"digest", digest},
                     {"history_number", history_number}};
  std::string written = text.dump();
  return written.size() > kBytesMax ? "" : written;
}

std::optional<ToldNews> ReadNewsText(const ledger::Hint& hint) {
  if (hint.details.empty()) return std::nullopt;
  try {
    const json text = json::parse(hint.details);
    ToldNews told;
    News& news = told.news;
    news.semaphore = hint.semaphore;
    news.revision = hint.revision;
    news.next_order = text.at("next_order").get<uint64_t>();
    for (const json& row : text.at("ended"))
      news.ended.push_back(
          {row.at(0).get<uint32_t>(), static_cast<EndCause>(row.at(1).get<int>())});
    for (const json& row : text.at("left"))
      news.left.push_back({PlaceIn(row), static_cast<EndCause>(row.at(2).get<int>())});
    for (const json& row : text.at("granted")) {
      News::Grant grant;
      grant.place = PlaceIn(row);
      grant.slots = Slots(row.at(2).get<std::vector<uint32_t>>());
      grant.token = row.at(3).get<uint64_t>();
      grant.granted_at_unix_ms = row.at(4).get<int64_t>();
      news.granted.push_back(std::move(grant));
    }
    told.gone = IdsIn(text.at("gone"));
    told.let_in = IdsIn(text.at("let_in"));
    told.digest = text.at("digest").get<uint64_t>();
    told.history_number = text.at("history_number").get<uint64_t>();
    return told;
  } catch (const std::exception&) {
    // Written by a daemon of another version.
    return std::nullopt;
  }
}

}  // namespace semaphored::dynamodb
