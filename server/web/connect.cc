#include "server/web/connect.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/http/gzip.h"
#include "server/rpc/status.h"
#include "server/web/json_check.h"

namespace semaphored::web {
namespace {

using google::protobuf::util::JsonParseOptions;
using google::protobuf::util::JsonPrintOptions;
using http::Status;

struct Code {
  std::string_view name;
  Status status;
};
// By gRPC's numbers.
constexpr std::array<Code, 17> kCodes = {{
    {"ok", Status::kOk},
    {"canceled", Status::kClientClosed},
    {"unknown", Status::kInternal},
    {"invalid_argument", Status::kBadRequest},
    {"deadline_exceeded", Status::kGatewayTimeout},
    {"not_found", Status::kNotFound},
    {"already_exists", Status::kConflict},
    {"permission_denied", Status::kForbidden},
    {"resource_exhausted", Status::kTooManyRequests},
    {"failed_precondition", Status::kBadRequest},
    {"aborted", Status::kConflict},
    {"out_of_range", Status::kBadRequest},
    {"unimplemented", Status::kNotImplemented},
    {"internal", Status::kInternal},
    {"unavailable", Status::kUnavailable},
    {"data_loss", Status::kInternal},
    {"unauthenticated", Status::kUnauthorized},
}};

// What is refused before it is known what is asked for.
struct Early {
  Status status;
  absl::StatusCode code;
  Reason reason;
  bool passes;  // The same again may be served.
  const char* message;
  const char* advice;
};
constexpr std::array<Early, 7> kEarly = {{
    {Status::kBadRequest, absl::StatusCode::kInvalidArgument, Reason::kInvalidField, false,
     "this is no request of HTTP/1, or it is not certain where its body ends", ""},
    // Connect infers this code from a 404, and gRPC has it for a method that there is not.
    {Status::kNotFound, absl::StatusCode::kUnimplemented, Reason::kNotSupported, false,
     "there is nothing at this path", "/openapi.json lists the methods of the API"},
    {Status::kMethodNotAllowed, absl::StatusCode::kUnimplemented, Reason::kNotSupported, false,
     "this path does not take this method of HTTP", "the header Allow names those that it takes"},
    {Status::kRequestTimeout, absl::StatusCode::kDeadlineExceeded, Reason::kLimitReached, true,
     "the request has not come in time", "send its head within 5 s, and its body within 10 s"},
    {Status::kContentTooLarge, absl::StatusCode::kResourceExhausted, Reason::kLimitReached, false,
     "the request's body is longer than message_bytes_max", ""},
    {Status::kHeadTooLarge, absl::StatusCode::kResourceExhausted, Reason::kLimitReached, false,
     "the request's line and headers are longer than 8 KiB", ""},
    {Status::kUnavailable, absl::StatusCode::kUnavailable, Reason::kLimitReached, true,
     "all connections that this daemon serves by HTTP are busy", "repeat the request later"},
}};

constexpr size_t kTimeoutDigitsMax = 10;
// Below, compression takes more time than it saves.
constexpr size_t kGzipFrom = 2'048;

const Code& CodeOf(grpc::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return kCodes[index < kCodes.size() ? index : static_cast<size_t>(grpc::StatusCode::UNKNOWN)];
}

// What an error's detail says, as JSON; null where its type is not one of ours.
nlohmann::json DebugOf(const google::protobuf::Any& detail) {
  std::string type(detail.type_url().substr(detail.type_url().rfind('/') + 1));
  const auto* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) return nullptr;
  std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  if (!message->ParseFromString(detail.value())) return nullptr;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(*message, &json).ok()) return nullptr;
  return nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
}

// Takes the path off what the library says: "(act.resize) limt: Cannot find field.", "limt: …", "(limit): invalid value …".
// Empty: it has none.
std::string FieldOf(std::string* text) {
  const size_t close = text->starts_with('(') ? text->find(')') : 0;
  const size_t colon = close == text->npos ? close : text->find(": ", close);
  if (colon == text->npos) return "";
  std::string field = close == 0 ? "" : text->substr(1, close - 1);
  std::string name = text->substr(close == 0 ? 0 : close + 1, colon - (close == 0 ? 0 : close + 1));
  if (name.starts_with(' ')) name.erase(0, 1);
  if (name.find(' ') != name.npos) return "";  // A sentence.
  if (!name.empty()) field += (field.empty() ? "" : ".") + name;
  if (!field.empty()) text->erase(0, colon + 2);
  return field;
}

std::string Base64(const std::string& bytes) {
  std::string text = absl::Base64Escape(bytes);
  while (text.ends_with('=')) text.pop_back();  // As Connect writes it.
  return text;
}

}  // namespace

std::string_view CodeName(grpc::StatusCode code) { return CodeOf(code).name; }

