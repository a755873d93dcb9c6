// Between the API's messages and the core's values. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "adapters/adapter.h"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/core/sessions.h"

namespace semaphored {

namespace pb = ::semaphore::v1;

// What a lease id says: whose semaphore, and which claim.
struct LeaseName {
  std::string semaphore;
  Id claim;
};

// "<semaphore>#<32 hexadecimal digits>".
void AppendLeaseId(std::string_view semaphore, const Id& claim, std::string* text);
// nullopt unless `text` is what AppendLeaseId makes of a valid name.
std::optional<LeaseName> ParseLeaseId(std::string_view text);

// 1 to 255 bytes of letters, digits and . _ - / : @ +; not '.' or '/' first, not '/' last.
bool IsSemaphoreName(std::string_view name);

// "<number>.<incarnation>": the node's number on its engine, and which of its lives.
std::string NodeText(const NodeRef& node);

// `message` is empty in all of these when they are called.
void ToProto(const Lease& lease, std::string_view semaphore, pb::Lease* message);
void ToProto(const Recall& recall, pb::Recall* message);
void ToProto(const Settings& settings, pb::Settings* message);
void ToProto(const SemaphoreInfo& info, pb::SemaphoreInfo* message);
void ToProto(const HistoryRow& row, pb::HistoryRow* message);
// Without the payload. `holder`: who has it, or empty.
void ToProto(const TicketInfo& info, std::string_view holder, pb::TicketInfo* message);
void ToProto(const Assignment& assignment, pb::Assignment* message);
void ToProto(const SemaphoreChange& change, pb::WatchEvent* message);
void ToProto(const ReleaseAnswer& answer, pb::ReleaseResponse* message);
void ToProto(const AdminAnswer& answer, pb::AdministerResponse* message);

// The numbers are the same.
inline pb::TicketState ToProto(TicketState state) { return static_cast<pb::TicketState>(state); }
inline pb::EndCause ToProto(EndCause cause) { return static_cast<pb::EndCause>(cause); }

// `elapsed`: since the arrival of what is answered, read before the vouch was made. Rounded down,
// since the client adds it to its own time.
void ToProto(const Vouch& vouch, SteadyTime::duration elapsed, pb::Validity* message);
void ToProto(const VerifyAnswer& answer, SteadyTime::duration elapsed, pb::VerifyResponse* message);

}  // namespace semaphored
