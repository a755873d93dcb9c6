// Postgres as an engine: `postgres://…`, see url.h.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/open.h"

namespace semaphored::postgres {

// How each connection of a daemon behaves: the text that sets it.
std::string ConnectionSettings(std::chrono::milliseconds timeout,
                               std::chrono::milliseconds lock_timeout);

absl::StatusOr<std::unique_ptr<Engine>> OpenPostgres(const std::string& url);

}  // namespace semaphored::postgres
