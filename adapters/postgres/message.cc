#include "adapters/postgres/message.h"

#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "adapters/common/seal.h"

namespace semaphored::postgres {

using ledger::ChangeDetails;
using ledger::ChangeNotice;
using nlohmann::json;

namespace {

constexpr size_t kClaimsMax = 100;
constexpr size_t kNoticeBytesMax = 6000;

// Rows are arrays; a daemon whose own rows have another length takes no details from it.
const json& RowOf(const json& row, size_t size) {
  if (!row.is_array() || row.size() != size) throw std::invalid_argument("another row");
  return row;
}

ledger::QueuePlace PlaceIn(const json& row) {
  return {row.at(0).get<int32_t>(), row.at(1).get<uint64_t>()};
}

ChangeDetails ReadJson(const json& told, const std::vector<uint64_t>& tokens) {
  ChangeDetails details;
  told.at("next_order").get_to(details.next_order);
  for (const json& each : told.at("ended")) {
    const json& row = RowOf(each, 2);
    details.ended.push_back(
        {row.at(0).get<uint32_t>(), static_cast<EndCause>(row.at(1).get<int>())});
  }
  for (const json& each : told.at("left")) {
    const json& row = RowOf(each, 3);
    details.left.push_back({PlaceIn(row), static_cast<EndCause>(row.at(2).get<int>())});
  }
  for (const json& each : told.at("granted")) {
    const json& row = RowOf(each, 5);
    ChangeDetails::Grant grant;
    grant.place = PlaceIn(row);
    grant.slots = Slots(row.at(2).get<std::vector<uint32_t>>());
    grant.token = tokens.at(row.at(3).get<size_t>() - 1);
    grant.granted_at_unix_ms = row.at(4).get<int64_t>();
    details.granted.push_back(std::move(grant));
  }
  return details;
}

}  // namespace

std::string WriteDetails(const ledger::Transaction& transaction,
                         const ledger::SemaphoreDelta& delta,
                         const absl::flat_hash_map<Id, size_t>& grants) {
  if (grants.size() > kTokensTold) return "";
  const std::optional<ledger::DetailsAndGrants> told = DetailsOf(transaction, delta, kClaimsMax);
  if (!told) return "";
  const ChangeDetails& details = told->details;
  json text = {{"next_order", details.next_order},
               {"ended", json::array()},
               {"left", json::array()},
               {"granted", json::array()}};
  for (const ChangeDetails::End& end : details.ended)
    text["ended"].push_back({end.slot, static_cast<int>(end.cause)});
  for (const ChangeDetails::Leave& leave : details.left)
    text["left"].push_back(
        {leave.place.priority, leave.place.order, static_cast<int>(leave.cause)});
  for (size_t i = 0; i < details.granted.size(); ++i) {
    const ChangeDetails::Grant& grant = details.granted[i];
    const auto token = grants.find(told->grants[i]->id);
    if (token == grants.end()) return "";
    text["granted"].push_back({grant.place.priority, grant.place.order,
                               std::vector<uint32_t>(grant.slots.begin(), grant.slots.end()),
                               token->second, grant.granted_at_unix_ms});
  }
  std::string written = text.dump();
  return written.size() > kNoticeBytesMax ? "" : written;
}

ChangeNotice ReadMessage(const std::string& message) {
  const std::vector<std::string> parts = absl::StrSplit(message, absl::MaxSplits(' ', 2));
  ChangeNotice notice;
  notice.semaphore = parts[0];
  if (parts.size() < 2) return notice;
  const std::string& revision = parts[1];
  if (std::from_chars(revision.data(), revision.data() + revision.size(), notice.revision).ec !=
      std::errc())
    notice.revision = 0;
  if (parts.size() == 3) notice.details = parts[2];
  return notice;
}

std::optional<ChangeDetails> ReadDetails(const ChangeNotice& notice, const std::string& secret) {
  const std::vector<std::string> parts = absl::StrSplit(notice.details, absl::MaxSplits(' ', 2));
  if (parts.size() != 3 || secret.empty()) return std::nullopt;
  const std::string sealed =
      absl::StrCat(notice.semaphore, " ", notice.revision, " ", parts[1], " ", parts[2]);
  if (!IsSeal(parts[0], sealed, secret)) return std::nullopt;
  try {
    std::vector<uint64_t> tokens;
    for (const absl::string_view token : absl::StrSplit(parts[1], ',', absl::SkipEmpty()))
      tokens.push_back(std::stoull(std::string(token)));
    ChangeDetails details = ReadJson(json::parse(parts[2]), tokens);
    details.semaphore = notice.semaphore;
    details.revision = notice.revision;
    return details;
  } catch (const std::exception&) {
    // Written by a daemon of another version.
    return std::nullopt;
  }
}

}  // namespace semaphored::postgres
