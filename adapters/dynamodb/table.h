// The table of a store: what it must be, whether it is there, and how it is made.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/dynamodb/client.h"
#include "adapters/dynamodb/url.h"

namespace semaphored::dynamodb {

// Keys of every item; both are strings.
inline constexpr char kPartitionKey[] = "PK";
inline constexpr char kSortKey[] = "SK";
// An item that has it may be removed by DynamoDB some time after this second of the Unix epoch.
// Nothing is decided by it.
inline constexpr char kExpiresAt[] = "expires_at_s";

// As `aws dynamodb create-table --cli-input-json` takes it, with a line's end. Billed by request.
std::string TableDefinition(const std::string& table);

// OK: the table is there, has the right keys and can be used. FAILED_PRECONDITION: it is not there,
// and how it is made; or it is not one for us. UNAVAILABLE: it is being made, or it is not known.
// Others as they come from the engine. Blocks.
absl::Status CheckTable(Client* client, const Url& url, SteadyTime deadline);

struct TableMaking {
  std::chrono::milliseconds patience{120'000};
  std::chrono::milliseconds look_interval{1000};
  // Receives lines for people that say what goes on.
  std::function<void(const std::string& line)> progress;
};

// Makes the table unless it is there, waits until it can be used, and lets DynamoDB remove what has
// expired in it. What to tell people of it in the end. FAILED_PRECONDITION: one of this name is
// there that is not for us; it is left as it is. UNAVAILABLE: it took longer than the patience.
absl::StatusOr<std::string> MakeTable(Client* client, const Url& url, const TableMaking& making);

}  // namespace semaphored::dynamodb
