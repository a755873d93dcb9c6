// Signing in with a browser: a token becomes a cookie that its scripts cannot read.
#pragma once

#include <vector>

#include "server/web/routes.h"

namespace semaphored::web {

// POST /session {"token": "…"} signs in, DELETE /session signs out; both need the header kOwnPageHeader. GET /session
// says who the caller is, and what the page may do:
//   {"accessControl": true, "identity": "ops", "writes": true}
std::vector<Route> SessionRoutes(Site* site);

}  // namespace semaphored::web
