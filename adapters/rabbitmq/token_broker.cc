#include "adapters/rabbitmq/token_broker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

constexpr QueueOptions kKept{.quorum = true};
constexpr QueueOptions kMutex{.durable = false, .exclusive = true};
// A message that somebody else reads just now, and a mutex, are free again soon.
constexpr int kTries = 50;
constexpr std::chrono::milliseconds kPause{20};
constexpr size_t kPublishedAtOnce = 1000;
// Tokens of a slot: this many for each publishing.
constexpr int kCountBits = 32;
constexpr char kGeneration[] = "semaphored.generation";

std::string SettingsQueue(const std::string& name) { return TokenQueue(name) + ".settings"; }
std::string MutexQueue(const std::string& name) { return TokenQueue(name) + ".admin"; }

std::string Text(const StoredSemaphore& stored) {
  const SemaphoreRow& row = stored.row;
  const Settings& settings = row.settings;
  return json{{"version", stored.version},
              {"limit", row.limit},
              {"backfill", settings.backfill},
              {"longest_hold_ms", settings.longest_hold_ms},
              {"recall_grace_ms", settings.recall_grace_ms},
              {"permits_per_holder", settings.permits_per_holder},
              {"waiters_max", settings.waiters_max},
              {"paused", row.paused},
              {"destroying", row.destroying},
              {"created_at_unix_ms", row.created_at_unix_ms},
              {"slots", stored.slots},
              {"doubtful", stored.doubtful}}
      .dump();
}

std::optional<StoredSemaphore> ReadStored(const std::string& name, const std::string& text) {
  StoredSemaphore stored;
  SemaphoreRow& row = stored.row;
  row.name = name;
  try {
    const json read = json::parse(text);
    read.at("version").get_to(stored.version);
    read.at("limit").get_to(row.limit);
    read.at("backfill").get_to(row.settings.backfill);
    read.at("longest_hold_ms").get_to(row.settings.longest_hold_ms);
    read.at("recall_grace_ms").get_to(row.settings.recall_grace_ms);
    read.at("permits_per_holder").get_to(row.settings.permits_per_holder);
    read.at("waiters_max").get_to(row.settings.waiters_max);
    read.at("paused").get_to(row.paused);
    read.at("destroying").get_to(row.destroying);
    read.at("created_at_unix_ms").get_to(row.created_at_unix_ms);
    read.at("slots").get_to(stored.slots);
    read.at("doubtful").get_to(stored.doubtful);
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return stored;
}

// Closes the channel at the end, if it is still open.
class Closing {
 public:
  Closing(Connection* connection, Channel channel) : connection_(connection), channel_(channel) {}
  ~Closing() {
    if (connection_->is_open(channel_)) connection_->CloseChannel(channel_).IgnoreError();
  }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  Connection* connection_;
  Channel channel_;
};

absl::Status NotStored(Connection::Confirm confirm) {
  if (confirm == Connection::Confirm::kStored) return absl::OkStatus();
  if (confirm == Connection::Confirm::kNoQueue)
    return absl::NotFoundError("rabbitmq: the queue has gone");
  return absl::UnavailableError("rabbitmq: the broker did not confirm what was published");
}

}  // namespace

std::string TokenQueue(const std::string& name) { return name + ".semaphore"; }

std::string TokenText(const Token& token) {
  return json{{"slot", token.slot}, {"base", token.base}}.dump();
}

