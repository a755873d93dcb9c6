// gRPC's standard health and reflection services, and the answer to calls of methods that do not
// exist.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <optional>
#include <string>
#include <vector>

#include "server/rpc/acceptor.h"
#include "server/rpc/environment.h"

namespace semaphored {

// A Watch of the health service.
class HealthWatcher {
 public:
  // The daemon may have become ready, or ceased to be.
  virtual void OnHealthChange() = 0;

 protected:
  ~HealthWatcher() = default;
};

// The daemon's health as the service reports it. Changed and read on the reactor's thread.
struct StandardServices {
  grpc::AsyncGenericService generic;
  bool health = true;
  bool reflection = true;
  bool serving = false;  // From the end of the start to the beginning of the stop.
  std::vector<HealthWatcher*> health_watchers;
};

std::unique_ptr<AnyAcceptor> AcceptStandard(Environment* environment);

// Both notify the watchers of health. On the reactor's thread.
void SetServing(Environment* environment, bool serving);
void OnHealthChange(Environment* environment);

}  // namespace semaphored
