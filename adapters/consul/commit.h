// One commit of the ledger as one transaction of Consul, and what follows when it has won. It works
// on copies: nothing changes in the store before that.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/consul/store.h"

namespace semaphored::consul {

// Contenders' entries that are kept for the next grant of a semaphore.
inline constexpr size_t kSparePlacesMax = 4;

// So many waiters are let in by one commit. With whatever made the room for them that always fits a
// transaction of Consul, also if each is in another semaphore:
//
//   the lane's key                                                        1
//   for each waiter: document, record, epoch of its session, its ticket   4 × 10
//   places that are made in the commit itself                             10
//   what made the room, the costliest being the end of a session with
//   one lease: session 3, document and record 2, ticket and payload 2,
//   requests 2, floors 2                                                  11
//                                                                         62 of 64
//
// Further places are made before the commit. What can wait (pages, places to spare, notices) goes along
// if there is room.
inline constexpr uint32_t kGrantsPerCommitMax = 10;

class ConsulStore::Writer {
 public:
  // What an operation is about, so that its refusal can be understood.
  enum class About : uint8_t { kLane, kSemaphore, kPlace, kSession, kRequests, kNotice };
  struct Owner {
    About about = About::kNotice;
    std::string name;  // Of the semaphore, or Consul's session.
    Id session;
  };

  explicit Writer(ConsulStore* store) : store_(store) {}

  // Why a commit, or a mending, cannot be written yet: a semaphore lacks more places than it may make
  // itself, or, with `count` 0, has more of them to spare than it may take away.
  struct Lacking {
    std::string name;
    NodeRef host;  // Whose, if they end with a daemon.
    size_t count = 0;
  };

  // kWon: it is ready to be sent. kLost: it would be refused. kFailed: it cannot be written (see
  // lacking()); OUT_OF_RANGE: it is more than Consul takes at once.
  ledger::CommitResult Build(const ledger::Transaction& transaction);
  // The same for a folder that is to be mended: its places and its record. Of what ended with a daemon
  // only a part.
  absl::Status BuildMending(const Folder& folder);
  // The same to do away with what is lacking, or a part of it. The semaphore's revision stays.
  absl::Status BuildPlaces(const Folder& folder, const Lacking& lacking);
  // The same for a folder whose tickets are damaged, or of whose tickets only these payloads are
  // left, with their sizes; all of its tickets' keys are understood.
  absl::Status BuildTicketMending(const Folder& folder,
                                  const std::vector<std::pair<Id, uint32_t>>& payloads);

  const std::optional<Lacking>& lacking() const { return lacking_; }
  const TransactionRequest& request() const { return request_; }
  const std::vector<Owner>& owners() const { return owners_; }
  // Nothing but blocks of requests stood elsewhere than was known.
  bool OnlyRequestsRefused(const TransactionAnswer& answer) const;
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
    bool only_touched = false;  // Nothing changes but the revision.
    std::vector<std::pair<Id, std::string>> indexed;
  };

  // Sees to it that what can wait leaves room for what cannot.
  void Reserve(const ledger::Transaction& transaction);
  bool TakeRoom();
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
  absl::Status Destroy(const Folder& before, Planned* planned);
  absl::Status Write(Planned* planned);
  void WriteOwnDocument(Planned* planned);
  void DropLost(Folder* folder);
  absl::Status PlanPlaces(Planned* planned);
  absl::Status PlanBoundPlaces(Planned* planned);
  absl::Status GivePlaces(Folder* folder, const Lease& lease, std::vector<BoundPlaces>* free);
  void TakeAway(Folder* folder);
  void EndLost(Planned* planned);
  NodeRef HostOf(const Lease& lease) const;
  absl::Status AddPlaces(Folder* folder, NodeRef* host, size_t count,
                         std::vector<std::string>* places);
  void PlanRecord(Planned* planned);
  void IndexClaims(const ledger::SemaphoreDelta& delta, Planned* planned);
  ledger::CommitResult AddSessions(const ledger::Transaction& transaction);
  ledger::CommitResult AddReads(const ledger::Transaction& transaction);
  ledger::CommitResult AddRequests(const ledger::Transaction& transaction);
  void AddNotice(const ledger::Transaction& transaction);

  ConsulStore* const store_;
  const ledger::Transaction* transaction_ = nullptr;  // nullptr: it mends.
  TransactionRequest request_;
  std::vector<Owner> owners_;
  std::vector<Planned> folders_;
  std::vector<std::pair<Id, ledger::SessionPtr>> sessions_;  // As they then are; nullptr: gone.
  absl::flat_hash_map<Id, uint64_t> ordinals_;
  size_t room_ = 0;        // Operations for what can wait.
  size_t new_places_ = 0;  // That may be made beside it.
  std::optional<Lacking> lacking_;
  absl::Status failure_;
};

}  // namespace semaphored::consul
