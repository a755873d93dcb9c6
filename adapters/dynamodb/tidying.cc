// What the store does while it waits: it hears of others, keeps account of its daemon's claims, and
// removes what means nothing any more.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"
#include "adapters/dynamodb/news_text.h"
#include "adapters/dynamodb/store.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kSessionsKept = 200'000;
constexpr size_t kLeftoversAtOnce = 50;
constexpr size_t kLeftoversMax = 100'000;
// Where this node had no claim for so long it is not looked for any more.
constexpr std::chrono::minutes kNamesKept{10};
constexpr std::chrono::minutes kNamesLookedAt{1};
constexpr size_t kPutBackAtOnce = 90;
constexpr std::chrono::minutes kHistoryLookedAt{1};
// DynamoDB takes up to some days to remove what has expired.
constexpr std::chrono::seconds kExpiryMax = std::chrono::hours(96);

}  // namespace

// ---- own claims ----

bool DynamoStore::IsHere(const Claim& claim) const {
  if (claim.detached()) return claim.host == options_.self;
  const auto session = sessions_.find(claim.session);
  // To ask for word in vain costs less than to miss it.
  return session == sessions_.end() || session->second->host == options_.self;
}

void DynamoStore::AddOwn(Known* known, const Claim& claim, bool waits) {
  RemoveOwn(known, claim.id);
  const bool is_here = IsHere(claim);
  const bool of_node = claim.detached() && claim.host.number == options_.self.number;
  if (claim.detached() && !is_here && !of_node) return;
  known->own[claim.id] = {is_here, waits, of_node, claim.detached() ? Id{} : claim.session};
  if (is_here) ++(waits ? waiting_ : holding_);
}

void DynamoStore::RemoveOwn(Known* known, const Id& claim) {
  const auto found = known->own.find(claim);
  if (found == known->own.end()) return;
  if (found->second.is_here) --(found->second.waits ? waiting_ : holding_);
  known->own.erase(found);
}

void DynamoStore::CountAnew(const Id& session) {
  const auto names = indexed_.find(session);
  const auto row = sessions_.find(session);
  if (names == indexed_.end() || row == sessions_.end()) return;
  const bool is_here = row->second->host == options_.self;
  for (const std::string& name : names->second) {
    const auto known = known_.find(name);
    if (known == known_.end()) continue;
    for (auto& [id, own] : known->second.own) {
      if (own.session != session || own.is_here == is_here) continue;
      own.is_here = is_here;
      size_t& count = own.waits ? waiting_ : holding_;
      if (is_here) ++count;
      if (!is_here) --count;
    }
  }
}

bool DynamoStore::IsCountedHere(const Ticket& ticket) const {
  return ticket.state == TicketState::kDelayed && ticket.host.number == options_.self.number;
}

void DynamoStore::ForgetSomeSessions() {
  if (sessions_.size() < kSessionsKept) return;
  sessions_.clear();
  indexed_.clear();
}

// ---- waiting ----

absl::StatusOr<std::vector<ledger::Hint>> DynamoStore::Wait(SteadyTime deadline) {
  if (deadline != SteadyTime::min()) {
    DropLeftovers();
    one_shots_.ForgetSome(&client_, Deadline());
    one_shots_.SweepIfDue(&client_, options_.now(), Deadline());
    ForgetIdleNames(options_.now());
    LookAtHistory(options_.now());
    ForgetSomeSessions();
  } else if (one_shots_.is_behind()) {
    one_shots_.ForgetSome(&client_, Deadline());
  }
  return ear_.Take(deadline);
}

