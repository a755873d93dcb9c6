#include "adapters/dynamodb/notice_text.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {

using ledger::ChangeDetails;
using nlohmann::json;

namespace {

// With them a notice is below 1 KB, which is what a write is counted by.
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

std::string WriteDetails(const ledger::Transaction& transaction,
                         const ledger::SemaphoreDelta& delta,
                         const std::function<uint64_t(const Lease&)>& token_of, uint64_t digest,
                         uint64_t history_number) {
  const std::optional<ledger::DetailsAndGrants> told = DetailsOf(transaction, delta, kClaimsMax);
  if (!told) return "";
  json ended = json::array();
  json left = json::array();
  json granted = json::array();
  json gone = json::array();
  json let_in = json::array();
  for (const ChangeDetails::End& end : told->details.ended)
    ended.push_back({end.slot, static_cast<int>(end.cause)});
  for (const ChangeDetails::Leave& leave : told->details.left)
    left.push_back({leave.place.priority, leave.place.order, static_cast<int>(leave.cause)});
  for (size_t i = 0; i < told->details.granted.size(); ++i) {
    const ChangeDetails::Grant& grant = told->details.granted[i];
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
  const json text = {{"next_order", told->details.next_order},
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

std::optional<SentDetails> ReadDetailsText(const ledger::ChangeNotice& notice) {
  if (notice.details.empty()) return std::nullopt;
  try {
    const json text = json::parse(notice.details);
    SentDetails told;
    ChangeDetails& details = told.details;
    details.semaphore = notice.semaphore;
    details.revision = notice.revision;
    details.next_order = text.at("next_order").get<uint64_t>();
    for (const json& row : text.at("ended"))
      details.ended.push_back(
          {row.at(0).get<uint32_t>(), static_cast<EndCause>(row.at(1).get<int>())});
    for (const json& row : text.at("left"))
      details.left.push_back({PlaceIn(row), static_cast<EndCause>(row.at(2).get<int>())});
    for (const json& row : text.at("granted")) {
      ChangeDetails::Grant grant;
      grant.place = PlaceIn(row);
      grant.slots = Slots(row.at(2).get<std::vector<uint32_t>>());
      grant.token = row.at(3).get<uint64_t>();
      grant.granted_at_unix_ms = row.at(4).get<int64_t>();
      details.granted.push_back(std::move(grant));
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
