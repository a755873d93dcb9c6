#include "server/rpc/standard_call.h"

#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>
#include <string>
#include <utility>

#include "proto/standard/services.pb.h"
#include "server/rpc/call_count.h"
#include "server/rpc/reflection.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"

namespace semaphored {
namespace {

namespace standard = ::semaphored::standard;
// The health of this name: the daemon answers, whatever its engine does.
constexpr char kLiveness[] = "liveness";
// Any request of these services fits; the daemon answers with the whole of it.
constexpr size_t kRequestBytesMax = 4096;

// One call of any method that is not the SemaphoreService's: a stream of raw messages either way.
class StandardCall final : public Flushable, public HealthWatcher, public StandardCalls::Member {
 public:
  StandardCall(Environment* environment, Acceptor<StandardCall>* acceptor)
      : environment_(environment), acceptor_(acceptor) {}

  void Request() {
    kind_ = Kind::kNone;
    writing_ = reading_ = ended_ = finishing_ = over_ = dirty_ = done_ = told_ = false;
    stream_.reset();
    context_.emplace();
    stream_.emplace(&*context_);
    context_->AsyncNotifyWhenDone(&done_event_);
    grpc::ServerCompletionQueue* queue = environment_->reactor->queue();
    environment_->standard->generic.RequestCall(&*context_, &*stream_, queue, queue,
                                                &accepted_event_);
  }

  void Flush() override {
    dirty_ = false;
    MaybeRecycle();
  }

  void OnHealthChange() override { TellHealth(); }

  void OnTooMany() override {
    End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     "too many calls of health and reflection at once: this connection has most"));
    if (writing_) CutOff(&*context_, status_);
  }
  std::string Connection() const override { return context_->peer(); }

  size_t place = 0;  // The acceptor's.

 private:
  enum class Kind : uint8_t { kNone, kHealthCheck, kHealthWatch, kReflection };

