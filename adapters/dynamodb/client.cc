#include "adapters/dynamodb/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/exchange.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

using std::chrono::milliseconds;

constexpr size_t kConnectionsMax = 8;
constexpr int kAttemptsMax = 12;
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kPauseMax{1000};
// An attempt that may be repeated leaves as much time as it takes, unless it had less than this.
constexpr milliseconds kAttemptMin{1000};
// With less time left there is none: it would end before it has told more than the last one did.
// (Of a short time-out a quarter.)
constexpr milliseconds kLastAttemptMin{100};
constexpr milliseconds kPollMax{1000};

milliseconds Until(SteadyTime time) {
  return std::max(std::chrono::ceil<milliseconds>(time - SteadyClock::now()), milliseconds(0));
}

// Text that is not UTF-8 would have to be changed; keys must not be.
bool Write(const json& body, std::string* text) {
  try {
    *text = body.dump();
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

// A request from its first attempt to its last.
struct Job {
  const Request* request = nullptr;
  bool once = false;
  std::string body;
  Reply reply;           // Of the last attempt.
  bool lost = false;     // One of the attempts may have been carried out.
  bool renewed = false;  // Other credentials were asked for.
  int attempts = 0;
  milliseconds pause = kFirstPause;
  SteadyTime next;                     // When the next attempt may start.
  SteadyTime end;                      // Of the time for it, from its first attempt on.
  Credentials credentials;             // Of the attempt under way.
  std::unique_ptr<Exchange> exchange;  // Set while an attempt is under way.
  bool done = false;
};

void Finish(Job* job) {
  job->done = true;
  if (job->lost && !job->reply.answered()) job->reply.kind = Reply::Kind::kBroken;
  job->credentials = {};
}

void Refuse(Job* job, absl::Status status) {
  job->reply = {};
  job->reply.kind = Reply::Kind::kRefused;
  job->reply.status = std::move(status);
  Finish(job);
}

}  // namespace

struct Client::Parts {
  Parts(const Url& the_url, std::shared_ptr<CredentialSource> the_credentials)
      : url(the_url), credentials(std::move(the_credentials)), random(std::random_device()()) {
    InitHttp();
    multi = curl_multi_init();
    if (multi == nullptr) return;
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(kConnectionsMax));
    curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, static_cast<long>(kConnectionsMax));
  }

  ~Parts() {
    spare.clear();
    if (multi != nullptr) curl_multi_cleanup(multi);
  }

  void Carry(std::vector<Job>* jobs, SteadyTime deadline);
  // One round: starts what may start, moves what is under way, takes in what has ended.
  void Turn(std::vector<Job>* jobs, size_t* first, SteadyTime deadline);
  void Start(Job* job, SteadyTime deadline);
  void TakeIn(Job* job, int curl_code);
  void Judge(Job* job);
  // Half of the pause at least, all of it at most.
  milliseconds Skewed(milliseconds pause) {
    const int64_t half = pause.count() / 2;
    return milliseconds(half + static_cast<int64_t>(random() % static_cast<uint64_t>(half + 1)));
  }

  const Url url;
  const std::shared_ptr<CredentialSource> credentials;
  std::minstd_rand random;
  void* multi = nullptr;
  std::vector<std::unique_ptr<Exchange>> spare;
};

void Client::Parts::Start(Job* job, SteadyTime deadline) {
  if (job->attempts++ == 0) {
    job->end = std::min(deadline, SteadyClock::now() + url.timeout);
    if (!Write(job->request->body, &job->body)) {
      Refuse(job,
             absl::InvalidArgumentError(absl::StrCat("dynamodb: ", job->request->operation,
                                                     ": there is text in it that is not UTF-8")));
      return;
    }
  }
  const milliseconds left = Until(job->end);
  if (left.count() == 0) {
    if (job->attempts > 1) return Finish(job);
    return Refuse(job, absl::UnavailableError("dynamodb: there was no time left for a request"));
  }
  absl::StatusOr<Credentials> found = credentials->Get();
  if (!found.ok()) return Refuse(job, found.status());
  job->credentials = *std::move(found);
  if (spare.empty()) {
    job->exchange = std::make_unique<Exchange>(url);
  } else {
    job->exchange = std::move(spare.back());
    spare.pop_back();
  }
  const milliseconds timeout = job->once ? left : std::min(left, std::max(left / 2, kAttemptMin));
  CURL* const handle = job->exchange->Prepare(job->request->operation, job->body, job->credentials,
                                              timeout, job->once);
  if (handle == nullptr || curl_multi_add_handle(multi, handle) != CURLM_OK) {
    job->exchange.reset();
    Refuse(job, absl::ResourceExhaustedError("dynamodb: out of memory"));
  }
}

