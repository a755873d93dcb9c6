#include "adapters/consul/document.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "adapters/common/client_names.h"
#include "adapters/consul/short_id.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {
namespace {

using Json = nlohmann::json;
using ClientName = std::function<const std::string&(uint32_t)>;
using ClientNumber = std::function<uint32_t(const std::string&)>;

constexpr int kVersion = 1;
constexpr size_t kOwnerFields = 10;
constexpr size_t kClaimFields = 5;
constexpr size_t kLeaseFields = kClaimFields + 4;
// With what most leases do not have: a recall, a session from which they were moved, a ticket.
constexpr size_t kLongLeaseFields = kLeaseFields + 5;
constexpr size_t kWaiterFields = kClaimFields + 1;
constexpr size_t kOfferFields = kWaiterFields + 1;
constexpr size_t kSettingFields = 5;

// What many claims have in common is written once, and spoken of by its place: the whole is written
// with each commit.
class Table {
 public:
  size_t PlaceOfJson(const std::string& json) {
    const auto [at, is_new] = places_.try_emplace(json, rows_.size());
    if (is_new) rows_.push_back(json);
    return at->second;
  }
  size_t PlaceOfText(const std::string& text) {
    const auto [at, is_new] = places_.try_emplace(text, rows_.size());
    if (is_new) rows_.push_back(JsonText(text));
    return at->second;
  }
  std::string Json() const { return absl::StrCat("[", absl::StrJoin(rows_, ","), "]"); }

 private:
  absl::flat_hash_map<std::string, size_t> places_;
  std::vector<std::string> rows_;
};

struct Tables {
  Table texts;   // Sessions, clients, holders.
  Table owners;  // Who asks, for how much, and where that is kept alive.
  // The claim that was written last, and the place of its owner: neighbours often have the same.
  const Claim* last = nullptr;
  size_t last_owner = 0;
};

// What numbers are counted from, which keeps them short: the least of each.
struct Firsts {
  uint64_t sequence = 0;
  uint64_t order = 0;
  int64_t queued_at_unix_ms = 0;
};

class FirstsFinder {
 public:
  void Count(const Claim& claim) {
    any_ = true;
    firsts_.sequence = std::min(firsts_.sequence, claim.request.sequence);
    firsts_.order = std::min(firsts_.order, claim.order);
  }
  void Count(const Waiter& waiter) {
    Count(static_cast<const Claim&>(waiter));
    any_waits_ = true;
    firsts_.queued_at_unix_ms = std::min(firsts_.queued_at_unix_ms, waiter.queued_at_unix_ms);
  }
  Firsts Found() const {
    Firsts found = any_ ? firsts_ : Firsts();
    if (!any_waits_) found.queued_at_unix_ms = 0;
    return found;
  }

