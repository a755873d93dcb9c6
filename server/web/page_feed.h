// The page's feed by HTTP, and what it shows of this daemon.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "server/config/config.h"
#include "server/lanes/membership.h"
#include "server/page/feed.h"
#include "server/rpc/gatherer.h"
#include "server/web/routes.h"

namespace semaphored::web {

// The feed, once there is one. Any thread.
class FeedSlot {
 public:
  void Set(std::shared_ptr<page::Feed> feed) {
    const std::lock_guard lock(mutex_);
    feed_.swap(feed);  // The former one goes behind the lock: it waits for its thread.
  }
  // Null: the daemon does not serve yet, or no more.
  std::shared_ptr<page::Feed> Get() const {
    const std::lock_guard lock(mutex_);
    return feed_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<page::Feed> feed_;  // Guarded by mutex_.
};

// GET /page/feed?view=…: server-sent events, as server/page/sections.h has them. Both outlive the routes.
std::vector<Route> PageFeedRoutes(Site* site, FeedSlot* slot);

// All outlive the feed, which must go before the server stops. `gatherer`: any thread's.
struct FeedParts {
  Server* server;
  Host* host;
  Sessions* sessions;
  const Membership* membership;
  const Gatherer* gatherer;
};
std::shared_ptr<page::Feed> StartFeed(const Config& config, const FeedParts& parts);

}  // namespace semaphored::web
