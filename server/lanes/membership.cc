#include "server/lanes/membership.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored {
namespace {

constexpr SteadyTime kNever = SteadyTime::min();
// Of nodes that are found dead: a take-over asks the engine for each.
constexpr size_t kFoundDeadAtOnce = 1000;

MembershipOptions WithDefaults(MembershipOptions options) {
  if (options.margin < Milliseconds(0)) options.margin = options.node_ttl / 10;
  return options;
}

}  // namespace

Membership::Membership(NodeStore* store, NodeRef self, const Clock* clock,
                       MembershipOptions options, ProgressCheck lanes_progressed)
    : store_(store),
      self_(self),
      clock_(clock),
      options_(WithDefaults(std::move(options))),
      lanes_progressed_(std::move(lanes_progressed)),
      last_read_(kNever) {
  SetVouchUntil(options_.exclusive ? SteadyTime::max() : kNever);
}

Membership::TickResult Membership::Tick() {
  TickResult result;
  ForgetTold();
  if (fatal_.ok()) {
    result.heartbeat = Heartbeat();
    in_touch_ = result.heartbeat.ok();
    (in_touch_ ? figures_.sent : figures_.failed) += 1;
  }
  // An exclusive engine has no living nodes but us; what dead ones left is found at the start.
  if (fatal_.ok() && !options_.exclusive) {
    // An engine that takes no writes makes everyone's counter stand still: who could not write may
    // not judge.
    if (result.heartbeat.ok()) {
      Observe(&result);
    } else {
      last_read_ = kNever;
    }
  }
  result.fatal = fatal_;
  return result;
}

absl::Status Membership::Leave() {
  return fatal_.ok() && in_touch_ ? store_->Leave() : absl::OkStatus();
}

absl::Status Membership::Heartbeat() {
  const SteadyTime sent = clock_->Now();
  if (progress_since_ != SteadyTime{} && !lanes_progressed_(progress_since_)) {
    return absl::UnavailableError("no heartbeat was sent: a lane has made no progress");
  }
  progress_since_ = sent;
  absl::Status status = store_->Heartbeat();
  if (status.ok()) {
    heartbeat_at_ = sent.time_since_epoch().count();
    if (!options_.exclusive) SetVouchUntil(sent + options_.node_ttl - options_.margin);
  } else if (absl::IsFailedPrecondition(status)) {
    Fail(status);
  }
  return status;
}

void Membership::Observe(TickResult* result) {
  const SteadyTime sent = clock_->Now();
  absl::StatusOr<std::vector<NodeStore::Node>> nodes = store_->Observe();
  const SteadyTime returned = clock_->Now();
  if (!nodes.ok()) {
    last_read_ = kNever;
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(names_mutex_);
    names_.clear();
    for (const NodeStore::Node& node : *nodes) names_[node.ref.number] = node.node_id;
    nodes_ = *nodes;
  }
  if (!ReadUnbroken(sent, returned)) observed_.clear();
  last_read_ = returned;

  std::map<uint32_t, Observation> before = std::exchange(observed_, {});
  std::set<std::pair<uint32_t, uint32_t>> told = std::exchange(told_dead_, {});
  for (const NodeStore::Node& node : *nodes) {
    // Only what the read shows is carried over, so that neither map outgrows the engine's table.
    const std::pair<uint32_t, uint32_t> key(node.ref.number, node.ref.incarnation);
    if (told.contains(key)) told_dead_.insert(key);
    if (auto it = before.find(node.ref.number); it != before.end()) observed_.insert(*it);
    Judge(node, sent, returned, result);
    if (!fatal_.ok()) return;
  }
  TellFoundDead(*nodes, result);
}

// The newest first: of those something may be left. The others follow with the next reads, unless the store has
// removed their rows by then.
void Membership::TellFoundDead(const std::vector<NodeStore::Node>& nodes, TickResult* result) {
  std::vector<NodeStore::Node> dead;
  std::ranges::copy_if(nodes, std::back_inserter(dead), &NodeStore::Node::dead);
  std::ranges::sort(dead, std::greater<>(), [](const auto& node) { return node.ref.number; });
  const size_t before = result->dead.size();
  for (const NodeStore::Node& node : dead) {
    if (result->dead.size() - before == kFoundDeadAtOnce) break;
    TellDead(node.ref, result);
  }
}

std::string Membership::NameOf(const NodeRef& node) const {
  if (node.number == self_.number) return options_.node_id;
  const std::lock_guard<std::mutex> lock(names_mutex_);
  const auto found = names_.find(node.number);
  return found == names_.end() ? absl::StrCat(node.number, ".", node.incarnation) : found->second;
}

