// Watch: what happens to semaphores, for people and dashboards.
#include <string>
#include <utility>

#include "server/service/calls.h"
#include "server/service/convert.h"
#include "server/service/server_stream_call.h"
#include "server/service/status.h"
#include "server/service/validate.h"

namespace semaphored {
namespace {

class WatchCall final : public ServerStreamCall, public WatchListener {
 public:
  WatchCall(Environment* environment, Acceptor<WatchCall>* acceptor)
      : ServerStreamCall(environment), acceptor_(acceptor) {}

  void OnSnapshot(const std::vector<SemaphoreInfo>& infos) override {
    snapshots_ = infos.size();
    for (const SemaphoreInfo& info : infos) {
      pb::WatchEvent event;
      event.set_kind(pb::WatchEvent::SNAPSHOT);
      ToProto(info, event.mutable_semaphore());
      Send(event);
    }
  }

  void OnChange(const SemaphoreChange& change) override {
    if (over_) return;
    // The snapshots that are still to be sent are no sign that the reader is slow.
    const size_t snapshots_left = sent() < snapshots_ ? snapshots_ - sent() : 0;
    if (waiting() >= snapshots_left + environment()->limits.watch_events_max) {
      over_ = true;
      Discard();
      sessions()->Unwatch(this);
      return ServerStreamCall::Refuse(
          {absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
           "the reader is more than watch_events_max (" +
               std::to_string(environment()->limits.watch_events_max) + ") events behind",
           "", "watch anew, and read faster or watch fewer semaphores"});
    }
    pb::WatchEvent event;
    ToProto(change, &event);
    Send(event);
  }

  void OnWatchRefused(Refusal refusal) override {
    over_ = true;
    ServerStreamCall::Refuse(refusal);
  }

 private:
  void Register(QueueEvent* accepted) override {
    grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
    environment()->service->RequestWatch(context(), request(), writer(), queue, queue, accepted);
  }

  void Begin() override {
    over_ = false;
    snapshots_ = 0;
    pb::WatchRequest message;
    if (!Parse(request(), &message)) {
      over_ = true;
      return ServerStreamCall::Refuse(Unreadable());
    }
    WatchParams params;
    if (Problem problem = Check(message, limits(), &params)) {
      over_ = true;
      return ServerStreamCall::Refuse(*problem);
    }
    sessions()->Watch(std::move(params.prefix), std::move(params.semaphore), this);
  }

  void OnGone() override {
    if (std::exchange(over_, true)) return;
    sessions()->Unwatch(this);
  }

  void TakeBack() override { acceptor_->TakeBack(this); }
  void Replace() override { acceptor_->Replace(); }

  Acceptor<WatchCall>* acceptor_;
  bool over_ = false;  // Nothing is heard from Sessions any more.
  size_t snapshots_ = 0;
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptWatch(Environment* environment) {
  return std::make_unique<Acceptor<WatchCall>>(environment);
}

}  // namespace semaphored
