// layout=tokens, as the broker keeps it; ADR 0008 says why it is so.
//
//   <name>.semaphore            a quorum queue with one message for each permit: its slot, and the
//                               base of its fencing tokens
//   <name>.semaphore.settings   a document (document.h): limit, settings, slots
//   <name>.semaphore.admin      an exclusive queue: the mutex of administrative acts
//   <name>.semaphore.shrink     an exclusive queue: the mutex of the daemon that takes tokens out
//   semaphored.registry.<part>  a document: the names of some of the semaphores, by a hash of the name,
//                               and a number that rises each time that tokens of one of them are published
//   semaphored.secret           a document: what daemons seal messages with (sealing.h)
//   semaphored.changes          a fan-out exchange: "<version> <name>" for each change of settings
//
// All of them after a prefix, if the URL has one.
//
// On one connection, used by one thread; all calls block for some round trips. Errors: UNAVAILABLE,
// the broker, or another act under way; DEADLINE_EXCEEDED: a queue that does not answer while the
// broker does (Connection::KeepLate); DATA_LOSS, UNIMPLEMENTED: queues that are none of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/document.h"
#include "adapters/rabbitmq/token_format.h"
#include "adapters/types.h"

namespace semaphored::rabbitmq {

class TokenBroker {
 public:
  // Outlives the broker. It is opened when a call is made, and is not one that holds permits: what
  // publishes may be made to wait by the broker for as long as it has no room.
  explicit TokenBroker(Connection* connection, std::string prefix = "")
      : connection_(connection), prefix_(std::move(prefix)) {}

  // <prefix><name>.semaphore; of a name too long for a queue the beginning, and its SHA-256.
  std::string TokenQueue(const std::string& name) const;
  // The exchange.
  std::string Changes() const { return prefix_ + "semaphored.changes"; }
  // The queue of the secret.
  std::string Secret() const { return prefix_ + "semaphored.secret"; }

  // Publishes `text` on the exchange. Every daemon that holds a permit receives it.
  absl::Status Tell(const std::string& text);
  // Sends the change notices that could not be sent with their changes: once a second, until it
  // succeeds.
  absl::Status TellRest();

  // nullopt: there is none.
  absl::StatusOr<std::optional<StoredSemaphore>> Read(const std::string& name);
  // Alphabetical, from `after` (not itself) on. Reads all parts of the registry, some milliseconds each.
  // UNIMPLEMENTED: a newer daemon has made one of them.
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after, uint32_t names_max);

  // `act` is a number that no other act has. *begun is set as soon as something may have been
  // written: UNAVAILABLE then says that it may stand or not, and FindAct shows, once it answers; a
  // Destroy is repeated.

  // Makes it, with its tokens. ALREADY_EXISTS: it is there.
  absl::StatusOr<StoredSemaphore> Create(const SemaphoreRow& row, uint64_t act, bool* begun);
  // Removes the recipe's queue of this name, with row.limit messages, and makes the semaphore in its place.
  // FAILED_PRECONDITION, DATA_LOSS: RecipeQueue::Remove refuses it. ALREADY_EXISTS: the semaphore is there. If it fails
  // otherwise, the queue may be gone, and the semaphore not be made.
  absl::Status Adopt(const SemaphoreRow& row);
  // Limit and settings as in `row`. More tokens are published at once; tokens above the limit stay
  // until a daemon takes them out. ABORTED: not at row.revision any more. NOT_FOUND: it has gone.
  absl::StatusOr<StoredSemaphore> Update(const SemaphoreRow& row, uint64_t act, bool* begun);
  // What the act has written; nullopt: it has written nothing that counts, and never will.
  absl::StatusOr<std::optional<StoredSemaphore>> FindAct(const std::string& name, uint64_t act);
  // Also if it is not there, or only in part; so it may be repeated. Destroys this incarnation only
  // (0: any): another one has been made since, and is left alone. UNIMPLEMENTED: a newer daemon has made the
  // settings or the registry; nothing is changed.
  absl::Status Destroy(const std::string& name, uint64_t incarnation, bool* begun);
  // The queue of tokens has gone: makes a new one, with all tokens.
  absl::StatusOr<std::optional<StoredSemaphore>> Remake(const std::string& name);

