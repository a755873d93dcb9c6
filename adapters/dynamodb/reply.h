// A request to DynamoDB, and what became of it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "adapters/common/http.h"
#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {

using nlohmann::json;

struct Request {
  std::string operation;  // "TransactWriteItems"
  json body;              // Never in an error. All text in it is UTF-8.
};

struct Reply {
  enum class Kind : uint8_t {
    kAnswered,  // 200.
    kRefused,   // It was not carried out and will not be: `error` and `status` say why.
    kBroken,    // Unknown: a write may have been carried out, or may be yet.
  };
  Kind kind = Kind::kBroken;
  json body;          // Of the answer, or of the refusal (CancellationReasons, …); else null.
  std::string error;  // The engine's name of a refusal without its namespace, such as
                      // "TransactionCanceledException"; empty: none. With kBroken, what the last
                      // attempt met: the refusal may be due to one before it that was carried out.
  // Canonical. UNAVAILABLE: throttling that did not end in time, what is not reached, what is not
  // known. PERMISSION_DENIED, UNAUTHENTICATED (also a clock that is wrong), NOT_FOUND (the table),
  // OUT_OF_RANGE (more than the engine takes at once), FAILED_PRECONDITION (a condition did not
  // hold), ABORTED (a transaction was cancelled), ALREADY_EXISTS, INVALID_ARGUMENT, INTERNAL.
  absl::Status status;

  bool answered() const { return kind == Kind::kAnswered; }
};

// What came over the wire, or did not, as a Reply. An answer whose X-Amz-Crc32, which is
// `answer.header`, is not that of its body is kBroken.
Reply JudgeReply(const std::string& operation, HttpAnswer answer);

// Refused for now: throttled, or a transaction is at its items. Not those inside of the reasons of
// a TransactionCanceledException.
bool IsBusy(const std::string& error);
// Refused for the credentials: others may be taken.
bool IsForCredentials(const std::string& error);

}  // namespace semaphored::dynamodb
