#include "server/rpc/host.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace semaphored {
namespace {

constexpr size_t kIdsAtOnce = 256;
// Room made for the next turn's jobs, which are likely to be about as many as this turn's.
constexpr size_t kJobsReserved = 512;

// Ids are secrets of their holders, so they come from the kernel; many at once, since each call is
// a system call.
void FillRandomly(std::vector<Id>* ids) {
  ids->resize(kIdsAtOnce);
  char* at = reinterpret_cast<char*>(ids->data());
  size_t left = ids->size() * sizeof(Id);
  while (left > 0) {
    const ssize_t got = getrandom(at, left, 0);
    if (got < 0 && errno != EINTR) std::abort();  // Cannot happen on a Linux that has the call.
    if (got <= 0) continue;
    at += got;
    left -= static_cast<size_t>(got);
  }
}

}  // namespace

Host::Host(Reactor* reactor, Options options) : reactor_(reactor), options_(std::move(options)) {
  reactor_->AtTurnEnd([this] { HandOn(); });
}

Host::~Host() { StopLanes(); }

void Host::AddLane(std::unique_ptr<Adapter> adapter, std::shared_ptr<const ledger::LimitUse> use) {
  const size_t number = lanes_.size();
  auto deliver = [this, number](LaneResults results) {
    reactor_->Post([this, number, results = std::move(results)]() mutable {
      OnResults(number, std::move(results));
    });
  };
  LaneOptions options = options_.lane;
  options.number = number;
  lanes_.push_back(
      std::make_unique<Lane>(std::move(adapter), &reactor_->clock(), options, std::move(deliver)));
  collected_.emplace_back();
  if (use != nullptr) uses_.push_back(std::move(use));
}

void Host::StopLanes() { lanes_.clear(); }

SteadyTime Host::progress_at() const {
  SteadyTime oldest = SteadyTime::max();
  for (const auto& lane : lanes_) oldest = std::min(oldest, lane->progress_at());
  return oldest;
}

EngineFigures Host::engine_figures() const {
  EngineFigures figures;
  for (const auto& lane : lanes_) figures.Add(lane->figures());
  const auto age = reactor_->clock().Now() - progress_at();
  figures.last_success_age_ms = std::chrono::duration_cast<Milliseconds>(age).count();
  return figures;
}

UpkeepFigures Host::upkeep_figures() const {
  return options_.upkeep == nullptr ? UpkeepFigures() : options_.upkeep->figures();
}

ledger::LimitUse::Figures Host::LimitOf(ledger::StandingLimit limit) const {
  ledger::LimitUse::Figures fullest;
  for (const auto& use : uses_) {
    const ledger::LimitUse::Figures each = use->Get(limit);
    fullest = {std::max(fullest.used, each.used), std::max(fullest.most, each.most)};
  }
  return fullest;
}

SteadyTime Host::turned_at() const {
  SteadyTime oldest = SteadyTime::max();
  for (const auto& lane : lanes_) oldest = std::min(oldest, lane->turned_at());
  return oldest;
}

std::string Host::NodeName(const NodeRef& node) const {
  if (options_.node_name) return options_.node_name(node);
  return std::to_string(node.number) + "." + std::to_string(node.incarnation);
}

SteadyTime Host::vouch_until() const {
  SteadyTime until = options_.vouch_until();
  if (options_.guarantees.exclusive) return until;
  for (const auto& lane : lanes_) until = std::min(until, lane->fresh_at() + options_.lane_vouch);
  return until;
}

void Host::Submit(size_t lane, Job job) {
  collected_[lane].push_back(std::move(job));
  ++jobs_under_way_;
}

Id Host::NewId() {
  if (random_ids_.empty()) FillRandomly(&random_ids_);
  Id id = random_ids_.back();
  random_ids_.pop_back();
  return id.empty() ? NewId() : id;
}

void Host::HandOn() {
  if (lanes_.empty()) return;
  for (size_t lane = 0; lane < collected_.size(); ++lane) {
    std::vector<Job>& jobs = collected_[lane];
    if (jobs.empty()) continue;
    const size_t about = std::min<size_t>(jobs.size(), kJobsReserved);
    lanes_[lane]->Submit(std::move(jobs));
    jobs = std::vector<Job>();
    jobs.reserve(about);
    handed_on_at_ = reactor_->clock().Now();
    // (Where grants come a moment later, the engine needs the processor meanwhile.)
    if (guarantees().grants_at_once && short_wait_.PaysFor(jobs_under_way_))
      reactor_->ExpectSoon(ShortWait::kLongest);
  }
}

void Host::OnResults(size_t lane, LaneResults results) {
  jobs_under_way_ -= std::min(jobs_under_way_, results.finished.size());
  short_wait_.Took(reactor_->clock().Now() - handed_on_at_);
  const absl::Status fatal = results.fatal;
  const SteadyTime fresh = results.fresh;
  if (sessions_ != nullptr) sessions_->OnLaneResults(lane, std::move(results));
  if (lane < lanes_.size()) lanes_[lane]->Told(fresh);
  if (!fatal.ok() && options_.on_fatal) options_.on_fatal(fatal);
}

}  // namespace semaphored
