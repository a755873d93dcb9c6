// Of TokenBroker and TokenStore: a queue of the recipe becomes a semaphore.
//
// A queue's type and arguments cannot be changed, so it is deleted, and the semaphore's is made. Before that all of
// its messages are taken: then no program has a permit of it, and none gets one. One that comes meanwhile waits, and
// its consumer is cancelled when the queue goes. What dies in between gives the messages back.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/token_store.h"
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

ledger::Adoptable Describe(const std::string& name, const std::optional<QueueState>& queue,
                           uint32_t limit_max) {
  ledger::Adoptable found;
  if (!queue) {
    found.refusal = absl::StrCat("there is no queue ", name, " to adopt: create the semaphore");
    return found;
  }
  found.limit = queue->ready;
  found.clients = queue->consumers;
  found.changes = absl::StrCat(
      "the queue ", name, " is deleted with its ", found.limit,
      " messages, and made again: a quorum queue with as many permits of semaphored's\n",
      "the queue ", name, ".settings is made");
  if (found.clients > 0) {
    found.refusal =
        absl::StrCat("programs consume from ", name, " (", found.clients,
                     "), and what they hold cannot be counted: stop them first, then adopt it");
  } else if (found.limit == 0) {
    found.refusal = absl::StrCat("the queue ", name, " has no messages that could be counted: ",
                                 "delete it, and create the semaphore");
  } else if (found.limit > limit_max) {
    found.refusal = absl::StrCat("the queue ", name, " has ", found.limit,
                                 " messages, and a semaphore at most ", limit_max);
  }
  return found;
}

}  // namespace

absl::StatusOr<std::optional<QueueState>> TokenBroker::FindRecipe(const std::string& name) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(*channel, TokenQueue(name));
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  if (absl::IsNotFound(state.status())) return std::optional<QueueState>();
  if (!state.ok()) return state.status();
  return std::optional<QueueState>(*state);
}

absl::Status TokenBroker::Adopt(const SemaphoreRow& row) {
  const absl::StatusOr<std::unique_ptr<Mutex>> mutex = LockAdmin(row.name);
  if (!mutex.ok()) return mutex.status();
  const absl::StatusOr<std::optional<StoredSemaphore>> stored = Read(row.name);
  if (!stored.ok()) return stored.status();
  if (*stored) return absl::AlreadyExistsError(absl::StrCat("rabbitmq: ", row.name, " is there"));
  if (absl::Status status = JudgeRegistry(row.name); !status.ok()) return status;
  if (absl::Status status = RemoveRecipe(row.name, row.limit); !status.ok()) return status;
  bool begun = false;
  return CreateLocked(row, /*act=*/0, &begun).status();
}

absl::Status TokenBroker::RemoveRecipe(const std::string& name, uint32_t messages) {
  const absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::Status status = TakeRecipe(*channel, name, messages);
  if (status.ok()) status = connection_->Delete(*channel, TokenQueue(name)).status();
  // What was taken goes back with the channel.
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  return status;
}

absl::Status TokenBroker::TakeRecipe(Channel channel, const std::string& name, uint32_t messages) {
  const std::string queue = TokenQueue(name);
  absl::Status status = connection_->Consume(channel, queue, kAdopt, kTakenMax, kAdoptPriority);
  if (!status.ok()) return status;
  Taken taken;
  const SteadyTime end = SteadyClock::now() + kTaking;
  while (taken.messages < messages && SteadyClock::now() < end) {
    const auto events = connection_->WaitOn(channel, SteadyClock::now() + kNoMessageFor);
    if (!events.ok()) return events.status();
    if (events->empty()) break;
    if (status = taken.Add(*events); !status.ok()) return status;
  }
  const absl::StatusOr<QueueState> state = connection_->DeclarePassively(channel, queue);
  if (!state.ok()) return state.status();
  // What was sent before the answer has arrived after this.
  if (status = connection_->Sync(channel); !status.ok()) return status;
  const auto late = connection_->WaitOn(channel, SteadyTime::min());
  if (!late.ok()) return late.status();
  if (status = taken.Add(*late); !status.ok()) return status;
  if (state->consumers > 1)
    return absl::FailedPreconditionError(
        absl::StrCat("rabbitmq: other programs consume from ", queue, ": stop them first"));
  if (taken.tokens > 0)
    return absl::DataLossError(
        absl::StrCat("rabbitmq: ", queue,
                     " has permits of semaphored's own, and no settings; destroy "
                     "the semaphore by force, at once (now), and create it again"));
  if (taken.messages != messages || state->ready > 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "rabbitmq: ", queue, " does not have ", messages, " messages any more: look at it again"));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ledger::Adoptable>> TokenStore::Adopt(const SemaphoreRow& row) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  const absl::StatusOr<std::optional<QueueState>> queue = broker_.FindRecipe(row.name);
  if (!queue.ok()) return queue.status();
  ledger::Adoptable found = Describe(broker_.TokenQueue(row.name), *queue, guarantees_.limit_max);
  if (!found.refusal.empty()) found.refusal.insert(0, "rabbitmq: ");
  if (found.refusal.empty() && row.limit == found.limit) {
    absl::Status adopted = broker_.Adopt(row);
    found.made = adopted.ok();
    if (absl::IsFailedPrecondition(adopted)) {
      found.clients = std::max(found.clients, 1U);
      found.refusal = std::string(adopted.message());
    } else if (!adopted.ok() && !absl::IsAlreadyExists(adopted)) {
      return adopted;
    }
  }
  return std::optional<ledger::Adoptable>(std::move(found));
}

}  // namespace semaphored::rabbitmq