 private:
  bool any_ = false;
  bool any_waits_ = false;
  Firsts firsts_{std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max(),
                 std::numeric_limits<int64_t>::max()};
};

Firsts FirstsOf(const Document& document) {
  FirstsFinder finder;
  for (const auto& [id, lease] : document.leases) finder.Count(static_cast<const Claim&>(*lease));
  for (const auto& [id, waiter] : document.waiters) finder.Count(*waiter);
  return finder.Found();
}

// A member of the object, with the comma before it.
std::string WriteFirsts(const Firsts& firsts) {
  return absl::StrCat(",\"firsts\":[", firsts.sequence, ",", firsts.order, ",",
                      firsts.queued_at_unix_ms, "]");
}

Firsts ReadFirsts(const Json& json) {
  const Json& firsts = json.at("firsts");
  return {firsts.at(0).get<uint64_t>(), firsts.at(1).get<uint64_t>(), firsts.at(2).get<int64_t>()};
}

std::string WriteOwner(const Claim& claim, const ClientName& client_id, Table* texts) {
  const auto place = [&](const std::string& text) { return texts->PlaceOfText(text); };
  return absl::StrCat("[", place(claim.detached() ? "" : claim.session.Hex()), ",",
                      place(ledger::WrittenClient(claim.request, client_id)), ",",
                      place(claim.holder), ",", claim.host.number, ",", claim.host.incarnation, ",",
                      claim.epoch, ",", claim.permits, ",", claim.priority, ",", claim.ttl_ms, ",",
                      place(claim.owner), "]");
}

bool HaveSameOwner(const Claim& a, const Claim& b) {
  const auto owner = [](const Claim& claim) {
    return std::tie(claim.session, claim.request.client, claim.request.one_shot, claim.holder,
                    claim.host, claim.epoch, claim.permits, claim.priority, claim.ttl_ms,
                    claim.owner);
  };
  return !a.detached() && !b.detached() && owner(a) == owner(b);
}

size_t PlaceOfOwner(const Claim& claim, const ClientName& client_id, Tables* tables) {
  if (tables->last == nullptr || !HaveSameOwner(*tables->last, claim)) {
    tables->last_owner = tables->owners.PlaceOfJson(WriteOwner(claim, client_id, &tables->texts));
    tables->last = &claim;
  }
  return tables->last_owner;
}

// Without the brackets.
std::string WriteClaim(const Claim& claim, const ClientName& client_id, const Firsts& firsts,
                       Tables* tables) {
  const size_t owner = PlaceOfOwner(claim, client_id, tables);
  return absl::StrCat("\"", ShortText(claim.id), "\",", owner, ",",
                      claim.request.sequence - firsts.sequence, ",", claim.order - firsts.order,
                      ",\"", claim.fingerprint.empty() ? "" : ShortText(claim.fingerprint), "\"");
}

std::string WriteLease(const Lease& lease, const ClientName& client_id,
                       const absl::flat_hash_map<Id, uint64_t>& ordinals, const Firsts& firsts,
                       Tables* tables) {
  const auto granted = ordinals.find(lease.id);
  const uint64_t ordinal = granted == ordinals.end() ? 0 : granted->second;
  std::string text = absl::StrCat(
      "[", WriteClaim(lease, client_id, firsts, tables), ",[", absl::StrJoin(lease.slots, ","),
      "],", ordinal == 0 ? lease.token : 0, ",", ordinal, ",", lease.granted_at_unix_ms);
  if (lease.recall.pending() || lease.moved_from != 0 || !lease.ticket.empty())
    absl::StrAppend(&text, ",", static_cast<int>(lease.recall.reason), ",", lease.recall.grace_ms,
                    ",", lease.moved_from, ",\"", lease.ticket.empty() ? "" : lease.ticket.Hex(),
                    "\",", lease.attempt);
  return text + "]";
}

std::string WriteNode(const NodeRef& node) {
  return absl::StrCat("[", node.number, ",", node.incarnation, "]");
}

// The tables, as they are read.
struct Common {
  const Json& texts;
  const Json& owners;
  const ClientNumber& client_number;
  Firsts firsts;
};

// Numbers that are none, or too large for what they are, are found by ReadDocument's caller: a
// type_error is caught there.
void ReadClaim(const Json& json, const Common& common, Claim* claim) {
  const Json& owner = common.owners.at(json.at(1).get<size_t>());
  const auto text = [&](size_t field) -> const std::string& {
    return common.texts.at(owner.at(field).get<size_t>()).get_ref<const std::string&>();
  };
  claim->id = IdOfShortText(json.at(0).get_ref<const std::string&>()).value();
  const std::string& session = text(0);
  claim->session = session.empty() ? claim->id : Id::FromHex(session).value();
  claim->request = ledger::WrittenRequest(
      text(1), common.firsts.sequence + json.at(2).get<uint64_t>(), common.client_number);
  claim->order = common.firsts.order + json.at(3).get<uint64_t>();
  const std::string& fingerprint = json.at(kClaimFields - 1).get_ref<const std::string&>();
  if (!fingerprint.empty()) claim->fingerprint = IdOfShortText(fingerprint).value();
  claim->holder = text(2);
  claim->host = {owner.at(3).get<uint32_t>(), owner.at(4).get<uint32_t>()};
  claim->epoch = owner.at(5).get<uint32_t>();
  claim->permits = owner.at(6).get<uint32_t>();
  claim->priority = owner.at(7).get<int32_t>();
  claim->ttl_ms = owner.at(8).get<int64_t>();
  claim->owner = text(kOwnerFields - 1);
}

void CheckOwners(const Common& common) {
  for (const Json& each : common.owners) {
    if (each.size() != kOwnerFields) throw std::invalid_argument("an owner");
  }
}

LeasePtr ReadLease(const Json& json, const Common& common, uint64_t modify_index) {
  auto lease = std::make_shared<Lease>();
  ReadClaim(json, common, lease.get());
  lease->slots = Slots(json.at(kClaimFields).get<std::vector<uint32_t>>());
  lease->token = json.at(kClaimFields + 1).get<uint64_t>();
  const uint64_t ordinal = json.at(kClaimFields + 2).get<uint64_t>();
  if (ordinal != 0) lease->token = TokenOf(modify_index, ordinal);
  lease->granted_at_unix_ms = json.at(kClaimFields + 3).get<int64_t>();
  if (json.size() == kLeaseFields) return lease;
  lease->recall.reason = static_cast<Recall::Reason>(json.at(kLeaseFields).get<int>());
  lease->recall.grace_ms = json.at(kLeaseFields + 1).get<int64_t>();
  lease->moved_from = json.at(kLeaseFields + 2).get<uint32_t>();
  const std::string& ticket = json.at(kLeaseFields + 3).get_ref<const std::string&>();
  if (!ticket.empty()) lease->ticket = Id::FromHex(ticket).value();
  lease->attempt = json.at(kLongLeaseFields - 1).get<uint32_t>();
  return lease;
}

std::string WriteWaiter(const Waiter& waiter, const ClientName& client_id, const Firsts& firsts,
                        Tables* tables) {
  return absl::StrCat("[", WriteClaim(waiter, client_id, firsts, tables), ",",
                      waiter.queued_at_unix_ms - firsts.queued_at_unix_ms,
                      waiter.works ? ",1]" : "]");
}

WaiterPtr ReadWaiter(const Json& json, const Common& common) {
  if (json.size() != kWaiterFields && json.size() != kOfferFields)
    throw std::invalid_argument("a waiter");
  auto waiter = std::make_shared<Waiter>();
  ReadClaim(json, common, waiter.get());
  waiter->queued_at_unix_ms =
      common.firsts.queued_at_unix_ms + json.at(kClaimFields).get<int64_t>();
  waiter->works = json.size() == kOfferFields && json.at(kWaiterFields).get<int>() != 0;
  return waiter;
}

// Without the brackets.
std::string WriteBoundPlaces(const BoundPlaces& places) {
  std::string text = absl::StrCat(places.host.number, ",", places.host.incarnation);
  for (const std::string& session : places.sessions) absl::StrAppend(&text, ",", JsonText(session));
  return text;
}

BoundPlaces ReadBoundPlaces(const Json& json) {
  BoundPlaces places;
  places.host = {json.at(0).get<uint32_t>(), json.at(1).get<uint32_t>()};
  for (size_t i = 2; i < json.size(); ++i) places.sessions.push_back(json.at(i).get<std::string>());
  return places;
}

// Members of the object, with the comma before each.
std::string WriteBound(const Document& document) {
  if (document.bound.empty() && document.spares.empty()) return "";
  std::string text = ",\"bound\":{";
  for (const auto& [id, places] : document.bound)
    absl::StrAppend(&text, text.back() == '{' ? "" : ",", "\"", id.Hex(), "\":[",
                    WriteBoundPlaces(places), "]");
  text += "},\"spares\":[";
  for (const BoundPlaces& places : document.spares)
    absl::StrAppend(&text, text.back() == '[' ? "[" : ",[", WriteBoundPlaces(places), "]");
  return text + "]";
}

// The row, but for what it has in common with most.
std::string WriteRow(const SemaphoreRow& row) {
  const Settings& settings = row.settings;
  std::string text = absl::StrCat("\"limit\":", row.limit, ",\"next_order\":", row.next_order,
                                  ",\"created\":", row.created_at_unix_ms);
  if (settings != Settings())
    absl::StrAppend(&text, ",\"settings\":[", static_cast<int>(settings.backfill), ",",
                    settings.longest_hold_ms, ",", settings.recall_grace_ms, ",",
                    settings.permits_per_holder, ",", settings.waiters_max, "]");
  if (row.paused) text += ",\"paused\":1";
  if (row.destroying) text += ",\"destroying\":1";
  if (row.made_on_use) text += ",\"made_on_use\":1";
  if (!row.intentions.empty()) absl::StrAppend(&text, ",\"intentions\":", JsonText(row.intentions));
  if (!row.owner.empty()) absl::StrAppend(&text, ",\"owner\":", JsonText(row.owner));
  return text;
}

void ReadRow(const Json& json, SemaphoreRow* row) {
  row->limit = json.at("limit").get<uint32_t>();
  if (json.contains("settings")) {
    const Json& settings = json.at("settings");
    row->settings.backfill = settings.at(0).get<int>() != 0;
    row->settings.longest_hold_ms = settings.at(1).get<int64_t>();
    row->settings.recall_grace_ms = settings.at(2).get<int64_t>();
    row->settings.permits_per_holder = settings.at(3).get<uint32_t>();
    row->settings.waiters_max = settings.at(kSettingFields - 1).get<uint32_t>();
  }
  row->paused = json.value("paused", 0) != 0;
  row->destroying = json.value("destroying", 0) != 0;
  row->made_on_use = json.value("made_on_use", 0) != 0;
  row->intentions = json.value("intentions", "");
  row->owner = json.value("owner", "");
  row->next_order = json.at("next_order").get<uint64_t>();
  row->created_at_unix_ms = json.at("created").get<int64_t>();
}

}  // namespace

