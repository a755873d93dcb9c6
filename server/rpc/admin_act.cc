#include "server/rpc/admin_act.h"

#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/access/audit_log.h"
#include "server/base/clock.h"

namespace semaphored {
namespace {

namespace pb = ::semaphore::v1;

constexpr size_t kIdDigits = 32;
constexpr size_t kDigitsShown = 6;

constexpr size_t kNameBytesShown = 256;
constexpr size_t kTextBytesShown = 4096;

// With an ellipsis, if it is longer.
std::string Quoted(std::string_view text, size_t bytes_max = kTextBytesShown) {
  if (text.size() > bytes_max)
    return Quoted(std::string(text.substr(0, bytes_max)) + "…", SIZE_MAX);
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Begins with when, who and what.
class Line {
 public:
  explicit Line(const AuditEntry& entry)
      : text_("{\"time\":" + Quoted(UtcTimeText(entry.time_unix_ms))) {
    Add("identity", Quoted(entry.identity));
    Add("peer", Quoted(entry.peer));
    Add("act", Quoted(entry.act));
  }
  void Add(const char* key, const std::string& json) {
    text_.append(",\"").append(key).append("\":").append(json);
  }
  void AddOutcome(const Refusal* refusal) {
    Add("outcome", Quoted(refusal == nullptr ? "OK" : absl::StatusCodeToString(refusal->code)));
    if (refusal != nullptr) Add("reason", Quoted(ReasonName(refusal->reason)));
  }
  std::string Take() { return std::move(text_) + "}"; }

 private:
  std::string text_;
};

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
    case Request::kAdopt:
      return {"adopt", Verb::kAdminister, request.adopt().limit() != 0};
    case Request::ACT_NOT_SET:
      break;
  }
  return {"", Verb::kAdminister, false};
}

std::string AuditLine(const AuditEntry& entry) {
  const Refusal* refusal = entry.refusal;
  Line line(entry);
  line.Add("semaphore", Quoted(entry.semaphore, kNameBytesShown));
  line.Add("asked", entry.asked.size() > kTextBytesShown ? Quoted(entry.asked) : entry.asked);
  line.Add("old", entry.before);
  line.Add("new", entry.after);
  line.Add("affected", std::to_string(entry.affected));
  line.AddOutcome(refusal);
  if (refusal != nullptr) line.Add("message", Quoted(refusal->message));
  return line.Take();
}

std::string ShortAuditLine(const AuditEntry& entry, uint64_t unwritten) {
  Line line(entry);
  line.Add("semaphore", "null");
  line.AddOutcome(entry.refusal);
  line.Add("unwritten", std::to_string(unwritten));
  return line.Take();
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
