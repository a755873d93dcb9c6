#include "adapters/ledger/postgres/message.h"

#include <charconv>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"

namespace semaphored::postgres {

using ledger::Hint;
using ledger::News;
using ledger::NewsOfLease;
using ledger::NewsOfWaiter;
using nlohmann::json;

namespace {

constexpr size_t kClaimsMax = 32;
constexpr size_t kNewsBytesMax = 6000;

// Rows as arrays, in this order; who reads an array of another length than his own reads nothing.
using ClientId = std::function<const std::string&(uint32_t)>;

json Common(const Claim& claim, const ClientId& client_id) {
  return {claim.id.Hex(),
          claim.session.Hex(),
          client_id(claim.request.client),
          claim.request.sequence,
          claim.host.number,
          claim.host.incarnation,
          claim.epoch,
          claim.permits,
          claim.priority,
          claim.ttl_ms,
          claim.order,
          claim.holder};
}

class Row {
 public:
  Row(const json& row, size_t size) : row_(row) {
    if (!row.is_array() || row.size() != size) throw std::invalid_argument("another row");
  }
  template <typename T>
  void Next(T* value) {
    row_.at(at_++).get_to(*value);
  }
  void Next(Id* id) {
    const auto read = Id::FromHex(row_.at(at_++).get_ref<const std::string&>());
    if (!read) throw std::invalid_argument("no id");
    *id = *read;
  }
  template <typename T>
  T Take() {
    T value;
    Next(&value);
    return value;
  }

 private:
  const json& row_;
  size_t at_ = 0;
};

constexpr size_t kEndSize = 2;
constexpr size_t kLeaseSize = 18;
constexpr size_t kWaiterSize = 13;
constexpr size_t kSessionSize = 8;

class NewsReader {
 public:
  NewsReader(News* news, const std::function<uint32_t(const std::string&)>& client,
             std::vector<uint64_t> tokens)
      : news_(news), client_(client), tokens_(std::move(tokens)) {}

  void Read(const json& told) {
    told.at("next_order").get_to(news_->next_order);
    for (const json& each : told.at("ended")) {
      const auto [id, cause] = End(each);
      news_->leases.push_back({id, nullptr, cause});
    }
    for (const json& each : told.at("leases")) AddLease(each);
    for (const json& each : told.at("left")) {
      const auto [id, cause] = End(each);
      news_->waiters.push_back({id, nullptr, cause});
    }
    for (const json& each : told.at("waiters")) AddWaiter(each);
    for (const json& each : told.at("sessions")) AddSession(each);
  }

 private:
  static std::pair<Id, EndCause> End(const json& each) {
    Row row(each, kEndSize);
    const Id id = row.Take<Id>();
    return {id, static_cast<EndCause>(row.Take<int>())};
  }

  uint32_t Client(const std::string& client_id) {
    const uint32_t number = client_id.empty() ? 0 : client_(client_id);
    if (number != 0 && clients_.insert(number).second)
      news_->clients.push_back({number, client_id});
    return number;
  }

  void ReadCommon(Row* row, Claim* claim) {
    row->Next(&claim->id);
    row->Next(&claim->session);
    claim->request.client = Client(row->Take<std::string>());
    row->Next(&claim->request.sequence);
    row->Next(&claim->host.number);
    row->Next(&claim->host.incarnation);
    row->Next(&claim->epoch);
    row->Next(&claim->permits);
    row->Next(&claim->priority);
    row->Next(&claim->ttl_ms);
    row->Next(&claim->order);
    row->Next(&claim->holder);
  }

  void AddLease(const json& each) {
    Row row(each, kLeaseSize);
    auto lease = std::make_shared<Lease>();
    ReadCommon(&row, lease.get());
    for (const uint32_t slot : row.Take<std::vector<uint32_t>>()) lease->slots.push_back(slot);
    row.Next(&lease->token);
    // Granted by this very batch.
    if (const auto grant = row.Take<size_t>(); grant != 0) lease->token = tokens_.at(grant - 1);
    row.Next(&lease->granted_at_unix_ms);
    lease->recall.reason = static_cast<Recall::Reason>(row.Take<int>());
    row.Next(&lease->recall.grace_ms);
    news_->leases.push_back({lease->id, lease, EndCause::kNone});
  }

