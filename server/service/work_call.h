// Work: a worker's stream, on which it is given tickets and says what has become of them. The
// mechanics are those of session_call.h; what its messages mean is in work_messages.cc.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/service/acceptor.h"
#include "server/service/call_count.h"
#include "server/service/deferred.h"
#include "server/service/environment.h"
#include "server/service/signs_of_life.h"
#include "server/service/work_outbox.h"

namespace semaphored {

class WorkCall final : public SessionListener, public Flushable, public UnreadStream {
 public:
  WorkCall(Environment* environment, Acceptor<WorkCall>* acceptor)
      : environment_(environment), acceptor_(acceptor) {}
  WorkCall(const WorkCall&) = delete;
  WorkCall& operator=(const WorkCall&) = delete;

  void Request();
  void Flush() override;
  void OnFullest() override;

  // ---- called by Sessions ----
  bool unread() const override { return unread_by_us_; }
  // It acquires nothing by itself.
  void OnQueued(uint64_t, uint64_t, WaitReason, int64_t) override {}
  void OnGranted(uint64_t, const LeasePtr&, const std::string&, Vouch) override {}
  void OnRefused(uint64_t, Refusal) override {}
  void OnRecalled(uint64_t tag, const Id& claim, const std::string& semaphore,
                  const RecallNotice& recall) override;
  void OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
               EndCause cause) override;
  void OnOpened(const Id& session, int64_t ttl_ms, Vouch vouch, bool resumed,
                const std::vector<HeldLease>& held) override;
  void OnSessionEnded(Refusal refusal) override;
  void OnRulesChanged() override { (void)IsStillKnown(); }
  void OnAssigned(const Assignment& assignment) override;

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
  // Commands are not carried out now, since too much waits for the engine.
  bool TooMuchUnderWay() const;
  // `all`: whatever is under way.
  void RunDeferred(bool all);
  void MaybeRead();
  void MaybeWrite();
  void MaybeTakeBack();
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
  void Handle(pb::WorkRequest& message);
  void HandleOpen(pb::WorkRequest& message);
  void HandleFinished(pb::FinishTicket& finished);
  void HandlePing(uint64_t ping_id, const Vouch& vouch);
  LastPing last_ping() const { return signs_.last_ping(environment_->reactor->event_time()); }
  void HandleClose();
  // The next thing to say goes in here.
  pb::WorkResponse* Say(size_t bytes);
  void AddResult(uint64_t sequence, const Refusal* refusal, const FinishAnswer& answer);
  // A reply that Sessions owes has come. True: the stream still wants it.
  bool TakeReply();

  // The access file may have changed. False: the stream has been refused.
  bool IsStillKnown();
  // What the worker names, and its hands, against rules and quotas.
  Problem Admit(OpenParams* params);
  bool SetTicketsMax(uint32_t tickets_max);

  Sessions* sessions() { return environment_->sessions; }
  const RequestLimits& limits() const { return environment_->limits.requests; }

  Environment* environment_;
  Acceptor<WorkCall>* acceptor_;
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
  ChargePtr charge_;
  std::string client_id_;
  std::shared_ptr<const WorkParams> work_;
  SteadyTime arrived_{};  // Of the message that is being answered.
  SignsOfLife signs_;
  Deferred<pb::FinishTicket> deferred_{&environment_->deferred_bytes};
  bool unread_by_us_ = false;
  Id session_;
  WorkOutbox outbox_;
  grpc::Status status_;
  grpc::ByteBuffer incoming_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  MemberEvent<WorkCall, &WorkCall::OnAccepted> accepted_event_{this};
  MemberEvent<WorkCall, &WorkCall::OnRead> read_event_{this};
  MemberEvent<WorkCall, &WorkCall::OnWritten> written_event_{this};
  MemberEvent<WorkCall, &WorkCall::OnFinished> finished_event_{this};
  MemberTimer<WorkCall, &WorkCall::OnUnread> unread_{this};
};

}  // namespace semaphored
