// One look at the daemon for all viewers of the page: what it has, as values, taken on the reactor's thread in small
// steps, so that nothing waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "adapters/outcomes.h"
#include "server/page/view.h"
#include "server/sessions/session_list.h"
#include "server/sessions/sessions.h"

namespace semaphored::page {

// Of a list.
struct SemaphoreLine {
  std::string name;
  uint32_t limit = 0;
  uint32_t held = 0;
  uint64_t waiting = 0;
  uint64_t offers = 0;
  int64_t oldest_unix_ms =
      0;  // When the oldest waiter began to wait; 0: none waits, or it is not known.
  bool paused = false;
  bool destroying = false;
  TicketCounts tickets;
  friend bool operator==(const SemaphoreLine&, const SemaphoreLine&) = default;
};

struct Listing {
  static constexpr uint32_t kRowsMax = 20'000;
  std::vector<SemaphoreLine> lines;  // In the order of names.
  bool more = false;                 // There are more than kRowsMax.
  SteadyTime begun_at{};
  SteadyTime::duration took{};
};

struct TicketList {
  std::vector<TicketInfo> tickets;
  std::map<Id, std::string> holders;  // Of those that are assigned, as far as they are known here.
  bool more = false;
};

// A semaphore with its first leases and waiters.
struct SemaphoreLook {
  static constexpr uint32_t kRowsMax = 200;
  // Why there is nothing to be seen; null: there is.
  std::unique_ptr<Refusal> refusal;
  SemaphoreInfo info;
  bool leases_more = false;  // There are more leases than kRowsMax.
  // By the states that were asked for.
  std::map<std::vector<TicketState>, TicketList> tickets;
};

struct Wanted {
  bool list = false;
  bool sessions = false;
  // Semaphores, each with the sets of ticket states that are wanted of it.
  std::map<std::string, std::set<std::vector<TicketState>>> semaphores;
};

struct Look {
  std::optional<Listing> listing;
  std::map<std::string, SemaphoreLook> semaphores;
  std::optional<SessionList> sessions;
};

class Looker {
 public:
  using Post = std::function<void(absl::AnyInvocable<void()>)>;

  // `post` runs a task on the thread of `sessions`; neither is used after `sessions` has gone, which `post` sees to.
  Looker(const Clock* clock, Sessions* sessions, uint32_t slice_rows, Post post)
      : clock_(clock), sessions_(sessions), slice_rows_(slice_rows), post_(std::move(post)) {}

  // Waits for at most `patience`. Null: it is not complete by then; the next call waits for it on, and then has what
  // was wanted of it. One thread, not that of Sessions.
  std::unique_ptr<Look> Take(Wanted wanted, Milliseconds patience);

  static constexpr uint32_t kSessionsMax = 500;

 private:
  class Taking;

  const Clock* const clock_;
  Sessions* const sessions_;
  const uint32_t slice_rows_;
  const Post post_;
  std::shared_ptr<Taking> under_way_;  // Null: none is.
  std::future<void> done_;
};

}  // namespace semaphored::page
