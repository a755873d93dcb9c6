// The ledger's rows in Consul, which any number of daemons share, and foreign clients with them.
//
// A semaphore is a document (document.h) beside the record that foreign clients share
// (lock_record.h); a commit is one transaction of Consul, checked by the indexes at which all that
// it rests upon was read. What was read is remembered, by semaphore, so that a commit need not
// read.
//
// Each commit raises the number in the lane's key from n to n + 1, by its index. So Settle can find
// out what became of a commit whose answer was lost: it raises the number itself, by two. If that
// works the lost commit can never land; if it does not, it has landed, at the key's index, and all
// that it gave follows from that. A node's lanes are deleted when another life takes its id, or it
// is declared dead: then no commit of theirs lands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "adapters/common/client_names.h"
#include "adapters/consul/client.h"
#include "adapters/consul/folder.h"
#include "adapters/consul/format.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/name_lists.h"
#include "adapters/consul/places.h"
#include "adapters/consul/pulse.h"
#include "adapters/consul/quiet_regions.h"
#include "adapters/consul/request_book.h"
#include "adapters/consul/request_sweep.h"
#include "adapters/consul/watches.h"
#include "adapters/ledger/shared_store.h"

namespace semaphored::consul {

// A session's row and the index at which it stands.
struct SessionAtIndex {
  ledger::SessionPtr session;
  uint64_t index = 0;
};

class ConsulStore : public ledger::SharedStore {
 public:
  // `pulse`: of the daemon's check, if permits end with it; otherwise nullptr. Outlives this. `upkeep`: where errors
  // of the upkeep are reported.
  ConsulStore(Url url, const Guarantees& guarantees, NodeRef self, uint32_t lane,
              const Pulse* pulse = nullptr,
              std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>());
  ~ConsulStore() override;

  // Makes this lane's key. FAILED_PRECONDITION: the node was replaced or declared dead.
  absl::Status Start();
  // From now on requests of clients that have been silent for so long are forgotten.
  void SweepRequests(std::chrono::milliseconds retention);
  // What is shown to people of what the store does by itself has this time; otherwise 0.
  void ShowTime(std::function<int64_t()> now_unix_ms) { now_unix_ms_ = std::move(now_unix_ms); }

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
  bool TakeMissedNotices() override;
  absl::Status WhyUnusable(const std::string& name) override;
  absl::StatusOr<std::optional<ledger::Pruned>> Repair(const std::string& name) override;
  absl::StatusOr<std::optional<ledger::Adoptable>> Adopt(const std::string& name,
                                                         uint32_t limit) override;
  void ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) override;
  void Wake() override { watches_.Wake(); }

 private:
  class Writer;  // commit.h
  class Mender;  // mending.h

  // ---- reading ----
  // The folders of these names, as one moment's truth for as many as fit one request. Without
  // tickets the document must not be written from it.
  absl::StatusOr<std::vector<Folder>> ReadFolders(absl::Span<const std::string> names,
                                                  bool with_tickets = true);
  absl::StatusOr<std::vector<Folder>> ReadFew(absl::Span<const std::string> names,
                                              bool with_tickets = true);
  absl::Status ReadSomePayloads(absl::Span<const TicketAt> tickets,
                                std::vector<PayloadPtr>* payloads);
  void Keep(Folder folder);
  void KeepDamaged(const Folder& folder);
  absl::Status ReadSessions(const std::vector<Folder>& folders, ledger::Image* image);
  // Remembers it, too, if `keeps` says so.
  absl::StatusOr<ledger::SessionPtr> KeepSession(
      const Entry& entry,
      absl::FunctionRef<bool(const Session&)> keeps = [](const Session&) { return true; });

  // ---- committing ----
  // `stale`: what it rests upon may have changed, and not only rows of requests.
  ledger::CommitResult Lose(const ledger::Transaction& transaction, bool requests_lost,
                            bool stale = true);
  // Reads the blocks of rows that the transaction changes, where they are not known.
  absl::Status LearnRequests(const ledger::Transaction& transaction);
  ledger::CommitResult JudgeRefusal(ledger::Transaction& transaction,
                                    const TransactionAnswer& answer, bool only_requests);
  ledger::CommitResult Win(ledger::Transaction* transaction, uint64_t index);
  // What the lane's key says now. nullopt: it is gone.
  struct LaneNumber {
    uint64_t commits = 0;
    uint64_t index = 0;
  };
  absl::StatusOr<std::optional<LaneNumber>> ReadLane();

  // ---- waiting ----
  // After a client has last waited there: the next one mostly comes soon.
  static constexpr std::chrono::seconds kWatchedFor{10};
  void Tidy(bool look);
  void WatchFolders();
  void DropNotices(const std::vector<Entry>& entries);
  void HearNotices(const std::string& body, std::vector<ledger::ChangeNotice>* notices);

  const Url url_;
  const Guarantees guarantees_;
  const NodeRef self_;
  const uint32_t lane_;
  const Keys keys_;
  const std::string lane_key_;
  const Pulse* const pulse_;
  const std::shared_ptr<Upkeep> upkeep_;
  Client client_;
  Watches watches_;
  Places places_;
  RequestBook requests_;
  std::optional<RequestSweep> sweep_;
  ledger::ClientNames names_;
  const ClientName name_of_ = [this](uint32_t number) -> const std::string& {
    return names_.NameOf(number);
  };
  const ClientNumber number_of_ = [this](const std::string& name) { return names_.NumberOf(name); };
  uint64_t commits_ = 0;
  uint64_t lane_index_ = 0;
  absl::flat_hash_map<std::string, Folder> folders_;
  uint64_t readings_ = 0;  // How often folders were read: the number of the last reading.
  QuietRegions quiet_;
  NameLists lists_;
  absl::flat_hash_map<Id, SessionAtIndex> sessions_;
  // Of which session it is written that it may have claims in which semaphore.
  absl::flat_hash_map<Id, absl::flat_hash_set<std::string>> indexed_;
  // Semaphores with waiters: their folders are watched, so that foreign clients who make room, or
  // come, are noticed. And until when they are watched.
  absl::flat_hash_map<std::string, SteadyTime> shared_;
  SteadyTime looked_at_{};
  uint64_t notices_index_ = 0;  // The newest that was heard.
  bool missed_ = true;
  std::function<int64_t()> now_unix_ms_ = [] { return int64_t{0}; };
  std::unique_ptr<Writer> writer_;  // Of the commit under way or unknown.
};

}  // namespace semaphored::consul
