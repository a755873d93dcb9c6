// The ledger's rows in DynamoDB, which any number of daemons share. items.h has the layout,
// docs/adr/0010-dynamodb.md the reasons.
//
// A commit is one TransactWriteItems, under the revisions of the semaphores that it touches. What
// it must know beside the ledger's rows (digests, numbers of the history) is remembered here by
// semaphore, so that it reads nothing.
//
// Each commit raises the number in the lane's item from n to n + 1 and writes its own token beside
// it. So Settle can find out what became of a commit whose answer was lost: it raises the number
// itself, by two. If that works the lost commit can never land; if it does not, the item says
// whose commit has landed. A node's lanes are deleted when another life takes its id, or it is
// declared dead: then no commit of theirs lands. The item also has the generation (generation.h) in
// which the lane last learned which requests have rows.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/common/client_names.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/folder.h"
#include "adapters/dynamodb/hosted_names.h"
#include "adapters/dynamodb/lane_memory.h"
#include "adapters/dynamodb/notice_box.h"
#include "adapters/dynamodb/one_shots.h"
#include "adapters/dynamodb/request_rows.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/ledger/shared_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {

struct StoreOptions {
  Url url;
  NodeRef self;
  uint32_t lane = 0;
  // For how long a client may be silent before it is forgotten, and how far below its highest request
  // one may be.
  std::chrono::milliseconds client_retention = std::chrono::hours(1);
  uint64_t request_window = 1024;
  std::function<int64_t()> now_unix_ms;  // For what is stored.
  // For what is remembered here, and how long; not for requests.
  std::function<SteadyTime()> now = [] { return SteadyClock::now(); };
  // Where errors of the upkeep are reported; not null.
  std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>();
};

class DynamoStore : public ledger::SharedStore {
 public:
  // `notice_box`: of the daemon, for all of its lanes.
  DynamoStore(StoreOptions options, const Guarantees& guarantees,
              std::shared_ptr<CredentialSource> credentials, std::shared_ptr<NoticeBox> notice_box);
  ~DynamoStore() override;

  // Makes this lane's item. FAILED_PRECONDITION: the node was replaced or declared dead.
  absl::Status Start();
  // From now on one-shot requests go whose last state this store has seen for so long.
  void SweepOneShots(std::chrono::milliseconds retention) { one_shots_.Sweep(retention); }

  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override;
  absl::StatusOr<ledger::Image> Look(absl::Span<const std::string> names) override;
  absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) override;
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::vector<PayloadPtr>> ReadPayloads(absl::Span<const TicketAt> tickets) override;
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override;
  absl::StatusOr<SessionAt> LoadSession(const Id& session) override;
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) override;
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override;
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override;
  std::optional<ledger::ChangeDetails> ReadDetails(const ledger::ChangeNotice& notice) override;
  bool TakeMissedNotices() override { return ear_.TakeMissed(); }
  absl::StatusOr<std::optional<ledger::Pruned>> Repair(const std::string& name) override;
  void ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) override;
  void Wake() override { ear_.Wake(); }

 private:
  class Writer;  // commit.h

  SteadyTime Deadline() const { return SteadyClock::now() + options_.url.timeout; }

  // ---- reading ----
  // One for each name; 0: there is none, or it is not understood.
  absl::StatusOr<std::vector<uint64_t>> ReadRevisions(absl::Span<const std::string> names);
  // NOT_FOUND: a claim's session is not there.
  absl::Status ReadSessions(const std::vector<Folder>& folders, ledger::Image* image);
  absl::StatusOr<std::vector<ledger::SessionPtr>> ReadRows(const std::vector<Id>& sessions);
  void AddClients(ledger::Image* image);
  NumberOfClient ClientNumbers();
  absl::Status ReadFloors();

  // ---- committing ----
  void Prepare(const ledger::Transaction& transaction);
  bool RequestsLost(const ledger::Transaction& transaction, ledger::CommitResult* result);
  bool ReadsChanged(const ledger::Transaction& transaction, ledger::CommitResult* result);
  ledger::CommitResult Send(ledger::Transaction& transaction, bool* again);
  ledger::CommitResult JudgeRefusal(ledger::Transaction& transaction, const Cancelled& cancelled,
                                    bool* again);
  ledger::CommitResult Win(ledger::Transaction* transaction);
  ledger::CommitResult Lose(const ledger::Transaction& transaction);
  // Whether the commit has landed, by the lane's item. kUnknown: it may land yet. With `again`: the
  // lane's item has refused it; set if it did so because of the generation.
  ledger::CommitResult ReadFate(ledger::Transaction& transaction, bool* again = nullptr);
  void TellInterest() { ear_.Tell(memory_.waiting(), memory_.holding()); }

  // ---- tidying ----
  void DropLeftovers();
  void LookAtHistory(SteadyTime now);

  const StoreOptions options_;
  const Guarantees guarantees_;
  const std::string table_;
  Client client_;
  const std::shared_ptr<NoticeBox> notice_box_;
  NoticeBox::Ear ear_;
  ledger::ClientNames names_;
  LaneMemory memory_;
  HostedNames hosted_;
  FolderReader folders_;
  OneShotRows one_shots_;
  RequestBook requests_;

  uint64_t commits_ = 0;
  uint64_t token_epoch_ = 0;
  uint64_t history_high_ = 0;  // The last number that this lane has given.
  std::string history_of_;  // The partition to which it last wrote history since it looked there.
  SteadyTime history_looked_at_{};
  // Revisions of destroyed semaphores are not above these, by FloorOf the name. They only rise.
  std::array<uint64_t, kFloorCount> floors_{};

  std::vector<Key> leftovers_;      // Items that mean nothing any more.
  std::unique_ptr<Writer> writer_;  // Of the commit under way or unknown.
};

}  // namespace semaphored::dynamodb
