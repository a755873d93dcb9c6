// What streams: Hold and Watch, as server-sent events.
#pragma once

#include <vector>

#include "server/web/routes.h"

namespace semaphored::web {

// POST /v1/hold with a HoldRequest; POST /v1/watch with a WatchRequest, and GET /v1/watch?prefix=…&semaphore=… for a
// browser's EventSource. Each event is named by what it has: queued, granted, beat, recalled, lost; snapshot, changed, ….
// The last is `end`, or `error` with the error's JSON. What is refused before the first event is an answer of its own.
std::vector<Route> StreamRoutes(Site* site);

}  // namespace semaphored::web
