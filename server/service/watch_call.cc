// Watch: what happens to semaphores, for people and dashboards.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/service/calls.h"
#include "server/service/convert.h"
#include "server/service/gate.h"
#include "server/service/server_stream_call.h"
#include "server/service/status.h"
#include "server/service/validate.h"

namespace semaphored {
namespace {

class WatchCall final : public ServerStreamCall, public WatchListener {
 public:
  WatchCall(Environment* environment, Acceptor<WatchCall>* acceptor)
      : ServerStreamCall(environment, Method::kWatch), acceptor_(acceptor) {}

  void OnSnapshot(const std::vector<SemaphoreInfo>& infos) override {
    snapshots_ = infos.size();
    snapshot_sent_ = true;
    absl::flat_hash_map<std::string_view, uint64_t> revisions;
    for (const SemaphoreInfo& info : infos) {
      if (!caller().May(kSees, info.row.name)) {
        --snapshots_;
        continue;
      }
      revisions[info.row.name] = info.row.revision;
      if (start_revision_ != 0 && info.row.revision == start_revision_) {
        --snapshots_;
        continue;
      }
      pb::WatchResponse event;
      event.set_kind(pb::WATCH_EVENT_KIND_SNAPSHOT);
      ToProto(info, event.mutable_semaphore());
      SetTime(environment()->host->clock().NowUnixMs(), &event, &pb::WatchResponse::mutable_time);
      Send(event);
      if (waiting_bytes() > environment()->limits.stream_bytes_max) return TellTooSlow();
    }
    // What came before the snapshot and is not in it.
    for (const pb::WatchResponse& event : std::exchange(early_, {})) {
      const auto found = revisions.find(event.semaphore().semaphore());
      if (found == revisions.end() || found->second < event.semaphore().revision()) Send(event);
    }
  }

  void OnChange(const SemaphoreChange& change) override {
    if (over_) return;
    if (Problem problem = caller().Again()) {
      over_ = true;
      sessions()->Unwatch(this);
      return ServerStreamCall::Refuse(*problem);
    }
    if (!caller().May(kSees, change.info.row.name)) return;
    // The snapshots that are still to be sent are no sign that the reader is slow.
    const size_t snapshots_left = sent() < snapshots_ ? snapshots_ - sent() : 0;
    if (waiting() + early_.size() >= snapshots_left + environment()->limits.watch_events_max ||
        waiting_bytes() > environment()->limits.stream_bytes_max) {
      return TellTooSlow();
    }
    pb::WatchResponse event;
    ToProto(change, &event);
    SetTime(environment()->host->clock().NowUnixMs(), &event, &pb::WatchResponse::mutable_time);
    if (snapshot_sent_) {
      Send(event);
    } else {
      early_.push_back(std::move(event));
    }
  }

  void OnWatchRefused(Refusal refusal) override {
    over_ = true;
    ServerStreamCall::Refuse(refusal);
  }

 private:
  void TellTooSlow() {
    over_ = true;
    Discard();
    sessions()->Unwatch(this);
    const ServiceLimits& most = environment()->limits;
    ServerStreamCall::Refuse({absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
                              "the reader is more than watch_events_max (" +
                                  std::to_string(most.watch_events_max) +
                                  ") events, or stream_bytes_max (" +
                                  std::to_string(most.stream_bytes_max) + ") bytes behind",
                              "", "watch again, and read faster or watch fewer semaphores"});
  }

  void Register(QueueEvent* accepted) override {
    grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
    environment()->service->RequestWatch(context(), request(), writer(), queue, queue, accepted);
  }

  void Begin() override {
    over_ = false;
    snapshot_sent_ = false;
    snapshots_ = 0;
    early_.clear();
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
    if (!params.semaphore.empty()) {
      if (Problem problem = caller().Check(kSees, params.semaphore)) {
        over_ = true;
        return ServerStreamCall::Refuse(*problem);
      }
    } else if (std::vector<std::string> under = caller().Under(kSees, params.prefix);
               under.size() == 1) {
      params.prefix = std::move(under.front());  // There is less to look through.
    }
    start_revision_ = params.start_revision;
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
  bool snapshot_sent_ = false;
  size_t snapshots_ = 0;
  uint64_t start_revision_ = 0;           // 0: no revision is left out.
  std::vector<pb::WatchResponse> early_;  // Changes that came before the snapshot.
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptWatch(Environment* environment) {
  return std::make_unique<Acceptor<WatchCall>>(environment);
}

}  // namespace semaphored
