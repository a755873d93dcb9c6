#include "adapters/rabbitmq/token_broker.h"

#include <openssl/sha.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/recipe_queue.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr size_t kPublishedAtOnce = 1000;
// A queue's name has at most 255 bytes, prefix and endings among them.
constexpr size_t kNameBytesMax = 165;
constexpr size_t kBeginningBytes = 100;
// A semaphore's version begins with the generation: a semaphore that is made again has higher ones.
constexpr int kVersionBits = 24;
constexpr std::chrono::seconds kTellAgain{1};

absl::Status MadeAgain(const std::string& name) {
  return absl::AbortedError(absl::StrCat("rabbitmq: ", name, " was made again meanwhile"));
}

}  // namespace

std::string TokenBroker::TokenQueue(const std::string& name) const {
  if (name.size() <= kNameBytesMax) return prefix_ + name + ".semaphore";
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest);
  const absl::string_view bytes(reinterpret_cast<const char*>(digest), sizeof digest);
  return absl::StrCat(prefix_, name.substr(0, kBeginningBytes), "~", absl::BytesToHexString(bytes),
                      ".semaphore");
}

absl::Status TokenBroker::Ready() { return connection_->Open(); }

absl::StatusOr<std::unique_ptr<Document>> TokenBroker::OpenSettings(const std::string& name,
                                                                    bool make) {
  return Document::Open(connection_, SettingsQueue(name), make, MergeSettings);
}

absl::StatusOr<std::unique_ptr<Mutex>> TokenBroker::LockAdmin(const std::string& name) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  return Mutex::Lock(connection_, TokenQueue(name) + ".admin");
}

absl::StatusOr<std::unique_ptr<Mutex>> TokenBroker::LockShrinking(const std::string& name) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  return Mutex::Try(connection_, TokenQueue(name) + ".shrink");
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::Read(const std::string& name) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Document>> document = OpenSettings(name, /*make=*/false);
  if (absl::IsNotFound(document.status())) return std::optional<StoredSemaphore>();
  if (!document.ok()) return document.status();
  return ReadMade(name, **document);
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::ReadMade(const std::string& name,
                                                                     const Document& document) {
  if (document.empty()) return std::optional<StoredSemaphore>();
  absl::StatusOr<StoredSemaphore> stored = ReadSettings(name, document.content());
  if (!stored.ok()) return stored.status();
  if (stored->making) return std::optional<StoredSemaphore>();
  return std::optional<StoredSemaphore>(*std::move(stored));
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::FindAct(const std::string& name,
                                                                    uint64_t act) {
  // A connection that has the mutex of the settings may still write: Read waits for the mutex.
  absl::StatusOr<std::optional<StoredSemaphore>> stored = Read(name);
  if (!stored.ok() || !*stored) return stored;
  if ((*stored)->act != act) return std::optional<StoredSemaphore>();
  Announce(name, (*stored)->row.revision);  // The act may have been broken off before this.
  return stored;
}

absl::Status TokenBroker::Write(Document* document, StoredSemaphore* stored) {
  absl::Status status = document->Write(SettingsOf(*stored));
  stored->row.revision = document->version();
  return status;
}

absl::Status TokenBroker::Tell(const std::string& text) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::Status status = connection_->SelectConfirms(*channel);
  if (status.ok()) {
    absl::StatusOr<std::vector<Connection::Confirm>> confirms =
        connection_->PublishAll(*channel, {{"", text, false, Changes()}});
    status = confirms.status();
    // (kNoQueue: no daemon listens.)
    const bool told = status.ok() && (confirms->front() == Connection::Confirm::kStored ||
                                      confirms->front() == Connection::Confirm::kNoQueue);
    if (status.ok() && !told)
      status = absl::UnavailableError("rabbitmq: the broker has not confirmed the message");
  }
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  return status;
}

// Should this daemon die before it has notified the others, they still read again now and then.
void TokenBroker::Announce(const std::string& name, uint64_t version) {
  untold_[name] = version;
  tell_again_ = {};
  TellRest().IgnoreError();  // It is called again.
}

