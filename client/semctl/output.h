// What semctl prints about leases and semaphores, for people and for programs.
#ifndef SEMAPHORED_CLIENT_SEMCTL_OUTPUT_H_
#define SEMAPHORED_CLIENT_SEMCTL_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/semctl/context.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// The fields have the names of the .proto; enums are words ("EXPIRED").
Json ToJson(const v1::Lease& lease);
Json ToJson(const v1::SemaphoreInfo& semaphore);
Json ToJson(const v1::HistoryRow& row);
Json ToJson(const v1::WatchEvent& event);

// For programs: "EXPIRED" for END_CAUSE_EXPIRED; empty when unspecified. For people: wording.h.
std::string Word(v1::EndCause cause);

// "2026-05-01 12:00:00 +0200", local; "-" for 0.
std::string FormatTime(std::int64_t unix_ms);

// Rows in columns, the widest cell of each deciding; the first row is the heading. To stdout.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

// A line of JSON, to stdout.
void PrintJson(const Json& json);

// A semaphore with its leases and waiters, as text.
void PrintSemaphore(const v1::SemaphoreInfo& semaphore);

// "limit 4, 3 held, 12 waiting, paused".
std::string Summary(const v1::SemaphoreInfo& semaphore);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_OUTPUT_H_
