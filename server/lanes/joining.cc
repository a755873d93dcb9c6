#include "server/lanes/joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "server/lanes/daemon_card.h"

namespace semaphored {
namespace {

constexpr Milliseconds kReportPause(2000);
constexpr int kLooksInTtl = 10;

class Joining {
 public:
  Joining(NodeStore* nodes, const Clock* clock, const JoinOptions& options)
      : nodes_(nodes), clock_(clock), options_(options) {}

  absl::StatusOr<NodeRef> Run() {
    if (absl::Status status = Watch(); !status.ok()) return status;
    absl::StatusOr<NodeRef> self = nodes_->Join(options_.node_id, options_.card(), &row_);
    if (!absl::IsAborted(self.status())) return self;
    // Another newcomer was first, or the daemon that was silent has come back.
    if (absl::Status status = Look(); !status.ok()) return status;
    return Refusal();
  }

 private:
  // Reads the row; an empty one if there is none.
  absl::Status Look() {
    sent_ = clock_->Now();
    absl::StatusOr<std::vector<NodeStore::Node>> nodes = nodes_->Observe();
    returned_ = clock_->Now();
    if (!nodes.ok()) return nodes.status();
    const auto found = std::ranges::find(*nodes, options_.node_id, &NodeStore::Node::node_id);
    row_ = found == nodes->end() ? NodeStore::Node{} : std::move(*found);
    return absl::OkStatus();
  }

  bool IsFree() const {
    return row_.ref.number == 0 || row_.dead || row_.stopped || options_.has_ended(row_.daemon);
  }

  // Returns when the id may be taken from the row as it was read last.
  absl::Status Watch() {
    if (absl::Status status = Look(); !status.ok()) return status;
    SteadyTime since = returned_;
    SteadyTime last = returned_;
    while (!IsFree() && sent_ - since < options_.node_ttl) {
      Report(std::chrono::duration_cast<Milliseconds>(since + options_.node_ttl - sent_));
      if (!options_.wait(options_.node_ttl / kLooksInTtl))
        return absl::CancelledError("asked to stop");
      const NodeStore::Node before = row_;
      if (absl::Status status = Look(); !status.ok()) return status;
      const bool moved = row_.counter != before.counter || row_.ref != before.ref;
      if (moved && !IsFree()) return Refusal();
      // As in membership.h: if this process was paused, so may the other daemon have been.
      if (returned_ - last > options_.node_ttl / 2) since = returned_;
      last = returned_;
    }
    return absl::OkStatus();
  }

  void Report(Milliseconds left) {
    if (reported_ && clock_->Now() - *reported_ < kReportPause) return;
    reported_ = clock_->Now();
    options_.report(fmt::format("node id '{}' belongs to {}: waiting for {:.1f} s more to see "
                                "whether it is alive",
                                options_.node_id, Describe(ReadCard(row_.daemon)),
                                static_cast<double>(left.count()) / 1000),
                    left);
  }

  absl::Status Refusal() const {
    return absl::FailedPreconditionError(fmt::format(
        "{} has it and is alive: stop that one, or give this one a node id of its own: --node-id",
        Describe(ReadCard(row_.daemon))));
  }

  NodeStore* nodes_;
  const Clock* clock_;
  const JoinOptions& options_;
  NodeStore::Node row_;
  SteadyTime sent_{};      // The last read,
  SteadyTime returned_{};  // … and its answer.
  std::optional<SteadyTime> reported_;
};

}  // namespace

absl::StatusOr<NodeRef> JoinWithCare(NodeStore* nodes, const Clock* clock,
                                     const JoinOptions& options) {
  return Joining(nodes, clock, options).Run();
}

}  // namespace semaphored
