#include "server/web/unary_routes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/rpc/admin_act.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "server/web/checks.h"
#include "server/web/connect.h"

namespace semaphored::web {
namespace {

using google::protobuf::MethodDescriptor;
using MessagePtr = std::unique_ptr<google::protobuf::Message>;

MessagePtr NewMessage(const google::protobuf::Descriptor* type) {
  return MessagePtr(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

// One call, from the request to its answer. On the gateway's thread, but for what says otherwise.
class UnaryExchange : public std::enable_shared_from_this<UnaryExchange> {
 public:
  UnaryExchange(Site* site, const MethodDescriptor* method, http::Request request, Visitor visitor,
                http::Reply reply)
      : site_(site),
        method_(method),
        request_(std::move(request)),
        visitor_(std::move(visitor)),
        reply_(std::move(reply)),
        is_json_(MediaTypeOf(request_) == "application/json") {}

  // The server's thread.
  void Begin() {
    reply_.OnGone(
        [self = shared_from_this()] { self->site_->gateway->Post([self] { self->OnGone(); }); });
    site_->gateway->Post([self = shared_from_this()] { self->Call(); });
  }

 private:
  void Call() {
    const std::string body = std::move(request_.body);  // Not kept while the call waits.
    const MessagePtr message = NewMessage(method_->input_type());
    std::optional<Milliseconds> timeout;
    std::optional<Refusal> refusal = CheckVersion(request_);
    if (!refusal) refusal = TimeoutOf(request_, &timeout);
    if (!refusal && !site_->IsUnknown(visitor_)) {
      refusal = Read(body, message.get());
      if (!refusal) refusal = CheckWrites(*message);
    }
    if (refusal) return Refuse(*refusal);
    call_ = site_->gateway->Call(
        std::string(method_->name()), visitor_, timeout, Serialize(*message),
        [self = shared_from_this()](const grpc::Status& status, const grpc::ByteBuffer& bytes) {
          self->OnAnswer(status, bytes);
        });
    reply_.DropBody();
    if (call_ == nullptr) return Refuse(ShuttingDown());
    if (gone_) call_->Cancel();
  }

  std::optional<Refusal> Read(const std::string& body, google::protobuf::Message* message) const {
    if (is_json_) return FromJson(body, message);
    if (message->ParseFromString(body)) return std::nullopt;
    return Unreadable();
  }

  // Of the methods that only read, one does so by what it is asked.
  std::optional<Refusal> CheckWrites(const google::protobuf::Message& message) {
    const auto* const request =
        google::protobuf::DynamicCastToGenerated<semaphore::v1::AdministerRequest>(&message);
    if (request == nullptr) return std::nullopt;
    const AdminAct act = ActOf(*request);
    if (!act.changes) return std::nullopt;
    std::optional<Refusal> refusal = site_->CheckWrites(visitor_);
    if (refusal && site_->audit != nullptr) Audit(act, *refusal);
    return refusal;
  }

  // As the API does of callers without the right: nothing of the request, and a line in a second of each identity.
  void Audit(const AdminAct& act, const Refusal& refusal) {
    const std::shared_ptr<const AccessPolicy> policy = site_->policy();
    const Identity* const identity = IdentityOf(visitor_, policy.get());
    AuditEntry entry;
    entry.time_unix_ms = site_->clock->NowUnixMs();
    if (identity != nullptr) entry.identity = identity->name();
    entry.peer = visitor_.peer;
    entry.act = act.name;
    entry.refusal = &refusal;
    if (const auto unwritten = site_->denied_acts.Add(entry.identity, site_->clock->Now()))
      site_->audit->Write(ShortAuditLine(entry, *unwritten));
  }

  void OnAnswer(const grpc::Status& status, grpc::ByteBuffer bytes) {
    call_ = nullptr;
    if (!status.ok()) return reply_(ErrorResponse(StatusOf(status)));
    const MessagePtr answer = NewMessage(method_->output_type());
    if (!Parse(&bytes, answer.get())) return Refuse(Unreadable());  // (It is the daemon's own.)
    if (is_json_) return reply_(JsonResponse(ToJson(*answer), request_.takes_gzip));
    http::Response response;
    response.content_type = "application/proto";
    response.body = std::make_shared<std::string>(answer->SerializeAsString());
    reply_(std::move(response));
  }

  void OnGone() {
    gone_ = true;
    if (call_ != nullptr) call_->Cancel();
  }

  void Refuse(const Refusal& refusal) { reply_(ErrorResponse(refusal)); }

  Site* site_;
  const MethodDescriptor* method_;
  http::Request request_;
  Visitor visitor_;
  http::Reply reply_;
  const bool is_json_;
  bool gone_ = false;
  GatewayCallPtr call_;
};

// All but those that only read, and Administer: what its request asks for decides.
bool MayWrite(const MethodDescriptor& method) {
  constexpr std::array<std::string_view, 3> kRead = {"Verify", "Administer", "DescribeDaemon"};
  return std::ranges::find(kRead, method.name()) == kRead.end();
}

}  // namespace

std::vector<Route> UnaryRoutes(Site* site) {
  const auto* const service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      "semaphore.v1.SemaphoreService");
  // The linker keeps the file's descriptor, as the message below is used.
  std::vector<Route> routes;
  for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
    const MethodDescriptor* const method = service->method(i);
    if (method->client_streaming() || method->server_streaming()) continue;
    auto handler = [site, method](http::Request request, Visitor visitor, http::Reply reply) {
      std::make_shared<UnaryExchange>(site, method, std::move(request), std::move(visitor),
                                      std::move(reply))
          ->Begin();
    };
    routes.push_back({absl::StrCat("/", service->full_name(), "/", method->name()),
                      http::Method::kPost,
                      MayWrite(*method) ? Route::Kind::kWrites : Route::Kind::kReads, handler});
  }
  return routes;
}

}  // namespace semaphored::web
