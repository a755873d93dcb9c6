#include "adapters/rabbitmq/recipe_queue.h"

#include <chrono>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr char kAdopt[] = "adopt";
constexpr int32_t kAdoptPriority = std::numeric_limits<int32_t>::max();
constexpr uint16_t kTakenMax = std::numeric_limits<uint16_t>::max();
// Nothing more comes if nothing has come for so long.
constexpr std::chrono::milliseconds kNoMessageFor{200};
constexpr std::chrono::seconds kTaking{10};

struct Taken {
  uint32_t messages = 0;
  uint32_t tokens = 0;  // Of them, those that are semaphored's own.

  absl::Status Add(const std::vector<BrokerEvent>& events) {
    for (const BrokerEvent& event : events) {
      if (event.kind != BrokerEvent::Kind::kDelivery)
        return absl::UnavailableError("rabbitmq: the queue has gone meanwhile; look at it again");
      ++messages;
      if (ReadToken(event.delivery.body)) ++tokens;
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::optional<QueueState>> RecipeQueue::Find() {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const absl::StatusOr<QueueState> state = connection_->DeclarePassively(*channel, queue_);
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  if (absl::IsNotFound(state.status())) return std::optional<QueueState>();
  if (!state.ok()) return state.status();
  return std::optional<QueueState>(*state);
}

absl::Status RecipeQueue::Remove(uint32_t messages) {
  const absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::Status status = TakeAll(*channel, messages);
  if (status.ok()) status = connection_->Delete(*channel, queue_).status();
  // What was taken goes back with the channel.
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  return status;
}

absl::Status RecipeQueue::TakeAll(Channel channel, uint32_t messages) {
  absl::Status status = connection_->Consume(channel, queue_, kAdopt, kTakenMax, kAdoptPriority);
  if (!status.ok()) return status;
  Taken taken;
  const SteadyTime end = SteadyClock::now() + kTaking;
  while (taken.messages < messages && SteadyClock::now() < end) {
    const auto events = connection_->WaitOn(channel, SteadyClock::now() + kNoMessageFor);
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    if (status = taken.Add(*events); !status.ok()) return status;
  }
  const absl::StatusOr<QueueState> state = connection_->DeclarePassively(channel, queue_);
  if (!state.ok()) return state.status();
  // What was sent before the answer has arrived after this.
  if (status = connection_->Sync(channel); !status.ok()) return status;
  const auto late = connection_->WaitOn(channel, SteadyTime::min());
  if (!late.ok()) return late.status();
  if (status = taken.Add(*late); !status.ok()) return status;
  if (state->consumers > 1)
    return absl::FailedPreconditionError(
        absl::StrCat("rabbitmq: other programs consume from ", queue_, ": stop them first"));
  if (taken.tokens > 0)
    return absl::DataLossError(
        absl::StrCat("rabbitmq: ", queue_,
                     " has permits of semaphored's own, and no settings; destroy "
                     "the semaphore by force, at once (now), and create it again"));
  if (taken.messages != messages || state->ready > 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "rabbitmq: ", queue_, " does not have ", messages, " messages any more: look at it again"));
  return absl::OkStatus();
}

ledger::Adoptable DescribeRecipe(const std::string& queue, const std::optional<QueueState>& state,
                                 uint32_t limit_max) {
  ledger::Adoptable found;
  if (!state) {
    found.refusal = absl::StrCat("there is no queue ", queue, " to adopt: create the semaphore");
    return found;
  }
  found.limit = state->ready;
  found.clients = state->consumers;
  found.changes = absl::StrCat(
      "the queue ", queue, " is deleted with its ", found.limit,
      " messages, and made again: a quorum queue with as many permits of semaphored's\n",
      "the queue ", queue, ".settings is made");
  if (found.clients > 0) {
    found.refusal =
        absl::StrCat("programs consume from ", queue, " (", found.clients,
                     "), and what they hold cannot be counted: stop them first, then adopt it");
  } else if (found.limit == 0) {
    found.refusal = absl::StrCat("the queue ", queue, " has no messages that could be counted: ",
                                 "delete it, and create the semaphore");
  } else if (found.limit > limit_max) {
    found.refusal = absl::StrCat("the queue ", queue, " has ", found.limit,
                                 " messages, and a semaphore at most ", limit_max);
  }
  return found;
}

}  // namespace semaphored::rabbitmq
