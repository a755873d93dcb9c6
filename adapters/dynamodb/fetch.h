// Small answers over HTTP, such as credentials: of the machine's own helpers, and of AWS's services that give
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/common/http.h"
#include "adapters/dynamodb/credentials.h"

namespace semaphored::dynamodb {

struct FetchRequest {
  const char* method = "GET";
  std::string address;
  std::vector<std::string> headers;
  std::string body;  // Sent if the method is POST.
  // Signed with `signer` for "region:service" (AWS Signature, version 4).
  std::optional<Credentials> signer = std::nullopt;
  std::string scope = {};
  // True: a proxy of the environment (HTTPS_PROXY, NO_PROXY) may lead there. False: past any proxy.
  bool by_proxy = false;
};

// Redirections are not followed. Blocks, until `deadline` of the steady clock at most. UNAVAILABLE: no answer
// came, and why. The answer's header is its Date.
absl::StatusOr<HttpAnswer> Fetch(const FetchRequest& request, SteadyTime deadline);

// Without TLS, credentials and what asks for them go to this machine alone, or to the container's own endpoint.
bool MayCarrySecrets(const std::string& address);

}  // namespace semaphored::dynamodb
