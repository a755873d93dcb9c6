// What a commit rests upon beside the semaphores that it changes: the rows of sessions and of requests, which it also
// writes, and semaphores that were only read.
#include <set>

#include "adapters/dynamodb/commit.h"
#include "adapters/ledger/state/net_changes.h"

namespace semaphored::dynamodb {

using ledger::SessionPtr;
using ledger::Transaction;

namespace {

Condition SessionIs(const Session& session) {
  return Condition::Is("epoch", session.epoch)
      .And("node", session.host.number)
      .And("incarnation", session.host.incarnation);
}

}  // namespace

std::vector<ledger::NamedRequest> RequestsToCheck(const Transaction& transaction,
                                                  const NameOfClient& name_of_client) {
  const auto is_numbered = [](const RequestKey& request) { return request.one_shot.empty(); };
  std::vector<ledger::NamedRequest> requests;
  for (const ledger::NamedRequest& absent : transaction.absent_requests) {
    if (is_numbered(absent.request)) requests.push_back(absent);
  }
  for (const ledger::RequestChange& change : transaction.requests) {
    if (change.op == ledger::RequestChange::Op::kInsert && is_numbered(change.row.request))
      requests.push_back({change.row.request, name_of_client(change.row.request.client)});
  }
  return requests;
}

// ---- sessions ----

void DynamoStore::Writer::AddSession(const SessionPtr& before, const SessionPtr& after) {
  const Id& id = (before ? before : after)->id;
  if (after) {
    request_.Put(WriteSession(*after, name_of_client_),
                 before ? SessionIs(*before) : Condition::Absent());
  } else {
    request_.Delete(SessionKey(id), SessionIs(*before));
  }
  Own(About::kSession, "", id);
  sessions_.emplace_back(id, after);
  const uint32_t node_before = before ? before->host.number : 0;
  const uint32_t node_after = after ? after->host.number : 0;
  if (node_before == node_after) return;
  if (before) items_[HostedSessionKey(node_before, id)] = std::nullopt;
  if (after) {
    const Key key = HostedSessionKey(node_after, id);
    PutOnce(key, ItemWith(key));
  }
}

void DynamoStore::Writer::AddSessions(const Transaction& transaction) {
  absl::flat_hash_set<Id> spoken_of;
  for (const auto& session : ledger::NetChanges(transaction.sessions)) {
    spoken_of.insert(session.id);
    if (session.before || session.after) AddSession(session.before, session.after);
  }
  for (const ledger::EpochCondition& condition : transaction.epochs) {
    // What this batch itself makes of a session is looked at by the condition on its row.
    if (!spoken_of.insert(condition.session).second) continue;
    request_.Check(SessionKey(condition.session), Condition::Is("epoch", condition.epoch));
    Own(About::kSession, "", condition.session);
  }
}

// ---- semaphores and requests ----

void DynamoStore::Writer::AddReads(const Transaction& transaction) {
  if (transaction.reads.size() > kReadsMax) return;
  for (const ledger::ReadCondition& read : transaction.reads) {
    request_.Check(HeadKey(read.semaphore), read.revision == 0
                                                ? Condition::Absent()
                                                : Condition::Is("revision", read.revision));
    Own(About::kSemaphore, read.semaphore);
  }
}

void DynamoStore::Writer::AddRequests(const Transaction& transaction) {
  std::set<Key> keys;
  for (const ledger::RequestChange& change : transaction.requests) {
    const std::string& client_id = name_of_client_(change.row.request.client);
    const RequestBook::Write write = store_->requests_.WriteOf(client_id, change);
    keys.insert(write.key);
    if (write.removes) {
      request_.Delete(write.key, write.condition);
    } else {
      request_.Update(write.key, write.change, write.condition);
    }
  }
  for (const ledger::NamedRequest& named : transaction.absent_requests) {
    const Key key = RequestBook::RowKeyOf(named);
    if (keys.insert(key).second) request_.Check(key, RequestBook::Absent());
  }
  Own(About::kRequest);
}

}  // namespace semaphored::dynamodb
