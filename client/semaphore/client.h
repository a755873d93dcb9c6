// The C++ client of semaphored: permits of named semaphores, held for as long as a Permit lives.
//
//   absl::StatusOr<std::unique_ptr<semaphore::Client>> client = semaphore::Client::Create({});
//   absl::StatusOr<semaphore::Permit> permit = (*client)->Acquire("team/db", {.limit = 4});
//   if (!permit.ok()) return permit.status();
//   Work(permit->slots(), permit->token(), permit->lost());  // stops when lost() is requested
//   absl::Status given_back = permit->Release();             // or leave it to the destructor
//
// A client keeps all of its permits alive over one stream, and resumes it by itself after a broken
// connection, a restarted daemon or through the next endpoint, with the same leases, slots and
// tokens. When no daemon has vouched for the permits up to their deadline, on this machine's own
// steady clock and less a margin, they are lost: lost() fires *before* the daemon could give them
// to another client, and the work must stop.
//
// Threads: every function of Client and the const functions of Permit may be called by any thread
// at once. A client has threads of its own, so create it after fork(), never before. Callbacks
// never run under a lock of the client: results on one thread in the order in which they came,
// losses and recalls on another one, so that a slow result delays no loss. What they have captured is
// destroyed on these threads, too: it may hold other permits.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_CLIENT_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/semaphore/clock.h"
#include "client/semaphore/security.h"

