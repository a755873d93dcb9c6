#include "server/web/gateway.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include <future>
#include <utility>

#include "server/base/signals.h"
#include "server/rpc/inside_peer.h"

namespace semaphored::web {
namespace {

constexpr char kService[] = "/semaphore.v1.SemaphoreService/";

}  // namespace

// ---- one request, one answer ----

class Gateway::Unary final : public GatewayCall {
 public:
  Unary(Gateway* gateway, OnAnswer on_answer)
      : gateway_(gateway), on_answer_(std::move(on_answer)) {}

  void Begin(const std::string& method, const grpc::ByteBuffer& request) {
    reader_ = gateway_->stub_->PrepareUnaryCall(&context_, kService + method, request,
                                                gateway_->reactor_.client_queue());
    reader_->StartCall();
    reader_->Finish(&answer_, &status_, &finished_);
  }
  void Cancel() override { context_.TryCancel(); }
  grpc::ClientContext* context() { return &context_; }

 private:
  void OnFinished(bool /*ok*/) {
    on_answer_(status_, answer_);
    gateway_->Ended(this);
  }

  Gateway* gateway_;
  OnAnswer on_answer_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  MemberEvent<Unary, &Unary::OnFinished> finished_{this};
};

// ---- one request, a stream of answers ----

// One operation is under way at a time: started, written, read …, finished.
class Gateway::Streaming final : public GatewayCall {
 public:
  Streaming(Gateway* gateway, const grpc::ByteBuffer& request, StreamEvents events)
      : gateway_(gateway), request_(request), events_(std::move(events)) {}

  void Begin(const std::string& method) {
    stream_ = gateway_->stub_->PrepareCall(&context_, kService + method,
                                           gateway_->reactor_.client_queue());
    stream_->StartCall(&started_);
  }
  void Cancel() override { context_.TryCancel(); }
  void ReadOn() override {
    if (std::exchange(waits_, false)) stream_->Read(&message_, &read_);
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  void OnStarted(bool ok) {
    if (!ok) return Finish();
    stream_->WriteLast(request_, grpc::WriteOptions(), &written_);
  }
  void OnWritten(bool ok) {
    request_.Clear();
    waits_ = ok;
    ok ? ReadOn() : Finish();
  }
  void OnRead(bool ok) {
    if (!ok) return Finish();
    waits_ = true;
    events_.on_message(std::exchange(message_, {}));
  }
  void Finish() { stream_->Finish(&status_, &finished_); }
  void OnFinished(bool /*ok*/) {
    events_.on_end(status_);
    gateway_->Ended(this);
  }

  Gateway* gateway_;
  grpc::ByteBuffer request_;
  StreamEvents events_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer message_;
  bool waits_ = false;  // For ReadOn(): no operation is under way.
  grpc::Status status_;
  MemberEvent<Streaming, &Streaming::OnStarted> started_{this};
  MemberEvent<Streaming, &Streaming::OnWritten> written_{this};
  MemberEvent<Streaming, &Streaming::OnRead> read_{this};
  MemberEvent<Streaming, &Streaming::OnFinished> finished_{this};
};

// ---- all of them ----

Gateway::Gateway(const Clock* clock, std::string inside_key)
    : inside_key_(std::move(inside_key)), reactor_(clock) {
  thread_ = std::thread([this] {
    BlockSignals();
    reactor_.Run();
  });
}

Gateway::~Gateway() { Stop(); }

void Gateway::Open(std::shared_ptr<grpc::Channel> channel) {
  const std::lock_guard lock(mutex_);
  channel_ = std::move(channel);
}

bool Gateway::is_open() const {
  const std::lock_guard lock(mutex_);
  return channel_ != nullptr;
}

void Gateway::Close() {
  if (!thread_.joinable()) return;
  Open(nullptr);
  std::promise<void> none_begins;
  reactor_.Post([&none_begins] { none_begins.set_value(); });
  none_begins.get_future().wait();
}

void Gateway::Stop() {
  if (!thread_.joinable()) return;
  Open(nullptr);
  reactor_.Post([this] {
    stopping_ = true;
    for (const auto& [call, held] : calls_) {
      held->Cancel();
      held->ReadOn();
    }
    if (calls_.empty()) reactor_.Close();
  });
  thread_.join();
  stub_ = nullptr;
}

void Gateway::Fill(const Visitor& visitor, std::optional<Milliseconds> timeout,
                   grpc::ClientContext* context) const {
  for (const std::string& each : visitor.authorization) context->AddMetadata("authorization", each);
  if (!visitor.traceparent.empty()) context->AddMetadata("traceparent", visitor.traceparent);
  context->AddMetadata(kInsidePeerKey,
                       inside_key_ + InsidePeerText(visitor.peer, visitor.certificate.get()));
  if (timeout)
    context->set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                       gpr_time_from_millis(timeout->count(), GPR_TIMESPAN)));
}

void Gateway::Began(GatewayCallPtr call) {
  const GatewayCall* const key = call.get();
  calls_.emplace(key, std::move(call));
}

void Gateway::Ended(const GatewayCall* call) {
  const auto node = calls_.extract(call);  // Its caller may hold it longer.
  if (stopping_ && calls_.empty()) reactor_.Close();
}

bool Gateway::IsReady() {
  const std::lock_guard lock(mutex_);
  if (channel_ == nullptr || stopping_) return false;
  if (stub_ == nullptr) stub_ = std::make_unique<grpc::GenericStub>(channel_);
  return true;
}

GatewayCallPtr Gateway::Call(const std::string& method, const Visitor& visitor,
                             std::optional<Milliseconds> timeout, const grpc::ByteBuffer& request,
                             OnAnswer on_answer) {
  if (!IsReady()) return nullptr;
  const auto call = std::make_shared<Unary>(this, std::move(on_answer));
  Fill(visitor, timeout, call->context());
  Began(call);
  call->Begin(method, request);
  return call;
}

GatewayCallPtr Gateway::CallStream(const std::string& method, const Visitor& visitor,
                                   std::optional<Milliseconds> timeout,
                                   const grpc::ByteBuffer& request, StreamEvents events) {
  if (!IsReady()) return nullptr;
  const auto call = std::make_shared<Streaming>(this, request, std::move(events));
  Fill(visitor, timeout, call->context());
  Began(call);
  call->Begin(method);
  return call;
}

}  // namespace semaphored::web
