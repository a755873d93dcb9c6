// What the daemon serves by HTTP: the table of its paths, and what each of their requests passes before its handler
// sees it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/access/access.h"
#include "server/access/audit_log.h"
#include "server/access/denied_acts.h"
#include "server/base/clock.h"
#include "server/base/reason.h"
#include "server/http/server.h"
#include "server/web/gateway.h"
#include "server/web/sign_ins.h"

namespace semaphored::web {

// Which callers may change anything by HTTP. Rules and quotas are the handlers' matter, as ever.
enum class Writes : uint8_t {
  kOff,    // None.
  kToken,  // Those that show a token, or a client certificate, of the access file.
  kOn,     // All that the API serves.
};

// What all handlers of a daemon have. It outlives them, and its parts are any thread's.
struct Site {
  Gateway* gateway = nullptr;
  const Clock* clock = nullptr;
  // Security::policy. Null: there is no access file.
  std::function<std::shared_ptr<const AccessPolicy>()> policy;
  std::vector<std::string> hosts;  // By which the daemon is known, beside addresses; in lower case.
  std::string cookie_name;         // Of this port's.
  bool by_tls = false;
  // Callers without one have no way to be known: the API asks for certificates, and HTTP is without TLS.
  bool needs_token = false;
  size_t body_bytes_max = 4 << 20;
  std::atomic<Writes> writes = Writes::kToken;
  SignIns sign_ins;
  AuditLog* audit = nullptr;  // Null: acts are not written down.
  DeniedActs denied_acts;     // Those that `writes` has refused. The gateway's thread's.

  // Refused: PERMISSION_DENIED. For handlers of routes that do not write, when their request does.
  std::optional<Refusal> CheckWrites(const Visitor& visitor) const;
  // The visitor came by a cookie that has ended since.
  bool IsSignedOut(const Visitor& visitor);
  // The handlers will refuse this caller, whatever it asks: so that need not be read.
  bool IsUnknown(const Visitor& visitor) const;
};

// As the API finds out of a call. nullptr: no such caller is known, or `policy` is null.
const Identity* IdentityOf(const Visitor& visitor, const AccessPolicy* policy);

struct Route {
  enum class Kind : uint8_t {
    kPage,  // A link of another site may lead to it: it is the same for all, and shows nothing that is kept.
    kReads,   // Its handler calls Site::CheckWrites, if a request of it writes.
    kWrites,  // Refused where Writes refuses it.
    kSigns,   // Signs in or out.
  };
  using Handler = std::function<void(http::Request, Visitor, http::Reply)>;

  std::string path;
  http::Methods methods;
  Kind kind = Kind::kReads;
  Handler handler;  // On the server's thread: it must not block.
};

// The resources of the server. Each path may have several routes, of different methods. `site` outlives them.
http::Resources MakeResources(Site* site, std::vector<Route> routes);
// For http::ServerOptions::check: of every request, before its body is read.
std::function<std::optional<http::Response>(const http::Request&)> MakeCheck(
    Site* site, const std::vector<Route>& routes);

}  // namespace semaphored::web