std::vector<NodeStore::Node> Membership::nodes() const {
  const std::lock_guard<std::mutex> lock(names_mutex_);
  return nodes_;
}

bool Membership::ReadUnbroken(SteadyTime sent, SteadyTime returned) {
  // Half a node TTL: later than the next beat is due, sooner than any node's TTL ends unseen.
  const Milliseconds gap_max = options_.node_ttl / 2;
  return last_read_ != kNever && sent - last_read_ <= gap_max && returned - last_read_ <= gap_max;
}

void Membership::Judge(const NodeStore::Node& node, SteadyTime sent, SteadyTime returned,
                       TickResult* result) {
  if (node.ref.number == self_.number) {
    if (node.dead || node.ref.incarnation != self_.incarnation) {
      Fail(absl::FailedPreconditionError(absl::StrCat(
          "node id \"", node.node_id, "\" ",
          node.dead ? "was declared dead by another daemon" : "was taken by another process")));
    }
    return;
  }
  if (node.dead) {
    observed_.erase(node.ref.number);
    return;
  }
  auto [it, first] = observed_.try_emplace(node.ref.number);
  Observation& observation = it->second;
  if (first || observation.counter != node.counter ||
      observation.incarnation != node.ref.incarnation) {
    observation = {node.counter, node.ref.incarnation, returned};
    return;
  }
  // The counter was the same from `since` on, at the least until this read was sent.
  if (sent - observation.since < options_.node_ttl) return;
  const absl::StatusOr<bool> declared = store_->DeclareDead(node);
  observed_.erase(node.ref.number);
  if (!declared.ok() || !*declared) return;
  figures_.nodes_declared_dead += 1;
  TellDead(node.ref, result);
}

void Membership::TellAgain(const std::vector<NodeRef>& dead) {
  std::lock_guard lock(again_mutex_);
  again_.insert(again_.end(), dead.begin(), dead.end());
}

void Membership::ForgetTold() {
  std::lock_guard lock(again_mutex_);
  for (const NodeRef& node : std::exchange(again_, {})) {
    told_dead_.erase({node.number, node.incarnation});
  }
}

void Membership::TellDead(NodeRef node, TickResult* result) {
  if (told_dead_.emplace(node.number, node.incarnation).second) result->dead.push_back(node);
}

void Membership::Fail(absl::Status why) {
  fatal_ = std::move(why);
  SetVouchUntil(kNever);
}

MembershipThread::MembershipThread(Membership* membership, const Clock* clock, Callbacks callbacks)
    : membership_(membership),
      clock_(clock),
      callbacks_(std::move(callbacks)),
      thread_([this] { Run(); }) {}

MembershipThread::~MembershipThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MembershipThread::Run() {
  SteadyTime next = clock_->Now();
  while (WaitUntil(next)) {
    const SteadyTime begun = clock_->Now();
    Membership::TickResult result = membership_->Tick();
    const bool fails = !result.heartbeat.ok();
    next = fails ? clock_->Now() + membership_->retry_interval() : begun + membership_->interval();
    if (fails && !failing_ && callbacks_.on_heartbeat_failed)
      callbacks_.on_heartbeat_failed(result.heartbeat);
    failing_ = fails;
    TellVouch();
    if (!result.dead.empty() && callbacks_.on_dead) callbacks_.on_dead(std::move(result.dead));
    if (!result.fatal.ok()) {
      if (callbacks_.on_fatal) callbacks_.on_fatal(result.fatal);
      return;
    }
  }
}

bool MembershipThread::WaitUntil(SteadyTime time) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    TellVouch();
    lock.lock();
    const SteadyTime now = clock_->Now();
    if (now >= time) break;
    SteadyTime wake = time;
    if (vouched_) wake = std::min(wake, VouchUntil());
    changed_.wait_for(lock, wake - now, [this] { return stopping_; });
  }
  return !stopping_;
}

SteadyTime MembershipThread::VouchUntil() const {
  return callbacks_.vouch_until ? callbacks_.vouch_until() : membership_->vouch_until();
}

void MembershipThread::TellVouch() {
  const bool vouched = clock_->Now() < VouchUntil();
  if (vouched == vouched_) return;
  vouched_ = vouched;
  if (callbacks_.on_vouch_change) callbacks_.on_vouch_change(vouched);
}

}  // namespace semaphored
