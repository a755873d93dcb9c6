// What the store reads: rows of Postgres as rows of the ledger.
#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/client_names.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/reader.h"
#include "adapters/postgres/statements.h"
#include "adapters/postgres/store.h"

namespace semaphored::postgres {

using ledger::Image;
using ledger::LoadedSemaphore;
using ledger::SessionPtr;

namespace {

// In one statement: some ten milliseconds of the server's time.
constexpr size_t kNamesPerLoad = 2000;
constexpr size_t kNamesPerLook = 10'000;
constexpr size_t kSessionsPerPage = 500;
constexpr size_t kRowsPerWalk = 20'000;

Arguments NodeArrays(absl::Span<const NodeRef> nodes) {
  Array numbers;
  Array incarnations;
  for (const NodeRef& node : nodes) {
    numbers.Add(node.number);
    incarnations.Add(node.incarnation);
  }
  return {numbers.Take(), incarnations.Take()};
}

}  // namespace

void PostgresStore::Reader::Add(const pqxx::row& row) {
  switch (*row[0].c_str()) {
    case 's':
      return AddSemaphore(row);
    case 'l':
      return AddLease(row);
    case 'w':
      return AddWaiter(row, /*works=*/false);
    case 'o':
      return AddWaiter(row, /*works=*/true);
    case 't':
      return AddTicket(row);
    case 'k':
      places_[row[1].as<std::string>()] = ReadNumbers(row[7].c_str());
      return;
    case 'c':
      counts_[row[1].as<std::string>()] = ReadNumbers(row[7].c_str());
      return;
    default:
      AddSession(row, 2, 5, 6, 7);
  }
}

void PostgresStore::Reader::AddSemaphore(const pqxx::row& row) {
  const std::vector<int64_t> n = ReadNumbers(row[7].c_str());
  SemaphoreRow& semaphore = Semaphore(row[1].as<std::string>()).row;
  semaphore.name = row[1].as<std::string>();
  semaphore.limit = static_cast<uint32_t>(n[0]);
  semaphore.settings.backfill = n[1] != 0;
  semaphore.settings.longest_hold_ms = n[2];
  semaphore.settings.recall_grace_ms = n[3];
  semaphore.settings.permits_per_holder = static_cast<uint32_t>(n[4]);
  semaphore.settings.waiters_max = static_cast<uint32_t>(n[5]);
  semaphore.paused = n[6] != 0;
  semaphore.destroying = n[7] != 0;
  semaphore.next_order = static_cast<uint64_t>(n[8]);
  semaphore.revision = static_cast<uint64_t>(n[9]);
  semaphore.created_at_unix_ms = n[10];
  semaphore.made_on_use = n[11] != 0;
  semaphore.intentions = row[5].as<std::string>();
  semaphore.owner = row[8].as<std::string>();
}

template <typename Row>
void PostgresStore::Reader::ReadClaim(const pqxx::row& row, Row* claim) {
  claim->id = ReadId(row[2].c_str());
  claim->session = ReadId(row[3].c_str());
  claim->fingerprint = ReadId(row[4].c_str());
  // The sequence number follows.
  claim->request = ledger::WrittenRequest(row[5].as<std::string>(), 0,
                                          [this](const std::string& name) { return Client(name); });
  claim->holder = row[6].as<std::string>();
  claim->owner = row[8].as<std::string>();
}

void PostgresStore::Reader::AddLease(const pqxx::row& row) {
  const std::vector<int64_t> n = ReadNumbers(row[7].c_str());
  LeasePtr& lease = leases_[ReadId(row[2].c_str())];
  if (!lease) {
    lease = std::make_shared<Lease>();
    ReadClaim(row, lease.get());
    lease->foreign = n[1] != 0;
    lease->token = static_cast<uint64_t>(n[2]);
    lease->request.sequence = static_cast<uint64_t>(n[3]);
    lease->host = {static_cast<uint32_t>(n[4]), static_cast<uint32_t>(n[5])};
    lease->epoch = static_cast<uint32_t>(n[6]);
    lease->ttl_ms = n[7];
    lease->priority = static_cast<int32_t>(n[8]);
    lease->order = static_cast<uint64_t>(n[9]);
    lease->recall = {static_cast<Recall::Reason>(n[10]), n[11]};
    lease->granted_at_unix_ms = n[12];
    lease->moved_from = static_cast<uint32_t>(n[13]);
    Semaphore(row[1].as<std::string>()).leases.push_back(lease);
  }
  slots_.emplace_back(lease.get(), static_cast<uint32_t>(n[0]));
}

void PostgresStore::Reader::AddWaiter(const pqxx::row& row, bool works) {
  const std::vector<int64_t> n = ReadNumbers(row[7].c_str());
  auto waiter = std::make_shared<Waiter>();
  waiter->works = works;
  ReadClaim(row, waiter.get());
  waiter->order = static_cast<uint64_t>(n[0]);
  waiter->priority = static_cast<int32_t>(n[1]);
  waiter->permits = static_cast<uint32_t>(n[2]);
  waiter->request.sequence = static_cast<uint64_t>(n[3]);
  waiter->host = {static_cast<uint32_t>(n[4]), static_cast<uint32_t>(n[5])};
  waiter->epoch = static_cast<uint32_t>(n[6]);
  waiter->ttl_ms = n[7];
  waiter->queued_at_unix_ms = n[8];
  Semaphore(row[1].as<std::string>()).waiters.push_back(std::move(waiter));
}

SessionPtr PostgresStore::Reader::AddSession(const pqxx::row& row, int id, int client, int holder,
                                             int numbers) {
  const std::vector<int64_t> n = ReadNumbers(row[numbers].c_str());
  auto session = std::make_shared<Session>();
  session->id = ReadId(row[id].c_str());
  session->client = Client(row[client].as<std::string>());
  session->holder = row[holder].as<std::string>();
  session->owner = row[numbers + 1].as<std::string>();
  session->host = {static_cast<uint32_t>(n[0]), static_cast<uint32_t>(n[1])};
  session->epoch = static_cast<uint32_t>(n[2]);
  session->ttl_ms = n[3];
  session->release_on_disconnect = n[4] != 0;
  session->closing = n[5] != 0;
  image_.sessions.push_back(session);
  return session;
}

void PostgresStore::Reader::FinishLeases() {
  std::ranges::sort(slots_);
  for (const auto& [lease, slot] : slots_) lease->slots.Append({slot, slot});
  for (const LoadedSemaphore& semaphore : image_.semaphores) {
    for (const auto& lease : semaphore.leases) {
      lease->permits = static_cast<uint32_t>(lease->slots.size());
      lease->longest_hold_ms = semaphore.row.settings.longest_hold_ms;
    }
  }
}

void PostgresStore::Reader::Finish() {
  FinishLeases();
  for (LoadedSemaphore& semaphore : image_.semaphores) TakeTickets(&semaphore);
}

// In pages: so the time-out of a statement bounds no number of semaphores.
absl::StatusOr<Image> PostgresStore::Load(absl::Span<const std::string> names) {
  const absl::flat_hash_set<std::string> unique(names.begin(), names.end());
  const std::vector<std::string> wanted(unique.begin(), unique.end());
  Image image;
  absl::flat_hash_map<Id, size_t> sessions;
  absl::flat_hash_set<uint32_t> clients;
  for (size_t from = 0; from < wanted.size(); from += kNamesPerLoad) {
    absl::StatusOr<Image> page = LoadPage(absl::MakeConstSpan(wanted).subspan(from, kNamesPerLoad));
    if (!page.ok()) return page.status();
    std::ranges::move(page->semaphores, std::back_inserter(image.semaphores));
    for (ledger::LoadedClient& client : page->clients) {
      if (clients.insert(client.number).second) image.clients.push_back(std::move(client));
    }
    for (SessionPtr& session : page->sessions) {
      const auto [at, is_new] = sessions.try_emplace(session->id, image.sessions.size());
      if (is_new) {
        image.sessions.push_back(std::move(session));
      } else {
        image.sessions[at->second] = std::move(session);  // Read later.
      }
    }
  }
  return image;
}

absl::StatusOr<Image> PostgresStore::LoadPage(absl::Span<const std::string> names) {
  // What is known of long queues is, rarely, found to be of no use: then all is read.
  for (;;) {
    Array wanted;
    Array known;
    bool anything_known = false;
    for (const std::string& name : names) {
      const uint64_t revision = tickets_.Known(name);
      anything_known = anything_known || revision != 0;
      wanted.Add(name);
      known.Add(static_cast<int64_t>(revision));
    }
    const Answered loaded = Query(sql_->load, {wanted.Take(), known.Take()});
    if (!loaded.ok) return loaded.failure.status;
    Reader reader(this);
    for (const auto& row : loaded.rows) reader.Add(row);
    reader.Finish();
    if (reader.again() && anything_known) {
      tickets_.Clear();
      continue;
    }
    for (const std::string& name : names) {
      if (!reader.Has(name)) tickets_.Forget(name);
    }
    return reader.Take();
  }
}

absl::StatusOr<Image> PostgresStore::Look(absl::Span<const std::string> names) {
  Array wanted;
  Array known;
  for (const std::string& name : names) {
    wanted.Add(name);
    known.Add(int64_t{0});
  }
  const Answered loaded = Query(sql_->look, {wanted.Take(), known.Take()});
  if (!loaded.ok) return loaded.failure.status;
  Reader reader(this);
  for (const auto& row : loaded.rows) reader.Add(row);
  reader.FinishLook();
  return reader.Take();
}

absl::StatusOr<std::vector<std::string>> PostgresStore::Changed(
    absl::Span<const SemaphoreRow* const> semaphores) {
  std::vector<std::string> result;
  for (size_t from = 0; from < semaphores.size(); from += kNamesPerLook) {
    Array names;
    Array revisions;
    for (const SemaphoreRow* row : semaphores.subspan(from, kNamesPerLook)) {
      names.Add(row->name);
      revisions.Add(static_cast<int64_t>(row->revision));
    }
    const Answered changed = Query(sql_->changed, {names.Take(), revisions.Take()});
    if (!changed.ok) return changed.failure.status;
    for (const auto& row : changed.rows) result.push_back(row[0].as<std::string>());
  }
  return result;
}

absl::StatusOr<ledger::SharedStore::SessionAt> PostgresStore::LoadSession(const Id& session) {
  SessionAt at;
  const Answered found = Query(sql_->session, {session.Hex()});
  if (!found.ok) return found.failure.status;
  Reader reader(this);
  if (!found.rows.empty()) at.session = reader.AddSession(found.rows[0], 0, 1, 2, 3);
  const Answered semaphores = Query(sql_->session_semaphores, {session.Hex()});
  if (!semaphores.ok) return semaphores.failure.status;
  for (const auto& row : semaphores.rows) at.semaphores.push_back(row[0].as<std::string>());
  return at;
}

absl::StatusOr<ledger::SharedStore::Hosted> PostgresStore::HostedBy(
    absl::Span<const NodeRef> nodes) {
  const Arguments arguments = NodeArrays(nodes);
  if (Answered ended = Query(sql_->end_lanes, arguments); !ended.ok) return ended.failure.status;
  // From here on the nodes write no more: what follows may be read in pages.
  Hosted hosted;
  absl::flat_hash_set<std::string> names;
  if (absl::Status status = ReadSessionsOf(arguments, &hosted.sessions, &names); !status.ok())
    return status;
  for (const Statement* walk : {&sql_->hosted_leases, &sql_->hosted_waiters}) {
    if (absl::Status status = WalkAlong(*walk, arguments, &names); !status.ok()) return status;
  }
  const Answered tickets = Query(sql_->hosted_tickets, arguments);
  if (!tickets.ok) return tickets.failure.status;
  for (const auto& row : tickets.rows) names.insert(row[0].as<std::string>());
  hosted.semaphores.assign(names.begin(), names.end());
  return hosted;
}

absl::Status PostgresStore::ReadSessionsOf(const Arguments& nodes,
                                           std::vector<ledger::SessionPtr>* sessions,
                                           absl::flat_hash_set<std::string>* names) {
  Reader reader(this);
  Id last;
  for (;;) {
    Arguments arguments = nodes;
    arguments.insert(arguments.end(), {last.Hex(), std::to_string(kSessionsPerPage)});
    const Answered page = Query(sql_->hosted_sessions, arguments);
    if (!page.ok) return page.failure.status;
    Array ids;
    for (const auto& row : page.rows) {
      sessions->push_back(reader.AddSession(row, 0, 1, 2, 3));
      last = sessions->back()->id;
      ids.Add(last);
    }
    if (ids.size() == 0) return absl::OkStatus();
    const Answered held = Query(sql_->held_by_sessions, {ids.Take()});
    if (!held.ok) return held.failure.status;
    for (const auto& row : held.rows) names->insert(row[0].as<std::string>());
  }
}

absl::Status PostgresStore::WalkAlong(const Statement& walk, const Arguments& nodes,
                                      absl::flat_hash_set<std::string>* names) {
  std::optional<std::pair<std::string, int64_t>> from(std::in_place, "", 0);
  while (from) {
    Arguments arguments = nodes;
    arguments.insert(arguments.end(),
                     {from->first, std::to_string(from->second), std::to_string(kRowsPerWalk)});
    const Answered page = Query(walk, arguments);
    if (!page.ok) return page.failure.status;
    from.reset();
    for (const auto& row : page.rows) {
      if (row[1].is_null()) {
        names->insert(row[0].as<std::string>());
      } else {
        from.emplace(row[0].as<std::string>(), row[1].as<int64_t>());
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PostgresStore::Names(const std::string& prefix,
                                                              const std::string& after,
                                                              uint32_t rows_max) {
  const Answered found = Query(sql_->names, {after, prefix, std::to_string(rows_max)});
  if (!found.ok) return found.failure.status;
  std::vector<std::string> names;
  for (const auto& row : found.rows) names.push_back(row[0].as<std::string>());
  return names;
}

absl::StatusOr<std::vector<HistoryRow>> PostgresStore::ReadHistory(const std::string& semaphore,
                                                                   uint64_t before,
                                                                   uint32_t rows_max) {
  constexpr int64_t kNewest = std::numeric_limits<int64_t>::max();
  Arguments arguments = {std::to_string(before == 0 ? kNewest : static_cast<int64_t>(before)),
                         std::to_string(rows_max)};
  if (!semaphore.empty()) arguments.emplace_back(semaphore);
  const Answered found = Query(semaphore.empty() ? sql_->history : sql_->history_of, arguments);
  if (!found.ok) return found.failure.status;
  std::vector<HistoryRow> rows;
  for (const auto& row : found.rows) {
    const std::vector<int64_t> n = ReadNumbers(row[7].c_str());
    auto lease = std::make_shared<Lease>();
    lease->id = ReadId(row[2].c_str());
    lease->session = ReadId(row[3].c_str());
    lease->request.sequence = static_cast<uint64_t>(n[1]);
    lease->holder = row[5].as<std::string>();
    const std::vector<int64_t> slots = ReadNumbers(row[6].c_str());
    lease->slots = Slots(slots.begin(), slots.end());
    lease->token = static_cast<uint64_t>(n[0]);
    lease->permits = static_cast<uint32_t>(lease->slots.size());
    lease->host = {static_cast<uint32_t>(n[2]), static_cast<uint32_t>(n[3])};
    lease->epoch = static_cast<uint32_t>(n[4]);
    lease->ttl_ms = n[5];
    lease->priority = static_cast<int32_t>(n[6]);
    lease->order = static_cast<uint64_t>(n[7]);
    lease->granted_at_unix_ms = n[8];
    lease->foreign = n[11] != 0;
    HistoryRow& end = rows.emplace_back();
    end.number = row[0].as<uint64_t>();
    end.semaphore = row[1].as<std::string>();
    end.ended_at_unix_ms = n[9];
    end.cause = static_cast<EndCause>(n[10]);
    end.lease = std::move(lease);
  }
  return rows;
}

}  // namespace semaphored::postgres
