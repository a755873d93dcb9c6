// A RabbitMQ broker as an engine.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/open.h"

namespace semaphored::rabbitmq {

// INVALID_ARGUMENT: the URL; UNIMPLEMENTED: a layout that is not there; else why the broker cannot
// be reached. Blocks.
absl::StatusOr<std::unique_ptr<Engine>> OpenRabbit(const std::string& url);

// Removes every semaphore of the URL's layout and prefix, with all that is held. For tests.
absl::Status RemoveAll(const std::string& url);

}  // namespace semaphored::rabbitmq
