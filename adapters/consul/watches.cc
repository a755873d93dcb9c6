#include "adapters/consul/watches.h"

#include <curl/curl.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

// For so long Consul keeps a question in which nothing happens, and a sixteenth more.
constexpr std::chrono::seconds kWait{50};
constexpr std::chrono::seconds kWaitSlack{5};
constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kPauseMax{2000};
constexpr int kPollMax_ms = 60'000;

}  // namespace

struct Watches::Watch {
  std::string id;
  HttpTarget target = "/";
  CURL* handle = nullptr;
  void* headers = nullptr;
  bool asking = false;
  ErrorText error{};
  std::string body;
  uint64_t index_heard = 0;  // Of the answer under way.
  uint64_t index = 0;        // Of the last answer.
  std::chrono::milliseconds pause{0};
  SteadyTime ask_at{};

  ~Watch() { Client::FreeHandle(handle, headers); }
};

Watches::Watches(const Url& url) : url_(url), random_(std::random_device()()) {
  // The first handle prepares the library, in all threads' name.
  void* headers = nullptr;
  CURL* handle = Client::NewHandle(url_, &headers);
  Client::FreeHandle(handle, headers);
  multi_ = curl_multi_init();
}

Watches::~Watches() {
  for (auto& [id, watch] : watches_) {
    if (watch->asking) curl_multi_remove_handle(multi_, watch->handle);
  }
  watches_.clear();
  curl_multi_cleanup(multi_);
}

void Watches::Add(const std::string& id, const HttpTarget& target) {
  const auto [at, is_new] = watches_.try_emplace(id);
  if (!is_new) return;
  at->second = std::make_unique<Watch>();
  Watch* watch = at->second.get();
  watch->id = id;
  watch->target = target;
  watch->handle = Client::NewHandle(url_, &watch->headers);
  Ask(watch);
}

void Watches::Remove(const std::string& id) {
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  if (found->second->asking) curl_multi_remove_handle(multi_, found->second->handle);
  watches_.erase(found);
}

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
  Client::Prepare(url_, target, watch->handle, &watch->error);
  watch->body.clear();
  watch->index_heard = 0;
  const auto patience =
      url_.timeout + (watch->index == 0 ? std::chrono::milliseconds(0)
                                        : std::chrono::milliseconds(kWait + kWaitSlack));
  curl_easy_setopt(watch->handle, CURLOPT_HTTPGET, 1L);
  curl_easy_setopt(watch->handle, CURLOPT_WRITEDATA, &watch->body);
  curl_easy_setopt(watch->handle, CURLOPT_HEADERDATA, &watch->index_heard);
  curl_easy_setopt(watch->handle, CURLOPT_PRIVATE, watch);
  curl_easy_setopt(watch->handle, CURLOPT_TIMEOUT_MS, static_cast<long>(patience.count()));
  watch->asking = curl_multi_add_handle(multi_, watch->handle) == CURLM_OK;
}

void Watches::Finish(Watch* watch, int code, Heard* heard) {
  curl_multi_remove_handle(multi_, watch->handle);
  watch->asking = false;
  long http_status = 0;
  curl_easy_getinfo(watch->handle, CURLINFO_RESPONSE_CODE, &http_status);
  Reply reply =
      JudgeReply(code, static_cast<int>(http_status), std::move(watch->body), watch->error.data());
  if (!reply.answered() || watch->index_heard == 0) {
    heard->interrupted.push_back(watch->id);
    heard->status = reply.status.ok()
                        ? absl::InternalError("consul: an answer of the agent is not understood")
                        : reply.status;
    // The next request has no index, so that its answer shows what has changed meanwhile.
    watch->index = 0;
    watch->pause = std::clamp(watch->pause * 2, kFirstPause, kPauseMax);
    watch->ask_at = SteadyClock::now() + Skewed(watch->pause, &random_);
    return;
  }
  watch->pause = std::chrono::milliseconds(0);
  const bool changed = watch->index_heard != watch->index;
  // An index that goes back is that of a cluster that was restored.
  watch->index = watch->index_heard < watch->index ? 0 : watch->index_heard;
  Ask(watch);
  if (changed)
    heard->changes.push_back({watch->id, http_status == 404 ? "" : std::move(reply.body)});
}

void Watches::Collect(Heard* heard) {
  int running = 0;
  curl_multi_perform(multi_, &running);
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Watch* watch = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &watch);
    Finish(watch, code, heard);
  }
}

SteadyTime Watches::AskPaused(SteadyTime now) {
  SteadyTime next = SteadyTime::max();
  for (auto& [id, watch] : watches_) {
    if (watch->asking) continue;
    if (watch->ask_at <= now) {
      Ask(watch.get());
    } else {
      next = std::min(next, watch->ask_at);
    }
  }
  return next;
}

Watches::Heard Watches::Wait(SteadyTime deadline) {
  Heard heard;
  for (;;) {
    const SteadyTime now = SteadyClock::now();
    const SteadyTime next = AskPaused(now);
    Collect(&heard);
    if (!heard.changes.empty() || !heard.status.ok() || now >= deadline) return heard;
    if (woken_.exchange(false)) return heard;
    const SteadyTime until = std::min(deadline, next);
    const auto left = until == SteadyTime::max()
                          ? std::chrono::milliseconds(kPollMax_ms)
                          : std::chrono::ceil<std::chrono::milliseconds>(until - now);
    const int64_t timeout_ms = std::clamp<int64_t>(left.count(), 0, kPollMax_ms);
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(timeout_ms), nullptr);
  }
}

void Watches::Wake() {
  woken_ = true;
  curl_multi_wakeup(multi_);
}

}  // namespace semaphored::consul