// The ledger, which carries the notice out, goes on without reading, and so must the store. If the
// ledger does not carry it out, it reads the semaphore.
std::optional<ledger::News> DynamoStore::ReadNews(const ledger::Hint& hint) {
  const auto found = known_.find(hint.semaphore);
  if (found == known_.end() || !found->second.damage.ok()) return std::nullopt;
  Known& known = found->second;
  if (known.revision == 0 || known.revision + 1 != hint.revision) return std::nullopt;
  std::optional<ToldNews> told = ReadNewsText(hint);
  if (!told) return std::nullopt;
  known.revision = hint.revision;
  known.digest = told->digest;
  known.history_number = told->history_number;
  for (const Id& id : told->gone) RemoveOwn(&known, id);
  for (const Id& id : told->let_in) {
    const auto own = known.own.find(id);
    if (own == known.own.end() || !own->second.waits) continue;
    own->second.waits = false;
    if (!own->second.is_here) continue;
    --waiting_;
    ++holding_;
  }
  TellInterest();
  return std::move(told->news);
}

void DynamoStore::DropLeftovers() {
  if (leftovers_.empty()) return;
  // They cost little, and mean nothing: no more is tried than is easily done.
  if (leftovers_.size() > kLeftoversMax) leftovers_.resize(kLeftoversMax);
  std::vector<Request> requests;
  while (!leftovers_.empty() && requests.size() < kLeftoversAtOnce) {
    requests.push_back(DeleteItem(table_, leftovers_.back(), Condition::None()));
    leftovers_.pop_back();
  }
  RunUpkeep(&client_, requests, UpkeepWork::kLeftovers, options_.upkeep.get(), Deadline());
}

void DynamoStore::RememberHosted(const std::string& partition, const std::string& name,
                                 const json& item) {
  const NodeRef self = options_.self;
  if (partition != HostPartition(self.number) || hosted_at_.contains(name)) return;
  try {
    const std::string stamp = TextIn(item, "stamp");
    const std::string of_this_life = absl::StrCat(self.number, ".", self.incarnation, ".");
    if (!absl::StartsWith(stamp, of_this_life)) hosted_before_[name] = stamp;
  } catch (const std::exception&) {
    options_.upkeep->Failed(UpkeepWork::kLeftovers,
                            absl::DataLossError(absl::StrCat(
                                "dynamodb: what says that this node may host something in ", name,
                                " is not understood, and stays")));
  }
}

// The next commit with such a claim or ticket writes the name again. Those of this node come and go
// by its own commits, so what is known of them is enough; and a commit that writes the name again
// leaves another stamp.
void DynamoStore::ForgetIdleNames(SteadyTime now) {
  if (now < names_looked_at_ + kNamesLookedAt) return;
  names_looked_at_ = now;
  const auto hosts = [&](const std::string& name) {
    const auto known = known_.find(name);
    return known == known_.end() || !known->second.damage.ok() ||
           std::ranges::any_of(known->second.own,
                               [](const auto& own) { return own.second.hosted; });
  };
  std::vector<Request> requests;
  const auto drop = [&](const std::string& name, const std::string& stamp) {
    requests.push_back(DeleteItem(table_, HostAtKey(options_.self.number, name),
                                  Condition::IsText("stamp", stamp)));
  };
  absl::erase_if(hosted_at_, [&](auto& each) {
    auto& [name, at] = each;
    if (hosts(name)) {
      at.idle_since.reset();
      return false;
    }
    if (!at.idle_since) at.idle_since = now;
    if (now - *at.idle_since < kNamesKept || requests.size() >= kLeftoversAtOnce) return false;
    drop(name, at.stamp);
    return true;
  });
  absl::erase_if(hosted_before_, [&](const auto& each) {
    const auto& [name, stamp] = each;
    if (hosted_at_.contains(name)) return true;
    if (hosts(name) || requests.size() >= kLeftoversAtOnce) return false;
    drop(name, stamp);
    return true;
  });
  RunUpkeep(&client_, requests, UpkeepWork::kLeftovers, options_.upkeep.get(), Deadline());
}

