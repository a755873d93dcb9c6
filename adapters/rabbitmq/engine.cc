#include "adapters/rabbitmq/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/adapter.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/slot_store.h"
#include "adapters/rabbitmq/token_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr QueueOptions kOfNode{.durable = false, .exclusive = true};
constexpr std::chrono::milliseconds kPause{50};

// One consumer can have so many messages.
constexpr uint32_t kLimitMax = 60'000;

// The broker looks at the age of what is held once a minute, so a channel is closed at
// consumer_timeout at the earliest: a lease is over some time before, with its grace.
int64_t LongestHold(const Url& url) {
  const std::chrono::milliseconds most = url.consumer_timeout;
  if (most.count() == 0) return 0;
  return (most - std::min<std::chrono::milliseconds>(most / 10, std::chrono::seconds(30))).count();
}

// No node has to be declared dead here: the broker takes back what a dead connection had. A node is
// an exclusive queue of its name, so that no two daemons have the same one.
class RabbitNodes : public NodeStore {
 public:
  explicit RabbitNodes(Url url) : url_(std::move(url)), connection_(url_, "semaphored node") {}

  using NodeStore::Join;
  absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                               const Node*) override {
    node_id_ = node_id;
    daemon_ = daemon;
    // The broker may not have noticed yet that an earlier life has ended.
    const auto patience = 2 * url_.heartbeat;
    const auto deadline = SteadyClock::now() + patience;
    absl::Status status = Claim();
    if (absl::IsAlreadyExists(status)) {
      spdlog::info("node id '{}': another connection has it; waiting at most {} s for its end",
                   node_id, std::chrono::ceil<std::chrono::seconds>(patience).count());
    }
    while (absl::IsAlreadyExists(status) && SteadyClock::now() < deadline) {
      std::this_thread::sleep_for(kPause);
      status = Claim();
    }
    if (absl::IsAlreadyExists(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat("rabbitmq: another daemon has the node id ", node_id,
                       " and is alive: stop that one, or give this one another --node-id"));
    }
    if (!status.ok()) return status;
    return self_;
  }

  absl::Status Heartbeat() override {
    absl::Status status = Claim();
    if (absl::IsAlreadyExists(status))
      return absl::FailedPreconditionError(
          absl::StrCat("rabbitmq: another daemon has taken the node id ", node_id_));
    if (status.ok()) ++counter_;
    return status;
  }

  // The broker frees the name when the connection ends.
  absl::Status Leave() override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<Node>> Observe() override {
    return std::vector<Node>{
        {.ref = self_, .node_id = node_id_, .counter = counter_, .daemon = daemon_}};
  }

  absl::StatusOr<bool> DeclareDead(const Node&) override { return false; }

 private:
  // Declared again each time: on this connection that changes nothing.
  absl::Status Claim() {
    if (absl::Status status = connection_.Open(); !status.ok()) return status;
    if (!connection_.is_open(channel_)) {
      absl::StatusOr<Channel> channel = connection_.OpenChannel();
      if (!channel.ok()) return channel.status();
      channel_ = *channel;
    }
    return connection_
        .Declare(channel_, absl::StrCat(url_.prefix, "semaphored.node.", node_id_), kOfNode)
        .status();
  }

  const Url url_;
  Connection connection_;
  Channel channel_ = 0;
  std::string node_id_;
  std::string daemon_;
  // Rows of others are never seen: a number is only for ourselves.
  const NodeRef self_{1, 1};
  uint64_t counter_ = 0;
};

class RabbitEngine : public Engine {
 public:
  explicit RabbitEngine(Url url) : url_(std::move(url)), nodes_(url_) {
    guarantees_.adapter = "rabbitmq";
    guarantees_.leases_survive_daemon = false;
    guarantees_.weighted = false;
    guarantees_.permits_per_request_max = 1;
    guarantees_.queue = false;
    guarantees_.history = false;
    guarantees_.safe_at_failover = false;
    guarantees_.shares_claims = false;
    guarantees_.grants_at_once = false;
    guarantees_.lowest_slot = false;
    guarantees_.holder_cap = false;
    guarantees_.revision_counts_claims = false;
    guarantees_.made_on_use = false;
    guarantees_.limit_max = kLimitMax;
    guarantees_.longest_hold_max_ms = LongestHold(url_);
    guarantees_.vouch_max_ms = VouchMax(url_).count();
    if (url_.layout == Url::Layout::kSlots) OfSlots();
  }

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return nodes_; }

  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    // A session is known to its lane alone: claims under it must all be there.
    if (lanes_ == guarantees_.lanes_max)
      return absl::FailedPreconditionError("rabbitmq: one lane is all that may be opened");
    auto holding = std::make_unique<Connection>(url_, "semaphored permits");
    auto other = std::make_unique<Connection>(url_, "semaphored administration");
    if (url_.layout == Url::Layout::kTokens) {
      holding->KeepLate();
      other->KeepLate();
    }
    if (absl::Status status = holding->Open(); !status.ok()) return status;
    std::unique_ptr<PermitStore> store;
    if (url_.layout == Url::Layout::kSlots) {
      store = std::make_unique<SlotStore>(std::move(holding), std::move(other), url_.prefix,
                                          guarantees_, upkeep());
    } else {
      auto tokens = std::make_unique<TokenStore>(std::move(holding), std::move(other), url_.prefix,
                                                 guarantees_, upkeep());
      if (absl::Status status = tokens->Start(); !status.ok()) return status;
      store = std::move(tokens);
    }
    ++lanes_;
    return MakeAdapter(std::move(store), options);
  }

 private:
  void OfSlots() {
    guarantees_.push = false;
    guarantees_.fencing = false;
    guarantees_.administers_all = false;
    guarantees_.settings = false;
    guarantees_.revisions = false;
    guarantees_.names = false;
    guarantees_.verifies_removed_slots = false;
    guarantees_.lowest_slot = true;
    guarantees_.limit_max = kSlotsMax;
    guarantees_.longest_hold_max_ms = 0;  // No delivery is held, whose age the broker would mind.
  }

  const Url url_;
  RabbitNodes nodes_;
  Guarantees guarantees_;
  uint32_t lanes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> OpenRabbit(const std::string& url) {
  absl::StatusOr<Url> read = ReadUrl(url);
  if (!read.ok()) return read.status();
  return std::make_unique<RabbitEngine>(*std::move(read));
}

absl::Status RemoveAll(const std::string& url) {
  absl::StatusOr<Url> read = ReadUrl(url);
  if (!read.ok()) return read.status();
  if (read->layout == Url::Layout::kSlots) return absl::OkStatus();  // No list has their names.
  Connection connection(*read, "semaphored removal");
  TokenBroker broker(&connection, read->prefix);
  absl::StatusOr<std::vector<std::string>> names = broker.Names("", "", UINT32_MAX);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    bool begun = false;
    if (absl::Status status = broker.Destroy(name, /*incarnation=*/0, &begun); !status.ok())
      return status;
  }
  return broker.RemoveRegistry();
}

}  // namespace semaphored::rabbitmq
