#include "server/web/stream_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "server/web/connect.h"
#include "server/web/query.h"

namespace semaphored::web {
namespace {

namespace pb = semaphore::v1;

// A stream that has had no event for so long is answered all the same: its client wants to know that it
// stands. What is refused comes sooner.
constexpr Milliseconds kHeadPatience{250};

std::string EventName(const pb::HoldResponse& message) {
  switch (message.event_case()) {
    case pb::HoldResponse::kQueued:
      return "queued";
    case pb::HoldResponse::kGranted:
      return "granted";
    case pb::HoldResponse::kBeat:
      return "beat";
    case pb::HoldResponse::kRecalled:
      return "recalled";
    case pb::HoldResponse::kLost:
      return "lost";
    case pb::HoldResponse::EVENT_NOT_SET:
      break;
  }
  return "message";
}

std::string EventName(const pb::WatchResponse& message) {
  const std::string name = pb::WatchEventKind_Name(message.kind());
  return absl::AsciiStrToLower(absl::StripPrefix(name, "WATCH_EVENT_KIND_"));
}

std::optional<Refusal> ReadRequest(const http::Request& request, pb::HoldRequest* message) {
  return FromJson(request.body, message);
}

std::optional<Refusal> ReadRequest(const http::Request& request, pb::WatchRequest* message) {
  if (request.method == http::Method::kPost) return FromJson(request.body, message);
  return ForEachParameter(request.query, [message](const std::string& name, std::string value) {
    if (name == "prefix") {
      message->set_prefix(std::move(value));
    } else if (name == "semaphore") {
      message->set_semaphore(std::move(value));
    } else {
      return std::optional(InvalidField(name, "is no parameter of this path: prefix, semaphore"));
    }
    return std::optional<Refusal>();
  });
}

// One stream, from the request to its end. On the gateway's thread, but for what says otherwise.
template <typename In, typename Out>
class StreamExchange final : public std::enable_shared_from_this<StreamExchange<In, Out>>,
                             public ReactorTimer {
 public:
  // Events that may wait for the client while more are read; 0: none.
  StreamExchange(Site* site, std::string method, size_t ahead_bytes, http::Request request,
                 Visitor visitor, http::Reply reply)
      : site_(site),
        method_(std::move(method)),
        ahead_bytes_(ahead_bytes),
        request_(std::move(request)),
        visitor_(std::move(visitor)),
        reply_(std::move(reply)) {}

  // The server's thread.
  void Begin() {
    reply_.OnGone([self = this->shared_from_this()] { self->PostGone(); });
    site_->gateway->Post([self = this->shared_from_this()] { self->Call(); });
  }

  void OnTimer() override { BeginStream(); }

 private:
  void Call() {
    if (gone_) return;
    // It goes with this call: a stream may stand for days, and nothing counts its body any more.
    const http::Request request = std::move(request_);
    In message;
    std::optional<Milliseconds> timeout;
    std::optional<Refusal> refusal = TimeoutOf(request, &timeout);
    if (!refusal && !site_->IsUnknown(visitor_)) refusal = ReadRequest(request, &message);
    if (refusal) return reply_(ErrorResponse(*refusal));
    Gateway::StreamEvents events;
    events.on_message = [self = this->shared_from_this()](grpc::ByteBuffer bytes) {
      self->OnMessage(std::move(bytes));
    };
    events.on_end = [self = this->shared_from_this()](const grpc::Status& status) {
      self->OnEnd(status);
    };
    call_ = site_->gateway->CallStream(method_, visitor_, timeout, Serialize(message),
                                       std::move(events));
    reply_.DropBody();
    if (call_ == nullptr) return reply_(ErrorResponse(ShuttingDown()));
    Reactor* const loop = site_->gateway->reactor();
    loop->Arm(this, loop->event_time() + kHeadPatience);
  }

  void BeginStream() {
    if (stream_ != nullptr) return;
    site_->gateway->reactor()->Disarm(this);
    http::Stream::Events events;
    // The server's thread.
    events.on_drained = [self = this->shared_from_this()] {
      self->site_->gateway->Post([self] { self->ReadOn(); });
    };
    events.on_gone = [self = this->shared_from_this()] { self->PostGone(); };
    stream_ = reply_.Begin({}, std::move(events));
  }

  void OnMessage(grpc::ByteBuffer bytes) {
    BeginStream();
    if (site_->IsSignedOut(visitor_)) return EndSignedOut();
    Out message;
    const bool good = Parse(&bytes, &message);  // (It is the daemon's own.)
    if (!good || !stream_->Send(EventName(message), ToJson(message))) return OnGone();
    if (stream_->unread() < ahead_bytes_) ReadOn();
  }

  // The next message is taken when the client has taken those before: what waits, waits where gRPC's clients have it
  // wait, within the same bounds.
  void ReadOn() {
    if (call_ != nullptr) call_->ReadOn();
  }

  // The API knows the token, whose sign-in has ended, and would go on.
  void EndSignedOut() {
    const Refusal refusal{absl::StatusCode::kUnauthenticated, Reason::kUnauthenticated,
                          "the sign-in by which this stream was opened has ended", "",
                          "sign in again"};
    google::rpc::Status status;
    ToProto(refusal, /*adapter=*/"", &status);
    stream_->Send("error", ErrorJson(status));
    stream_->End();
    OnGone();
  }

  void OnEnd(const grpc::Status& status) {
    call_ = nullptr;
    site_->gateway->reactor()->Disarm(this);
    if (gone_) {
      stream_ = nullptr;  // Its events hold this.
      return;
    }
    if (stream_ == nullptr && !status.ok()) return reply_(ErrorResponse(StatusOf(status)));
    BeginStream();
    stream_->Send(status.ok() ? "end" : "error", status.ok() ? "{}" : ErrorJson(StatusOf(status)));
    stream_->End();
    stream_ = nullptr;  // Its events hold this.
  }

  // The server's thread.
  void PostGone() {
    site_->gateway->Post([self = this->shared_from_this()] { self->OnGone(); });
  }
  void OnGone() {
    gone_ = true;
    if (call_ != nullptr) call_->Cancel();
    ReadOn();  // Until its end.
  }

  Site* site_;
  const std::string method_;
  const size_t ahead_bytes_;
  http::Request request_;
  Visitor visitor_;
  http::Reply reply_;
  GatewayCallPtr call_;
  http::StreamPtr stream_;
  bool gone_ = false;
};

template <typename In, typename Out>
Route::Handler Handler(Site* site, std::string method, size_t ahead_bytes) {
  return [site, method = std::move(method), ahead_bytes](http::Request request, Visitor visitor,
                                                         http::Reply reply) {
    std::make_shared<StreamExchange<In, Out>>(site, method, ahead_bytes, std::move(request),
                                              std::move(visitor), std::move(reply))
        ->Begin();
  };
}

}  // namespace

std::vector<Route> StreamRoutes(Site* site) {
  // A beat shows that the client reads; many events of a watch may be on their way.
  auto hold = Handler<pb::HoldRequest, pb::HoldResponse>(site, "Hold", 0);
  auto watch = Handler<pb::WatchRequest, pb::WatchResponse>(site, "Watch", 64 << 10);
  std::vector<Route> routes;
  routes.push_back({"/v1/hold", http::Method::kPost, Route::Kind::kWrites, std::move(hold)});
  routes.push_back({"/v1/watch", http::Methods(http::Method::kPost) | http::kReads,
                    Route::Kind::kReads, std::move(watch)});
  return routes;
}

}  // namespace semaphored::web