void Client::Parts::TakeIn(Job* job, int curl_code) {
  Received received = job->exchange->Take(curl_code);
  const int times_sent = job->exchange->times_sent();
  spare.push_back(std::move(job->exchange));
  // The last attempt may have too little time to connect. Then the one before it tells more.
  const bool tells_less = job->attempts > 1 && times_sent == 0 &&
                          curl_code == CURLE_OPERATION_TIMEDOUT &&
                          !IsForCredentials(job->reply.error);
  if (!tells_less) job->reply = JudgeReply(job->request->operation, std::move(received));
  if (times_sent > 1 || job->reply.kind == Reply::Kind::kBroken) job->lost = true;
  Judge(job);
}

// Whether there is one more attempt, and when.
void Client::Parts::Judge(Job* job) {
  const Reply& reply = job->reply;
  if (IsForCredentials(reply.error) && !job->renewed && credentials->Refused(job->credentials)) {
    job->renewed = true;
    job->next = SteadyClock::now();
    return;
  }
  const bool passes = absl::IsUnavailable(reply.status);
  const bool may_repeat = !job->once || reply.kind == Reply::Kind::kRefused;
  if (reply.answered() || !passes || !may_repeat || job->attempts >= kAttemptsMax)
    return Finish(job);
  job->next = SteadyClock::now() + Skewed(job->pause);
  job->pause = std::min(job->pause * 2, kPauseMax);
  if (job->next + std::min(kLastAttemptMin, url.timeout / 4) >= job->end) Finish(job);
}

void Client::Parts::Turn(std::vector<Job>* jobs, size_t* first, SteadyTime deadline) {
  while (*first < jobs->size() && (*jobs)[*first].done) ++*first;
  const SteadyTime now = SteadyClock::now();
  SteadyTime wake = now + kPollMax;
  size_t under_way = 0;
  for (size_t i = *first; i < jobs->size(); ++i) under_way += (*jobs)[i].exchange != nullptr;
  for (size_t i = *first; i < jobs->size() && under_way < kConnectionsMax; ++i) {
    Job& job = (*jobs)[i];
    if (job.done || job.exchange) continue;
    if (job.next > now) {
      wake = std::min(wake, job.next);
      continue;
    }
    Start(&job, deadline);
    under_way += job.exchange != nullptr;
    if (job.done) wake = now;
  }
  int running = 0;
  curl_multi_perform(multi, &running);
  bool ended = false;
  int queued = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi, &queued)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const handle = message->easy_handle;
    const CURLcode code = message->data.result;
    void* exchange = nullptr;
    curl_easy_getinfo(handle, CURLINFO_PRIVATE, &exchange);
    curl_multi_remove_handle(multi, handle);
    for (size_t i = *first; i < jobs->size(); ++i) {
      if ((*jobs)[i].exchange.get() == exchange) {
        TakeIn(&(*jobs)[i], code);
        break;
      }
    }
    ended = true;
  }
  if (ended) return;
  const int wait_ms = static_cast<int>(Until(wake).count());
  if (wait_ms > 0) curl_multi_poll(multi, nullptr, 0, wait_ms, nullptr);
}

void Client::Parts::Carry(std::vector<Job>* jobs, SteadyTime deadline) {
  if (multi == nullptr) {
    for (Job& job : *jobs) Refuse(&job, absl::ResourceExhaustedError("dynamodb: out of memory"));
    return;
  }
  size_t first = 0;
  while (true) {
    while (first < jobs->size() && (*jobs)[first].done) ++first;
    if (first == jobs->size()) return;
    Turn(jobs, &first, deadline);
  }
}

Client::Client(const Url& url, std::shared_ptr<CredentialSource> credentials)
    : parts_(std::make_unique<Parts>(url, std::move(credentials))) {}

Client::~Client() = default;

Reply Client::Repeat(const Request& request, SteadyTime deadline) {
  return std::move(RepeatAll({&request, 1}, deadline).front());
}

Reply Client::Once(const Request& request, SteadyTime deadline) {
  std::vector<Job> jobs(1);
  jobs.front().request = &request;
  jobs.front().once = true;
  parts_->Carry(&jobs, deadline);
  return std::move(jobs.front().reply);
}

std::vector<Reply> Client::RepeatAll(absl::Span<const Request> requests, SteadyTime deadline) {
  std::vector<Job> jobs(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) jobs[i].request = &requests[i];
  parts_->Carry(&jobs, deadline);
  std::vector<Reply> replies;
  replies.reserve(jobs.size());
  for (Job& job : jobs) replies.push_back(std::move(job.reply));
  return replies;
}

}  // namespace semaphored::dynamodb