uint32_t Document::Held() const {
  uint32_t held = 0;
  for (const auto& [id, lease] : leases) held += lease->permits;
  return held;
}

void Document::ListBoundPlaces() {
  places.clear();
  for (const auto& [id, each] : bound)
    places.insert(places.end(), each.sessions.begin(), each.sessions.end());
  for (const BoundPlaces& each : spares)
    places.insert(places.end(), each.sessions.begin(), each.sessions.end());
}

void Document::RemoveWaiter(const Id& id) {
  if (waiters.erase(id) != 0) return;
  for (auto& [number, page] : pages) {
    for (size_t i = 0; i < page.waiters.size(); ++i) {
      if (page.waiters[i]->id == id) page.left &= ~(uint32_t{1} << i);
    }
  }
}

std::string WritePage(absl::Span<const WaiterPtr> waiters, const ClientName& client_id) {
  Tables tables;
  FirstsFinder finder;
  for (const WaiterPtr& waiter : waiters) finder.Count(*waiter);
  const Firsts firsts = finder.Found();
  std::string text = absl::StrCat("{\"version\":", kVersion, ",\"waiters\":[");
  for (const WaiterPtr& waiter : waiters)
    absl::StrAppend(&text, text.back() == '[' ? "" : ",",
                    WriteWaiter(*waiter, client_id, firsts, &tables));
  return absl::StrCat(text, "]", WriteFirsts(firsts), ",\"owners\":", tables.owners.Json(),
                      ",\"texts\":", tables.texts.Json(), "}");
}

