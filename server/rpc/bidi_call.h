// One call whose messages go both ways, as gRPC has it: it is accepted, read, written and ended. What its messages mean is
// the derived class's: see stream_call.h.
//
// What is to be said is collected in the outbox; at the end of the reactor's turn, or when the message before has gone,
// all that is there leaves in one message. A client whose results pile up is not read any further.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>

#include "server/rpc/call_count.h"
#include "server/rpc/environment.h"

namespace semaphored {

struct BidiWords {
  Method method;
  const char* fewer_streams;  // What to do where there are too many streams.
  const char* read_faster;    // What to do where too much waits for the client.
};

// One object serves one call after another:
//   Request() → gRPC reports a call → Begin() → OnMessage(), … → End() or Refuse() → what is in the outbox leaves, then the
//   status → OnOver() → Recycle()
template <typename Incoming, typename Response>
class BidiCall : public Flushable, public UnreadStream {
 public:
  // `words` outlives it.
  BidiCall(Environment* environment, const BidiWords& words);
  BidiCall(const BidiCall&) = delete;
  BidiCall& operator=(const BidiCall&) = delete;

  void Request();
  void Flush() final;
  void OnFullest() final;

  size_t place = 0;  // The acceptor's.

 protected:
  // What is read of the stream now.
  enum class Line : uint8_t {
    kQuiet,    // Nothing.
    kReading,  // The next message.
    kBroken,   // Nothing any more.
  };
  enum class Reading : uint8_t {
    kNothing,  // No message is wanted now; an event will bring another turn.
    kLater,    // The next turn asks again.
    kNext,     // The next message is wanted.
  };

  ~BidiCall() = default;

  // Asks the service for a call of its method.
  virtual void Register(QueueEvent* accepted) = 0;
  // The acceptor has the call back, and asks for another in the place of one that has been accepted.
  virtual void Recycle() = 0;
  virtual void Replace() = 0;

  // A call is here, of a caller that is known.
  virtual void Begin() = 0;
  virtual void OnMessage(Incoming& message) = 0;
  // At the end of each turn. While a message is being read, what is returned has no effect. Where the line is broken, kNext
  // means that all that was read has had its effect: OnNoMore follows.
  virtual Reading BeforeRead(Line line) = 0;
  // The client closed its side or has gone.
  virtual void OnNoMore() = 0;
  virtual void OnTurnOver() {}
  // The status is known: nothing more is to be said, and no OnMessage follows.
  virtual void OnEnding() = 0;
  // The call is over.
  virtual void OnOver() {}

  // The next entry goes in here: see Outbox.
  Response* Say(size_t bytes = 0) {
    MarkDirty();
    return outbox_.Next(bytes);
  }
  // A message of its own for so many entries.
  Response* SayAlone(size_t entries) {
    MarkDirty();
    return outbox_.Own(entries);
  }
  // An answer to this stream is under way elsewhere …
  void OweReply() { ++replies_owed_; }
  // … and it has come. True: the stream still wants it.
  bool TakeReply();
  size_t replies_owed() const { return replies_owed_; }
  // Flush is called at the end of this turn, or of the next one.
  void MarkDirty();
  // Without effect after the first.
  void End(grpc::Status status);
  void Refuse(const Refusal& refusal);

  Environment* environment() { return environment_; }
  const Environment* environment() const { return environment_; }
  const Outbox<Response>& outbox() const { return outbox_; }
  Caller& caller() { return caller_; }
  grpc::ServerContext* context() { return &*context_; }
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>* stream() { return &*stream_; }
  SteadyTime arrived() const { return arrived_; }

 private:
  enum class Stage : uint8_t {
    kAskedFor,
    kServing,
    kEnding,     // The status is known; what is in the outbox leaves first.
    kFinishing,  // The status is on its way.
    kOver,
  };

  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnUnread();
  void MaybeRead();
  void MaybeWrite();
  void MaybeRecycle();
  void CheckReader();
  void RefuseReader(const Refusal& refusal);

  Environment* environment_;
  const BidiWords& words_;
  Stage stage_ = Stage::kAskedFor;
  bool reading_ = false;
  bool writing_ = false;
  bool broken_ = false;
  bool dirty_ = false;
  bool fullest_ = false;      // It is to end, since its client does not read.
  size_t writing_bytes_ = 0;  // On their way; 0: none.
  size_t replies_owed_ = 0;
  CallCount count_;
  Caller caller_;
  SteadyTime arrived_{};  // Of the message that is being answered.
  Outbox<Response> outbox_;
  grpc::Status status_;
  grpc::ByteBuffer incoming_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  MemberEvent<BidiCall, &BidiCall::OnAccepted> accepted_event_{this};
  MemberEvent<BidiCall, &BidiCall::OnRead> read_event_{this};
  MemberEvent<BidiCall, &BidiCall::OnWritten> written_event_{this};
  MemberEvent<BidiCall, &BidiCall::OnFinished> finished_event_{this};
  MemberTimer<BidiCall, &BidiCall::OnUnread> unread_{this};
};

// bidi_call.cc has them.
extern template class BidiCall<pb::SessionRequest, pb::SessionResponse>;
extern template class BidiCall<pb::WorkRequest, pb::WorkResponse>;

}  // namespace semaphored