std::optional<Token> ReadToken(const std::string& text) {
  const json read = json::parse(text, nullptr, /*allow_exceptions=*/false);
  Token token;
  try {
    read.at("slot").get_to(token.slot);
    read.at("base").get_to(token.base);
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (token.slot == 0) return std::nullopt;
  return token;
}

absl::StatusOr<Channel> TokenBroker::NewChannel() {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel;
  if (absl::Status status = connection_->SelectConfirms(*channel); !status.ok()) return status;
  return channel;
}

// All messages there are; those of a version below `drop_below` are taken out.
absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::ReadOn(Channel channel,
                                                                   const std::string& name,
                                                                   uint64_t drop_below) {
  std::optional<StoredSemaphore> newest;
  std::vector<uint64_t> kept;
  bool unreadable = false;
  for (;;) {
    absl::StatusOr<std::optional<Delivery>> got = connection_->Get(channel, SettingsQueue(name));
    if (!got.ok()) return got.status();
    if (!*got) break;
    std::optional<StoredSemaphore> stored = ReadStored(name, (*got)->body);
    if (stored && stored->version < drop_below) {
      if (absl::Status status = connection_->Acknowledge(channel, (*got)->delivery_tag);
          !status.ok())
        return status;
      continue;
    }
    kept.push_back((*got)->delivery_tag);
    unreadable = unreadable || !stored;
    if (stored && (!newest || newest->version < stored->version)) newest = std::move(stored);
  }
  for (const uint64_t tag : kept) {
    if (absl::Status status = connection_->Reject(channel, tag); !status.ok()) return status;
  }
  if (absl::Status status = connection_->Sync(channel); !status.ok()) return status;
  if (unreadable && !newest)
    return absl::DataLossError(absl::StrCat("rabbitmq: the queue ", SettingsQueue(name),
                                            " has a message that is none of semaphored's"));
  return newest;
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::Read(const std::string& name) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  absl::StatusOr<QueueState> there = connection_->DeclarePassively(*channel, SettingsQueue(name));
  if (absl::IsNotFound(there.status())) return std::optional<StoredSemaphore>();
  if (!there.ok()) return there.status();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    absl::StatusOr<std::optional<StoredSemaphore>> read = ReadOn(*channel, name, 0);
    if (!read.ok() || read->has_value()) return read;
    std::this_thread::sleep_for(kPause);
  }
  return absl::DataLossError(absl::StrCat(
      "rabbitmq: the queue ", SettingsQueue(name),
      " is empty; semctl prune does not mend that: destroy the semaphore and create it again"));
}

absl::Status TokenBroker::TryLock(const std::string& name) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  absl::Status status = connection_->Declare(*channel, MutexQueue(name), kMutex).status();
  if (!absl::IsAlreadyExists(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("rabbitmq: another connection administers ", name, ": ", status.message()));
}

absl::Status TokenBroker::Lock(const std::string& name) {
  absl::Status status;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    status = TryLock(name);
    if (!absl::IsUnavailable(status) || !connection_->is_open()) return status;
    std::this_thread::sleep_for(kPause);
  }
  return status;
}

absl::Status TokenBroker::Unlock(const std::string& name) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  return connection_->Delete(*channel, MutexQueue(name)).status();
}

// First the new one, then the old ones go: there always is one.
absl::Status TokenBroker::Write(Channel channel, StoredSemaphore* stored) {
  ++stored->version;
  const std::string& name = stored->row.name;
  absl::StatusOr<std::vector<Connection::Confirm>> confirms =
      connection_->PublishAll(channel, {{SettingsQueue(name), Text(*stored)}});
  if (!confirms.ok()) return confirms.status();
  if (absl::Status status = NotStored(confirms->front()); !status.ok()) return status;
  return ReadOn(channel, name, stored->version).status();
}

absl::StatusOr<uint64_t> TokenBroker::NextGeneration() {
  if (absl::Status status = Lock(kGeneration); !status.ok()) return status;
  absl::StatusOr<Channel> channel = NewChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  if (auto made = connection_->Declare(*channel, kGeneration, kKept); !made.ok())
    return made.status();
  uint64_t highest = 0;
  std::vector<uint64_t> old;
  for (;;) {
    absl::StatusOr<std::optional<Delivery>> got = connection_->Get(*channel, kGeneration);
    if (!got.ok()) return got.status();
    if (!*got) break;
    const json number = json::parse((*got)->body, nullptr, false);
    if (number.is_number_unsigned()) highest = std::max(highest, number.get<uint64_t>());
    old.push_back((*got)->delivery_tag);
  }
  absl::StatusOr<std::vector<Connection::Confirm>> confirms =
      connection_->PublishAll(*channel, {{kGeneration, std::to_string(highest + 1)}});
  if (!confirms.ok()) return confirms.status();
  if (absl::Status status = NotStored(confirms->front()); !status.ok()) return status;
  for (const uint64_t tag : old) {
    if (absl::Status status = connection_->Acknowledge(*channel, tag); !status.ok()) return status;
  }
  if (absl::Status status = connection_->Sync(*channel); !status.ok()) return status;
  if (absl::Status status = Unlock(kGeneration); !status.ok()) return status;
  return highest + 1;
}

