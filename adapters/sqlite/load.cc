#include "adapters/sqlite/load.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "adapters/sqlite/record.h"
#include "adapters/sqlite/schema.h"

namespace semaphored::sqlite {

absl::StatusOr<ledger::Image> SqliteStore::Loader::Load() {
  for (auto load : {&Loader::LoadMeta, &Loader::LoadSemaphores, &Loader::LoadLeases,
                    &Loader::LoadWaiters, &Loader::LoadTickets, &Loader::LoadSessions,
                    &Loader::LoadClients, &Loader::LoadRequests, &Loader::LoadHistory}) {
    if (absl::Status status = (this->*load)(); !status.ok()) return status;
  }
  return std::move(image_);
}

absl::Status SqliteStore::Loader::ForEach(absl::string_view query,
                                          absl::FunctionRef<absl::Status(Statement&)> take) {
  absl::StatusOr<Statement> rows = database_.Prepare(query);
  if (!rows.ok()) return rows.status();
  int code;
  while ((code = rows->Step()) == SQLITE_ROW) {
    if (absl::Status status = take(*rows); !status.ok()) return status;
  }
  return code == SQLITE_DONE ? absl::OkStatus() : database_.Error(code, "load it");
}

absl::Status SqliteStore::Loader::Damaged(absl::string_view what, int64_t key,
                                          absl::string_view why) const {
  return database_.DataLoss(absl::StrCat(what, " ", key, " ", why));
}

ledger::LoadedSemaphore* SqliteStore::Loader::SemaphoreAt(uint32_t number) {
  const auto found = semaphores_.find(number);
  return found == semaphores_.end() ? nullptr : &image_.semaphores[found->second];
}

absl::Status SqliteStore::Loader::LoadMeta() {
  absl::flat_hash_map<std::string, uint64_t> values;
  absl::Status status = ForEach("SELECT key, value FROM meta", [&](Statement& row) {
    values[std::string(row.Text(0))] = static_cast<uint64_t>(row.Int(1));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  for (const char* key : {kMetaEpoch, kMetaTokens, kMetaRevisions}) {
    if (!values.contains(key)) return database_.DataLoss(absl::StrCat("there is no ", key));
  }
  // Keys are signed.
  if (values[kMetaEpoch] >> 15 != 0 || values[kMetaTokens] >> kTokenCounterBits != 0) {
    return database_.DataLoss("its tokens' epoch or counter is out of range");
  }
  index_.tokens_reserved = values[kMetaEpoch] << kTokenCounterBits | values[kMetaTokens];
  index_.last_token = index_.tokens_reserved;
  index_.revision_floor = values[kMetaRevisions];
  return absl::OkStatus();
}

absl::Status SqliteStore::Loader::LoadSemaphores() {
  absl::Status status = ForEach(
      "SELECT number, name, record, revision, next_order FROM semaphores LEFT JOIN revisions ON "
      "semaphore = number",
      [&](Statement& row) {
        const int64_t number = row.Int(0);
        if (number < 1 || number > UINT32_MAX)
          return Damaged("semaphore", number, "has a number out of range");
        absl::StatusOr<SemaphoreRow> read =
            ReadSemaphore(static_cast<uint32_t>(number), row.Blob(2));
        if (!read.ok()) return database_.DataLoss(read.status().message());
        read->name = row.Text(1);
        read->revision = static_cast<uint64_t>(row.Int(3));
        read->next_order = static_cast<uint64_t>(row.Int(4));
        if (read->revision == 0 || read->next_order == 0)
          return Damaged("semaphore", number, "has no revision");
        const auto number32 = static_cast<uint32_t>(number);
        const bool is_new =
            !read->name.empty() && index_.semaphores.emplace(read->name, number32).second;
        if (!is_new) return Damaged("semaphore", number, "has no name of its own");
        semaphores_[number32] = image_.semaphores.size();
        index_.next_semaphore = std::max(index_.next_semaphore, number32 + 1);
        image_.semaphores.push_back({*std::move(read), {}, {}, {}});
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  absl::StatusOr<int64_t> revisions = database_.QueryInt("SELECT count(*) FROM revisions");
  if (!revisions.ok()) return revisions.status();
  if (static_cast<size_t>(*revisions) == image_.semaphores.size()) return absl::OkStatus();
  return database_.DataLoss("a semaphore is missing whose revision is there");
}

absl::Status SqliteStore::Loader::LoadLeases() {
  return ForEach("SELECT token, record FROM leases", [&](Statement& row) {
    const int64_t token = row.Int(0);
    absl::StatusOr<LeaseRecord> read = ReadLease(static_cast<uint64_t>(token), row.Blob(1));
    if (!read.ok()) return database_.DataLoss(read.status().message());
    ledger::LoadedSemaphore* semaphore = SemaphoreAt(read->semaphore);
    if (semaphore == nullptr) return Damaged("lease", token, "is of a semaphore that is missing");
    if (static_cast<uint64_t>(token) > index_.tokens_reserved)
      return Damaged("lease", token, "has a token not given yet");
    NoteClaim(*read->lease);
    semaphore->leases.push_back(std::move(read->lease));
    return absl::OkStatus();
  });
}

absl::Status SqliteStore::Loader::LoadWaiters() {
  return ForEach("SELECT number, record FROM waiters", [&](Statement& row) {
    const int64_t key = row.Int(0);
    absl::StatusOr<WaiterRecord> read = ReadWaiter(static_cast<uint64_t>(key), row.Blob(1));
    if (!read.ok()) return database_.DataLoss(read.status().message());
    ledger::LoadedSemaphore* semaphore = SemaphoreAt(read->semaphore);
    if (semaphore == nullptr) return Damaged("waiter", key, "is of a semaphore that is missing");
    if (!index_.waiters.emplace(read->waiter->id, key).second)
      return Damaged("waiter", key, "is there twice");
    index_.next_waiter = key + 1;
    NoteClaim(*read->waiter);
    semaphore->waiters.push_back(std::move(read->waiter));
    return absl::OkStatus();
  });
}

// Payloads stay where they are, but each ticket must have one.
absl::Status SqliteStore::Loader::LoadTickets() {
  absl::Status status = ForEach("SELECT number, record FROM tickets", [&](Statement& row) {
    const int64_t key = row.Int(0);
    absl::StatusOr<TicketRecord> read = ReadTicket(static_cast<uint64_t>(key), row.Blob(1));
    if (!read.ok()) return database_.DataLoss(read.status().message());
    ledger::LoadedSemaphore* semaphore = SemaphoreAt(read->semaphore);
    if (semaphore == nullptr) return Damaged("ticket", key, "is of a semaphore that is missing");
    if (!index_.tickets.emplace(read->ticket->id, key).second)
      return Damaged("ticket", key, "is there twice");
    index_.next_ticket = key + 1;
    semaphore->tickets.push_back(std::move(read->ticket));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  absl::StatusOr<int64_t> with_payload =
      database_.QueryInt("SELECT count(*) FROM tickets JOIN payloads USING(number)");
  if (!with_payload.ok()) return with_payload.status();
  absl::StatusOr<int64_t> payloads = database_.QueryInt("SELECT count(*) FROM payloads");
  if (!payloads.ok()) return payloads.status();
  if (static_cast<size_t>(*with_payload) == index_.tickets.size() && *payloads == *with_payload)
    return absl::OkStatus();
  return database_.DataLoss("tickets and payloads do not belong together");
}

absl::Status SqliteStore::Loader::LoadSessions() {
  return ForEach("SELECT number, record FROM sessions", [&](Statement& row) {
    const int64_t key = row.Int(0);
    absl::StatusOr<std::shared_ptr<Session>> read =
        ReadSession(static_cast<uint64_t>(key), row.Blob(1));
    if (!read.ok()) return database_.DataLoss(read.status().message());
    const bool is_new =
        index_.sessions.emplace((*read)->id, SessionAtKey{key, (*read)->epoch}).second;
    if (!is_new) return Damaged("session", key, "is there twice");
    index_.next_session = key + 1;
    image_.sessions.push_back(*std::move(read));
    return absl::OkStatus();
  });
}

absl::Status SqliteStore::Loader::LoadClients() {
  return ForEach("SELECT number, client_id, since FROM clients", [&](Statement& row) {
    const int64_t number = row.Int(0);
    if (number < 1 || number > UINT32_MAX)
      return Damaged("client", number, "has a number out of range");
    const auto number32 = static_cast<uint32_t>(number);
    clients_[number32] = {static_cast<uint64_t>(row.Int(2)), image_.clients.size()};
    image_.clients.push_back({number32, std::string(row.Text(1)), 0});
    return absl::OkStatus();
  });
}

void SqliteStore::Loader::NoteClaim(const Claim& claim) {
  if (claim.request.remembered()) claims_[claim.request] = claim.id;
}

bool SqliteStore::Loader::IsOfClient(const RequestKey& request, uint64_t key) const {
  if (!request.one_shot.empty()) return true;
  const auto client = clients_.find(request.client);
  return client != clients_.end() && client->second.since <= key;
}

// A gap would be requests that are lost, and could be carried out twice.
absl::Status SqliteStore::Loader::LoadRequests() {
  bool first = true;
  absl::Status loaded = ForEach("SELECT number, record FROM requests", [&](Statement& row) {
    const auto key = static_cast<uint64_t>(row.Int(0));
    if (!first && key != requests_.next_row())
      return Damaged("requests", row.Int(0), "do not follow those before");
    first = false;
    requests_.BeginRow(key);
    absl::Status status = ReadRequests(key, row.Blob(1), [&](const RequestView& view) {
      if (!IsOfClient(view.request, key)) return requests_.AddDead();
      if (view.removed) return requests_.AddRemoval(view.request);
      const auto claim = claims_.find(view.request);
      const bool pinned = claim != claims_.end() && claim->second == view.claim &&
                          (view.state == ledger::RequestRow::State::kWaiting ||
                           view.state == ledger::RequestRow::State::kGranted);
      requests_.Add(view.request, pinned);
    });
    return status.ok() ? status : database_.DataLoss(status.message());
  });
  for (const auto& [number, client] : clients_)
    image_.clients[client.place].sequence_high = requests_.Highest(number);
  requests_.ForEachOneShotUnpinned([&](const Id& id) { image_.one_shots.push_back(id); });
  return loaded.ok() ? CheckClaims() : loaded;
}

// Each claim has the row of its request: without it the request could be carried out twice.
absl::Status SqliteStore::Loader::CheckClaims() {
  for (const auto& [request, claim] : claims_) {
    if (!requests_.IsPinned(request))
      return database_.DataLoss(absl::StrCat("the request of claim ", claim.Hex(), " is missing"));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::Loader::LoadHistory() {
  // Switched off: the rows that are left from before would be shown with gaps if it were switched
  // on again.
  if (!history_.kept()) return database_.Execute("DELETE FROM history");
  absl::Status status = ForEach("SELECT first FROM history", [&](Statement& row) {
    history_.Append(static_cast<uint64_t>(row.Int(0)), 1);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return ForEach(
      "SELECT first, record FROM history ORDER BY first DESC LIMIT 1", [&](Statement& row) {
        uint64_t leases = 0;
        const auto first = static_cast<uint64_t>(row.Int(0));
        absl::Status read =
            sqlite::ReadHistory(first, row.Blob(1), [&](const HistoryRow&) { ++leases; });
        if (!read.ok()) return database_.DataLoss(read.message());
        history_.SetLeasesOfLast(leases);
        return absl::OkStatus();
      });
}

}  // namespace semaphored::sqlite
