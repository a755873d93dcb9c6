// Checks requests for form and turns them into the core's values. Pure functions of (request,
// limits), so that they can be tested field by field and fuzzed; what they let through, the core
// takes as it is.
//
// Each returns nullopt and has filled `out`, or the refusal (INVALID_ARGUMENT; its message names
// the field and what would be right) and `out` is unspecified. Strings may be moved out of
// `request`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/adapter.h"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/base/reason.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// The daemon's configuration, as far as a single request is concerned. The defaults are the API's.
struct RequestLimits {
  uint32_t permits_per_request_max = 1'000'000;
  uint32_t limit_max = 1'000'000;
  int64_t wait_max_ms = 86'400'000;
  int64_t ttl_default_ms = 30'000;
  int64_t ttl_min_ms = 1'000;
  int64_t ttl_max_ms = 86'400'000;
  int commands_per_message_max = 1'000;
  uint32_t rows_max = 10'000;
  uint32_t name_bytes_max = 255;
  uint32_t holder_bytes_max = 256;
  uint32_t payload_bytes_max = 65'536;
  uint32_t ticket_attempts_default = 5;
};

struct HoldParams {
  AcquireParams acquire;
  bool release_on_disconnect = false;
  int64_t beat_interval_ms = 0;
};

// What is asked by Administer; one of the four, as `kind` says.
struct AdminParams {
  enum class Kind : uint8_t { kAct, kDrain, kList, kHistory };
  Kind kind = Kind::kAct;
  AdminCommand command;  // kAct; kDrain: the pause that it begins with.
  int64_t wait_ms = 0;   // kDrain, and kAct with a destroy that waits.
  uint32_t held_max = 0;
  ListCommand list;
  HistoryCommand history;
};

struct WatchParams {
  std::string prefix;
  std::string semaphore;
  uint64_t start_revision = 0;
};

using Problem = std::optional<Refusal>;

// `holder` stays empty if neither the request nor its request id gives one.
Problem Check(semaphore::v1::AcquireRequest& request, const RequestLimits& limits,
              AcquireParams* out);
Problem Check(semaphore::v1::HoldRequest& request, const RequestLimits& limits, HoldParams* out);
// requester and ttl_ms are the session's: left as they are. An empty holder too.
Problem Check(semaphore::v1::SessionAcquire& request, const RequestLimits& limits,
              AcquireParams* out);
Problem Check(semaphore::v1::OpenSession& request, const RequestLimits& limits, OpenParams* out);
Problem Check(semaphore::v1::ReleaseRequest& request, const RequestLimits& limits,
              ReleaseCommand* out);
Problem Check(semaphore::v1::SessionRelease& request, const RequestLimits& limits,
              ReleaseCommand* out);
Problem Check(semaphore::v1::VerifyRequest& request, const RequestLimits& limits,
              VerifyCommand* out);
Problem Check(semaphore::v1::RenewRequest& request, const RequestLimits& limits, RenewParams* out);
Problem Check(semaphore::v1::WatchRequest& request, const RequestLimits& limits, WatchParams* out);
Problem Check(semaphore::v1::AdministerRequest& request, const RequestLimits& limits,
              AdminParams* out);

// ticket and trace of the command are left empty if the request says nothing of the latter.
Problem Check(semaphore::v1::EnqueueRequest& request, const RequestLimits& limits,
              EnqueueCommand* out);
// `work` of the parameters is set.
Problem Check(semaphore::v1::OpenWork& request, const RequestLimits& limits, OpenParams* out);
// requester is left as it is.
Problem Check(semaphore::v1::FinishTicket& request, const RequestLimits& limits,
              FinishCommand* out);
// "tickets_max" of a WorkRequest.
Problem CheckTicketsMax(uint32_t tickets_max);
// False: it is not the W3C's traceparent.
bool IsTraceparent(std::string_view text);

// ---- Parts of the above, shared by their files ----

Problem CheckPriority(std::string_view field, int32_t priority);
// Present: it has either a good client id and sequence number, or a UUID. Absent: no requester.
Problem CheckRequestId(bool present, semaphore::v1::RequestId& id, Requester* out);
Problem CheckName(std::string_view field, std::string_view name, const RequestLimits& limits);
Problem CheckHolder(std::string_view field, std::string_view holder, const RequestLimits& limits);
Problem CheckRange(std::string_view field, int64_t value, int64_t least, int64_t most);
Problem CheckRows(uint32_t asked, const RequestLimits& limits, uint32_t* out);
Problem CheckPrefix(std::string_view field, std::string_view prefix);
// A page token that is a number; 0: it is empty.
Problem CheckPageToken(std::string_view token, uint64_t* out);
Refusal BadPageToken();
// A page token of DescribeSemaphore, from where the page has left off; empty if both lists are complete.
std::string DescribePageToken(const SemaphoreInfo& info);
// In validate_tickets.cc.
Problem CheckListTickets(const semaphore::v1::ListTickets& act, const RequestLimits& limits,
                         AdminCommand* out);
Problem CheckShowTicket(const semaphore::v1::ShowTicket& act, AdminCommand* out);
Problem CheckCancelTicket(const semaphore::v1::CancelTicket& act, AdminCommand* out);
Problem CheckPrioritiseTicket(const semaphore::v1::PrioritiseTicket& act, AdminCommand* out);
Problem CheckRequeue(const semaphore::v1::RequeueTickets& act, AdminCommand* out);
Problem CheckPurge(const semaphore::v1::PurgeTickets& act, AdminCommand* out);

}  // namespace semaphored
