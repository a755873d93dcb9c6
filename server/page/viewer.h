// One viewer of the page, and what it was sent: from one look at the daemon it is sent what differs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/page/feed.h"

namespace semaphored::page {

// The present list of semaphores in each order that a viewer has asked for. Used by one thread.
class Orders {
 public:
  explicit Orders(const Listing* listing) : listing_(listing) {}
  // Numbers of lines. Lines that are alike stand by name.
  const std::vector<uint32_t>& By(View::Sort sort, bool ascending);
  const Listing& listing() const { return *listing_; }

 private:
  const Listing* listing_;
  std::map<std::pair<View::Sort, bool>, std::vector<uint32_t>> orders_;
};

// What all viewers of one tick share. Null: it is not there.
struct Moment {
  int64_t now_unix_ms = 0;
  SteadyTime now{};
  bool complete = false;  // The look came in time.
  bool vouched = false;
  Orders* orders = nullptr;  // There has been a list.
  const Look* look = nullptr;
  const History* history = nullptr;
  uint32_t tick = 0;  // Of the history.
  const DaemonFigures* figures = nullptr;
  // NodesJson with places, and without.
  const std::string* nodes = nullptr;
  const std::string* node_names = nullptr;
};

class Viewer {
 public:
  Viewer(const FeedOptions* options, View view, RightsNow rights, std::string owner)
      : options_(options),
        view_(std::move(view)),
        rights_now_(std::move(rights)),
        owner_(std::move(owner)) {}

  const View& view() const { return view_; }
  const std::string& owner() const { return owner_; }
  void Start(http::StreamPtr stream) { stream_ = std::move(stream); }
  bool started() const { return stream_ != nullptr; }
  // Sends what differs from what was sent, unless the viewer has not read that yet: then it is left out. False: it is
  // not known to the daemon any more, and its stream has ended.
  bool Show(const Moment& moment, uint64_t* sent_bytes);
  void End() {
    if (stream_ != nullptr) stream_->End();
  }

 private:
  void Send(std::string_view event, const std::string& json);
  // Unless it is what was sent as this event before.
  void SendChanged(std::string_view event, std::string json);
  void SendHello();
  void SendStatus(const Moment& moment);
  void SendList(const Moment& moment);
  void SendSemaphore(const Moment& moment);
  void SendChart(const Moment& moment);
  void SendSessions(const Moment& moment);
  // `,"key":json` if it differs from what was sent.
  void AddChanged(std::string_view key, std::string json, std::string* message);

  const FeedOptions* const options_;
  const View view_;
  const RightsNow rights_now_;
  const std::string owner_;
  Rights rights_;
  http::StreamPtr stream_;
  uint64_t sent_bytes_ = 0;
  // ---- what was sent ----
  bool greeted_ = false;
  absl::flat_hash_map<std::string, std::string> sent_;  // By event, or part of one.
  std::vector<std::string> order_;
  absl::flat_hash_map<std::string, SemaphoreLine> lines_;
  uint32_t chart_tick_ = 0;
  bool chart_sent_ = false;
};

}  // namespace semaphored::page