Status HttpStatus(grpc::StatusCode code) { return CodeOf(code).status; }

std::string ErrorJson(const google::rpc::Status& status) {
  nlohmann::ordered_json error = {{"code", CodeName(static_cast<grpc::StatusCode>(status.code()))},
                                  {"message", status.message()}};
  for (const google::protobuf::Any& detail : status.details()) {
    nlohmann::ordered_json one = {
        {"type", detail.type_url().substr(detail.type_url().rfind('/') + 1)},
        {"value", Base64(detail.value())}};
    if (const nlohmann::json debug = DebugOf(detail); !debug.is_null()) one["debug"] = debug;
    error["details"].push_back(std::move(one));
  }
  // A message of the client's may be in it, which need not be UTF-8.
  return error.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

google::rpc::Status StatusOf(const grpc::Status& status) {
  google::rpc::Status all;
  if (status.error_details().empty() || !all.ParseFromString(status.error_details())) {
    all.Clear();
    all.set_message(status.error_message());
  }
  all.set_code(static_cast<int>(status.error_code()));
  return all;
}

http::Response ErrorResponse(const google::rpc::Status& status,
                             std::optional<http::Status> http_status) {
  http::Response response;
  response.status = http_status.value_or(HttpStatus(static_cast<grpc::StatusCode>(status.code())));
  response.content_type = "application/json";
  response.body = std::make_shared<std::string>(ErrorJson(status));
  response.headers.emplace_back("Cache-Control", "no-store");
  if (response.status == Status::kUnauthorized)
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

http::Response ErrorResponse(const Refusal& refusal, std::optional<http::Status> http_status) {
  google::rpc::Status status;
  ToProto(refusal, /*adapter=*/"", &status);
  return ErrorResponse(status, http_status);
}

http::Response EarlyRefusal(Status status, size_t body_bytes_max) {
  const auto* const early = std::ranges::find(kEarly, status, &Early::status);
  if (early == kEarly.end()) return http::Refusal(status);
  std::string message = early->message;
  if (status == Status::kContentTooLarge)
    absl::StrAppend(&message, " (", body_bytes_max, " bytes), or a GET has one");
  google::rpc::Status error;
  ToProto({early->code, early->reason, std::move(message), "", early->advice}, /*adapter=*/"",
          &error);
  // Behind the ErrorInfo: when to send the same again.
  if (!early->passes) error.mutable_details()->DeleteSubrange(1, error.details_size() - 1);
  return ErrorResponse(error, status);
}

http::Response JsonResponse(std::string json, bool takes_gzip) {
  http::Response response;
  response.content_type = "application/json";
  response.headers.emplace_back("Cache-Control", "no-store");
  if (takes_gzip && json.size() >= kGzipFrom) {
    if (std::string packed = http::Gzip(json); !packed.empty()) {
      response.gzip = true;
      json = std::move(packed);
    }
  }
  response.body = std::make_shared<std::string>(std::move(json));
  return response;
}

std::string ToJson(const google::protobuf::Message& message) {
  JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only on times out of range, which no message of ours has.
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "{}";
  return json;
}

std::optional<Refusal> FromJson(std::string_view json, google::protobuf::Message* message) {
  if (json.empty())
    return Refusal{absl::StatusCode::kInvalidArgument, Reason::kInvalidField,
                   "the request's body is empty: it must be a JSON object", "", "send {} at least"};
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), message, JsonParseOptions());
  if (status.ok()) return CheckJson(json);
  std::string text(status.message().data(), status.message().size());
  if (const std::string field = FieldOf(&text); !field.empty()) return InvalidField(field, text);
  return Refusal{absl::StatusCode::kInvalidArgument, Reason::kInvalidField,
                 "the request's body is not the JSON of this method: " + text, "", ""};
}

std::optional<Refusal> CheckVersion(const http::Request& request) {
  if (request.Count("connect-protocol-version") == 0 ||
      request.Header("connect-protocol-version") == "1")
    return std::nullopt;
  return InvalidField("Connect-Protocol-Version", "must be 1");
}

std::optional<Refusal> TimeoutOf(const http::Request& request,
                                 std::optional<Milliseconds>* timeout) {
  if (request.Count("connect-timeout-ms") == 0) return std::nullopt;
  const std::string_view text = request.Header("connect-timeout-ms").value_or("");
  int64_t ms = -1;
  const bool digits = text.find_first_not_of("0123456789") == text.npos;
  if (!digits || text.size() > kTimeoutDigitsMax ||
      !absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &ms))
    return InvalidField("Connect-Timeout-Ms", "must be a number of at most ten digits");
  *timeout = Milliseconds(ms);
  return std::nullopt;
}

}  // namespace semaphored::web
