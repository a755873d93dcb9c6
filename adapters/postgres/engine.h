// Postgres as an engine: `postgres://…`, see url.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/open.h"

namespace semaphored::postgres {

absl::StatusOr<std::unique_ptr<Engine>> OpenPostgres(const std::string& url);

}  // namespace semaphored::postgres
