#include "adapters/rabbitmq/slot_broker.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

using std::chrono::milliseconds;

// (Clients of amqp-locks declare A queues that are not durable. RabbitMQ 4.3 refuses such; to them
// it makes no difference, since they only publish to what is there.)
constexpr QueueOptions kSlot{.durable = true, .messages_max = 0};
constexpr QueueOptions kHolder{.durable = false, .exclusive = true, .messages_max = 0};
constexpr QueueOptions kMutex = kHolder;
constexpr uint32_t kProbesAtOnce = 512;  // Slots; each is two probes.
constexpr int kMutexTries = 20;
constexpr milliseconds kMutexPause{10};
constexpr milliseconds kMutexSkew{30};
// An answer that took longer was a time-out.
constexpr milliseconds kAtOnce{1000};
constexpr milliseconds kNoProbesFor{5000};
constexpr size_t kQueueNameBytesMax = 255;
// "-A-1000" and more, should another program's semaphore be larger.
constexpr size_t kSuffixBytesMax = 10;

// To others this would be a slot, or its holder, of a semaphore with a shorter name.
bool LooksLikeSlot(const std::string& name) {
  const size_t digits = name.find_last_not_of("0123456789");
  if (digits == std::string::npos || digits + 1 == name.size() || digits < 2) return false;
  const std::string letter = name.substr(digits - 2, 3);
  return letter == "-A-" || letter == "-B-";
}

// The broker's FAILED_PRECONDITION (a queue is not as it should be) is no condition of the engine,
// and its ALREADY_EXISTS (the queue is another connection's own) is no semaphore that is there.
absl::Status Translated(absl::Status status) {
  if (absl::IsAlreadyExists(status)) return absl::UnavailableError(status.message());
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::InternalError(status.message());
}

}  // namespace

std::string SlotQueue(const std::string& name, uint32_t slot) {
  return absl::StrCat(name, "-A-", slot);
}
std::string HolderQueue(const std::string& name, uint32_t slot) {
  return absl::StrCat(name, "-B-", slot);
}

std::string WhyNoSlots(const std::string& name, uint32_t size) {
  if (size == 0) return "layout=slots has no semaphore without slots";
  if (size > kSlotsMax) return absl::StrCat("layout=slots has at most ", kSlotsMax, " slots");
  if (name.size() > kQueueNameBytesMax - kSuffixBytesMax)
    return absl::StrCat("with layout=slots a name has at most ",
                        kQueueNameBytesMax - kSuffixBytesMax, " bytes");
  if (LooksLikeSlot(name))
    return "with layout=slots a name does not end like the queue of a slot (-A-1, -B-1)";
  return "";
}

SlotBroker::SlotBroker(Connection* holding, Connection* probing, std::shared_ptr<Upkeep> upkeep)
    : holding_(holding), probing_(probing), upkeep_(std::move(upkeep)) {}

absl::StatusOr<Channel> SlotBroker::ChannelOn(Connection* connection, Work* work) {
  if (work->life == connection->life() && connection->is_open(work->channel)) return work->channel;
  absl::StatusOr<Channel> channel = connection->OpenChannel();
  if (!channel.ok()) return channel;
  if (work == &probes_) {
    if (absl::Status status = connection->SelectConfirms(*channel); !status.ok()) return status;
  }
  *work = {*channel, connection->life()};
  return channel;
}

// ---- probing ----

absl::StatusOr<std::vector<bool>> SlotBroker::ExistOnce(const std::vector<std::string>& queues) {
  if (probing_ != holding_) {
    if (absl::Status status = probing_->Open(); !status.ok()) return status;
    // Nothing comes that we would want; but a connection lives only if the daemon reads from it.
    if (auto events = probing_->Wait(SteadyTime::min()); !events.ok()) return events.status();
  }
  absl::StatusOr<Channel> channel = ChannelOn(probing_, &probes_);
  if (!channel.ok()) return channel.status();
  std::vector<Connection::Publish> messages;
  messages.reserve(queues.size());
  for (const std::string& queue : queues)
    messages.push_back({.queue = queue, .body = "", .persistent = false});
  absl::StatusOr<std::vector<Connection::Confirm>> confirms =
      probing_->PublishAll(*channel, messages);
  if (!confirms.ok()) return confirms.status();
  std::vector<bool> exist;
  exist.reserve(queues.size());
  for (const Connection::Confirm confirm : *confirms) {
    if (confirm == Connection::Confirm::kUnknown || confirm == Connection::Confirm::kRefused)
      return absl::UnavailableError("rabbitmq: the broker does not say which queues there are");
    exist.push_back(confirm == Connection::Confirm::kStored);
  }
  return exist;
}

