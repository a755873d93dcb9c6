// What the page's viewers see, kept up to date: one look at the daemon in a second for all of them, while there are any,
// and of that to each viewer what has changed since the last time. A thread of its own puts the answers together; the
// reactor's thread reads small pages only, and the lanes answer them between other commands (docs/adr/0026).
//
// Without viewers the semaphores are still listed every ten seconds for the history that the page draws, if that asks no
// server, and never for longer than a hundredth of the time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/access.h"
#include "server/base/clock.h"
#include "server/figures/metrics.h"
#include "server/http/reply.h"
#include "server/page/look.h"
#include "server/page/sections.h"
#include "server/page/view.h"

namespace semaphored::page {

// What a viewer may see and do now.
struct Rights {
  std::shared_ptr<const AccessPolicy> policy;  // Null: there is no access file, and all may do all.
  const Identity* identity = nullptr;          // Of the policy.
  bool writes = true;                          // The viewer may change anything by HTTP.
  bool certified = false;                      // It is known by its certificate, not by a token.

  bool Sees(std::string_view semaphore) const;
  bool Administers(std::string_view semaphore) const;
  // All names: this viewer sees what is of no semaphore, too.
  bool AdministersAll() const;
};
// Called on the feed's thread before each answer; must not block for long. nullopt: the daemon does not know the
// viewer any more, whose feed then ends.
using RightsNow = std::function<std::optional<Rights>()>;

struct FeedOptions {
  std::string node_id;
  std::string adapter;
  std::string version;
  bool tickets = false;  // As Guarantees.
  bool pushes = true;
  bool embedded = true;      // A list asks no server, so it is taken without viewers, too.
  uint32_t slice_rows = 64;  // SliceRows: of each command that reads.
  // The functions below are called on the feed's thread, and may block for some seconds.
  std::function<DaemonFigures()> figures;
  std::function<std::vector<NodeLine>()> nodes;
  NodeName node_name;
  std::function<bool()> vouched;  // Of the daemon's leases, now.
  Milliseconds tick{1'000};
  size_t viewers_max = 100;
};

// What the feed has done so far: its cost in numbers that do not hang on the machine.
struct FeedFigures {
  uint64_t looks = 0;
  uint64_t lists = 0;
  uint64_t sent_bytes = 0;
  uint64_t viewers = 0;  // Now.
};

class Feed {
 public:
  // The clock and `sessions` outlive it. Starts the thread.
  Feed(const Clock* clock, Sessions* sessions, Looker::Post post, FeedOptions options);
  // Ends the viewers' streams, and the thread: waits for a look that is under way, for at most some seconds.
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // A new viewer. `owner`: the name of its identity, of which three quarters of viewers_max may be; empty: there are no
  // identities. Any thread, as all below. RESOURCE_EXHAUSTED: there are as many already.
  absl::StatusOr<uint64_t> Add(View view, RightsNow rights, const std::string& owner);
  // Begins to send to it. Without effect if it was removed.
  void Start(uint64_t viewer, http::StreamPtr stream);
  // Nothing is sent to it any more.
  void Remove(uint64_t viewer);

  FeedFigures figures() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace semaphored::page