  // Once there are no semaphores any more.
  absl::Status RemoveRegistry();

  // The mutex of administrative acts, for acts of several steps. UNAVAILABLE: another has it.
  absl::StatusOr<std::unique_ptr<Mutex>> LockAdmin(const std::string& name);
  // The mutex of the daemon that takes tokens out. UNAVAILABLE: another one does so. Tries once.
  absl::StatusOr<std::unique_ptr<Mutex>> LockShrinking(const std::string& name);
  // The tokens of these slots have gone for certain: they were acknowledged, and the broker has
  // answered since. If the limit was raised meanwhile, new ones are published. nullopt: the
  // semaphore has gone. ABORTED: it was made again, and its slots are not these.
  absl::StatusOr<std::optional<StoredSemaphore>> Strike(const std::string& name,
                                                        uint64_t incarnation,
                                                        const std::set<uint32_t>& slots);
  // The limit is `count` higher from now on, and the tokens are published. `remove_extra` removes the extra
  // messages that are taken in; it is called at most once, when nothing but the broker itself can refuse the
  // write any more. An error of it is returned, and then the limit stays. REQUIRES: the caller has LockAdmin.
  // nullopt: the semaphore has gone.
  absl::StatusOr<std::optional<StoredSemaphore>> TakeIn(
      const std::string& name, uint32_t count, const std::function<absl::Status()>& remove_extra);
  // These have a token for certain: they are doubtful no longer. nullopt, ABORTED: as Strike.
  absl::StatusOr<std::optional<StoredSemaphore>> Seen(const std::string& name, uint64_t incarnation,
                                                      const std::set<uint32_t>& slots);

 private:
  absl::Status Ready();
  absl::StatusOr<std::unique_ptr<Document>> OpenSettings(const std::string& name, bool make);
  absl::Status Write(Document* document, StoredSemaphore* stored);
  // Writes it, and publishes tokens of the slots that are missing up to the limit. `before_writing`: see Change.
  absl::Status Fill(Document* document, StoredSemaphore* stored,
                    const std::function<absl::Status()>& before_writing);
  absl::Status Publish(StoredSemaphore* stored, const std::vector<uint32_t>& slots, uint64_t base);
  // Above what the registry has given before, and above `of` in any case: the registry may have been purged.
  absl::StatusOr<uint64_t> NextGeneration(const std::string& name, bool is_there, uint64_t of = 0);
  // Whether this daemon may write the name's part of the registry.
  absl::Status JudgeRegistry(const std::string& name);
  absl::Status MakeTokenQueue(const std::string& name);
  // The queue of one whose making was broken off. DATA_LOSS: other programs consume from it.
  absl::Status RemoveHalfMade(const std::string& name);
  // What the settings of a name say; nullopt: they say nothing, or of one whose making was broken off.
  static absl::StatusOr<std::optional<StoredSemaphore>> ReadMade(const std::string& name,
                                                                 const Document& document);
  absl::Status CheckUnused(const std::string& name);
  // REQUIRES: the caller has LockAdmin.
  absl::StatusOr<StoredSemaphore> CreateLocked(const SemaphoreRow& row, uint64_t act, bool* begun);
  // `before_writing` is called with the document open and the generation taken: then only the write is left.
  absl::StatusOr<std::optional<StoredSemaphore>> Change(
      const std::string& name, const std::function<absl::Status(StoredSemaphore*)>& change,
      const std::function<absl::Status()>& before_writing = [] { return absl::OkStatus(); });
  // A change notice that cannot be sent now is left to TellRest.
  void Announce(const std::string& name, uint64_t version);

  std::string SettingsQueue(const std::string& name) const {
    return TokenQueue(name) + ".settings";
  }
  // Of the name, or part by part. So that what is made, or published, waits only for what has the same part.
  std::string RegistryOf(const std::string& name) const;
  std::string RegistryPart(int part) const;

  Connection* connection_;
  const std::string prefix_;
  std::map<std::string, uint64_t> untold_;  // The versions of what was changed, by name.
  SteadyTime tell_again_{};
};

}  // namespace semaphored::rabbitmq
