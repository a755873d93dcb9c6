#include "server/page/feed.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/signals.h"
#include "server/page/viewer.h"

namespace semaphored::page {
namespace {

// For a look; what takes longer comes with a later tick.
constexpr Milliseconds kPatience{2'000};
// A viewer that has just come need not wait for the next tick; but such looks have a pause, too.
constexpr Milliseconds kEarlyPause{200};
// A list is a question to all lanes: it takes at most such a share of the time, with viewers and without.
constexpr int kListShareViewed = 10;
constexpr int kListShareIdle = 100;
// Where the engine does not push, each reading is paid for.
constexpr int kUnpushed = 20;

}  // namespace

class Feed::Impl {
 public:
  Impl(const Clock* clock, Sessions* sessions, Looker::Post post, FeedOptions options)
      : clock_(clock),
        options_(std::move(options)),
        looker_(clock, sessions, options_.slice_rows, std::move(post)),
        begun_at_(clock->Now()),
        thread_([this] { Run(); }) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
    for (auto& [number, viewer] : viewers_) viewer->End();
  }

  absl::StatusOr<uint64_t> Add(View view, RightsNow rights, const std::string& owner) {
    const std::lock_guard lock(mutex_);
    const auto too_many = [](size_t most, absl::string_view whose) {
      return absl::ResourceExhaustedError(absl::StrCat(
          most, " pages", whose, " are open at this daemon, and no more are served: close one"));
    };
    if (viewers_.size() >= options_.viewers_max) return too_many(options_.viewers_max, "");
    const size_t share = options_.viewers_max - options_.viewers_max / 4;
    const auto is_its = [&owner](const auto& each) { return each.second->owner() == owner; };
    if (!owner.empty() && static_cast<size_t>(std::ranges::count_if(viewers_, is_its)) >= share)
      return too_many(share, " of one identity");
    const uint64_t number = ++last_number_;
    viewers_[number] =
        std::make_shared<Viewer>(&options_, std::move(view), std::move(rights), owner);
    return number;
  }

