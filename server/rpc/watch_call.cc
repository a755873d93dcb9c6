// Watch: what happens to semaphores, for people and dashboards.
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/server_stream_call.h"
#include "server/rpc/status.h"
#include "server/rpc/validate.h"
#include "server/sessions/lists.h"

namespace semaphored {
namespace {

class WatchCall final : public ServerStreamCall, public WatchListener, public UnreadStream {
 public:
  WatchCall(Environment* environment, Acceptor<WatchCall>* acceptor)
      : ServerStreamCall(environment, Method::kWatch), acceptor_(acceptor) {}

  void OnSnapshot(const std::vector<SemaphoreInfo>& infos, bool is_last) override {
    if (!IsStillKnown()) return;
    for (const SemaphoreInfo& info : infos) {
      if (!caller().May(kSees, info.row.name)) continue;
      if (revisions_.insert_or_assign(info.row.name, info.row.revision).second)
        kept_bytes_ += info.row.name.size() + sizeof(decltype(revisions_)::value_type);
      if (start_revision_ != 0 && info.row.revision == start_revision_) continue;
      pb::WatchResponse event;
      event.set_kind(pb::WATCH_EVENT_KIND_SNAPSHOT);
      ToProto(info, event.mutable_semaphore());
      SetTime(environment()->host->clock().NowUnixMs(), &event, &pb::WatchResponse::mutable_time);
      Send(event);
      if (over_) return;  // It was the fullest.
    }
    OnWaiting();
    if (over_) return;
    environment()->stream_bytes.Add(bytes(), environment()->reactor->event_time());
    if (bytes() > environment()->limits.stream_bytes_max) return TellTooSlow(TooFarBehind());
    if (is_last) return EndSnapshot();
    // At the reader's pace.
    next_due_ = writing() || waiting() > 0;
    if (!next_due_) sessions()->NextSnapshot(watch_);
  }

  void OnDrained() override {
    if (std::exchange(next_due_, false)) sessions()->NextSnapshot(watch_);
  }

  void OnChange(const SemaphoreChange& change) override {
    if (over_ || !IsStillKnown()) return;
    if (!caller().May(kSees, change.info.row.name)) return;
    const size_t most = snapshot_rows_ + environment()->limits.watch_events_max;
    const SteadyTime now = environment()->reactor->event_time();
    environment()->watch_events.Add(waiting() - std::min(waiting(), snapshot_rows_), now);
    environment()->stream_bytes.Add(bytes(), now);
    if (waiting() >= most || bytes() > environment()->limits.stream_bytes_max)
      return TellTooSlow(TooFarBehind());
    pb::WatchResponse event;
    ToProto(change, &event);
    SetTime(environment()->host->clock().NowUnixMs(), &event, &pb::WatchResponse::mutable_time);
    if (snapshot_sent_) return Send(event);
    kept_bytes_ += event.ByteSizeLong();
    early_.push_back(std::move(event));
    OnWaiting();
  }

  void OnFullest() override { TellTooSlow(FullestStream(environment()->limits.streams_bytes_max)); }

  void OnWatchRefused(Refusal refusal) override {
    over_ = true;
    Forget();
    ServerStreamCall::Refuse(refusal);
  }

 private:
  // What the daemon keeps for this stream.
  size_t bytes() const { return waiting_bytes() + kept_bytes_; }
  // What was kept until the end of the snapshot.
  void Forget() {
    ForgetUncounted();
    OnWaiting();
  }
  void ForgetUncounted() {
    revisions_ = {};
    early_ = {};
    kept_bytes_ = 0;
  }
  void OnWaiting() override {
    environment()->unread_streams.Set(this, bytes(), environment()->limits.streams_bytes_max);
  }

  // The access file may have changed. False: the watch has been refused.
  bool IsStillKnown() {
    Problem problem = caller().Again();
    if (!problem) return true;
    over_ = true;
    Forget();
    sessions()->Unwatch(watch_);
    ServerStreamCall::Refuse(*problem);
    return false;
  }

  // What came before the end of the snapshot and is not in it.
  void EndSnapshot() {
    snapshot_sent_ = true;
    const std::vector<pb::WatchResponse> early = std::exchange(early_, {});
    kept_bytes_ = 0;  // They are counted as they are sent.
    for (const pb::WatchResponse& event : early) {
      const auto found = revisions_.find(event.semaphore().semaphore());
      if (found == revisions_.end() || found->second < event.semaphore().revision()) Send(event);
    }
    Forget();
    snapshot_rows_ = waiting();
  }

  void TellTooSlow(const Refusal& refusal) {
    over_ = true;
    ForgetUncounted();
    Discard();  // And counts: nothing is left.
    sessions()->Unwatch(watch_);
    ServerStreamCall::Refuse(refusal);
  }

  Refusal TooFarBehind() {
    const ServiceLimits& most = environment()->limits;
    return {absl::StatusCode::kResourceExhausted, Reason::kSlowReader,
            "the reader is more than watch_events_max (" + std::to_string(most.watch_events_max) +
                ") events, or stream_bytes_max (" + std::to_string(most.stream_bytes_max) +
                ") bytes behind",
            "", "watch again, and read faster or watch fewer semaphores"};
  }

  void Register(QueueEvent* accepted) override {
    grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
    environment()->service->RequestWatch(context(), request(), writer(), queue, queue, accepted);
  }

  void Begin() override {
    over_ = false;
    snapshot_sent_ = false;
    next_due_ = false;
    snapshot_rows_ = SliceRows(environment()->host->guarantees());
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
    watch_ = sessions()->Watch(std::move(params.prefix), std::move(params.semaphore), this);
  }

  void OnGone() override {
    if (std::exchange(over_, true)) return;
    Forget();
    sessions()->Unwatch(watch_);
  }

  void Recycle() override { acceptor_->Recycle(this); }
  void Replace() override { acceptor_->Replace(); }

  Acceptor<WatchCall>* acceptor_;
  bool over_ = false;  // Nothing is heard from Sessions any more.
  uint64_t watch_ = 0;
  bool snapshot_sent_ = false;
  bool next_due_ = false;
  // May wait beside watch_events_max: of the snapshot, and of what came early.
  size_t snapshot_rows_ = 0;
  uint64_t start_revision_ = 0;                           // 0: no revision is left out.
  absl::flat_hash_map<std::string, uint64_t> revisions_;  // In the snapshot.
  std::vector<pb::WatchResponse> early_;                  // Changes that came before its end.
  size_t kept_bytes_ = 0;                                 // Of both.
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptWatch(Environment* environment) {
  return std::make_unique<Acceptor<WatchCall>>(environment);
}

}  // namespace semaphored
