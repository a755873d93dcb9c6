#include "adapters/dynamodb/reply.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kMessageBytesMax = 200;  // Of what the engine says of an error.

// A text of the body; empty: there is none.
std::string TextOf(const json& body, const char* name) {
  if (!body.is_object()) return "";
  const auto found = body.find(name);
  return found != body.end() && found->is_string() ? found->get<std::string>() : "";
}

// "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException" without what is before the '#'.
std::string ErrorName(const json& body) {
  std::string type = TextOf(body, "__type");
  const size_t hash = type.rfind('#');
  return hash == std::string::npos ? type : type.substr(hash + 1);
}

std::string ErrorMessage(const json& body) {
  std::string text = TextOf(body, "message");
  if (text.empty()) text = TextOf(body, "Message");
  // After its first line a refused signature's message shows all that was signed, and among it the
  // session token.
  text.resize(std::min(
      {text.size(), text.find('\n'), text.find(" The Canonical String"), kMessageBytesMax}));
  return text;
}

bool IsClock(absl::string_view error, absl::string_view message) {
  return error == "RequestTimeTooSkewed" || absl::StrContains(message, "Signature expired") ||
         absl::StrContains(message, "Signature not yet current");
}

// The engine names all that it will not take alike.
bool IsTooMuch(absl::string_view error, absl::string_view message) {
  if (error == "ItemCollectionSizeLimitExceededException") return true;
  return error == "ValidationException" &&
         (absl::StrContains(message, "exceeded the maximum allowed size") ||
          absl::StrContains(message, "size exceed") ||
          absl::StrContains(message, "length less than or equal to") ||
          absl::StrContains(message, "Too many items"));
}

struct Meaning {
  absl::string_view error;
  absl::StatusCode code;
};

constexpr Meaning kMeanings[] = {
    {"TransactionCanceledException", absl::StatusCode::kAborted},
    {"ConditionalCheckFailedException", absl::StatusCode::kFailedPrecondition},
    {"ResourceNotFoundException", absl::StatusCode::kNotFound},
    {"ResourceInUseException", absl::StatusCode::kAlreadyExists},
    {"AccessDeniedException", absl::StatusCode::kPermissionDenied},
    {"OptInRequired", absl::StatusCode::kPermissionDenied},
    {"IncompleteSignature", absl::StatusCode::kUnauthenticated},
    {"IncompleteSignatureException", absl::StatusCode::kUnauthenticated},
    {"InvalidSignatureException", absl::StatusCode::kUnauthenticated},
    {"MissingAuthenticationToken", absl::StatusCode::kUnauthenticated},
    {"MissingAuthenticationTokenException", absl::StatusCode::kUnauthenticated},
    {"RequestTimeTooSkewed", absl::StatusCode::kUnauthenticated},
    {"IdempotentParameterMismatchException", absl::StatusCode::kInvalidArgument},
    {"SerializationException", absl::StatusCode::kInvalidArgument},
    {"ValidationException", absl::StatusCode::kInvalidArgument},
};

absl::StatusCode CodeOf(absl::string_view error, int http_status) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.error == error) return meaning.code;
  }
  switch (http_status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 413:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status StatusOf(const Reply& reply, const std::string& operation, int http_status) {
  const std::string message = ErrorMessage(reply.body);
  std::string text = absl::StrCat("dynamodb: ", operation, ": ");
  if (reply.error.empty()) {
    absl::StrAppend(&text, "HTTP ", http_status, ", and not in DynamoDB's words: is it one?");
  } else {
    absl::StrAppend(&text, reply.error, message.empty() ? "" : ": ", message);
  }
  if (IsClock(reply.error, message))
    return absl::UnauthenticatedError(absl::StrCat(
        text,
        " (this machine's clock and DynamoDB's differ by more than it takes: set the clock)"));
  if (IsBusy(reply.error)) return absl::UnavailableError(text);
  if (IsForCredentials(reply.error)) return absl::UnauthenticatedError(text);
  if (IsTooMuch(reply.error, message)) return absl::OutOfRangeError(text);
  return {CodeOf(reply.error, http_status), text};
}

Reply JudgeFailure(const std::string& operation, const HttpAnswer& answer) {
  Reply reply;
  const bool sent = answer.times_sent > 0;
  reply.kind = sent ? Reply::Kind::kBroken : Reply::Kind::kRefused;
  const std::string text = absl::StrCat("dynamodb: ", operation, ": ", answer.why);
  // Repeating it at once changes nothing. (Not FAILED_PRECONDITION: the daemon would end.)
  const bool lasts = !sent && (answer.fault == HttpAnswer::Fault::kTrust ||
                               answer.fault == HttpAnswer::Fault::kAddress);
  reply.status = lasts ? absl::UnauthenticatedError(text) : absl::UnavailableError(text);
  return reply;
}

Reply Broken(const std::string& operation, absl::string_view why) {
  Reply reply;
  reply.status = absl::UnavailableError(absl::StrCat("dynamodb: ", operation, ": ", why));
  return reply;
}

}  // namespace

bool IsBusy(const std::string& error) {
  static constexpr absl::string_view kNames[] = {"ProvisionedThroughputExceededException",
                                                 "ThrottlingException",
                                                 "Throttling",
                                                 "RequestLimitExceeded",
                                                 "LimitExceededException",
                                                 "TransactionConflictException",
                                                 "TransactionInProgressException",
                                                 "ReplicatedWriteConflictException"};
  return std::find(std::begin(kNames), std::end(kNames), error) != std::end(kNames);
}

bool IsForCredentials(const std::string& error) {
  static constexpr absl::string_view kNames[] = {"ExpiredTokenException", "ExpiredToken",
                                                 "UnrecognizedClientException",
                                                 "InvalidClientTokenId"};
  return std::find(std::begin(kNames), std::end(kNames), error) != std::end(kNames);
}

Reply JudgeReply(const std::string& operation, HttpAnswer answer) {
  if (answer.fault != HttpAnswer::Fault::kNone) return JudgeFailure(operation, answer);
  uint32_t right = 0;
  if (absl::SimpleAtoi(answer.header, &right) &&
      right != crc32_z(0, reinterpret_cast<const Bytef*>(answer.body.data()), answer.body.size()))
    return Broken(operation, "the answer was damaged on its way (X-Amz-Crc32)");
  Reply reply;
  reply.body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (reply.body.is_discarded()) reply.body = nullptr;
  if (answer.http_status == 200) {
    if (!reply.body.is_object())
      return Broken(operation, "the answer is not JSON: is it DynamoDB?");
    reply.kind = Reply::Kind::kAnswered;
    return reply;
  }
  reply.error = ErrorName(reply.body);
  reply.status = StatusOf(reply, operation, answer.http_status);
  const bool at_fault = answer.http_status >= 500 || answer.http_status == 408;
  // The one before, with the same token, has not come to its end.
  const bool in_progress = reply.error == "TransactionInProgressException";
  reply.kind = at_fault || in_progress ? Reply::Kind::kBroken : Reply::Kind::kRefused;
  if (at_fault)
    reply.status = absl::UnavailableError(
        absl::StrCat(reply.status.message(), " (HTTP ", answer.http_status, ")"));
  return reply;
}

}  // namespace semaphored::dynamodb
