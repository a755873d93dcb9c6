// One commit of the ledger as one transaction of DynamoDB, and what follows when it has won. It
// works on copies: nothing changes in the store before that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/dynamodb/store.h"

namespace semaphored::dynamodb {

class DynamoStore::Writer {
 public:
  // What an operation is about, so that its refusal can be understood.
  enum class About : uint8_t { kLane, kSemaphore, kFloor, kSession, kRequest, kOther };
  struct Owner {
    About about = About::kOther;
    std::string name;  // Of the semaphore.
    Id session;
  };

  explicit Writer(DynamoStore* store);

  // kWon: it is ready to be sent. kLost: it would be refused. kFailed, OUT_OF_RANGE: it is more
  // than DynamoDB takes at once.
  ledger::CommitResult Build(const ledger::Transaction& transaction);

  Request request() const { return request_.ToRequest(token_); }
  const std::vector<Owner>& owners() const { return owners_; }
  // The request's, which the lane's item has if it lands.
  const std::string& token() const { return token_; }
  // Landed: the store knows it all, and the transaction its tokens and revisions.
  void Win(ledger::Transaction* transaction);

 private:
  struct Planned {
    std::string name;
    Head head;  // As it then is, if it stands.
    bool stands = false;
    uint64_t revision = 0;  // Of this commit; grants have tokens of it.
    LaneMemory::Written written;
  };
  struct FloorUse {
    bool checked = false;    // It must be what is known.
    uint64_t raised_to = 0;  // 0: not.
  };

  void Own(About about, const std::string& name = "", const Id& session = {});
  void NumberGrants(const ledger::SemaphoreDelta& delta, uint64_t revision);
  ledger::CommitResult Add(const ledger::SemaphoreDelta& delta);
  void AddClaims(const ledger::SemaphoreDelta& delta, Planned* planned);
  // commit_tickets.cc.
  void AddTickets(const ledger::SemaphoreDelta& delta, Planned* planned);
  void AddHead(const ledger::SemaphoreDelta& delta, const Planned& planned);
  // `before`: as it stood before the batch, or nullptr.
  void IndexClaim(const std::string& semaphore, const Claim& claim, const Claim* before);
  // So that a daemon that looks for what this node hosts finds the semaphore.
  void IndexHosted(const std::string& semaphore);
  void AddFloors();
  void AddSessions(const ledger::Transaction& transaction);
  void AddSession(const ledger::SessionPtr& before, const ledger::SessionPtr& after);
  void AddReads(const ledger::Transaction& transaction);
  void AddRequests(const ledger::Transaction& transaction);
  void AddHistory(const ledger::Transaction& transaction);
  // Notices for other daemons, as much as there is room for; the rest follows the commit.
  void AddNotice(const ledger::Transaction& transaction);
  // No other commit has it.
  std::string Stamp() const;
  uint64_t NextHistoryNumber(const HistoryRow& row);
  uint64_t TokenOfLease(const Lease& lease) const;
  Planned* Find(const std::string& name);
  // Operations on items that may be spoken of twice: the last one counts.
  void PutOnce(const Key& key, json item);

  DynamoStore* const store_;
  const NameOfClient name_of_client_;
  const std::string token_;
  const ledger::Transaction* transaction_ = nullptr;
  TransactionRequest request_;
  std::vector<Owner> owners_;
  std::vector<Planned> planned_;
  std::map<int, FloorUse> floors_;
  std::map<Key, std::optional<json>> items_;  // Without conditions; nullopt: deleted.
  absl::flat_hash_map<Id, uint64_t> tokens_;  // Of this commit's grants.
  std::vector<std::pair<Id, ledger::SessionPtr>> sessions_;  // As they then are; nullptr: gone.
  std::vector<std::pair<Id, std::string>> indexed_;
  std::vector<std::string> hosted_at_;
  std::vector<Request> late_notices_;
};

// What is only read is a condition of the transaction up to this many; more of them are looked at
// before. They are what commands rest upon that change nothing, or of a session with many claims.
inline constexpr size_t kReadsMax = 16;

// The numbered requests that must have no row. (Of others the commit's conditions say it all.)
std::vector<ledger::NamedRequest> RequestsToCheck(const ledger::Transaction& transaction,
                                                  const NameOfClient& name_of_client);

}  // namespace semaphored::dynamodb
