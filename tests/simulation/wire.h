// The way between a client and a daemon, and the daemon's end of it: what server/rpc does with
// gRPC.
//
// A channel keeps the order of its messages. They are late, wait while the way is cut or the daemon
// paused, and are lost with the channel. Whoever waits too long gives the channel up, as keepalive
// does.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/daemon.h"

namespace semaphored::simulation {

// A semaphore in an administrative answer.
struct Shown {
  uint32_t limit = 0;
  bool paused = false;
  uint32_t held = 0;
  uint64_t waiting = 0;
};

// What a client is told, whatever the call was.
struct Reply {
  enum class Kind {
    kGranted,
    kQueued,
    kRefused,
    kRecalled,
    kEnded,
    kAlive,
    kReleased,
    kVerified,
    kDone,
    kOpened,
    kSessionEnded,
    kEnqueued,
    kAssigned,
    kFinished
  };
  Kind kind = Kind::kDone;
  uint64_t tag = 0;  // Of the call or command.
  Id claim;          // kOpened: the session.
  std::string semaphore;
  std::vector<uint32_t> slots;
  uint64_t token = 0;
  int64_t elapsed_ms = 0;
  int64_t valid_for_ms = 0;
  uint64_t epoch = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  Reason reason = Reason::kUnspecified;
  EndCause cause = EndCause::kNone;
  uint32_t released = 0;   // kReleased, and …
  uint32_t remaining = 0;  // … what is left of the lease.
  // kDone, to an administrative act, and the semaphore as the answer shows it.
  uint32_t affected = 0;
  bool changed = false;
  std::optional<Shown> shown;
  bool held = false;
  bool resumed = false;
  std::vector<Id> claims;  // kOpened: what the session still holds.
  // Of the lease that the reply is about; of a session that is opened, of each claim.
  std::vector<RecallNotice> recalls;
  // The client's message since whose arrival the recall's time counts, and how long ago that was.
  uint64_t recall_tag = 0;
  int64_t recall_elapsed_ms = 0;
  Id ticket;             // kEnqueued, kAssigned.
  uint32_t attempt = 0;  // kAssigned, and …
  std::string payload;
};

class Channel;

// Who receives. Replies come while the channel is open.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void OnReply(uint64_t channel, const Reply& reply) = 0;
  virtual void OnBroken(uint64_t channel) = 0;
};

// Which ways are cut: between each client and each node.
class Network {
 public:
  bool cut(int client, int node) const {
    return cut_all_.contains(node) || cut_.contains({client, node});
  }
  void CutNode(int node) { cut_all_.insert(node); }
  void Cut(int client, int node) { cut_.insert({client, node}); }
  void Heal() {
    cut_all_.clear();
    cut_.clear();
  }

 private:
  std::set<int> cut_all_;
  std::set<std::pair<int, int>> cut_;
};

// The daemon's end.
class Connection : public SessionListener, public std::enable_shared_from_this<Connection> {
 public:
  Connection(World* world, Daemon* daemon, std::weak_ptr<Channel> channel)
      : world_(world), daemon_(daemon), channel_(std::move(channel)) {}

  // ---- calls; each is answered with its tag ----
  void Acquire(uint64_t tag, const AcquireParams& params);
  void Hold(uint64_t tag, const AcquireParams& params, bool release_on_disconnect,
            int64_t beat_interval_ms);
  void Renew(uint64_t tag, const std::string& semaphore, const Id& claim, uint64_t acknowledged);
  // Within its session.
  void Acknowledge(const Id& claim, uint64_t recall);
  void Release(uint64_t tag, const ReleaseCommand& command);
  void Verify(uint64_t tag, const VerifyCommand& command);
  void Administer(uint64_t tag, const AdminCommand& command);
  // ---- the session of this connection ----
  void Open(uint64_t tag, const OpenParams& params);
  void Ping(uint64_t tag);
  void AcquireIn(uint64_t tag, const AcquireParams& params);
  void ReleaseIn(uint64_t tag, const ReleaseCommand& command);
  void CancelIn(uint64_t tag);
  void Close(uint64_t tag);
  // ---- tickets ----
  void Enqueue(uint64_t tag, const EnqueueCommand& command);
  void FinishIn(uint64_t tag, const FinishCommand& command);
  // The client is gone, as far as the daemon can see.
  void OnGone();

  // ---- SessionListener ----
  void OnQueued(uint64_t tag, uint64_t position, WaitReason reason,
                int64_t expected_wait_ms) override;
  void OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                 Vouch vouch) override;
  void OnRefused(uint64_t tag, Refusal refusal) override;
  void OnRecalled(uint64_t tag, const Id& claim, const std::string& semaphore,
                  const RecallNotice& recall) override;
  void OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
               EndCause cause) override;
  void OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                const std::vector<HeldLease>& held) override;
  void OnSessionEnded(Refusal refusal) override;
  void OnAssigned(const Assignment& assignment) override;

 private:
  struct Call {
    SteadyTime arrived;
    Id claim;
    bool hold = false;
    bool granted = false;
    bool release_on_disconnect = false;
    int64_t beat_interval_ms = 0;
  };

  SteadyTime Now() const { return daemon_->clock().Now(); }
  // `tag`: of the call that has the lease, if it is no session's.
  void AddRecall(uint64_t tag, const RecallNotice& recall, Reply* reply) const;
  int64_t ElapsedMs(SteadyTime since) const;
  void Begin(uint64_t tag, const AcquireParams& params, Call call);
  void ArmBeat(uint64_t tag);
  void Beat(uint64_t tag);
  void Send(Reply reply);
  void SendRefusal(uint64_t tag, const Refusal& refusal);
  // Counts as a sign of life of the session, if there is one.
  void TouchSession();

  World* world_;
  Daemon* daemon_;
  std::weak_ptr<Channel> channel_;
  std::map<uint64_t, Call> calls_;  // Acquires and holds that the daemon still listens to.
  bool opening_ = false;
  uint64_t open_tag_ = 0;
  SteadyTime open_arrived_;
  uint64_t ping_tag_ = 0;  // Of the session's last sign of life.
  SteadyTime ping_arrived_{};
  Id session_;  // Empty: none is open here.
  bool gone_ = false;
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(World* world, const Network* network, std::shared_ptr<Daemon> daemon, int client,
          std::weak_ptr<Receiver> receiver);
  // Between construction and use.
  void Connect();

  uint64_t number() const { return number_; }
  bool open() const { return open_; }
  Daemon& daemon() { return *daemon_; }

  void Up(std::function<void(Connection&)> message);
  void Down(Reply reply);
  // By the client: nothing more is received; the daemon learns it a little later.
  void Close();
  // The daemon's process has ended.
  void OnDeath();

 private:
  enum Direction { kUp = 0, kDown = 1 };
  struct Message {
    int64_t due_us = 0;
    std::function<void()> deliver;
  };
  void Put(Direction direction, std::function<void()> deliver);
  void Pump(Direction direction);
  void GiveUp();

  World* world_;
  const Network* network_;
  std::shared_ptr<Daemon> daemon_;
  int client_;
  std::weak_ptr<Receiver> receiver_;
  uint64_t number_;
  std::shared_ptr<Connection> connection_;
  bool open_ = true;     // At the client's end.
  bool up_open_ = true;  // At the daemon's end.
  std::deque<Message> messages_[2];
  bool pumping_[2] = {false, false};
  int64_t blocked_since_us_ = -1;
};

}  // namespace semaphored::simulation
