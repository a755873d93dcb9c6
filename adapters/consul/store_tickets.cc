// Tickets beyond the commit: their payloads, and what is done when people have been at their keys.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/commit.h"
#include "adapters/consul/folder_tickets.h"
#include "adapters/consul/store.h"
#include "adapters/consul/ticket_row.h"

namespace semaphored::consul {

using Json = nlohmann::json;

namespace {

// A row and a payload each, and of payloads what a client may be sent at once.
constexpr size_t kPayloadsReadAtOnce = 16;
// Operations of a commit that mends, with room for the others.
constexpr size_t kPayloadsMendedAtOnce = 40;

constexpr int kRefusedMax = 5;

absl::Status PayloadDamaged(const std::string& key, const std::string& why) {
  return absl::DataLossError(absl::StrCat("consul: the payload in the key ", key, " ", why));
}

}  // namespace

absl::StatusOr<std::vector<PayloadPtr>> ConsulStore::ReadPayloads(
    absl::Span<const TicketAt> tickets) {
  std::vector<PayloadPtr> payloads;
  for (size_t at = 0; at < tickets.size(); at += kPayloadsReadAtOnce) {
    absl::Status status = ReadSomePayloads(tickets.subspan(at, kPayloadsReadAtOnce), &payloads);
    if (!status.ok()) return status;
  }
  return payloads;
}

absl::Status ConsulStore::ReadSomePayloads(absl::Span<const TicketAt> tickets,
                                           std::vector<PayloadPtr>* payloads) {
  TransactionRequest request;
  for (const TicketAt& at : tickets) {
    request.GetTree(keys_.Ticket(at.semaphore, at.ticket));
    request.GetTree(keys_.Payload(at.semaphore, at.ticket));
  }
  const absl::StatusOr<std::vector<Entry>> entries = AskEntries(request);
  if (!entries.ok()) return entries.status();
  const auto find = [&](const std::string& key) {
    const auto found = std::ranges::find(*entries, key, &Entry::key);
    return found == entries->end() ? nullptr : &*found;
  };
  for (const TicketAt& at : tickets) {
    const Entry* row = find(keys_.Ticket(at.semaphore, at.ticket));
    PayloadPtr& payload = payloads->emplace_back();
    if (row == nullptr) continue;
    const absl::StatusOr<TicketPtr> ticket = ReadTicket(at.ticket, row->value);
    if (!ticket.ok()) return ticket.status();
    const std::string key = keys_.Payload(at.semaphore, at.ticket);
    const Entry* entry = find(key);
    const size_t bytes = (*ticket)->payload_bytes;
    if (entry == nullptr && bytes > 0) return PayloadDamaged(key, "was removed");
    if (entry != nullptr && entry->value.size() != bytes)
      return PayloadDamaged(key, absl::StrCat("has ", entry->value.size(), " bytes, not ", bytes));
    payload = std::make_shared<const std::string>(entry == nullptr ? "" : entry->value);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<Id, uint32_t>>> ConsulStore::LonePayloads(
    const Folder& folder) {
  std::vector<std::pair<Id, uint32_t>> lone;
  const std::string under = keys_.Payloads(folder.name);
  const Reply reply = client_.Get(HttpTarget("/v1/kv/", under).Option("keys").Option("consistent"));
  if (!reply.answered()) return reply.status;
  TransactionRequest request;
  const Json keys = Json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  for (const Json& each : keys.is_array() ? keys : Json::array()) {
    const std::string key = each.is_string() ? each.get<std::string>() : "";
    const std::optional<Id> id = Keys::IdIn(key, under);
    if (!id || folder.tickets.contains(*id)) continue;
    request.GetTree(key);
    if (request.size() == kPayloadsMendedAtOnce) break;
  }
  if (request.size() == 0) return lone;
  const absl::StatusOr<std::vector<Entry>> entries = AskEntries(request);
  if (!entries.ok()) return entries.status();
  for (const Entry& entry : *entries) {
    if (const std::optional<Id> id = Keys::IdIn(entry.key, under))
      lone.emplace_back(*id, static_cast<uint32_t>(entry.value.size()));
  }
  return lone;
}

// A ticket that was taken in between makes the commit lose, and is read with the next look.
absl::Status ConsulStore::MendTickets(Folder* folder, uint32_t* mended) {
  for (int refused = 0; folder->damage.ok() || folder->tickets_damaged;) {
    if (folder->damage.ok() && !folder->has_document()) return absl::OkStatus();
    if (!folder->garbled_tickets.empty() || !folder->has_document())
      return absl::FailedPreconditionError(folder->damage.message());
    const absl::StatusOr<std::vector<std::pair<Id, uint32_t>>> payloads = LonePayloads(*folder);
    if (!payloads.ok()) return payloads.status();
    if (folder->damage.ok() && payloads->empty()) return absl::OkStatus();
    const uint64_t missing = folder->document.ticket_count;
    Writer writer(this);
    absl::Status status = writer.BuildTicketMending(*folder, *payloads);
    if (!status.ok()) return status;
    const Reply reply = client_.Put("/v1/txn", writer.request().Body());
    if (!reply.answered()) return reply.status;
    const absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
    if (!answer.ok()) return answer.status();
    if (absl::Status forbidden = answer->WhyForbidden(); !forbidden.ok()) return forbidden;
    if (!answer->done && ++refused == kRefusedMax)
      return absl::AbortedError("consul: others were first each time; try again");
    if (answer->done) {
      const uint64_t there = folder->tickets.size() + payloads->size();
      *mended += static_cast<uint32_t>(
          std::max<uint64_t>({1, payloads->size(), missing > there ? missing - there : 0}));
      spdlog::warn("consul: {}: it had {} tickets; it goes on with {}, {} of them made of payloads",
                   folder->name, missing, there, payloads->size());
    }
    absl::StatusOr<std::vector<Folder>> now = ReadFew({&folder->name, 1});
    if (!now.ok()) return now.status();
    *folder = std::move(now->front());
  }
  return folder->damage;
}

}  // namespace semaphored::consul