absl::Status TokenBroker::TellRest() {
  const SteadyTime now = SteadyClock::now();
  if (now < tell_again_) return absl::OkStatus();
  tell_again_ = now + kTellAgain;
  while (!untold_.empty()) {
    const auto& [name, version] = *untold_.begin();
    if (absl::Status status = Tell(absl::StrCat(version, " ", name)); !status.ok()) return status;
    untold_.erase(untold_.begin());
  }
  return absl::OkStatus();
}

// Tokens of the slots, with confirms. What is not confirmed stays doubtful.
absl::Status TokenBroker::Publish(StoredSemaphore* stored, const std::vector<uint32_t>& slots,
                                  uint64_t base) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::Status status = connection_->SelectConfirms(*channel);
  for (size_t from = 0; status.ok() && from < slots.size(); from += kPublishedAtOnce) {
    std::vector<Connection::Publish> messages;
    const size_t to = std::min(slots.size(), from + kPublishedAtOnce);
    for (size_t i = from; i < to; ++i)
      messages.push_back({TokenQueue(stored->row.name), TokenText({slots[i], base})});
    absl::StatusOr<std::vector<Connection::Confirm>> confirms =
        connection_->PublishAll(*channel, messages);
    if (!confirms.ok()) return confirms.status();
    for (size_t i = from; i < to; ++i) {
      const Connection::Confirm confirm = (*confirms)[i - from];
      if (confirm == Connection::Confirm::kUnknown) continue;
      stored->doubtful.erase(slots[i]);
      // Certainly not there: it may be sent again.
      if (confirm != Connection::Confirm::kStored) stored->slots.erase(slots[i]);
    }
    if (!connection_->is_open())
      status = absl::UnavailableError("rabbitmq: the connection broke while tokens were published");
  }
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  return status;
}

absl::Status TokenBroker::Fill(Document* document, StoredSemaphore* stored,
                               const std::function<absl::Status()>& before_writing) {
  std::vector<uint32_t> missing;
  for (uint32_t slot = 1; stored->slots.size() + missing.size() < stored->wanted(); ++slot) {
    if (!stored->slots.contains(slot)) missing.push_back(slot);
  }
  absl::StatusOr<uint64_t> generation = 0;
  if (!missing.empty())
    generation = NextGeneration(stored->row.name, /*is_there=*/true, stored->incarnation);
  if (!generation.ok()) return generation.status();
  if (absl::Status status = before_writing(); !status.ok()) return status;
  if (missing.empty()) return Write(document, stored);
  // Doubtful before they are sent: a daemon that finds them doubtful does not send them again.
  stored->slots.insert(missing.begin(), missing.end());
  stored->doubtful.insert(missing.begin(), missing.end());
  if (absl::Status status = Write(document, stored); !status.ok()) return status;
  if (absl::Status status = Publish(stored, missing, *generation << kCountBits); !status.ok())
    return status;
  if (stored->making && (!stored->doubtful.empty() || stored->slots.size() < stored->wanted()))
    return absl::UnavailableError("rabbitmq: the broker has not confirmed all permits");
  stored->making = false;
  return Write(document, stored);
}

absl::Status TokenBroker::MakeTokenQueue(const std::string& name) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::Status status = connection_->Declare(*channel, TokenQueue(name), {.quorum = true}).status();
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::UnimplementedError(
      absl::StrCat(status.message(), ": the queue ", TokenQueue(name),
                   " is there and is no quorum queue of semaphored's; adopt it, or delete it"));
}

