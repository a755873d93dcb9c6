// One commit of the ledger as one transaction of Consul, and what follows when it has won. It works
// on copies: nothing changes in the store before that.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/consul/store.h"

namespace semaphored::consul {

// Contenders' entries that are kept for the next grant of a semaphore.
inline constexpr size_t kSparePlacesMax = 4;

class ConsulStore::Writer {
 public:
  // What an operation is about, so that its refusal can be understood.
  enum class About : uint8_t { kLane, kSemaphore, kPlace, kSession, kAnswers, kHint };
  struct Owner {
    About about = About::kHint;
    std::string name;  // Of the semaphore, or Consul's session.
    Id session;
  };

  explicit Writer(ConsulStore* store) : store_(store) {}

  // kWon: it is ready to be sent. kLost: it would be refused. kFailed: it cannot be written;
  // OUT_OF_RANGE: it is more than Consul takes at once.
  ledger::CommitResult Build(const ledger::Transaction& transaction);
  // The same for a folder that is to be mended: its places and its record.
  absl::Status BuildMending(const Folder& folder);
  // The same for a folder whose tickets are damaged, or of whose tickets only these payloads are
  // left, with their sizes; all of its tickets' keys are understood.
  absl::Status BuildTicketMending(const Folder& folder,
                                  const std::vector<std::pair<Id, uint32_t>>& payloads);

  const TransactionRequest& request() const { return request_; }
  const std::vector<Owner>& owners() const { return owners_; }
  // Landed at this index: the store knows it all, and the transaction its tokens and revisions.
  void Win(uint64_t index, ledger::Transaction* transaction);

 private:
  // A ticket whose key is written, or removed.
  struct PlannedTicket {
    uint64_t index = 0;  // At which its key stands; 0: it is new.
    TicketPtr before;    // As it stands there, if it was asked for.
    PayloadPtr payload;  // Of a new one; null: it is empty.
  };
  struct Planned {
    Folder folder;
    absl::flat_hash_map<Id, PlannedTicket> tickets;
    bool gone = false;           // Destroyed.
    bool is_new = false;         // Its document.
    bool writes_record = false;  // Otherwise it is only looked at.
    bool writes_document = true;
    std::vector<std::pair<Id, std::string>> indexed;
  };

  // Adds `owner` for each operation that was added since the last call.
  void Own(About about, const std::string& name = "", const Id& session = {});
  ledger::CommitResult Add(const ledger::SemaphoreDelta& delta);
  void Apply(const ledger::SemaphoreDelta& delta, Planned* planned);
  // False: one of them is not there.
  static bool ApplyTickets(const ledger::SemaphoreDelta& delta, Planned* planned);
  void WriteTickets(Planned* planned);
  // What a long queue does not keep in the document.
  void WritePages(Planned* planned);
  absl::Status CheckTtl(const Claim& claim) const;
  void Destroy(Planned* planned);
  absl::Status Write(Planned* planned);
  absl::Status PlanPlaces(Planned* planned);
  absl::Status PlanBoundPlaces(Planned* planned);
  void EndLost(Planned* planned);
  NodeRef HostOf(const Lease& lease) const;
  absl::Status AddPlaces(Folder* folder, NodeRef* host, size_t count,
                         std::vector<std::string>* places);
  void PlanRecord(Planned* planned);
  void IndexClaims(Planned* planned, const Claim& claim);
  ledger::CommitResult AddSessions(const ledger::Transaction& transaction);
  ledger::CommitResult AddReads(const ledger::Transaction& transaction);
  ledger::CommitResult AddAnswers(const ledger::Transaction& transaction);
  void AddMail(const ledger::Transaction& transaction);

  ConsulStore* const store_;
  const ledger::Transaction* transaction_ = nullptr;  // nullptr: it mends.
  TransactionRequest request_;
  std::vector<Owner> owners_;
  std::vector<Planned> folders_;
  std::vector<std::pair<Id, ledger::SessionPtr>> sessions_;  // As they then are; nullptr: gone.
  absl::flat_hash_map<Id, uint64_t> ordinals_;
  absl::Status failure_;
};

}  // namespace semaphored::consul
