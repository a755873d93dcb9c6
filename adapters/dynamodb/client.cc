#include "adapters/dynamodb/client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/common/http.h"
#include "adapters/common/http_target.h"
#include "adapters/common/random.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

using std::chrono::milliseconds;

constexpr size_t kConnectionsMax = 8;
constexpr size_t kAnswerBytesMax = 20'000'000;  // The engine's largest answer has 16 MB.
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
  SteadyTime next;                   // When the next attempt may start.
  SteadyTime end;                    // Of the time for it, from its first attempt on.
  Credentials credentials;           // Of the attempt under way.
  std::unique_ptr<HttpClient> http;  // Set while an attempt is under way.
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

HttpOptions OptionsOf(const Url& url) {
  HttpOptions options;
  options.ca_file = url.ca_file;
  options.header = "X-Amz-Crc32";
  options.signed_for = absl::StrCat(url.region, ":dynamodb");
  // An endpoint that was named is reached as it stands.
  options.by_proxy = url.endpoint.empty();
  options.answer_bytes_max = kAnswerBytesMax;
  return options;
}

// Without its time-out.
HttpRequest RequestOf(const Url& url, const Job& job) {
  HttpRequest request;
  request.method = "POST";
  request.address = HttpTarget("/").UrlAt(url.base());
  request.headers = {"Content-Type: application/x-amz-json-1.0",
                     absl::StrCat("X-Amz-Target: DynamoDB_20120810.", job.request->operation)};
  if (!job.credentials.session_token.empty())
    request.headers.push_back(
        absl::StrCat("X-Amz-Security-Token: ", job.credentials.session_token));
  request.body = &job.body;
  request.key_id = job.credentials.access_key_id;
  request.secret_key = job.credentials.secret_access_key;
  request.once = job.once;
  return request;
}

}  // namespace

struct Client::Parts {
  Parts(const Url& the_url, std::shared_ptr<CredentialSource> the_credentials)
      : url(the_url), credentials(std::move(the_credentials)) {}

  void Carry(std::vector<Job>* jobs, SteadyTime deadline);
  // One round: starts what may start, moves what is under way, takes in what has ended.
  void Turn(std::vector<Job>* jobs, size_t* first, SteadyTime deadline);
  void Start(Job* job, SteadyTime deadline);
  void TakeIn(Job* job, HttpAnswer answer);
  void Judge(Job* job);

  const Url url;
  const std::shared_ptr<CredentialSource> credentials;
  HttpPool pool{kConnectionsMax};
  std::vector<std::unique_ptr<HttpClient>> spare;
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
    job->http = std::make_unique<HttpClient>(OptionsOf(url));
  } else {
    job->http = std::move(spare.back());
    spare.pop_back();
  }
  HttpRequest request = RequestOf(url, *job);
  request.timeout = job->once ? left : std::min(left, std::max(left / 2, kAttemptMin));
  if (!pool.Start(job->http.get(), request,
                  [this, job](HttpAnswer answer) { TakeIn(job, std::move(answer)); })) {
    job->http.reset();
    Refuse(job, absl::ResourceExhaustedError("dynamodb: out of memory"));
  }
}

void Client::Parts::TakeIn(Job* job, HttpAnswer answer) {
  spare.push_back(std::move(job->http));
  const int times_sent = answer.times_sent;
  // The last attempt may have too little time to connect. Then the one before it tells more.
  const bool tells_less = job->attempts > 1 && times_sent == 0 &&
                          answer.fault == HttpAnswer::Fault::kTimeOut &&
                          !IsForCredentials(job->reply.error);
  if (!tells_less) job->reply = JudgeReply(job->request->operation, std::move(answer));
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
  for (size_t i = *first; i < jobs->size(); ++i) under_way += (*jobs)[i].http != nullptr;
  for (size_t i = *first; i < jobs->size() && under_way < kConnectionsMax; ++i) {
    Job& job = (*jobs)[i];
    if (job.done || job.http) continue;
    if (job.next > now) {
      wake = std::min(wake, job.next);
      continue;
    }
    Start(&job, deadline);
    under_way += job.http != nullptr;
    if (job.done) wake = now;
  }
  if (pool.Turn()) return;
  if (const milliseconds wait = Until(wake); wait.count() > 0) pool.Wait(wait);
}

void Client::Parts::Carry(std::vector<Job>* jobs, SteadyTime deadline) {
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