absl::Status TokenBroker::RemoveHalfMade(const std::string& name) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  const absl::StatusOr<QueueState> state =
      connection_->DeclarePassively(*channel, TokenQueue(name));
  absl::Status status = state.status();
  if (state.ok() && state->consumers > 0) {
    status = absl::DataLossError(absl::StrCat(
        "rabbitmq: the making of ", name, " was broken off, and other programs consume from ",
        TokenQueue(name), ", and may hold permits. Stop them, and create it again"));
  } else if (state.ok()) {
    status = connection_->Delete(*channel, TokenQueue(name)).status();
  }
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// Empty settings were never written, or an administrator has purged them; then there may be
// tokens.
absl::Status TokenBroker::CheckUnused(const std::string& name) {
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  absl::StatusOr<QueueState> state = connection_->DeclarePassively(*channel, TokenQueue(name));
  if (connection_->is_open(*channel)) connection_->CloseChannel(*channel).IgnoreError();
  if (absl::IsNotFound(state.status())) return absl::OkStatus();
  if (!state.ok()) return state.status();
  if (state->ready == 0 && state->consumers == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "rabbitmq: the queue ", TokenQueue(name), " has permits, and ", SettingsQueue(name),
      " says nothing of them. If programs of the recipe made it, adopt it (semctl adopt). If the "
      "settings were purged, destroy the semaphore by force, at once (now), and create it again"));
}

absl::StatusOr<StoredSemaphore> TokenBroker::Create(const SemaphoreRow& row, uint64_t act,
                                                    bool* begun) {
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = LockAdmin(row.name);
  if (!mutex.ok()) return mutex.status();
  return CreateLocked(row, act, begun);
}

absl::Status TokenBroker::Adopt(const SemaphoreRow& row) {
  const absl::StatusOr<std::unique_ptr<Mutex>> mutex = LockAdmin(row.name);
  if (!mutex.ok()) return mutex.status();
  const absl::StatusOr<std::optional<StoredSemaphore>> stored = Read(row.name);
  if (!stored.ok()) return stored.status();
  if (*stored) return absl::AlreadyExistsError(absl::StrCat("rabbitmq: ", row.name, " is there"));
  if (absl::Status status = JudgeRegistry(row.name); !status.ok()) return status;
  RecipeQueue recipe(connection_, TokenQueue(row.name));
  if (absl::Status status = recipe.Remove(row.limit); !status.ok()) return status;
  bool begun = false;
  return CreateLocked(row, /*act=*/0, &begun).status();
}

absl::StatusOr<StoredSemaphore> TokenBroker::CreateLocked(const SemaphoreRow& row, uint64_t act,
                                                          bool* begun) {
  // In the registry before it is there: a daemon that lists the name and finds none leaves it out.
  absl::StatusOr<uint64_t> generation = NextGeneration(row.name, /*is_there=*/true);
  if (!generation.ok()) return generation.status();
  absl::StatusOr<std::unique_ptr<Document>> document = OpenSettings(row.name, /*make=*/true);
  if (!document.ok()) return document.status();
  const absl::StatusOr<std::optional<StoredSemaphore>> there = ReadMade(row.name, **document);
  if (!there.ok() || *there)
    return absl::AlreadyExistsError(absl::StrCat("rabbitmq: ", row.name, " is there"));
  // Of a making that was broken off nothing is kept, since its tokens may be there or not.
  absl::Status unused = (*document)->empty() ? CheckUnused(row.name) : RemoveHalfMade(row.name);
  if (!unused.ok()) return unused;
  if (absl::Status status = MakeTokenQueue(row.name); !status.ok()) return status;
  (*document)->BeginAt(*generation << kVersionBits);
  *begun = true;
  StoredSemaphore stored;
  stored.row = row;
  stored.act = act;
  stored.incarnation = *generation;
  stored.making = stored.wanted() > 0;
  const auto nothing = [] { return absl::OkStatus(); };
  if (absl::Status status = Fill(document->get(), &stored, nothing); !status.ok()) return status;
  document->reset();
  Announce(row.name, stored.row.revision);
  return stored;
}

