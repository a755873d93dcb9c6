#include "adapters/consul/dead_nodes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "adapters/consul/format.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

constexpr size_t kNamesAtOnce = TransactionRequest::kOperationsMax / 2;
constexpr std::chrono::minutes kAfterError{1};
constexpr size_t kOperationsOfNode = 4;
constexpr size_t kNodesAtOnce = TransactionRequest::kOperationsMax / kOperationsOfNode;

}  // namespace

absl::Status DeadNodes::Begin(const std::vector<DeadNode>& dead) {
  in_use_.clear();
  names_.clear();
  next_ = 0;
  const absl::StatusOr<std::vector<Entry>> sessions = client_->ReadTree(keys_->Sessions());
  if (!sessions.ok()) return sessions.status();
  for (const Entry& entry : *sessions) {
    const absl::StatusOr<Session> session = ReadSession({}, entry.value, NoNumber);
    if (!session.ok()) return session.status();
    Count(session->host);
  }
  const std::string documents = keys_->Documents();
  const absl::StatusOr<std::vector<std::string>> keys = client_->ListKeys(documents);
  if (!keys.ok()) return keys.status();
  for (const std::string& key : *keys) {
    if (std::optional<std::string> name = Keys::NameIn(key, documents))
      names_.push_back(*std::move(name));
  }
  found_ = dead;
  looking_ = true;
  return absl::OkStatus();
}

// A document and its pages are read together: a waiter may go from one to the other.
absl::Status DeadNodes::LookAtSome() {
  TransactionRequest request;
  const size_t end = std::min(next_ + kNamesAtOnce, names_.size());
  for (size_t i = next_; i < end; ++i) {
    request.GetTree(keys_->Document(names_[i]));
    request.GetTree(keys_->Pages(names_[i]));
  }
  const absl::StatusOr<std::vector<Entry>> entries = client_->Read(request);
  if (!entries.ok()) return entries.status();
  const auto count_claim = [this](const Claim& claim) {
    if (claim.detached()) Count(claim.host);
  };
  for (const Entry& entry : *entries) {
    if (const auto name = Keys::NameIn(entry.key, keys_->Documents())) {
      const absl::StatusOr<Document> document =
          ReadDocument(*name, entry.value, entry.create_index, entry.modify_index, NoNumber);
      if (!document.ok()) return document.status();
      for (const auto& [id, lease] : document->leases) {
        count_claim(*lease);
        in_use_.insert(lease->moved_from);
      }
      for (const auto& [id, waiter] : document->waiters) count_claim(*waiter);
      for (const NodeRef& host : document->delays) Count(host);
    } else if (const auto paged = keys_->NameOfPage(entry.key)) {
      const auto waiters = ReadPage(*paged, entry.value, NoNumber);
      if (!waiters.ok()) return waiters.status();
      for (const WaiterPtr& waiter : *waiters) count_claim(*waiter);
    }
  }
  next_ = end;
  return absl::OkStatus();
}

absl::StatusOr<bool> DeadNodes::Remove(const std::vector<DeadNode>& nodes) {
  TransactionRequest request;
  for (const DeadNode& node : nodes) {
    request.DeleteCas(node.key, node.index);
    request.Delete(keys_->Heartbeat(node.ref.number));
    request.DeleteTree(keys_->Lanes(node.ref.number));
    request.DeleteTree(keys_->Notices(node.ref.number));
  }
  const absl::StatusOr<TransactionAnswer> answer = client_->Write(request);
  if (!answer.ok()) return answer.status();
  return answer->done;
}

absl::StatusOr<std::vector<NodeRef>> DeadNodes::RemoveSome(const std::vector<DeadNode>& dead,
                                                           SteadyTime now) {
  std::vector<NodeRef> removed;
  if (!looking_ && (dead.empty() || now < look_at_)) return removed;
  const SteadyTime until = SteadyClock::now() + kTurn;
  const auto fail = [&](absl::Status status) {
    looking_ = false;
    look_at_ = now + std::min<std::chrono::milliseconds>(pause_, kAfterError);
    return status;
  };
  if (!looking_) {
    if (absl::Status status = Begin(dead); !status.ok()) return fail(std::move(status));
  }
  while (next_ < names_.size()) {
    if (absl::Status status = LookAtSome(); !status.ok()) return fail(std::move(status));
    if (SteadyClock::now() >= until) return removed;
  }
  std::erase_if(found_, [&](const DeadNode& node) { return in_use_.contains(node.ref.number); });
  while (!found_.empty() && SteadyClock::now() < until) {
    const size_t count = std::min(kNodesAtOnce, found_.size());
    const std::vector<DeadNode> some(found_.end() - static_cast<std::ptrdiff_t>(count),
                                     found_.end());
    found_.resize(found_.size() - count);
    const absl::StatusOr<bool> gone = Remove(some);
    if (!gone.ok()) return fail(gone.status());
    if (*gone) {
      for (const DeadNode& node : some) removed.push_back(node.ref);
      continue;
    }
    // One of them has come back as another life.
    for (const DeadNode& node : some) {
      const absl::StatusOr<bool> alone = Remove({node});
      if (!alone.ok()) return fail(alone.status());
      if (*alone) removed.push_back(node.ref);
    }
  }
  if (!found_.empty()) return removed;
  looking_ = false;
  look_at_ = now + pause_;
  return removed;
}

}  // namespace semaphored::consul
