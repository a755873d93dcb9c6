// Inside the client: what its Client and Permits hold together. The session ends when the last of
// them goes.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_CONNECTION_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_CONNECTION_H_

#include <memory>
#include <utility>

#include "client/semaphore/client.h"
#include "client/semaphore/session_driver.h"

namespace semaphore {

class Connection {
 public:
  Connection(const ClientOptions& options, std::shared_ptr<Transport> transport)
      : driver_(SessionDriver::Start(options, std::move(transport))),
        release_timeout_(options.release_timeout) {}
  ~Connection() { driver_->Close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  SessionDriver& driver() { return *driver_; }
  const std::shared_ptr<SessionDriver>& shared_driver() { return driver_; }
  std::chrono::milliseconds release_timeout() const { return release_timeout_; }

 private:
  const std::shared_ptr<SessionDriver> driver_;
  const std::chrono::milliseconds release_timeout_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_CONNECTION_H_
