#include "adapters/consul/watches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/random.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

// For so long Consul keeps a question in which nothing happens, and a sixteenth more.
constexpr std::chrono::seconds kWait{50};
constexpr std::chrono::seconds kWaitSlack{5};
constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kPauseMax{2000};
constexpr std::chrono::milliseconds kPollMax{60'000};

}  // namespace

struct Watches::Watch {
  Watch(const Url& url, std::string the_id, HttpTarget the_target)
      : id(std::move(the_id)), target(std::move(the_target)), http(OptionsOf(url)) {}

  std::string id;
  HttpTarget target;
  HttpClient http;
  uint64_t index = 0;  // Of the last answer.
  std::chrono::milliseconds pause{0};
  SteadyTime ask_at{};
};

Watches::Watches(const Url& url) : url_(url) {}

Watches::~Watches() = default;

void Watches::Add(const std::string& id, const HttpTarget& target) {
  const auto [at, is_new] = watches_.try_emplace(id);
  if (!is_new) return;
  at->second = std::make_unique<Watch>(url_, id, target);
  Ask(at->second.get());
}

void Watches::Remove(const std::string& id) { watches_.erase(id); }

std::vector<std::string> Watches::Ids() const {
  std::vector<std::string> ids;
  for (const auto& [id, watch] : watches_) ids.push_back(id);
  return ids;
}

void Watches::Ask(Watch* watch) {
  HttpTarget target = watch->target;
  if (watch->index != 0)
    target.Option("index", absl::StrCat(watch->index))
        .Option("wait", absl::StrCat(kWait.count(), "s"));
  HttpRequest request = RequestTo(url_, target);
  request.timeout = url_.timeout;
  if (watch->index != 0) request.timeout += kWait + kWaitSlack;
  pool_.Start(&watch->http, request,
              [this, watch](HttpAnswer answer) { Finish(watch, std::move(answer)); });
}

void Watches::Finish(Watch* watch, HttpAnswer answer) {
  Reply reply = JudgeReply(std::move(answer));
  if (!reply.answered() || reply.index == 0) {
    heard_.interrupted.push_back(watch->id);
    heard_.status = reply.status.ok()
                        ? absl::InternalError("consul: an answer of the agent is not understood")
                        : reply.status;
    // The next request has no index, so that its answer shows what has changed meanwhile.
    watch->index = 0;
    watch->pause = std::clamp(watch->pause * 2, kFirstPause, kPauseMax);
    watch->ask_at = SteadyClock::now() + Skewed(watch->pause);
    return;
  }
  watch->pause = std::chrono::milliseconds(0);
  const bool changed = reply.index != watch->index;
  // An index that goes back is that of a cluster that was restored.
  watch->index = reply.index < watch->index ? 0 : reply.index;
  Ask(watch);
  if (changed)
    heard_.changes.push_back({watch->id, reply.http_status == 404 ? "" : std::move(reply.body)});
}

SteadyTime Watches::AskPaused(SteadyTime now) {
  SteadyTime next = SteadyTime::max();
  for (auto& [id, watch] : watches_) {
    if (watch->http.under_way()) continue;
    if (watch->ask_at <= now) {
      Ask(watch.get());
    } else {
      next = std::min(next, watch->ask_at);
    }
  }
  return next;
}

Watches::Heard Watches::Wait(SteadyTime deadline) {
  for (;;) {
    const SteadyTime now = SteadyClock::now();
    const SteadyTime next = AskPaused(now);
    pool_.Turn();
    if (!heard_.changes.empty() || !heard_.status.ok() || now >= deadline || woken_.exchange(false))
      return std::exchange(heard_, {});
    const SteadyTime until = std::min(deadline, next);
    const auto left = until == SteadyTime::max()
                          ? kPollMax
                          : std::chrono::ceil<std::chrono::milliseconds>(until - now);
    pool_.Wait(std::clamp(left, std::chrono::milliseconds(0), kPollMax));
  }
}

void Watches::Wake() {
  woken_ = true;
  pool_.Wake();
}

}  // namespace semaphored::consul