  void AddWaiter(const json& each) {
    Row row(each, kWaiterSize);
    auto waiter = std::make_shared<Waiter>();
    ReadCommon(&row, waiter.get());
    row.Next(&waiter->queued_at_unix_ms);
    news_->waiters.push_back({waiter->id, waiter, EndCause::kNone});
  }

  void AddSession(const json& each) {
    Row row(each, kSessionSize);
    auto session = std::make_shared<Session>();
    row.Next(&session->id);
    row.Next(&session->host.number);
    row.Next(&session->host.incarnation);
    row.Next(&session->epoch);
    row.Next(&session->ttl_ms);
    session->client = Client(row.Take<std::string>());
    row.Next(&session->release_on_disconnect);
    row.Next(&session->holder);
    news_->sessions.push_back(std::move(session));
  }

  News* news_;
  const std::function<uint32_t(const std::string&)>& client_;
  const std::vector<uint64_t> tokens_;
  absl::flat_hash_set<uint32_t> clients_;
};

}  // namespace

std::string WriteNews(const ledger::Transaction& transaction, const ledger::SemaphoreDelta& delta,
                      const absl::flat_hash_map<Id, size_t>& grants, const ClientId& client_id) {
  if (grants.size() > kTokensTold) return "";
  const std::optional<News> news = NewsOf(transaction, delta, kClaimsMax);
  if (!news) return "";
  json told = {{"next_order", news->next_order}, {"ended", json::array()},
               {"leases", json::array()},        {"left", json::array()},
               {"waiters", json::array()},       {"sessions", json::array()}};
  for (const NewsOfLease& each : news->leases) {
    if (!each.lease) {
      told["ended"].push_back({each.id.Hex(), static_cast<int>(each.cause)});
      continue;
    }
    const Lease& lease = *each.lease;
    const auto grant = grants.find(lease.id);
    json row = Common(lease, client_id);
    row.push_back(std::vector<uint32_t>(lease.slots.begin(), lease.slots.end()));
    row.push_back(lease.token);
    row.push_back(grant == grants.end() ? 0 : grant->second);
    row.push_back(lease.granted_at_unix_ms);
    row.push_back(static_cast<int>(lease.recall.reason));
    row.push_back(lease.recall.grace_ms);
    told["leases"].push_back(std::move(row));
  }
  for (const NewsOfWaiter& each : news->waiters) {
    if (!each.waiter) {
      told["left"].push_back({each.id.Hex(), static_cast<int>(each.cause)});
      continue;
    }
    json row = Common(*each.waiter, client_id);
    row.push_back(each.waiter->queued_at_unix_ms);
    told["waiters"].push_back(std::move(row));
  }
  for (const ledger::SessionPtr& session : news->sessions) {
    told["sessions"].push_back({session->id.Hex(), session->host.number, session->host.incarnation,
                                session->epoch, session->ttl_ms, client_id(session->client),
                                session->release_on_disconnect, session->holder});
  }
  // What is no UTF-8 Postgres would not take either, and its row will say so.
  std::string text = told.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > kNewsBytesMax ? "" : text;
}

Hint ReadMessage(const std::string& message) {
  const std::vector<std::string> parts = absl::StrSplit(message, absl::MaxSplits(' ', 2));
  Hint hint;
  hint.semaphore = parts[0];
  if (parts.size() < 2) return hint;
  const std::string& revision = parts[1];
  if (std::from_chars(revision.data(), revision.data() + revision.size(), hint.revision).ec !=
      std::errc())
    hint.revision = 0;
  if (parts.size() == 3) hint.details = parts[2];
  return hint;
}

std::optional<News> ReadNews(const Hint& hint,
                             const std::function<uint32_t(const std::string&)>& client) {
  const size_t space = hint.details.find(' ');
  if (space == std::string::npos) return std::nullopt;
  try {
    std::vector<uint64_t> tokens;
    for (const absl::string_view token :
         absl::StrSplit(hint.details.substr(0, space), ',', absl::SkipEmpty()))
      tokens.push_back(std::stoull(std::string(token)));
    News news;
    news.semaphore = hint.semaphore;
    news.revision = hint.revision;
    NewsReader(&news, client, std::move(tokens)).Read(json::parse(hint.details.substr(space + 1)));
    return news;
  } catch (const std::exception&) {
    // Written by a daemon of another version, or by no daemon.
    return std::nullopt;
  }
}

}  // namespace semaphored::postgres
