// What is embedded in the daemon: its page, and the description of its API.
#pragma once

#include <string_view>
#include <vector>

#include "server/web/routes.h"

namespace semaphored::web {

// The text of a file of this folder, as it was when the daemon was built: "page.html", "openapi.json".
// REQUIRES: it is one of those that CMakeLists.txt names.
std::string_view EmbeddedFile(std::string_view name);

// GET / and GET /openapi.json.
std::vector<Route> PageRoutes();

// The page's Content-Security-Policy: only what its text has in itself, by the hashes of its <script> and <style>
// elements, and what it asks of this daemon.
std::string PagePolicy(std::string_view html);

}  // namespace semaphored::web