absl::Status TokenBroker::Fill(Channel channel, StoredSemaphore* stored) {
  std::vector<uint32_t> missing;
  for (uint32_t slot = 1; stored->slots.size() + missing.size() < stored->row.limit; ++slot) {
    if (!stored->slots.contains(slot)) missing.push_back(slot);
  }
  if (missing.empty()) return Write(channel, stored);
  absl::StatusOr<uint64_t> generation = NextGeneration();
  if (!generation.ok()) return generation.status();
  // Doubtful before they are sent: whoever finds it so does not send them again.
  stored->slots.insert(missing.begin(), missing.end());
  stored->doubtful.insert(missing.begin(), missing.end());
  if (absl::Status status = Write(channel, stored); !status.ok()) return status;
  for (size_t from = 0; from < missing.size(); from += kPublishedAtOnce) {
    std::vector<Connection::Publish> messages;
    const size_t to = std::min(missing.size(), from + kPublishedAtOnce);
    for (size_t i = from; i < to; ++i)
      messages.push_back(
          {TokenQueue(stored->row.name), TokenText({missing[i], *generation << kCountBits})});
    absl::StatusOr<std::vector<Connection::Confirm>> confirms =
        connection_->PublishAll(channel, messages);
    if (!confirms.ok()) return confirms.status();
    for (size_t i = from; i < to; ++i) {
      const Connection::Confirm confirm = (*confirms)[i - from];
      if (confirm == Connection::Confirm::kStored) stored->doubtful.erase(missing[i]);
      // Certainly not there: it may be sent again.
      if (confirm == Connection::Confirm::kNoQueue || confirm == Connection::Confirm::kRefused) {
        stored->doubtful.erase(missing[i]);
        stored->slots.erase(missing[i]);
      }
    }
    if (!connection_->is_open())
      return absl::UnavailableError("rabbitmq: the connection broke while tokens were published");
  }
  return Write(channel, stored);
}

absl::Status TokenBroker::Create(const SemaphoreRow& row) {
  if (absl::Status status = Lock(row.name); !status.ok()) return status;
  absl::StatusOr<Channel> channel = NewChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  // (Its message may be in the hands of one who reads: an empty queue is no proof.)
  absl::StatusOr<std::optional<StoredSemaphore>> there = Read(row.name);
  if (!there.ok() || there->has_value()) {
    if (absl::Status status = Unlock(row.name); !status.ok()) return status;
    if (!there.ok()) return there.status();
    return absl::AlreadyExistsError(absl::StrCat("rabbitmq: ", row.name, " is there"));
  }
  if (auto made = connection_->Declare(*channel, SettingsQueue(row.name), kKept); !made.ok())
    return made.status();
  if (auto made = connection_->Declare(*channel, TokenQueue(row.name), kKept); !made.ok())
    return made.status();
  StoredSemaphore stored;
  stored.row = row;
  if (absl::Status status = Fill(*channel, &stored); !status.ok()) return status;
  return Unlock(row.name);
}

absl::Status TokenBroker::Destroy(const std::string& name) {
  if (absl::Status status = Lock(name); !status.ok()) return status;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  // The tokens first: what is left of it otherwise could be taken for a whole one.
  for (const std::string& queue : {TokenQueue(name), SettingsQueue(name)}) {
    if (auto gone = connection_->Delete(*channel, queue); !gone.ok()) return gone.status();
  }
  return Unlock(name);
}

absl::StatusOr<StoredSemaphore> TokenBroker::Update(const SemaphoreRow& row) {
  if (absl::Status status = Lock(row.name); !status.ok()) return status;
  absl::StatusOr<Channel> channel = NewChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  absl::StatusOr<std::optional<StoredSemaphore>> read = Read(row.name);
  if (!read.ok()) return read.status();
  if (!*read) {
    if (absl::Status status = Unlock(row.name); !status.ok()) return status;
    return absl::NotFoundError(absl::StrCat("rabbitmq: ", row.name, " has gone"));
  }
  StoredSemaphore stored = *std::move(*read);
  stored.row = row;
  if (absl::Status status = Fill(*channel, &stored); !status.ok()) return status;
  if (absl::Status status = Unlock(row.name); !status.ok()) return status;
  return stored;
}

absl::Status TokenBroker::Strike(const std::string& name, const std::set<uint32_t>& slots) {
  absl::StatusOr<Channel> channel = NewChannel();
  if (!channel.ok()) return channel.status();
  const Closing closing(connection_, *channel);
  absl::StatusOr<std::optional<StoredSemaphore>> read = Read(name);
  if (!read.ok()) return read.status();
  if (!*read) return absl::OkStatus();
  StoredSemaphore stored = *std::move(*read);
  for (const uint32_t slot : slots) {
    stored.slots.erase(slot);
    stored.doubtful.erase(slot);
  }
  return Write(*channel, &stored);
}

}  // namespace semaphored::rabbitmq
