// Session: many leases over one stream. The mechanics of the stream are in session_call.cc, what
// its commands mean in session_commands.cc.
//
// Results are collected in the outbox; at the end of the reactor's turn, or when the message before
// has gone, all that is there leaves in one message. A client whose results pile up is not read any
// further.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "server/service/acceptor.h"
#include "server/service/call_count.h"
#include "server/service/deferred.h"
#include "server/service/environment.h"
#include "server/service/signs_of_life.h"

namespace semaphored {

class SessionCall final : public SessionListener, public Flushable, public UnreadStream {
 public:
  SessionCall(Environment* environment, Acceptor<SessionCall>* acceptor);
  SessionCall(const SessionCall&) = delete;
  SessionCall& operator=(const SessionCall&) = delete;

  void Request();
  void Flush() override;
  void OnFullest() override;

  // ---- called by Sessions ----
  bool unread() const override { return unread_by_us_; }
  void OnQueued(uint64_t tag, uint64_t position, WaitReason reason,
                int64_t expected_wait_ms) override;
  void OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                 Vouch vouch) override;
  void OnRefused(uint64_t tag, Refusal refusal) override;
  void OnRecalled(uint64_t tag, const Id& claim, const std::string& semaphore,
                  const RecallNotice& recall) override;
  void OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
               EndCause cause) override;
  void OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                const std::vector<HeldLease>& held) override;
  void OnSessionEnded(Refusal refusal) override;
  void OnRulesChanged() override { (void)IsStillKnown(); }

  size_t place = 0;  // The acceptor's.

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
  void MaybeRead();
  void MaybeWrite();
  void MaybeTakeBack();
  // Commands are not carried out now, since too much waits for the engine.
  bool TooMuchUnderWay() const;
  // `all`: whatever is under way.
  void RunDeferred(bool all);
  void CheckReader();
  void RefuseReader(const Refusal& refusal);
  // The client closed its side or has gone.
  void OnNoMore();
  // From now on Sessions has nothing to do with this stream.
  void End(grpc::Status status);
  void Refuse(const Refusal& refusal);
  // Whose caller is not known.
  void RefuseOutsider(const Refusal& refusal);

  // ---- the commands ----
  void Handle(pb::SessionRequest& message);
  void HandleOpen(pb::SessionRequest& message);
  void HandleCommand(pb::SessionCommand& command);
  void HandleAcquire(uint64_t sequence, pb::SessionAcquire& command);
  void HandleRelease(uint64_t sequence, pb::SessionRelease& command);
  void HandleVerify(uint64_t sequence, pb::VerifyRequest& command);
  void HandlePing(uint64_t ping_id, const Vouch& vouch);
  LastPing last_ping() const { return signs_.last_ping(environment_->reactor->event_time()); }
  void HandleClose();
  pb::SessionResult* AddResult(uint64_t sequence, size_t bytes = 0);
  void AddError(uint64_t sequence, const Refusal& refusal);
  // A reply that Sessions owes has come. True: the stream still wants it.
  bool TakeReply();

  // The access file may have changed. False: the stream has been refused.
  bool IsStillKnown();

  Sessions* sessions() { return environment_->sessions; }
  const RequestLimits& limits() const { return environment_->limits.requests; }

  Environment* environment_;
  Acceptor<SessionCall>* acceptor_;
  Stage stage_ = Stage::kAskedFor;
  bool attached_ = false;  // Sessions knows this listener.
  bool reading_ = false;
  bool writing_ = false;
  bool broken_ = false;
  bool dirty_ = false;
  bool fullest_ = false;      // It is to end, since its client does not read.
  size_t writing_bytes_ = 0;  // On their way; 0: none.
  size_t replies_owed_ = 0;
  CallCount count_;
  Caller caller_;
  // Leases that commands of this stream have given back in this turn: their ends are no news to it.
  absl::flat_hash_set<Id> released_;
  SteadyTime arrived_{};  // Of the message that is being answered.
  SignsOfLife signs_;
  Deferred<pb::SessionCommand> deferred_{&environment_->deferred_bytes};
  bool unread_by_us_ = false;
  Id session_;
  std::string client_id_;
  std::string holder_;
  Outbox outbox_;
  grpc::Status status_;
  grpc::ByteBuffer incoming_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  MemberEvent<SessionCall, &SessionCall::OnAccepted> accepted_event_{this};
  MemberEvent<SessionCall, &SessionCall::OnRead> read_event_{this};
  MemberEvent<SessionCall, &SessionCall::OnWritten> written_event_{this};
  MemberEvent<SessionCall, &SessionCall::OnFinished> finished_event_{this};
  MemberTimer<SessionCall, &SessionCall::OnUnread> unread_{this};
};

}  // namespace semaphored
