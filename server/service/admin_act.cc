#include "server/service/admin_act.h"

#include <google/protobuf/util/json_util.h>

#include "nlohmann/json.hpp"
#include "server/core/audit_log.h"

namespace semaphored {
namespace {

namespace pb = ::semaphore::v1;

constexpr size_t kIdDigits = 32;
constexpr size_t kDigitsShown = 6;

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonOf(const google::protobuf::Message& message, bool defaults_too) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = defaults_too;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return "null";
  return text;
}

}  // namespace

AdminAct ActOf(const pb::AdministerRequest& request) {
  using Request = pb::AdministerRequest;
  constexpr Verbs kSees = Verb::kVerify | Verb::kAdminister;
  switch (request.act_case()) {
    case Request::kCreate:
      return {"create"};
    case Request::kResize:
      return {"resize"};
    case Request::kConfigure:
      return {"configure"};
    case Request::kDestroy:
      return {"destroy"};
    case Request::kDrain:
      return {"drain"};
    case Request::kPause:
      return {"pause"};
    case Request::kResume:
      return {"resume"};
    case Request::kRevoke:
      return {"revoke"};
    case Request::kPrune:
      return {"prune"};
    case Request::kDescribe:
      return {"describe", kSees, false};
    case Request::kList:
      return {"list", kSees, false};
    case Request::kHistory:
      return {"history", kSees, false};
    case Request::kListTickets:
      return {"list_tickets", kSees | Verb::kWork, false};
    case Request::kShowTicket:
      return {"show_ticket", Verb::kWork | Verb::kAdminister, false};
    case Request::kCancelTicket:
      return {"cancel_ticket"};
    case Request::kPrioritiseTicket:
      return {"prioritise_ticket"};
    case Request::kRequeueTickets:
      return {"requeue_tickets"};
    case Request::kPurgeTickets:
      return {"purge_tickets"};
    case Request::ACT_NOT_SET:
      break;
  }
  return {"", Verb::kAdminister, false};
}

std::string AuditLine(const AuditEntry& entry) {
  const Refusal* refusal = entry.refusal;
  std::string line = "{\"time\":" + Quoted(UtcTimeText(entry.time_unix_ms));
  const auto add = [&line](const char* key, const std::string& json) {
    line.append(",\"").append(key).append("\":").append(json);
  };
  add("identity", Quoted(entry.identity));
  add("peer", Quoted(entry.peer));
  add("act", Quoted(entry.act));
  add("semaphore", Quoted(entry.semaphore));
  add("asked", entry.asked);
  add("old", entry.before);
  add("new", entry.after);
  add("affected", std::to_string(entry.affected));
  add("outcome", Quoted(refusal == nullptr ? "OK" : absl::StatusCodeToString(refusal->code)));
  if (refusal != nullptr) {
    add("reason", Quoted(ReasonName(refusal->reason)));
    add("message", Quoted(refusal->message));
  }
  return line + "}";
}

std::string AskedText(pb::AdministerRequest request) {
  request.clear_request_id();
  request.clear_semaphore();
  if (request.has_revoke()) {
    std::string& id = *request.mutable_revoke()->mutable_lease_id();
    if (id.size() > kIdDigits) id = id.substr(0, id.size() - kIdDigits + kDigitsShown) + "…";
  }
  return JsonOf(request, false);
}

std::string SemaphoreText(const pb::SemaphoreInfo& info) { return JsonOf(info, true); }

}  // namespace semaphored
