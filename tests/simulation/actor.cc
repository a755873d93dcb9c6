#include "tests/simulation/actor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {

Actor::Actor(Surroundings* around, int index, std::string name)
    : around_(around),
      index_(index),
      base_name_(std::move(name)),
      clock_(around->world, around->world->random().Between(1, 1'000'000) * kSecond,
             1 + static_cast<double>(around->world->random().Between(-4500, 4500)) / 1e6) {
  NewClientId();
}

void Actor::NewClientId() {
  client_id_ = absl::StrCat(base_name_, ".", ++lives_);
  sequence_ = 0;
}

void Actor::Trace(const std::string& line) {
  if (world().tracing()) world().Trace(absl::StrCat(client_id_, " ", line));
}

void Actor::OnReply(uint64_t channel, const Reply& reply) {
  if (paused_until_us_ > world().now()) {
    world().At(paused_until_us_,
               [self = shared_from_this(), channel, reply] { self->OnReply(channel, reply); });
    return;
  }
  if (channel_ != nullptr && channel_->number() == channel) Handle(reply);
}

void Actor::OnBroken(uint64_t channel) {
  if (paused_until_us_ > world().now()) {
    world().At(paused_until_us_, [self = shared_from_this(), channel] { self->OnBroken(channel); });
    return;
  }
  if (channel_ == nullptr || channel_->number() != channel) return;
  channel_ = nullptr;
  HandleBroken();
}

void Actor::Later(int64_t delay_us, std::function<void()> work) {
  const uint64_t stage = stage_;
  world().After(delay_us, [self = shared_from_this(), stage, work = std::move(work)]() mutable {
    if (self->stage_ != stage) return;
    const int64_t wait_us = self->paused_until_us_ - self->world().now();
    if (wait_us > 0) return self->Later(wait_us, std::move(work));
    work();
  });
}

void Actor::InThisLife(int64_t delay_us, std::function<void()> work) {
  const int life = lives_;
  world().After(delay_us, [self = shared_from_this(), life, work = std::move(work)]() mutable {
    if (self->lives_ != life) return;
    const int64_t wait_us = self->paused_until_us_ - self->world().now();
    if (wait_us > 0) return self->InThisLife(wait_us, std::move(work));
    work();
  });
}

bool Actor::Connect(int node) {
  Disconnect();
  const std::shared_ptr<Daemon> daemon = around_->cluster->Reach(node);
  if (daemon == nullptr) return false;
  channel_ =
      std::make_shared<Channel>(around_->world, around_->network, daemon, index_, weak_from_this());
  channel_->Connect();
  return true;
}

void Actor::Disconnect() {
  if (channel_ != nullptr) channel_->Close();
  channel_ = nullptr;
  sent_us_.clear();
}

uint64_t Actor::Send(std::function<void(Connection&, uint64_t)> call) {
  // Above all sequence numbers, which are tags within a session.
  const uint64_t tag = (uint64_t{1} << 40) + next_tag_++;
  SendWith(tag, std::move(call));
  return tag;
}

void Actor::SendWith(uint64_t tag, std::function<void(Connection&, uint64_t)> call) {
  if (!connected()) return;
  sent_us_[tag] = clock_.NowUs();
  channel_->Up([call = std::move(call), tag](Connection& connection) { call(connection, tag); });
}

int64_t Actor::DeadlineUs(const Reply& reply) const {
  const auto found = sent_us_.find(reply.tag);
  if (found == sent_us_.end() || reply.valid_for_ms <= 0) return 0;
  // A hundredth covers clocks that run at different speeds, and a millisecond what was rounded.
  const int64_t margin_us = reply.valid_for_ms * 10 + reply.elapsed_ms * 10 + kMillisecond;
  if (around_->mutant == Mutant::kForgetTimeSent) {
    return clock_.NowUs() + reply.valid_for_ms * kMillisecond - margin_us;
  }
  return found->second + (reply.elapsed_ms + reply.valid_for_ms) * kMillisecond - margin_us;
}

void Actor::BoundByRecall(const Reply& reply, const RecallNotice& recall, Belief* belief) const {
  if (recall.id == 0) return;
  const auto sent = sent_us_.find(reply.recall_tag);
  const int64_t margin_us = recall.grace_ms * 10 + reply.recall_elapsed_ms * 10 + kMillisecond;
  const int64_t end_us =
      sent == sent_us_.end()
          ? 0
          : sent->second + (reply.recall_elapsed_ms + recall.grace_ms) * kMillisecond - margin_us;
  belief->recall_us = std::min(belief->recall_us, end_us);
  belief->deadline_us = std::min(belief->deadline_us, belief->recall_us);
}

AcquireParams RandomAcquire(Surroundings& around, const std::string& client_id, uint64_t sequence) {
  Random& random = around.world->random();
  AcquireParams params;
  params.requester = {client_id, sequence};
  params.semaphore = absl::StrCat("s", random.Below(static_cast<uint64_t>(around.semaphores)));
  params.permits = random.Chance(0.75) ? 1 : static_cast<uint32_t>(random.Between(2, 3));
  params.limit = static_cast<uint32_t>(random.Between(std::max<int64_t>(params.permits, 1), 4));
  params.adopt_limit = random.Chance(0.95);
  if (random.Chance(0.03)) params.limit = 0;
  params.wait_ms = random.Chance(0.2) ? 0 : random.Chance(0.1) ? -1 : random.Between(300, 15'000);
  params.priority = random.Chance(0.8) ? 0 : static_cast<int32_t>(random.Between(-1, 1));
  params.ttl_ms = random.Between(1500, 5000);
  params.holder = around.shared_holders && random.Chance(0.8)
                      ? absl::StrCat("team", random.Below(2))
                      : client_id;
  return params;
}

}  // namespace semaphored::simulation
