// Between the API's messages and the core's values. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/adapter.h"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/sessions/sessions.h"

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

// How a node is called, for people.
using NodeNames = std::function<std::string(const NodeRef&)>;

// `message` is empty in all of these when they are called.
void ToProto(uint64_t position, WaitReason reason, int64_t expected_wait_ms,
             pb::WaitQueued* message);
void ToProto(const Lease& lease, std::string_view semaphore, pb::Lease* message);

// The message of the client from whose arrival a recall counts: see LeaseRecall of the .proto.
struct LastPing {
  uint64_t id = 0;  // 0: the call, or the first message of the stream.
  SteadyTime::duration elapsed{};
};
void ToProto(const RecallNotice& recall, const LastPing& ping, pb::LeaseRecall* message);
void ToProto(const Lease& lease, std::string_view semaphore, const RecallNotice& recall,
             const LastPing& ping, pb::Lease* message);
void ToProto(const Settings& settings, pb::SemaphoreSettings* message);
void ToProto(const SemaphoreInfo& info, pb::SemaphoreInfo* message);
void ToProto(const HistoryRow& row, pb::HistoryRow* message);
// Behind those that are there.
void ToProto(const Slots& slots, google::protobuf::RepeatedPtrField<pb::SlotRange>* ranges);
void ToProto(const LeasePtr& lease, std::string_view semaphore, const NodeNames& names,
             pb::LeaseInfo* message);
void ToProto(const WaiterInfo& info, const NodeNames& names, pb::WaiterInfo* message);
// Without the payload. `holder`: who has it, or empty.
void ToProto(const TicketInfo& info, std::string_view holder, pb::TicketInfo* message);
void ToProto(const Assignment& assignment, const LastPing& ping, pb::TicketAssignment* message);
void ToProto(const SemaphoreChange& change, pb::WatchResponse* message);
// The leases in pages, of which there is at least one; the other fields stay empty.
std::vector<pb::SessionOpened> OpenedPages(const std::vector<HeldLease>& held,
                                           const LastPing& ping);
void ToProto(const ReleaseAnswer& answer, pb::ReleaseResponse* message);

// The numbers are the same.
inline pb::TicketState ToProto(TicketState state) { return static_cast<pb::TicketState>(state); }
inline pb::WaitReason ToProto(WaitReason reason) { return static_cast<pb::WaitReason>(reason); }
inline pb::EndCause ToProto(EndCause cause) { return static_cast<pb::EndCause>(cause); }

// A time of day, from milliseconds since 1970 in UTC. 0: none is known, and the field stays absent.
template <typename Message>
void SetTime(int64_t unix_ms, Message* message, google::protobuf::Timestamp* (Message::*field)()) {
  if (unix_ms == 0) return;
  google::protobuf::Timestamp* time = (message->*field)();
  time->set_seconds(unix_ms / 1000);
  time->set_nanos(static_cast<int32_t>(unix_ms % 1000 * 1'000'000));
}

// `elapsed`: since the arrival of what is answered, read before the vouch was made. Rounded down,
// since the client adds it to its own time.
void ToProto(const Vouch& vouch, SteadyTime::duration elapsed, pb::LeaseValidity* message);
void ToProto(const VerifyAnswer& answer, SteadyTime::duration elapsed, pb::VerifyResponse* message);

}  // namespace semaphored
