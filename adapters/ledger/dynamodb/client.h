// DynamoDB's JSON interface over kept connections, each request signed. Used by one thread at a
// time, but for Stop().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "adapters/ledger/dynamodb/credentials.h"
#include "adapters/ledger/dynamodb/url.h"
#include "adapters/types.h"
#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {

using nlohmann::json;

struct Request {
  std::string operation;  // "TransactWriteItems"
  json body;              // Without secrets: it may be named in an error.
};

struct Reply {
  enum class Kind : uint8_t {
    kAnswered,  // 200.
    kRefused,   // It was not carried out and will not be: `error` and `status` say why.
    kBroken,    // Nobody knows: a write may have been carried out, or may be yet.
  };
  Kind kind = Kind::kBroken;
  json body;          // Of the answer, or of the refusal (CancellationReasons, …).
  std::string error;  // The engine's name of a refusal without its namespace, such as
                      // "TransactionCanceledException"; empty: none.
  // Canonical: UNAVAILABLE for throttling that did not end in time and for what is not reached,
  // PERMISSION_DENIED, UNAUTHENTICATED, NOT_FOUND (the table), OUT_OF_RANGE (more than the engine
  // takes at once), INVALID_ARGUMENT, …
  absl::Status status;

  bool answered() const { return kind == Kind::kAnswered; }
};

// What came, or did not (another curl_code than CURLE_OK), as a Reply. An answer whose X-Amz-Crc32
// is not that of its body is kBroken.
Reply JudgeReply(int curl_code, int http_status, std::string body, const std::string& detail = "");

class Client {
 public:
  Client(const Url& url, std::shared_ptr<CredentialSource> credentials);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // A request that may be repeated: reads, and writes with a ClientRequestToken, or under a
  // condition that makes a second one harmless. Repeated, with pauses of random length that grow,
  // while it is throttled, while the engine is at fault (5xx), and if its answer was lost; never
  // past `deadline`, nor past the URL's time-out. kBroken: one of the attempts may still land.
  Reply Repeat(const Request& request, SteadyTime deadline);
  // Sent again only where the one before was certainly not carried out (throttled, not reached).
  Reply Once(const Request& request, SteadyTime deadline);
  // Requests that may be repeated, side by side over up to 8 connections. Replies in their order.
  std::vector<Reply> RepeatAll(absl::Span<const Request> requests, SteadyTime deadline);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace semaphored::dynamodb
