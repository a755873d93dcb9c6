// What every call needs of the daemon. All of it on the reactor's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "proto/semaphore/v1/semaphore.grpc.pb.h"
#include "server/base/longest_lately.h"
#include "server/figures/metrics.h"
#include "server/rpc/call_count.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert.h"
#include "server/rpc/host.h"
#include "server/rpc/long_answers.h"
#include "server/rpc/outbox.h"
#include "server/rpc/reactor.h"
#include "server/rpc/standard_calls.h"
#include "server/rpc/status.h"
#include "server/rpc/unread_answers.h"
#include "server/rpc/unread_streams.h"
#include "server/rpc/validate.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// All methods raw: see wire.h.
template <typename Base>
using RawUnary = pb::SemaphoreService::WithRawMethod_Acquire<
    pb::SemaphoreService::WithRawMethod_Renew<pb::SemaphoreService::WithRawMethod_Release<
        pb::SemaphoreService::WithRawMethod_Verify<pb::SemaphoreService::WithRawMethod_Administer<
            pb::SemaphoreService::WithRawMethod_Enqueue<
                pb::SemaphoreService::WithRawMethod_DescribeDaemon<Base>>>>>>>;
template <typename Base>
using RawStreams =
    pb::SemaphoreService::WithRawMethod_Hold<pb::SemaphoreService::WithRawMethod_Session<
        pb::SemaphoreService::WithRawMethod_Watch<pb::SemaphoreService::WithRawMethod_Work<Base>>>>;
using AsyncService = RawUnary<RawStreams<pb::SemaphoreService::Service>>;

struct ServiceLimits {
  RequestLimits requests;
  size_t calls_max = 200'000;          // Unary calls at once; those that wait count.
  size_t streams_max = 100'000;        // Hold, Session, Watch and Work at once, together.
  size_t standard_calls_max = 10'000;  // Of health and reflection at once.
  size_t watch_events_max = 10'000;
  // A session's stream: entries (results and events) that wait to be written. Above the first, the
  // stream is not read; above the second its client is not reading, and it is cut off.
  size_t stream_entries_pause = 4'096;
  size_t stream_entries_max = 250'000;
  // Bytes, about, that may wait for the reader of one stream before it receives SLOW_READER.
  size_t stream_bytes_max = 128 << 20;
  // The same of all streams together.
  size_t streams_bytes_max = 256 << 20;
  // Bytes of answers to unary calls that their clients have not taken yet, all together.
  size_t answers_bytes_max = 256 << 20;
  // A client that does not take the last words of a stream, or an answer, is cut off after it.
  Milliseconds unread_max{15'000};
  // Jobs that wait for the engine. Above it, commands of sessions and workers wait before they are
  // carried out, …
  size_t jobs_pause = 65'536;
  // … so many bytes of them for each stream, and for all together; above either, the stream is not read.
  size_t deferred_stream_bytes_max = 1 << 20;
  size_t deferred_bytes_max = 64 << 20;
};

// Something that collects during a turn and acts at its end.
class Flushable {
 public:
  virtual void Flush() = 0;

 protected:
  ~Flushable() = default;
};

// A call whose caller may lose its rights while it waits.
class WaitingAct {
 public:
  virtual void OnRulesChanged() = 0;

 protected:
  ~WaitingAct() = default;
};

// How many calls of a kind there may be at once.
struct CallBound {
  const char* setting;  // "calls_max"
  const char* what;     // "calls"
  size_t most;
  const char* advice;  // Where there are more.
};

struct StandardServices;  // standard_call.h

struct Environment {
  Reactor* reactor = nullptr;
  Host* host = nullptr;
  Sessions* sessions = nullptr;
  AsyncService* service = nullptr;
  StandardServices* standard = nullptr;
  ServiceLimits limits;
  AccessControl access;
  std::string adapter;
  std::string node_id;   // Of this daemon.
  std::string instance;  // Of this process.
  // No more calls are accepted.
  bool stopping = false;
  size_t calls = 0;
  size_t streams = 0;
  StandardCalls standard_calls;
  size_t standard_calls_left = 0;  // Those that have ended, and whose end has not left.
  UnreadAnswers unread;
  UnreadStreams unread_streams;
  LongAnswers long_answers;
  absl::flat_hash_set<WaitingAct*> waiting_acts;
  size_t deferred_bytes = 0;  // See ServiceLimits::deferred_bytes_max.
  AllCallFigures call_figures{};
  // The fullest stream lately: bytes that wait for a reader, and events for one of Watch.
  MostLately stream_bytes;
  MostLately watch_events;
  // To be flushed at the end of this turn; each at most once. What is added while they are flushed
  // waits for the next turn.
  std::vector<Flushable*> dirty;
  // Shared by all streams of Session and Work.
  std::tuple<MessagePool<pb::SessionResponse>, MessagePool<pb::WorkResponse>> responses;
  std::tuple<ArenaMessage<pb::SessionRequest>, ArenaMessage<pb::WorkRequest>> stream_requests;

  // A unary call has been answered.
  void OnAnswer(UnreadAnswer* answer, size_t bytes) {
    const SteadyTime now = reactor->event_time();
    unread.Add(answer, bytes, now, limits.answers_bytes_max);
    if (!unread_watched) WatchUnread();
  }
  void WatchUnread() {
    unread_watched = !unread.empty();
    if (unread_watched) reactor->Arm(&unread_timer, unread.oldest() + limits.unread_max);
  }
  void OnUnreadTimer() {
    unread.CutOffBefore(reactor->event_time() - limits.unread_max);
    WatchUnread();
  }
  bool unread_watched = false;  // The timer stands.
  MemberTimer<Environment, &Environment::OnUnreadTimer> unread_timer{this};

  // A call has come: counts it in `under_way`, and finds out who calls. Refused: the daemon is stopping; or there are too many
  // calls, or the caller is not known, and then it counts at its connection.
  Problem TakeIn(Method method, const grpc::ServerContext& context, const CallBound& bound,
                 size_t* under_way, CallCount* count, Caller* caller) {
    count->Begin(under_way);
    CountBegin(method, context);
    if (stopping) return ShuttingDown();
    Problem problem = *under_way > bound.most
                          ? TooMany(bound.setting, bound.what, bound.most, bound.advice)
                          : caller->Identify(&access, &context);
    if (problem) count->MoveToConnection(access.peers, context);
    return problem;
  }
  void CountBegin(Method method, const grpc::ServerContextBase& context) {
    ++call_figures[static_cast<size_t>(method)].begun;
    if (access.peers != nullptr) access.peers->OnBegin(context.peer());
  }
  void CountEnd(Method method, grpc::StatusCode code) {
    ++call_figures[static_cast<size_t>(method)].ended[static_cast<size_t>(code) % kStatusCodes];
  }
};

}  // namespace semaphored