  void OnAccepted(bool ok) {
    if (!ok) return acceptor_->Recycle(this);  // The server is stopping; no done event comes.
    acceptor_->Replace();
    kind_ = KindOf(context_->method());
    environment_->CountBegin(CountedAs(), *context_);
    if (kind_ == Kind::kNone) {
      return End(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                              "there is no method " + context_->method() +
                                  "; the daemon serves semaphore.v1.SemaphoreService"));
    }
    environment_->standard_calls.Add(this, environment_->reactor->event_time(),
                                     environment_->limits.standard_calls_max);
    if (ended_) return;
    ArmDeadline();
    Read();
  }

  Kind KindOf(const std::string& method) const {
    const StandardServices& services = *environment_->standard;
    if (services.health && method == "/grpc.health.v1.Health/Check") return Kind::kHealthCheck;
    if (services.health && method == "/grpc.health.v1.Health/Watch") return Kind::kHealthWatch;
    const bool reflection =
        method == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" ||
        method == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
    return services.reflection && reflection ? Kind::kReflection : Kind::kNone;
  }

  Method CountedAs() const {
    if (kind_ == Kind::kNone) return Method::kOther;
    return kind_ == Kind::kReflection ? Method::kReflection : Method::kHealth;
  }

  void Read() {
    if (environment_->reactor->closed()) return;
    reading_ = true;
    stream_->Read(&incoming_, &read_event_);
  }

  void OnRead(bool ok) {
    reading_ = false;
    if (ended_) return MarkDirty();
    environment_->reactor->Disarm(&deadline_);
    if (!ok) return End(grpc::Status::OK);
    if (incoming_.Length() > kRequestBytesMax) return EndTooLong();
    if (kind_ == Kind::kReflection) {
      standard::ReflectionRequest request;
      if (!Parse(&incoming_, &request)) return EndUnreadable();
      return Write(Serialize(Reflect(request)));
    }
    standard::HealthCheckRequest request;
    if (!Parse(&incoming_, &request)) return EndUnreadable();
    liveness_ = request.service() == kLiveness;
    known_ = liveness_ || request.service().empty() ||
             request.service() == pb::SemaphoreService::service_full_name();
    if (kind_ == Kind::kHealthCheck && !known_) {
      return End(grpc::Status(grpc::StatusCode::NOT_FOUND, "service: no such service here"));
    }
    if (kind_ == Kind::kHealthWatch) {
      watched_ = true;
      environment_->standard->health_watchers.push_back(this);
    }
    TellHealth();
  }

  // One message with how it is now; nothing if that was the last thing said, or one is on its way.
  void TellHealth() {
    using Response = standard::HealthCheckResponse;
    const bool serving = liveness_ || IsReady();
    if (writing_) return;
    if (told_ && said_ == serving) {
      // The last word has been said when the daemon is stopping.
      if (environment_->stopping) End(grpc::Status::OK);
      return;
    }
    told_ = true;
    said_ = serving;
    Response response;
    response.set_status(!known_   ? Response::SERVICE_UNKNOWN
                        : serving ? Response::SERVING
                                  : Response::NOT_SERVING);
    Write(Serialize(response));
  }

  // It serves, and can vouch for what it grants.
  bool IsReady() const {
    return environment_->standard->serving &&
           environment_->host->vouch_until() > environment_->host->clock().Now();
  }

  void Write(const grpc::ByteBuffer& bytes) {
    if (environment_->reactor->closed()) return;
    writing_ = true;
    ArmDeadline();
    stream_->Write(bytes, &written_event_);
  }

  void ArmDeadline() {
    Reactor* reactor = environment_->reactor;
    reactor->Arm(&deadline_, reactor->event_time() + environment_->limits.unread_max);
  }

  // The client lets the message lie that was written last, or does not send its first.
  void OnDeadline() {
    if (!writing_) {
      return End(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the request does not come"));
    }
    End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     "the client has not read what was sent last, and is cut off"));
    CutOff(&*context_, status_);
  }

  void OnWritten(bool ok) {
    writing_ = false;
    environment_->reactor->Disarm(&deadline_);
    if (ended_) {
      Finish();
      return MarkDirty();
    }
    if (!ok || kind_ == Kind::kHealthCheck) return End(grpc::Status::OK);
    if (kind_ == Kind::kHealthWatch) return TellHealth();
    Read();
  }

  void EndTooLong() {
    End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                     "the request must have at most " + std::to_string(kRequestBytesMax) +
                         " bytes, not " + std::to_string(incoming_.Length())));
  }

  void EndUnreadable() {
    End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the request's bytes cannot be parsed"));
  }

  void End(grpc::Status status) {
    if (ended_) return;
    ended_ = true;
    environment_->CountEnd(CountedAs(), status.error_code());
    status_ = std::move(status);
    if (std::exchange(watched_, false)) std::erase(environment_->standard->health_watchers, this);
    environment_->standard_calls.Remove(this);
    count_.Begin(&environment_->standard_calls_left);
    count_.MoveToConnection(environment_->access.peers, *context_);
    Finish();
  }

  void Finish() {
    if (writing_ || finishing_ || environment_->reactor->closed()) return;
    finishing_ = true;
    stream_->Finish(status_, &finished_event_);
  }

  void OnFinished(bool /*ok*/) {
    over_ = true;
    MarkDirty();
  }

  // The client has gone, or the call has ended.
  void OnDone(bool /*ok*/) {
    done_ = true;
    End(grpc::Status::CANCELLED);
    MarkDirty();
  }

  void MarkDirty() {
    if (!std::exchange(dirty_, true)) environment_->dirty.push_back(this);
  }

  void MaybeRecycle() {
    if (!over_ || !done_ || reading_ || writing_ || dirty_) return;
    count_.End();
    environment_->reactor->Disarm(&deadline_);
    incoming_.Clear();
    stream_.reset();
    context_.reset();
    acceptor_->Recycle(this);
  }

  Environment* environment_;
  Acceptor<StandardCall>* acceptor_;
  Kind kind_ = Kind::kNone;
  bool writing_ = false;
  bool reading_ = false;
  bool ended_ = false;
  bool finishing_ = false;
  bool over_ = false;
  bool done_ = false;
  bool dirty_ = false;
  bool watched_ = false;
  bool known_ = false;
  bool liveness_ = false;
  bool told_ = false;
  bool said_ = false;
  CallCount count_;  // Of its end.
  grpc::Status status_;
  grpc::ByteBuffer incoming_;
  std::optional<grpc::GenericServerContext> context_;
  std::optional<grpc::GenericServerAsyncReaderWriter> stream_;
  MemberEvent<StandardCall, &StandardCall::OnAccepted> accepted_event_{this};
  MemberEvent<StandardCall, &StandardCall::OnRead> read_event_{this};
  MemberEvent<StandardCall, &StandardCall::OnWritten> written_event_{this};
  MemberEvent<StandardCall, &StandardCall::OnFinished> finished_event_{this};
  MemberEvent<StandardCall, &StandardCall::OnDone> done_event_{this};
  MemberTimer<StandardCall, &StandardCall::OnDeadline> deadline_{this};
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptStandard(Environment* environment) {
  return std::make_unique<Acceptor<StandardCall>>(environment);
}

void SetServing(Environment* environment, bool serving) {
  environment->standard->serving = serving;
  OnHealthChange(environment);
}

void OnHealthChange(Environment* environment) {
  const std::vector<HealthWatcher*> watchers = environment->standard->health_watchers;
  for (HealthWatcher* watcher : watchers) watcher->OnHealthChange();
}

}  // namespace semaphored
