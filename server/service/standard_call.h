// gRPC's standard health and reflection services, and the answer to calls of methods that do not
// exist.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <optional>
#include <string>
#include <vector>

#include "server/service/acceptor.h"
#include "server/service/environment.h"

namespace semaphored {

// Someone who is to be told when the daemon begins or ceases to serve.
class HealthWatcher {
 public:
  virtual void OnServing() = 0;

 protected:
  ~HealthWatcher() = default;
};

// What the daemon says of itself. Changed and read on the reactor's thread.
struct StandardServices {
  grpc::AsyncGenericService generic;
  bool health = true;
  bool reflection = true;
  bool serving = false;
  std::vector<HealthWatcher*> health_watchers;
};

std::unique_ptr<AnyAcceptor> AcceptStandard(Environment* environment);

// Tells the watchers of health. On the reactor's thread.
void SetServing(Environment* environment, bool serving);

}  // namespace semaphored