  void Start(uint64_t number, http::StreamPtr stream) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = viewers_.find(number);
      if (found == viewers_.end()) return;
      found->second->Start(std::move(stream));
      came_ = true;
    }
    changed_.notify_one();
  }

  void Remove(uint64_t number) {
    std::shared_ptr<Viewer> gone;  // Its stream may end with it: not under the mutex.
    const std::lock_guard lock(mutex_);
    const auto found = viewers_.find(number);
    if (found == viewers_.end()) return;
    gone = std::move(found->second);
    viewers_.erase(found);
  }

  FeedFigures figures() const {
    const std::lock_guard lock(mutex_);
    FeedFigures figures = figures_;
    figures.viewers = viewers_.size();
    return figures;
  }

 private:
  using Viewers = std::map<uint64_t, std::shared_ptr<Viewer>>;

  void Run() {
    BlockSignals();
    while (WaitForTick()) Tick();
  }

  // False: it is time to stop.
  bool WaitForTick() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const SteadyTime now = clock_->Now();
      const SteadyTime due = DueAt();
      if (now >= due) break;
      changed_.wait_for(lock, std::min<SteadyTime::duration>(due - now, options_.tick));
    }
    came_ = false;
    return !stopping_;
  }

  // Guarded by mutex_.
  SteadyTime DueAt() const {
    if (came_) return ticked_at_ + kEarlyPause;
    const bool viewed =
        std::ranges::any_of(viewers_, [](const auto& each) { return each.second->started(); });
    return viewed ? ticked_at_ + options_.tick : ListDueAt(false);
  }

  // (An engine that does not answer is asked no more often than one that does.)
  SteadyTime ListDueAt(bool viewed) const {
    if (!list_asked_at_) return begun_at_;
    if (!viewed && !options_.embedded) return SteadyTime::max();
    const SteadyTime::duration least = (viewed ? options_.tick : Milliseconds(History::kTickMs)) *
                                       (options_.pushes ? 1 : kUnpushed);
    const int share = viewed ? kListShareViewed : kListShareIdle;
    return *list_asked_at_ + std::max(least, list_took_ * share);
  }

  Viewers Started() {
    const std::lock_guard lock(mutex_);
    Viewers started;
    for (const auto& each : viewers_) {
      if (each.second->started()) started.insert(each);
    }
    return started;
  }

  Wanted WantedOf(const Viewers& viewers) const {
    Wanted wanted;
    bool lists = false;
    for (const auto& [number, viewer] : viewers) {
      const View& view = viewer->view();
      lists |= view.kind == View::Kind::kList;
      wanted.sessions |= view.kind == View::Kind::kSessions;
      if (view.kind == View::Kind::kSemaphore) {
        // It may be a new one, which no list has had.
        lists |= history_.Of(view.name).empty();
        auto& states = wanted.semaphores[view.name];
        if (options_.tickets) states.insert(view.tickets);
      }
    }
    // (A tick comes a little late now and then: what is due within a tenth of one is due.)
    wanted.list = clock_->Now() + options_.tick / 10 >= ListDueAt(lists);
    return wanted;
  }

  void Tick() {
    ticked_at_ = clock_->Now();
    const Viewers viewers = Started();
    Wanted wanted = WantedOf(viewers);
    const bool lists = wanted.list;
    if (lists) list_asked_at_ = ticked_at_;
    std::unique_ptr<Look> look = looker_.Take(std::move(wanted), kPatience);
    if (look != nullptr && look->listing) TakeListing(*std::move(look->listing));
    Show(viewers, look.get());
    const std::lock_guard lock(mutex_);
    ++figures_.looks;
    figures_.lists += lists ? 1 : 0;
  }

  void TakeListing(Listing listing) {
    history_.Begin(HistoryTick());
    for (const SemaphoreLine& line : listing.lines)
      history_.Add(line.name, {0, line.held,
                               static_cast<uint32_t>(std::min<uint64_t>(line.waiting, UINT32_MAX)),
                               line.limit});
    history_.End();
    list_took_ = listing.took;
    listing_ = std::make_unique<Listing>(std::move(listing));
    orders_ = std::make_unique<Orders>(listing_.get());
  }

  uint32_t HistoryTick() const {
    return static_cast<uint32_t>((clock_->Now() - begun_at_) / Milliseconds(History::kTickMs));
  }

  void Show(const Viewers& viewers, const Look* look) {
    if (viewers.empty()) return;
    const auto views = [&viewers](View::Kind kind) {
      return std::ranges::any_of(
          viewers, [kind](const auto& each) { return each.second->view().kind == kind; });
    };
    DaemonFigures figures;
    std::string nodes;
    std::string node_names;
    Moment moment;
    moment.complete = look != nullptr;
    moment.vouched = options_.vouched();
    moment.orders = orders_.get();
    moment.look = look;
    moment.history = &history_;
    moment.tick = HistoryTick();
    if (views(View::Kind::kEngine)) {
      figures = options_.figures();
      moment.figures = &figures;
    }
    if (views(View::Kind::kSessions)) {
      const std::vector<NodeLine> lines = options_.nodes();
      nodes = NodesJson(lines, /*with_places=*/true);
      node_names = NodesJson(lines, /*with_places=*/false);
      moment.nodes = &nodes;
      moment.node_names = &node_names;
    }
    moment.now_unix_ms = clock_->NowUnixMs();
    moment.now = clock_->Now();
    uint64_t sent_bytes = 0;
    for (const auto& [number, viewer] : viewers) {
      if (!viewer->Show(moment, &sent_bytes)) Remove(number);
    }
    const std::lock_guard lock(mutex_);
    figures_.sent_bytes += sent_bytes;
  }

  const Clock* const clock_;
  const FeedOptions options_;

  // ---- the thread's ----
  Looker looker_;
  const SteadyTime begun_at_;
  std::unique_ptr<Listing> listing_;  // The last one. Null: there was none.
  std::unique_ptr<Orders> orders_;
  History history_;
  SteadyTime ticked_at_{};
  std::optional<SteadyTime> list_asked_at_;
  SteadyTime::duration list_took_{};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Viewers viewers_;  // Guarded by mutex_, and so all that follows.
  uint64_t last_number_ = 0;
  bool came_ = false;  // A viewer has, since the last tick.
  bool stopping_ = false;
  FeedFigures figures_;
  std::thread thread_;
};

Feed::Feed(const Clock* clock, Sessions* sessions, Looker::Post post, FeedOptions options)
    : impl_(std::make_unique<Impl>(clock, sessions, std::move(post), std::move(options))) {}
Feed::~Feed() = default;

absl::StatusOr<uint64_t> Feed::Add(View view, RightsNow rights, const std::string& owner) {
  return impl_->Add(std::move(view), std::move(rights), owner);
}
void Feed::Start(uint64_t viewer, http::StreamPtr stream) {
  impl_->Start(viewer, std::move(stream));
}
void Feed::Remove(uint64_t viewer) { impl_->Remove(viewer); }
FeedFigures Feed::figures() const { return impl_->figures(); }

}  // namespace semaphored::page
