#include "tests/simulation/wire.h"

#include <algorithm>

namespace semaphored::simulation {
namespace {
// Both ends give a channel up when nothing gets through for so long.
constexpr int64_t kKeepaliveUs = 6 * kSecond;
}  // namespace

Channel::Channel(World* world, const Network* network, std::shared_ptr<Daemon> daemon, int client,
                 std::weak_ptr<Receiver> receiver)
    : world_(world),
      network_(network),
      daemon_(std::move(daemon)),
      client_(client),
      receiver_(std::move(receiver)),
      number_(world->random().Next() >> 8) {}

void Channel::Connect() {
  connection_ = std::make_shared<Connection>(world_, daemon_.get(), weak_from_this());
  daemon_->AddDeathListener([self = weak_from_this()] {
    if (const auto channel = self.lock()) channel->OnDeath();
  });
}

void Channel::Up(std::function<void(Connection&)> message) {
  if (!open_) return;
  Put(kUp, [this, message = std::move(message)] {
    if (!up_open_ || !daemon_->serving()) return;
    daemon_->Post([self = shared_from_this(), message] {
      if (self->up_open_ && self->daemon_->serving()) message(*self->connection_);
    });
  });
}

void Channel::Down(Reply reply) {
  if (!up_open_) return;
  Put(kDown, [this, reply = std::move(reply)] {
    const std::shared_ptr<Receiver> receiver = receiver_.lock();
    if (open_ && receiver != nullptr) receiver->OnReply(number_, reply);
  });
}

void Channel::Put(Direction direction, std::function<void()> deliver) {
  Random& random = world_->random();
  int64_t due_us = world_->now() + random.Between(50, 1500);
  if (random.Chance(0.01)) due_us += random.Between(1, 300) * kMillisecond;
  if (!messages_[direction].empty()) due_us = std::max(due_us, messages_[direction].back().due_us);
  messages_[direction].push_back({due_us, std::move(deliver)});
  if (std::exchange(pumping_[direction], true)) return;
  world_->At(due_us, [self = shared_from_this(), direction] { self->Pump(direction); });
}

void Channel::Pump(Direction direction) {
  pumping_[direction] = false;
  auto& messages = messages_[direction];
  if (messages.empty()) return;
  // The network of a process that is paused still takes its messages; they are read when it wakes.
  const bool blocked = network_->cut(client_, daemon_->node());
  if (blocked && blocked_since_us_ < 0) blocked_since_us_ = world_->now();
  if (!blocked) blocked_since_us_ = -1;
  if (blocked && world_->now() - blocked_since_us_ > kKeepaliveUs) return GiveUp();
  while (!blocked && !messages.empty() && messages.front().due_us <= world_->now()) {
    const Message message = std::move(messages.front());
    messages.pop_front();
    message.deliver();
  }
  if (messages.empty() || std::exchange(pumping_[direction], true)) return;
  const int64_t next_us = blocked ? world_->now() + 100 * kMillisecond : messages.front().due_us;
  world_->At(next_us, [self = shared_from_this(), direction] { self->Pump(direction); });
}

void Channel::GiveUp() {
  messages_[kUp].clear();
  messages_[kDown].clear();
  if (std::exchange(up_open_, false)) {
    daemon_->Post([self = shared_from_this()] { self->connection_->OnGone(); });
  }
  const std::shared_ptr<Receiver> receiver = receiver_.lock();
  if (std::exchange(open_, false) && receiver != nullptr) receiver->OnBroken(number_);
}

void Channel::Close() {
  if (!std::exchange(open_, false)) return;
  // What was sent before arrives before; the end itself travels the same way.
  Put(kUp, [this] {
    if (!std::exchange(up_open_, false)) return;
    daemon_->Post([self = shared_from_this()] { self->connection_->OnGone(); });
  });
}

void Channel::OnDeath() {
  up_open_ = false;
  Put(kDown, [this] {
    const std::shared_ptr<Receiver> receiver = receiver_.lock();
    if (std::exchange(open_, false) && receiver != nullptr) receiver->OnBroken(number_);
  });
}

}  // namespace semaphored::simulation