absl::StatusOr<std::vector<WaiterPtr>> ReadPage(const std::string& name, const std::string& value,
                                                const ClientNumber& client_number) {
  try {
    const Json json = Json::parse(value);
    if (json.at("version").get<int>() != kVersion)
      throw std::invalid_argument("another version wrote it");
    const Common common{json.at("texts"), json.at("owners"), client_number, ReadFirsts(json)};
    CheckOwners(common);
    std::vector<WaiterPtr> waiters;
    for (const Json& each : json.at("waiters")) waiters.push_back(ReadWaiter(each, common));
    if (waiters.empty() || waiters.size() > Page::kWaiters)
      throw std::invalid_argument("the number of its waiters");
    return waiters;
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat("consul: a page of the waiters of ", name,
                                            " is not understood: ", error.what()));
  }
}

std::string WriteDocument(const Document& document, const ClientName& client_id,
                          const absl::flat_hash_map<Id, uint64_t>& ordinals) {
  Tables tables;
  std::string text = absl::StrCat("{\"version\":", kVersion, ",", WriteRow(document.row),
                                  ",\"changes\":", document.changes, ",\"places\":[");
  for (const std::string& place : document.places)
    absl::StrAppend(&text, text.back() == '[' ? "" : ",", JsonText(place));
  text += "]";
  text += WriteBound(document);
  const Firsts firsts = FirstsOf(document);
  absl::StrAppend(&text, WriteFirsts(firsts), ",\"leases\":[");
  for (const auto& [id, lease] : document.leases)
    absl::StrAppend(&text, text.back() == '[' ? "" : ",",
                    WriteLease(*lease, client_id, ordinals, firsts, &tables));
  text += "],\"waiters\":[";
  for (const auto& [id, waiter] : document.waiters)
    absl::StrAppend(&text, text.back() == '[' ? "" : ",",
                    WriteWaiter(*waiter, client_id, firsts, &tables));
  if (!document.pages.empty()) text += "],\"pages\":[";
  for (const auto& [number, page] : document.pages)
    absl::StrAppend(&text, text.back() == '[' ? "" : ",", "[", number, ",", page.left, "]");
  if (document.ticket_count != 0) {
    absl::StrAppend(&text, "],\"tickets\":", document.ticket_count, ",\"delays\":[");
    for (const NodeRef& node : document.delays)
      absl::StrAppend(&text, text.back() == '[' ? "" : ",", WriteNode(node));
  }
  return absl::StrCat(text, "],\"owners\":", tables.owners.Json(),
                      ",\"texts\":", tables.texts.Json(), "}");
}