absl::Status TokenBroker::Destroy(const std::string& name, uint64_t incarnation, bool* begun) {
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = LockAdmin(name);
  if (!mutex.ok()) return mutex.status();
  if (incarnation != 0) {
    absl::StatusOr<std::optional<StoredSemaphore>> stored = Read(name);
    // (What cannot be read is destroyed all the same.)
    if (absl::IsUnavailable(stored.status()) || absl::IsDeadlineExceeded(stored.status()) ||
        absl::IsUnimplemented(stored.status()))
      return stored.status();
    if (stored.ok() && *stored && (*stored)->incarnation != incarnation) return absl::OkStatus();
  }
  // Before anything is deleted: the name could not be struck off afterwards.
  if (absl::Status status = JudgeRegistry(name); !status.ok()) return status;
  *begun = true;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  // The tokens first: what is left of it otherwise could be taken for a whole one.
  for (const std::string& queue : {TokenQueue(name), SettingsQueue(name)}) {
    if (auto gone = connection_->Delete(*channel, queue); !gone.ok()) return gone.status();
  }
  connection_->CloseChannel(*channel).IgnoreError();
  absl::StatusOr<uint64_t> generation = NextGeneration(name, /*is_there=*/false);
  if (!generation.ok()) return generation.status();
  Announce(name, *generation << kVersionBits);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::Change(
    const std::string& name, const std::function<absl::Status(StoredSemaphore*)>& change,
    const std::function<absl::Status()>& before_writing) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Document>> document = OpenSettings(name, /*make=*/false);
  if (absl::IsNotFound(document.status())) return std::optional<StoredSemaphore>();
  if (!document.ok()) return document.status();
  absl::StatusOr<std::optional<StoredSemaphore>> stored = ReadMade(name, **document);
  if (!stored.ok() || !*stored) return stored;
  if (absl::Status status = change(&**stored); !status.ok()) return status;
  if (absl::Status status = Fill(document->get(), &**stored, before_writing); !status.ok())
    return status;
  document->reset();
  Announce(name, (*stored)->row.revision);
  return stored;
}

absl::StatusOr<StoredSemaphore> TokenBroker::Update(const SemaphoreRow& row, uint64_t act,
                                                    bool* begun) {
  absl::StatusOr<std::unique_ptr<Mutex>> mutex = LockAdmin(row.name);
  if (!mutex.ok()) return mutex.status();
  absl::StatusOr<std::optional<StoredSemaphore>> stored =
      Change(row.name, [&](StoredSemaphore* there) {
        if (there->row.revision != row.revision)
          return absl::AbortedError(absl::StrCat("rabbitmq: ", row.name, " was changed meanwhile"));
        *begun = true;
        there->row = row;
        there->act = act;
        return absl::OkStatus();
      });
  if (!stored.ok()) return stored.status();
  if (!*stored) return absl::NotFoundError(absl::StrCat("rabbitmq: ", row.name, " has gone"));
  return **std::move(stored);
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::Strike(
    const std::string& name, uint64_t incarnation, const std::set<uint32_t>& slots) {
  return Change(name, [&](StoredSemaphore* stored) {
    if (stored->incarnation != incarnation) return MadeAgain(name);
    for (const uint32_t slot : slots) {
      stored->slots.erase(slot);
      stored->doubtful.erase(slot);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::TakeIn(
    const std::string& name, uint32_t count, const std::function<absl::Status()>& remove_extra) {
  return Change(
      name,
      [&](StoredSemaphore* stored) {
        stored->row.limit += count;
        return absl::OkStatus();
      },
      remove_extra);
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::Seen(const std::string& name,
                                                                 uint64_t incarnation,
                                                                 const std::set<uint32_t>& slots) {
  return Change(name, [&](StoredSemaphore* stored) {
    if (stored->incarnation != incarnation) return MadeAgain(name);
    for (const uint32_t slot : slots) stored->doubtful.erase(slot);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<StoredSemaphore>> TokenBroker::Remake(const std::string& name) {
  return Change(name, [&](StoredSemaphore* stored) {
    if (absl::Status status = MakeTokenQueue(name); !status.ok()) return status;
    absl::StatusOr<uint64_t> generation =
        NextGeneration(name, /*is_there=*/true, stored->incarnation);
    if (!generation.ok()) return generation.status();
    stored->incarnation = *generation;
    stored->slots.clear();
    stored->doubtful.clear();
    return absl::OkStatus();
  });
}

}  // namespace semaphored::rabbitmq
