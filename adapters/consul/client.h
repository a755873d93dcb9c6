// Consul's HTTP interface over one kept connection. Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/common/http.h"
#include "adapters/common/http_target.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/consul/url.h"

namespace semaphored::consul {

struct Reply {
  enum class Kind : uint8_t {
    kAnswered,  // 200, 404 or 409: the request was carried out, or what it asks for is not there,
                // or its conditions did not hold.
    kRefused,   // It was not carried out and will not be.
    kBroken,    // Unknown: a write may have been carried out, or may be yet.
  };
  Kind kind = Kind::kBroken;
  int http_status = 0;
  std::string body;
  uint64_t index = 0;  // X-Consul-Index; 0: none came.
  absl::Status status;

  bool answered() const { return kind == Kind::kAnswered; }
};

// What came, or did not, as a Reply.
Reply JudgeReply(HttpAnswer answer);

// How the agent is reached, and what each request to it has in common: no body, no time-out.
HttpOptions OptionsOf(const Url& url);
HttpRequest RequestTo(const Url& url, const HttpTarget& target);

class Client {
 public:
  explicit Client(const Url& url) : url_(url), http_(OptionsOf(url)) {}

  // Asked again, a few times with growing pauses of
  // random length, while the agent is overloaded or there is no leader; never longer than the
  // time-out.
  Reply Get(const HttpTarget& target);
  // A PUT that changes nothing: the same.
  Reply Ask(const HttpTarget& target, const std::string& body);
  // Sent once; also where a kept connection ends without an answer: kBroken.
  Reply Put(const HttpTarget& target, const std::string& body);

  // What stands under the keys that `request` reads, as one moment's truth: no answer rests on a leader that
  // was deposed. The other two are the same for one key. Asked again, as Get. PERMISSION_DENIED: the token
  // does not allow it.
  absl::StatusOr<std::vector<Entry>> Read(const TransactionRequest& request);
  absl::StatusOr<std::vector<Entry>> ReadTree(const std::string& key);
  // The keys alone; with a separator only up to its next occurrence, each once.
  absl::StatusOr<std::vector<std::string>> ListKeys(const std::string& under,
                                                    const std::string& separator = "");
  // Sent once. Done, or refused because a condition did not hold; an error may leave open whether it was
  // carried out. PERMISSION_DENIED: the token does not allow it, so trying again is of no use.
  absl::StatusOr<TransactionAnswer> Write(const TransactionRequest& request);

 private:
  Reply Send(const HttpTarget& target, const std::string* body, bool once,
             std::chrono::milliseconds timeout);
  Reply Persist(const HttpTarget& target, const std::string* body);

  const Url url_;
  HttpClient http_;
};

}  // namespace semaphored::consul
