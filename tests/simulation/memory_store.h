// One daemon's connection to a MemoryEngine, with everything that can go wrong on it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapters/ledger/shared_store.h"
#include "tests/simulation/cell.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/memory_engine.h"

namespace semaphored::simulation {

// What others have changed, as far as one connection has been told.
struct NoticeBox {
  std::vector<ledger::ChangeNotice> notices;  // Their details name an entry of `details`.
  std::map<std::string, ledger::ChangeDetails> details;
  std::function<void()> on_notice;  // May be empty.

  void Put(ledger::ChangeNotice notice, std::optional<ledger::ChangeDetails> told);
};

// Hands out notifications: each write by one connection is told to all others, sometimes late or
// not at all, with or without what it changed.
class Notifier {
 public:
  Notifier(World* world, Faults* faults) : world_(world), faults_(faults) {}
  void Add(const std::shared_ptr<NoticeBox>& notice_box) { notice_boxes_.push_back(notice_box); }
  void Tell(const NoticeBox* writer, const ledger::Transaction& transaction);
  // Another client of the engine has changed the semaphore: all daemons learn that, but not what.
  void TellForeign(const std::string& semaphore, uint64_t revision);
  // Mutant: nobody is told anything.
  bool silent = false;

 private:
  using Told = std::vector<std::pair<ledger::ChangeNotice, std::optional<ledger::ChangeDetails>>>;
  // How late the notice comes; nullopt: it is lost.
  std::optional<int64_t> DelayOfNotice();
  void Send(const std::weak_ptr<NoticeBox>& notice_box, int64_t delay_us, Told told);

  World* world_;
  Faults* faults_;
  std::vector<std::weak_ptr<NoticeBox>> notice_boxes_;
};

// All that live longer than a connection. Outlive it.
struct EngineHandle {
  MemoryEngine* engine = nullptr;
  Notifier* notifier = nullptr;
};

class MemoryStore : public ledger::SharedStore {
 public:
  MemoryStore(EngineHandle handle, std::shared_ptr<EngineLink> link,
              std::function<void()> on_notice, const Cell& cell = {});

  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<ledger::Image> LoadAll() override;
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override;
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
  bool TakeMissedNotices() override;
  absl::Status EndForeign(absl::Span<const std::string> names) override;
  bool GrantsWithheld() override;
  void Wake() override {}

 private:
  // The transaction with rows of its own and the engine's numbers for clients.
  ledger::Transaction ForEngine(const ledger::Transaction& transaction);
  uint32_t ToEngine(uint32_t client) const;
  uint32_t ToLocal(uint32_t client);
  // A one-shot request is the engine's request 1 of a client of its own (common/client_names.h).
  RequestKey ToEngine(const RequestKey& request) const;
  RequestKey ToLocal(const RequestKey& request);
  // `again`: it was sent before, and what became of it then is not known.
  ledger::CommitResult Send(const std::shared_ptr<Write>& write, ledger::Transaction* transaction,
                            bool again);
  ledger::CommitResult Lose(const std::shared_ptr<Write>& write);
  void LandLater(const std::shared_ptr<Write>& write);
  void TakeBack(const Write& write, ledger::Transaction* transaction) const;
  // As EngineLink::Call, on a connection.
  bool Call();
  // A connection that was lost is made again; the change notices of meanwhile are lost.
  void Reconnect();
  // Throws if the transaction grants something though the ledger could know that it must not.
  void CheckWithheld(const ledger::Transaction& transaction) const;
  void AddSemaphore(const StoredSemaphore& stored, ledger::Image* image);
  uint64_t HighestOf(const StoredClient& client) const;
  void AddClient(uint32_t client, ledger::Image* image);
  void AddSession(const Id& id, ledger::Image* image);

  Guarantees guarantees_;
  const Cell cell_;
  EngineHandle handle_;
  std::shared_ptr<EngineLink> link_;
  std::shared_ptr<NoticeBox> notice_box_;
  std::shared_ptr<Write> in_doubt_;
  std::map<uint32_t, std::string> names_;  // Clients, by this connection's number.
  std::map<std::string, uint32_t> numbers_;
  std::map<std::string, ledger::ChangeDetails> details_;  // Of the notices that Wait gave last.
  uint32_t next_number_ = 1u << 31;
  bool connected_ = true;
  bool missed_ = false;            // ChangeNotices, since TakeMissedNotices.
  bool withheld_at_wait_ = false;  // The ledger looks whether it is when it has waited.
};

class MemoryNodeStore : public NodeStore {
 public:
  MemoryNodeStore(MemoryEngine* engine, std::shared_ptr<EngineLink> link)
      : engine_(engine), link_(std::move(link)) {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node* seen) override;
  absl::Status Heartbeat() override;
  absl::Status Leave() override;
  absl::StatusOr<std::vector<Node>> Observe() override;
  absl::StatusOr<bool> DeclareDead(const Node& seen) override;

 private:
  MemoryEngine* engine_;
  std::shared_ptr<EngineLink> link_;
  NodeRef self_;
  BeatCounter counter_;
};

}  // namespace semaphored::simulation
