// One call of Session or Work: a stream on which a session lives. What the two have in common is here; what their
// commands mean is in session_call.cc and work_call.cc.
//
// What is to be said is collected in the outbox; at the end of the reactor's turn, or when the message before has gone,
// all that is there leaves in one message. A client whose results pile up is not read any further.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/rpc/call_count.h"
#include "server/rpc/deferred.h"
#include "server/rpc/environment.h"
#include "server/rpc/signs_of_life.h"

namespace semaphored {

struct StreamWords {
  Method method;
  const char* commands;       // The field with the commands of a message.
  const char* fewer_streams;  // What to do where there are too many streams.
  const char* without_close;  // What it means that the client has closed its side without `close`.
  const char* read_faster;    // What to do where too much waits for the client.
};

// Messages are of the types Incoming and Response; the commands in an Incoming are of the type Command.
template <typename Incoming, typename Response, typename Command>
class StreamCall : public SessionListener, public Flushable, public UnreadStream {
 public:
  // `words` outlives it.
  StreamCall(Environment* environment, const StreamWords& words);
  StreamCall(const StreamCall&) = delete;
  StreamCall& operator=(const StreamCall&) = delete;

  void Request();
  void Flush() final;
  void OnFullest() final;

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

  size_t place = 0;  // The acceptor's.

 protected:
  ~StreamCall() override = default;

  // Asks the service for a call of its method.
  virtual void Register(QueueEvent* accepted) = 0;
  // The rights and quotas of a session that is to be opened. It is opened under `params` as this leaves them.
  virtual Problem Admit(OpenParams* params) = 0;
  // What the rules forbid now of what the session was opened with.
  virtual Problem CheckAgain() { return std::nullopt; }
  // What a message says before its commands. A problem ends the stream.
  virtual Problem BeforeCommands(const Incoming& /*message*/) { return std::nullopt; }
  virtual void HandleCommand(Command& command) = 0;
  // So much waits for the client that it is not read.
  virtual bool client_is_behind() const = 0;
  virtual void OnTurnOver() {}
  // The call has ended.
  virtual void OnOver() {}
  // The acceptor has the call back, and asks for another in the place of one that has been accepted.
  virtual void Recycle() = 0;
  virtual void Replace() = 0;

  // The next entry goes in here: see Outbox.
  Response* Say(size_t bytes = 0) {
    MarkDirty();
    return outbox_.Next(bytes);
  }
  // Sessions owes a reply …
  void OweReply() { ++replies_owed_; }
  // … and it has come. True: the stream still wants it.
  bool TakeReply();
  LastPing last_ping() const { return signs_.last_ping(environment_->reactor->event_time()); }

  Environment* environment() { return environment_; }
  Sessions* sessions() { return environment_->sessions; }
  const ServiceLimits& service_limits() const { return environment_->limits; }
  const RequestLimits& limits() const { return environment_->limits.requests; }
  const Outbox<Response>& outbox() const { return outbox_; }
  Caller& caller() { return caller_; }
  grpc::ServerContext* context() { return &*context_; }
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>* stream() { return &*stream_; }
  const Id& session() const { return session_; }
  const std::string& client_id() const { return client_id_; }

 private:
  enum class Stage : uint8_t {
    kAskedFor,
    kFirst,    // The first message has not come.
    kOpening,  // Sessions has been asked to open it.
    kOpen,
    kClosing,    // Asked to close cleanly.
    kEnding,     // The status is known; what is in the outbox leaves first.
    kFinishing,  // The status is on its way.
    kOver,
  };

  // ---- the stream ----
  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnUnread();
  void MarkDirty();
  // Commands are not carried out now, since too much waits for the engine.
  bool TooMuchUnderWay() const;
  // `all`: whatever is under way.
  void RunDeferred(bool all);
  void MaybeRead();
  void MaybeWrite();
  void MaybeRecycle();
  void CheckReader();
  void RefuseReader(const Refusal& refusal);
  // The client closed its side or has gone.
  void OnNoMore();
  // From now on Sessions has nothing to do with this stream.
  void End(grpc::Status status);
  void Refuse(const Refusal& refusal);
  // Whose caller is not known.
  void RefuseOutsider(const Refusal& refusal);

  // ---- the messages ----
  // The access file may have changed. False: the stream has been refused.
  bool IsStillKnown();
  void Handle(Incoming& message);
  void HandleOpen(Incoming& message);
  // False: the stream has ended.
  bool HandleCommands(Incoming& message);
  void HandlePing(uint64_t ping_id, const Vouch& vouch);
  void HandleClose();

  Environment* environment_;
  const StreamWords& words_;
  Stage stage_ = Stage::kAskedFor;
  bool attached_ = false;  // Sessions knows this listener.
  bool reading_ = false;
  bool writing_ = false;
  bool broken_ = false;
  bool dirty_ = false;
  bool fullest_ = false;  // It is to end, since its client does not read.
  bool unread_by_us_ = false;
  size_t writing_bytes_ = 0;  // On their way; 0: none.
  size_t replies_owed_ = 0;
  CallCount count_;
  Caller caller_;
  SteadyTime arrived_{};  // Of the message that is being answered.
  SignsOfLife signs_;
  Deferred<Command> deferred_{&environment_->deferred_bytes};
  Id session_;
  std::string client_id_;
  Outbox<Response> outbox_;
  grpc::Status status_;
  grpc::ByteBuffer incoming_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  MemberEvent<StreamCall, &StreamCall::OnAccepted> accepted_event_{this};
  MemberEvent<StreamCall, &StreamCall::OnRead> read_event_{this};
  MemberEvent<StreamCall, &StreamCall::OnWritten> written_event_{this};
  MemberEvent<StreamCall, &StreamCall::OnFinished> finished_event_{this};
  MemberTimer<StreamCall, &StreamCall::OnUnread> unread_{this};
};

// stream_call.cc has them.
extern template class StreamCall<pb::SessionRequest, pb::SessionResponse, pb::SessionCommand>;
extern template class StreamCall<pb::WorkRequest, pb::WorkResponse, pb::FinishTicket>;

}  // namespace semaphored
