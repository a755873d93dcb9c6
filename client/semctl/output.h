// What semctl prints about leases and semaphores, for people and for programs.
#ifndef SEMAPHORED_CLIENT_SEMCTL_OUTPUT_H_
#define SEMAPHORED_CLIENT_SEMCTL_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/semctl/context.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// The fields have the names of the .proto; enums are words ("EXPIRED"), tokens are text, since jq rounds numbers above
// 2^53, and times are as RFC 3339 writes them, in UTC.
Json ToJson(const v1::Lease& lease);
Json ToJson(const v1::LeaseInfo& info);
Json ToJson(const v1::WaiterInfo& info);
Json ToJson(const v1::SemaphoreInfo& semaphore);
Json ToJson(const v1::HistoryRow& row);
Json ToJson(const v1::WatchResponse& event);

// For programs: "EXPIRED" for END_CAUSE_EXPIRED; empty when unspecified. For people: wording.h.
std::string Word(v1::EndCause cause);

// "GRANTED" for WATCH_EVENT_KIND_GRANTED.
std::string Word(v1::WatchEventKind kind);

// "FULL" for WAIT_REASON_FULL; empty when unspecified.
std::string Word(v1::WaitReason reason);

using SlotRanges = google::protobuf::RepeatedPtrField<v1::SlotRange>;
// "1-3,7"; of very many ranges the first ones, and dots.
std::string SlotsText(const SlotRanges& ranges);

// "2026-05-01T12:00:00.123Z"; empty if there is none.
std::string TimeText(const google::protobuf::Timestamp& time);
// "2026-05-01 12:00:00 +0200", local; "-" if there is none.
std::string FormatTime(const google::protobuf::Timestamp& time);

// Rows in columns, the widest cell of each deciding; the first row is the heading. To stdout.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

// A line of JSON, to stdout.
void PrintJson(const Json& json);

// A semaphore as text, and a page of its leases and waiters.
void PrintSemaphore(const v1::SemaphoreInfo& semaphore);
void PrintRows(const v1::DescribeSemaphoreResult& described);

// "limit 4, 3 held, 12 waiting, paused".
std::string Summary(const v1::SemaphoreInfo& semaphore);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_OUTPUT_H_
