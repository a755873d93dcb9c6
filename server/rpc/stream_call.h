// One call of Session or Work: a stream on which a session lives. What the two have in common is here: the session is
// opened, pinged and closed, and commands wait while too much waits for the engine. What the commands mean is in
// session_call.cc and work_call.cc; the mechanics of the stream are in bidi_call.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/rpc/bidi_call.h"
#include "server/rpc/deferred.h"
#include "server/rpc/signs_of_life.h"

namespace semaphored {

struct StreamWords : BidiWords {
  const char* commands;       // The field with the commands of a message.
  const char* without_close;  // What it means that the client has closed its side without `close`.
};

// Messages are of the types Incoming and Response; the commands in an Incoming are of the type Command.
template <typename Incoming, typename Response, typename Command>
class StreamCall : public BidiCall<Incoming, Response>, public SessionListener {
 public:
  // `words` outlives it.
  StreamCall(Environment* environment, const StreamWords& words);

  // ---- called by Sessions ----
  bool unread() const final { return unread_by_us_; }
  void OnRecalled(uint64_t tag, const Id& claim, const std::string& semaphore,
                  const RecallNotice& recall) final;
  void OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
               EndCause cause) override;
  void OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                const std::vector<HeldLease>& held) final;
  void OnSessionEnded(Refusal refusal) final;
  void OnRulesChanged() final { (void)IsStillKnown(); }

 protected:
  using Base = BidiCall<Incoming, Response>;
  using Base::arrived, Base::caller, Base::context, Base::environment;
  using Base::End, Base::MarkDirty, Base::OweReply, Base::Refuse, Base::replies_owed;
  using Base::Say, Base::SayAlone, Base::TakeReply;

  ~StreamCall() override = default;

  // The rights and quotas of a session that is to be opened. It is opened under `params` as this leaves them.
  virtual Problem Admit(OpenParams* params) = 0;
  // What the rules forbid now of what the session was opened with.
  virtual Problem CheckAgain() { return std::nullopt; }
  // What a message says before its commands. A problem ends the stream.
  virtual Problem BeforeCommands(const Incoming& /*message*/) { return std::nullopt; }
  virtual void HandleCommand(Command& command) = 0;
  // So much waits for the client that it is not read.
  virtual bool client_is_behind() const = 0;

  LastPing last_ping() const { return signs_.last_ping(environment()->reactor->event_time()); }
  Sessions* sessions() { return environment()->sessions; }
  const ServiceLimits& service_limits() const { return environment()->limits; }
  const RequestLimits& limits() const { return environment()->limits.requests; }
  const Id& session() const { return session_; }
  const std::string& client_id() const { return client_id_; }

 private:
  using typename Base::Line;
  using typename Base::Reading;
  enum class Stage : uint8_t {
    kFirst,    // The first message has not come.
    kOpening,  // Sessions has been asked to open it.
    kOpen,
    kClosing,  // Asked to close cleanly.
    kEnded,    // Sessions no longer knows this stream.
  };

  // ---- the stream ----
  void Begin() override;
  void OnMessage(Incoming& message) override;
  Reading BeforeRead(Line line) override;
  void OnNoMore() override;
  void OnEnding() override;
  // Commands are not carried out now, since too much waits for the engine.
  bool TooMuchUnderWay() const;
  // `all`: whatever is under way.
  void RunDeferred(bool all);

  // ---- the messages ----
  // The access file may have changed. False: the stream has been refused.
  bool IsStillKnown();
  void HandleOpen(Incoming& message);
  // False: the stream has ended.
  bool HandleCommands(Incoming& message);
  void HandlePing(uint64_t ping_id, const Vouch& vouch);
  void HandleClose();

  const StreamWords& words_;
  Stage stage_ = Stage::kFirst;
  bool attached_ = false;  // Sessions knows this listener.
  bool unread_by_us_ = false;
  SignsOfLife signs_;
  Deferred<Command> deferred_;
  Id session_;
  std::string client_id_;
};

// stream_call.cc has them.
extern template class StreamCall<pb::SessionRequest, pb::SessionResponse, pb::SessionCommand>;
extern template class StreamCall<pb::WorkRequest, pb::WorkResponse, pb::FinishTicket>;

}  // namespace semaphored
