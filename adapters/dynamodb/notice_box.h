// Change notices for this daemon: which semaphores others have changed. DynamoDB pushes
// nothing, so a daemon that commits writes an item into the partition of each daemon concerned, and
// one thread here reads this daemon's own partition, for all lanes. A notice is written in the
// transaction that it reports: none is lost.
//
// The pause between two readings is what a hand-off between daemons takes longer, and decides what
// waiting costs: see PollPace.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/ledger/change_notice.h"

namespace semaphored::dynamodb {

// When to ask next: after an eighth of the time for which nothing has happened, within bounds.
class PollPace {
 public:
  PollPace(std::chrono::milliseconds min, std::chrono::milliseconds max) : min_(min), max_(max) {}

  // One more claim waits, or a notice has come.
  void Stir(SteadyTime now) { stirred_at_ = now; }
  // After having asked at this time. `waiting`: a claim here waits; otherwise claims are held that
  // others can end.
  SteadyTime Next(SteadyTime asked_at, bool waiting) const;

 private:
  const std::chrono::milliseconds min_;
  const std::chrono::milliseconds max_;
  SteadyTime stirred_at_{};
};

// The notice for one semaphore.
struct StoredNotice {
  std::string semaphore;
  uint64_t revision = 0;
  std::string details;  // As ChangeNotice::details.
  std::string stamp;    // No other notice of the same semaphore has it.
};
// `item` is one of the partition; nullopt: it is not understood.
std::optional<StoredNotice> ReadNotice(const json& item);
json WriteNotice(uint32_t node, const StoredNotice& notice, int64_t expires_at_s);

// What is in the partition against what was there: which notices are new, and which may be deleted,
// since they were heard and the partition is long.
class NoticeSorter {
 public:
  struct Sorted {
    std::vector<ledger::ChangeNotice> notices;
    std::vector<StoredNotice> heard_long_ago;
  };
  Sorted Sort(const std::vector<json>& items, SteadyTime now);

 private:
  struct Heard {
    std::string stamp;
    SteadyTime at{};
    uint64_t round = 0;
  };
  absl::flat_hash_map<std::string, Heard> heard_;  // By semaphore.
  uint64_t round_ = 0;
};

class NoticeBox {
 public:
  NoticeBox(const Url& url, std::shared_ptr<CredentialSource> credentials, uint32_t node,
            std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>());
  // Waits for a request that is under way.
  ~NoticeBox();
  NoticeBox(const NoticeBox&) = delete;
  NoticeBox& operator=(const NoticeBox&) = delete;

  // A lane's. Used by the lane's thread, but for Wake(). The box outlives it.
  class Ear {
   public:
    explicit Ear(NoticeBox* notice_box);
    ~Ear();
    Ear(const Ear&) = delete;
    Ear& operator=(const Ear&) = delete;

    // Waits for notices until `deadline` or Wake(); a deadline in the past: only takes what is there.
    std::vector<ledger::ChangeNotice> Take(SteadyTime deadline);
    // A notice was dropped since the last call: more came than was taken.
    bool TakeMissed();
    // How many claims of this daemon wait, or are held, in this lane. With none in any lane the
    // box does not ask for notices.
    void Tell(size_t waiting, size_t holding);
    // Any thread.
    void Wake();

   private:
    friend class NoticeBox;
    NoticeBox* const notice_box_;
    // Under the box's mutex.
    std::vector<ledger::ChangeNotice> heard_;
    bool missed_ = false;
    bool woken_ = false;
    size_t waiting_ = 0;
    size_t holding_ = 0;
    std::condition_variable changed_;
  };

 private:
  void Run();
  // Asks once, and gives all lanes what is new. Without the mutex.
  absl::Status Ask();
  void Drop(const std::vector<StoredNotice>& notices);

  const std::string table_;
  const std::string partition_;
  const uint32_t node_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Upkeep> upkeep_;
  Client client_;  // The thread's.
  NoticeSorter sorter_;
  std::mutex mutex_;
  std::condition_variable stirred_;
  std::vector<Ear*> ears_;
  PollPace pace_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace semaphored::dynamodb