absl::StatusOr<Document> ReadDocument(const std::string& name, const std::string& value,
                                      uint64_t create_index, uint64_t modify_index,
                                      const ClientNumber& client_number) {
  const auto damaged = [&](const char* why) {
    return absl::DataLossError(
        absl::StrCat("consul: what is kept of the semaphore ", name, " is not understood: ", why));
  };
  const Json json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return damaged("it is no JSON");
  // The library throws where a thing is missing or of another kind.
  try {
    if (json.at("version").get<int>() != kVersion) return damaged("another version wrote it");
    Document document;
    ReadRow(json, &document.row);
    document.row.name = name;
    document.changes = json.at("changes").get<uint64_t>();
    document.row.revision = create_index + document.changes;
    for (const Json& place : json.at("places")) document.places.push_back(place.get<std::string>());
    const Json all_bound = json.value("bound", Json::object());
    for (const auto& [lease, places] : all_bound.items())
      document.bound.emplace(Id::FromHex(lease).value(), ReadBoundPlaces(places));
    for (const Json& places : json.value("spares", Json::array()))
      document.spares.push_back(ReadBoundPlaces(places));
    const Common common{json.at("texts"), json.at("owners"), client_number, ReadFirsts(json)};
    CheckOwners(common);
    for (const Json& each : json.at("leases")) {
      if (each.size() != kLeaseFields && each.size() != kLongLeaseFields) return damaged("a lease");
      LeasePtr lease = ReadLease(each, common, modify_index);
      if (lease->slots.size() != lease->permits) return damaged("the slots of a lease");
      lease->longest_hold_ms = document.row.settings.longest_hold_ms;
      document.leases.emplace(lease->id, std::move(lease));
    }
    for (const Json& each : json.at("waiters")) {
      WaiterPtr waiter = ReadWaiter(each, common);
      document.waiters.emplace(waiter->id, std::move(waiter));
    }
    for (const Json& each : json.value("pages", Json::array()))
      document.pages[each.at(0).get<uint64_t>()].left = each.at(1).get<uint32_t>();
    document.ticket_count = json.value("tickets", uint64_t{0});
    for (const Json& node : json.value("delays", Json::array()))
      document.delays.push_back({node.at(0).get<uint32_t>(), node.at(1).get<uint32_t>()});
    return document;
  } catch (const std::exception& error) {
    return damaged(error.what());
  }
}

}  // namespace semaphored::consul