absl::StatusOr<std::vector<bool>> SlotBroker::Exist(const std::vector<std::string>& queues) {
  const SteadyTime begun = SteadyClock::now();
  if (begun < probes_from_)
    return absl::UnavailableError("rabbitmq: the broker did not say which queues there are");
  absl::StatusOr<std::vector<bool>> exist = ExistOnce(queues);
  if (exist.ok() || !absl::IsUnavailable(exist.status())) return exist;
  if (SteadyClock::now() - begun > kAtOnce) {
    probes_from_ = SteadyClock::now() + kNoProbesFor;
    return exist;
  }
  // A connection for probes alone may have ended unnoticed, and another one does as well.
  if (probing_ != holding_) exist = ExistOnce(queues);
  return exist;
}

absl::StatusOr<SlotView> SlotBroker::Look(const std::string& name, uint32_t at_least,
                                          uint32_t beyond) {
  SlotView view;
  if (!WhyNoSlots(name, 1).empty()) return view;
  bool gap = false;
  uint32_t to = std::max(at_least, 1u);
  while (view.looked < to) {
    const uint32_t first = view.looked + 1;
    const uint32_t last = std::min(to, view.looked + kProbesAtOnce);
    std::vector<std::string> queues;
    for (uint32_t slot = first; slot <= last; ++slot) {
      queues.push_back(SlotQueue(name, slot));
      queues.push_back(HolderQueue(name, slot));
    }
    absl::StatusOr<std::vector<bool>> exist = Exist(queues);
    if (!exist.ok()) return exist.status();
    for (uint32_t slot = first; slot <= last; ++slot) {
      const size_t at = size_t{2} * (slot - first);
      if ((*exist)[at + 1]) view.taken.insert(slot);
      if (!(*exist)[at]) {
        gap = true;
      } else if (gap) {
        view.strays.insert(slot);
      } else {
        view.size = slot;
      }
    }
    view.looked = last;
    // More than semaphored ever makes: another program's. These are enough, no more are looked for.
    if (view.size >= kSlotsMax) break;
    to = std::max(to, gap ? view.size + beyond : 2 * last + kOvershoot);
  }
  return view;
}

// ---- holding ----

absl::StatusOr<QueueState> SlotBroker::Declare(const std::string& queue,
                                               const QueueOptions& options) {
  absl::StatusOr<Channel> channel = ChannelOn(holding_, &held_);
  if (!channel.ok()) return channel.status();
  return holding_->Declare(*channel, queue, options);
}

absl::Status SlotBroker::Delete(const std::string& queue) {
  absl::StatusOr<Channel> channel = ChannelOn(holding_, &held_);
  if (!channel.ok()) return channel.status();
  return Translated(holding_->Delete(*channel, queue).status());
}

absl::StatusOr<SlotBroker::Attempt> SlotBroker::TryTake(const std::string& name, uint32_t slot) {
  const absl::Status declared = Declare(HolderQueue(name, slot), kHolder).status();
  if (absl::IsAlreadyExists(declared) || absl::IsFailedPrecondition(declared))
    return Attempt::kHeld;
  if (!declared.ok()) return declared;
  absl::StatusOr<std::vector<bool>> there = Exist({SlotQueue(name, slot)});
  if (there.ok() && there->front()) return Attempt::kTaken;
  if (absl::Status status = Free(name, slot); !status.ok()) return status;
  if (!there.ok()) return there.status();
  return Attempt::kNoSlot;
}

absl::Status SlotBroker::Free(const std::string& name, uint32_t slot) {
  absl::StatusOr<Channel> channel = ChannelOn(holding_, &held_);
  if (!channel.ok()) return channel.status();
  const absl::Status deleted = holding_->Delete(*channel, HolderQueue(name, slot)).status();
  return absl::IsAlreadyExists(deleted) ? absl::NotFoundError(deleted.message())
                                        : Translated(deleted);
}

absl::StatusOr<bool> SlotBroker::IsOurs(const std::string& name, uint32_t slot) {
  absl::StatusOr<Channel> channel = ChannelOn(holding_, &held_);
  if (!channel.ok()) return channel.status();
  const absl::Status asked = holding_->DeclarePassively(*channel, HolderQueue(name, slot)).status();
  if (asked.ok()) return true;
  if (absl::IsNotFound(asked) || absl::IsAlreadyExists(asked)) return false;
  return Translated(asked);
}

absl::StatusOr<bool> SlotBroker::HasSlot(const std::string& name, uint32_t slot) {
  absl::StatusOr<Channel> channel = ChannelOn(holding_, &held_);
  if (!channel.ok()) return channel.status();
  const absl::Status asked = holding_->DeclarePassively(*channel, SlotQueue(name, slot)).status();
  if (absl::IsNotFound(asked)) return false;
  if (!asked.ok()) return Translated(asked);
  return true;
}

// ---- administration ----

// Given back in the end, whatever came between.
class SlotBroker::Mutex {
 public:
  Mutex(SlotBroker* broker, std::string name) : broker_(broker), name_(std::move(name)) {}
  ~Mutex() {
    if (!broker_->holding_->is_open()) return;  // It has gone with the connection.
    broker_->upkeep_->Note(UpkeepWork::kLeftovers, broker_->Delete(name_));
  }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  SlotBroker* broker_;
  const std::string name_;
};