namespace semaphore {

struct LeaseState;
class Connection;

// Why a permit that was not given back is held no more.
enum class LossCause {
  kNoContact,     // no daemon vouched for it up to its deadline: it may go to another client soon
  kExpired,       // its session expired at the daemon
  kRevoked,       // by an administrator
  kRecalled,      // it was recalled, and not given back within the grace
  kDestroyed,     // the semaphore was destroyed by force
  kDisconnected,  // the connection broke, and release_on_disconnect was chosen
  kUnknown,       // the daemon does not know it any more
  kEngineLost,    // the engine took it back, since the daemon's connection to it was lost
  kMoved,         // another client with this client's id has repeated its request, and has it now
};

// "no contact with a daemon", "expired" …; lower case, for a sentence.
absl::string_view ToString(LossCause cause);

struct Loss {
  LossCause cause = LossCause::kUnknown;
  std::string message;
};

// The daemon asks for the permits back: the limit was lowered, they were held for too long, an
// administrator wants them.
struct RecallNotice {
  // What is left of it, as the daemon counts.
  std::chrono::milliseconds grace{0};
  std::string reason;
  // The work must have stopped by then, whatever the daemons vouch for. lost() fires then.
  TimePoint stop_by = TimePoint::max();
};

// A place in the queue.
struct QueuePlace {
  // From 1.
  std::uint64_t position = 0;
  // Negative: not known yet.
  std::chrono::milliseconds expected_wait{-1};
  // Why it waits: "FULL", "PAUSED", …, as WaitReason in the .proto; empty: nothing is in its way.
  std::string reason;
};

struct ClientOptions {
  // HOST:PORT, [HOST]:PORT or unix:PATH each, tried in this order, beginning again after the last. At
  // least one, at most 64.
  std::vector<std::string> endpoints = {"127.0.0.1:7420"};
  // TLS, certificates, and the token. Files are read by Create(), token_file again when it has
  // changed. A daemon that refuses them (UNAUTHENTICATED, PERMISSION_DENIED) ends what waits with
  // its error; permits that are held stay so up to their deadline, while it is asked again.
  SecurityOptions security{};
  // For how long permits outlive the last sign of life of this client. 0: the daemon's default (30
  // s).
  std::chrono::milliseconds ttl{0};
  // Permits count as lost this long before the daemon's promise about them ends, or 1 % of that
  // promise before if that is more: it covers clocks that run at different speeds. Less than half
  // of a TTL that is given.
  std::chrono::milliseconds margin{20};
  // For people: who holds. Default: "host:pid". At most 256 bytes.
  std::string holder{};
  // A call fails with UNAVAILABLE ("UNREACHABLE") when no endpoint could be reached for this long:
  // at first …
  std::chrono::milliseconds connect_timeout{5'000};
  // … and for this long once one had been reached; so a daemon may be restarted while requests wait
  // in its queue.
  std::chrono::milliseconds reconnect_timeout{60'000};
  // How long Release and the destructor of the client wait for the daemon's answer.
  std::chrono::milliseconds release_timeout{5'000};
  // Requests that this client may have under way at once, those that wait included. Beyond:
  // RESOURCE_EXHAUSTED.
  std::size_t operations_max = 200'000;
  // DANGER: when no endpoint can be reached, Acquire gives a permit that *nothing stands behind*:
  // fail_open() is true, it has no slots, token 0, it is never lost, and the limit is not kept.
  // Only for limits that are a courtesy. Default: fail closed, with UNAVAILABLE.
  bool fail_open = false;
  // Permits go back as soon as the connection is lost, instead of after the TTL. Safe only if the
  // resource checks the token: a holder that is cut off may still be at work.
  bool release_on_disconnect = false;
  // For tests. Not owned, must outlive the client and all its permits. Default: Clock::Real().
  Clock* clock = nullptr;
};

struct AcquireOptions {
  // Creates the semaphore with this limit if it does not exist. 0: it must exist (NOT_FOUND
  // otherwise).
  std::uint32_t limit = 0;
  // If the semaphore has another limit: take it as it is, instead of FAILED_PRECONDITION
  // ("LIMIT_MISMATCH").
  bool adopt_limit = false;
  std::uint32_t permits = 1;
  // How long to stand in the queue. Negative: for ever. 0: at once or RESOURCE_EXHAUSTED ("FULL").
  std::chrono::milliseconds wait{-1};
  // Higher is served first. -1000 to 1000.
  std::int32_t priority = 0;
  // For people. Default: the client's.
  std::string holder{};
  // When stop is requested the wait is given up, with CANCELLED. A permit that was granted
  // meanwhile is given back.
  std::stop_token cancel{};
  // Called on the thread of results when the request stands in the queue, and each further time
  // that the daemon reports its position.
  std::function<void(const QueuePlace&)> on_queued{};
  // Called once, on the thread of losses, if the permit is lost. Must not block: other losses wait
  // behind it.
  std::function<void(const Loss&)> on_lost{};
  // Called on the thread of losses when the permit is recalled. Must not block. When it returns the recall is
  // acknowledged: what does the work knows of it then, and stops by RecallNotice::stop_by. Without it the daemon waits
  // until the validity is over that it had reported before.
  std::function<void(const RecallNotice&)> on_recall{};
};

// Permits of one semaphore, held. Given back when it is destroyed. Move-only; after a move from it,
// it is empty. Using one Permit is for one thread at a time, but for its const functions.
class Permit {
 public:
  // Empty: holds nothing.
  Permit() = default;
  Permit(Permit&& other) noexcept;
  Permit& operator=(Permit&& other) noexcept;
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  // Gives the permits back, without waiting for the answer. They go back in order with the client's
  // next requests.
  ~Permit();

  // False when empty: default-made, moved from, or released.
  explicit operator bool() const { return lease_ != nullptr; }

  // REQUIRES of all below: not empty.

  const std::string& semaphore() const;
  // The places taken, from 1: as many as permits.
  absl::Span<const std::uint32_t> slots() const;
  // The fencing token, to hand to the resource: per slot it rises with every grant.
  std::uint64_t token() const;
  // A secret of the holder: any client that knows it can give the permits back.
  const std::string& lease_id() const;
  std::chrono::milliseconds ttl() const;
  // See ClientOptions::fail_open.
  bool fail_open() const;

  // Whether the permits can be relied on now: not lost, and the deadline not reached. Reads two
  // atomics and the clock.
  bool held() const;
  // Until when they can be relied on if nothing more is heard; it moves on while a daemon answers.
  // Less the margin already.
  TimePoint good_until() const;
  // Stop is requested when the permits are lost. A loss is final. Not requested by a release.
  std::stop_token lost() const;
  // Meaningful only once lost() is requested.
  Loss loss() const;
  // Calls back once if the permits are lost; at once, on this thread, if they are already.
  void OnLost(std::function<void(const Loss&)> callback);

  // Gives the permits back and waits for the answer; empty afterwards, whatever the answer.
  //   NOT_FOUND    they had been lost before; the message says why. Nothing was changed
  //   UNAVAILABLE  no answer within release_timeout. It is still tried, and at the latest the TTL
  //                gives them back
  // After another error, too, it is still tried, unless this client may not give them back (PERMISSION_DENIED).
  // OK if empty.
  absl::Status Release();
  // The same without blocking; `done` is called once, on the thread of results.
  void ReleaseAsync(std::function<void(absl::Status)> done);

 private:
  friend class ClientImpl;
  Permit(std::shared_ptr<Connection> connection, std::shared_ptr<LeaseState> lease);

  std::shared_ptr<Connection> connection_;
  std::shared_ptr<LeaseState> lease_;
};

// What the daemon says about a lease or a token, at the engine's current revision.
struct Verdict {
  bool held = false;
  // When not held: why, in a word ("EXPIRED", "RELEASED", "UNKNOWN" …).
  std::string ended;
  // When held.
  std::string holder;
  std::vector<std::uint32_t> slots;
  std::uint64_t token = 0;
  // Until when the verdict can be relied on, less the margin.
  TimePoint good_until{};
  bool recalled = false;
  // When asked by slot: the token of the lease that holds the slot now. 0: the slot is free.
  std::uint64_t slot_token = 0;
};

class Client {
 public:
  // Checks the options (INVALID_ARGUMENT names the one that is wrong) and starts the threads. Does
  // not connect.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);

  // Requests that still wait end with CANCELLED. Permits outlive the client: its stream ends,
  // cleanly, with the last one. Waits at most release_timeout for that end. Must not be called in a
  // callback of the client.
  virtual ~Client() = default;

  // Takes permits, and waits for them. Errors, with ErrorReason() of errors.h:
  //   RESOURCE_EXHAUSTED  FULL or HOLDER_CAP (and `wait` is 0), LIMIT_REACHED
  //   DEADLINE_EXCEEDED   WAIT_EXPIRED: `wait` passed
  //   FAILED_PRECONDITION LIMIT_MISMATCH, EXCEEDS_LIMIT, PAUSED, DESTROYED
  //   NOT_FOUND           NO_SUCH_SEMAPHORE
  //   INVALID_ARGUMENT    INVALID_FIELD
  //   UNAVAILABLE         UNREACHABLE: no endpoint answered (nor did TLS succeed);
  //                       ENGINE_UNAVAILABLE
  //   UNAUTHENTICATED, PERMISSION_DENIED  the daemon does not take the token or certificate, or
  //                       does not let it do this
  //   CANCELLED           the stop token was requested, or the client destroyed
  // Do not call it in a callback on the thread of losses.
  virtual absl::StatusOr<Permit> Acquire(absl::string_view semaphore,
                                         AcquireOptions options = {}) = 0;

  // Acquire with `wait` 0. Until this client has reached a daemon for the first time, it fails with
  // UNREACHABLE as soon as no endpoint could be reached in a round.
  absl::StatusOr<Permit> TryAcquire(absl::string_view semaphore, AcquireOptions options = {});

  // Acquire that waits until `deadline`; TryAcquire if that has passed.
  absl::StatusOr<Permit> AcquireUntil(absl::string_view semaphore,
                                      std::chrono::steady_clock::time_point deadline,
                                      AcquireOptions options = {});

  // Acquire without blocking. `done` is called exactly once, on the thread of results; it may call
  // any function of the client, but while it runs no other result is delivered.
  virtual void AcquireAsync(absl::string_view semaphore, AcquireOptions options,
                            std::function<void(absl::StatusOr<Permit>)> done) = 0;

  // Asked by the holder. An error means that the verdict is not known.
  virtual absl::StatusOr<Verdict> Verify(const Permit& permit) = 0;

  // Asked by the protected resource, which was shown a slot and a token. Needs no session.
  virtual absl::StatusOr<Verdict> Verify(absl::string_view semaphore, std::uint32_t slot,
                                         std::uint64_t token) = 0;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_CLIENT_H_