// DynamoDB itself removes what has expired, if the table's time-to-live is on. Where this lane has written, what was
// written first shows whether it does.
void DynamoStore::LookAtHistory(SteadyTime now) {
  if (history_of_.empty() || now < history_looked_at_ + kHistoryLookedAt) return;
  history_looked_at_ = now;
  Range range;
  range.partition = std::exchange(history_of_, "");
  range.rows_max = 1;
  range.eventually = true;
  const auto oldest = QueryAll(&client_, table_, {range}, Deadline());
  options_.upkeep->Note(UpkeepWork::kHistory, oldest.status());
  if (!oldest.ok() || oldest->front().empty()) return;
  const int64_t now_s = options_.now_unix_ms() / 1000;
  try {
    if (SignedIn(oldest->front().front(), kExpiresAt) + kExpiryMax.count() > now_s) return;
    options_.upkeep->Failed(UpkeepWork::kHistory,
                            absl::FailedPreconditionError(absl::StrCat(
                                "dynamodb: ", range.partition, " has items that expired over ",
                                std::chrono::ceil<std::chrono::hours>(kExpiryMax).count(),
                                " h ago: is the time-to-live of the table on?")));
  } catch (const std::exception&) {
    options_.upkeep->Failed(
        UpkeepWork::kHistory,
        absl::DataLossError("dynamodb: a row of the history is not understood"));
  }
}

// ---- mending ----

// Tickets that no worker has any more: their leases were deleted by hand.
std::vector<Ticket> DynamoStore::StuckTickets(const Folder& folder) {
  absl::flat_hash_set<Id> held;
  for (const LeasePtr& lease : folder.leases) {
    if (!lease->ticket.empty()) held.insert(lease->id);
  }
  std::vector<Ticket> stuck;
  for (const TicketPtr& ticket : folder.tickets) {
    if (ticket->state == TicketState::kAssigned && !held.contains(ticket->lease))
      stuck.push_back(*ticket);
  }
  return stuck;
}

absl::StatusOr<std::optional<ledger::Pruned>> DynamoStore::Repair(const std::string& name) {
  const absl::StatusOr<std::vector<Folder>> read = ReadFolders({name});
  if (!read.ok()) return read.status();
  const Folder& folder = read->front();
  std::vector<Ticket> stuck = StuckTickets(folder);
  if (!folder.exists || (folder.is_moment && stuck.empty())) return std::optional<ledger::Pruned>();
  // What stands there counts from now on.
  Head head = folder.head;
  head.digest = 0;
  for (const LeasePtr& lease : folder.leases) head.digest ^= DigestOf(*lease, lease->token);
  for (const WaiterPtr& waiter : folder.waiters) head.digest ^= DigestOf(*waiter);
  for (const TicketPtr& ticket : folder.tickets) head.digest ^= DigestOf(*ticket);
  head.counts = ledger::CountsOf(folder.leases, folder.waiters, folder.tickets);
  size_t put_back = 0;
  do {
    TransactionRequest request(table_);
    const uint64_t before = head.row.revision++;
    for (size_t i = 0; i < kPutBackAtOnce && put_back < stuck.size(); ++i, ++put_back) {
      Ticket& ticket = stuck[put_back];
      head.digest ^= DigestOf(ticket);
      ticket.state = TicketState::kQueued;
      ticket.lease = {};
      head.digest ^= DigestOf(ticket);
      --head.counts.tickets.assigned;
      ++head.counts.tickets.queued;
      request.Put(WriteTicket(TicketKey(name, ticket), ticket));
    }
    request.Put(WriteHead(head), Condition::Is("revision", before));
    const Reply reply = client_.Repeat(request.ToRequest(RandomToken()), Deadline());
    // Others were first: what is left to do is found by the next.
    if (ReadCancelled(reply)) break;
    if (!reply.answered()) return reply.status;
  } while (put_back < stuck.size());
  std::optional<ledger::Pruned> pruned(std::in_place);
  pruned->message = "items had been changed by hand; what stands there now was counted again";
  return pruned;
}

}  // namespace semaphored::dynamodb