absl::StatusOr<std::unique_ptr<SlotBroker::Mutex>> SlotBroker::Lock(const std::string& name) {
  absl::Status status;
  for (int attempt = 0; attempt < kMutexTries; ++attempt) {
    // Daemons that wait for it do not all try at the same moments.
    if (attempt > 0)
      std::this_thread::sleep_for(kMutexPause + milliseconds(random_() % kMutexSkew.count()));
    status = Declare(name, kMutex).status();
    if (status.ok()) return std::make_unique<Mutex>(this, name);
    if (!absl::IsAlreadyExists(status)) return Translated(status);
  }
  return absl::UnavailableError(
      absl::StrCat("rabbitmq: another connection administers ", name, ": ", status.message()));
}

// From the top: until the lowest is there, none of them counts. Those above a gap that a failure
// leaves are found by overshooting.
absl::Status SlotBroker::MakeSlots(const std::string& name, uint32_t from, uint32_t to) {
  std::set<uint32_t> made;
  for (uint32_t slot = to; slot >= from; --slot) {
    const absl::Status status = Declare(SlotQueue(name, slot), kSlot).status();
    if (!status.ok()) {
      if (holding_->is_open()) upkeep_->Note(UpkeepWork::kLeftovers, DeleteSlots(name, made));
      return Translated(status);
    }
    made.insert(slot);
  }
  return absl::OkStatus();
}

// From the top, each when the one before has gone: at no time is there a gap below a slot.
absl::Status SlotBroker::DeleteSlots(const std::string& name, const std::set<uint32_t>& slots) {
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
    if (absl::Status status = Delete(SlotQueue(name, *slot)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SlotBroker::Create(const std::string& name, uint32_t size, bool* begun) {
  if (const std::string why = WhyNoSlots(name, size); !why.empty())
    return absl::InvalidArgumentError(why);
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = Lock(name);
  if (!mutex.ok()) return mutex.status();
  absl::StatusOr<SlotView> view = Look(name, size + kOvershoot);
  if (!view.ok()) return view.status();
  if (view->size > 0)
    return absl::AlreadyExistsError(absl::StrCat("rabbitmq: ", name, " is there"));
  *begun = true;
  if (absl::Status status = DeleteSlots(name, view->strays); !status.ok()) return status;
  return MakeSlots(name, 1, size);
}

absl::Status SlotBroker::Destroy(const std::string& name, bool* begun) {
  if (const std::string why = WhyNoSlots(name, 1); !why.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = Lock(name);
  if (!mutex.ok()) return mutex.status();
  absl::StatusOr<SlotView> view = Look(name, 1, kOvershoot);
  if (!view.ok()) return view.status();
  std::set<uint32_t> slots = view->strays;
  for (uint32_t slot = 1; slot <= view->size; ++slot) slots.insert(slot);
  *begun = true;
  return DeleteSlots(name, slots);
}

absl::Status SlotBroker::Resize(const std::string& name, uint32_t from, uint32_t to, bool* begun) {
  if (const std::string why = WhyNoSlots(name, to); !why.empty())
    return absl::InvalidArgumentError(why);
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = Lock(name);
  if (!mutex.ok()) return mutex.status();
  absl::StatusOr<SlotView> view = Look(name, std::max(from, to) + kOvershoot, kOvershoot);
  if (!view.ok()) return view.status();
  if (view->size != from)
    return absl::AbortedError(
        absl::StrCat("rabbitmq: ", name, " has ", view->size, " slots, not ", from));
  std::set<uint32_t> gone = view->strays;
  for (uint32_t slot = to + 1; slot <= from; ++slot) gone.insert(slot);
  *begun = true;
  if (absl::Status status = DeleteSlots(name, gone); !status.ok()) return status;
  return MakeSlots(name, from + 1, to);
}

absl::StatusOr<uint32_t> SlotBroker::QuietSize(const std::string& name) {
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = Lock(name);
  if (!mutex.ok()) return mutex.status();
  absl::StatusOr<SlotView> view = Look(name, 1);
  if (!view.ok()) return view.status();
  return view->size;
}

absl::StatusOr<uint32_t> SlotBroker::DeleteStrays(const std::string& name) {
  if (const std::string why = WhyNoSlots(name, 1); !why.empty()) return 0;
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = Lock(name);
  if (!mutex.ok()) return mutex.status();
  absl::StatusOr<SlotView> view = Look(name, 1, kOvershoot);
  if (!view.ok()) return view.status();
  if (absl::Status status = DeleteSlots(name, view->strays); !status.ok()) return status;
  return static_cast<uint32_t>(view->strays.size());
}

}  // namespace semaphored::rabbitmq
