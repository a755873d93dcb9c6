// Every unary method of the API at its path, by Connect's unary protocol.
#pragma once

#include <vector>

#include "server/web/routes.h"

namespace semaphored::web {

// POST /semaphore.v1.SemaphoreService/Acquire, …
std::vector<Route> UnaryRoutes(Site* site);

}  // namespace semaphored::web
