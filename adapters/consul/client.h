// Consul's HTTP interface over one kept connection. Used by one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "adapters/common/http_target.h"
#include "adapters/consul/url.h"

using CURL = void;

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

// What came, or did not (another curl_code than CURLE_OK), as a Reply. `detail`: what the HTTP
// library says of it beside its code, such as which host could not be reached; may be empty.
Reply JudgeReply(int curl_code, int http_status, std::string body, const std::string& detail = "");

// Where the HTTP library puts its detail.
using ErrorText = std::array<char, 256>;

class Client {
 public:
  explicit Client(const Url& url);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Asked again, a few times with growing pauses of
  // random length, while the agent is overloaded or there is no leader; never longer than the
  // time-out.
  Reply Get(const HttpTarget& target);
  // A PUT that changes nothing: the same.
  Reply Ask(const HttpTarget& target, const std::string& body);
  // Sent once; also where a kept connection ends without an answer: kBroken.
  Reply Put(const HttpTarget& target, const std::string& body);

  // Sets what differs from request to request: the address, and where libcurl describes an error:
  // `error` outlives the request. The strings live in the handle.
  static void Prepare(const Url& url, const HttpTarget& target, CURL* handle, ErrorText* error);
  // A handle with all that does not change from request to request; nullptr: out of memory.
  static CURL* NewHandle(const Url& url, void** headers);
  static void FreeHandle(CURL* handle, void* headers);

 private:
  static int BeforeSending(void* self, char*, char*, int, int);
  Reply Send(const HttpTarget& target, const std::string* body, bool once,
             std::chrono::milliseconds timeout);
  Reply Persist(const HttpTarget& target, const std::string* body);

  const Url url_;
  CURL* handle_ = nullptr;
  void* headers_ = nullptr;
  ErrorText error_{};
  bool once_ = false;  // Of the request under way.
  bool sent_ = false;
  uint64_t random_;
};

// Pauses between attempts: the full time at most, half of it at least.
std::chrono::milliseconds Skewed(std::chrono::milliseconds pause, uint64_t* random);

}  // namespace semaphored::consul
