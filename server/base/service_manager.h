// Tells the service manager how the daemon is: systemd's notification protocol, which is a datagram
// of lines to the socket that NOTIFY_SOCKET names. By hand, since the protocol is stable and meant
// to be (sd_notify(3) says so, and prints it in full), and libsystemd would bring five libraries
// into the daemon for these few lines.
//
// Without the variable every call does nothing. What cannot be sent is lost: no call waits for it.
// Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/base/clock.h"

namespace semaphored {

class ServiceManager {
 public:
  struct Address {
    std::string notify_socket;      // A path, or "@…" in the abstract name space. Empty: none.
    std::string watchdog_interval;  // WATCHDOG_USEC; empty: no watchdog.
    std::string watchdog_process;   // WATCHDOG_PID; empty: this process.
  };
  // What the process was started with.
  static Address FromEnvironment();

  explicit ServiceManager(const Address& address);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  void Ready(std::string_view status);
  // READY follows when the configuration has been read, whatever came of it.
  void Reloading();
  void Stopping(std::string_view status);
  void Status(std::string_view status);
  // It does not serve yet, and needs so much time more.
  void Starting(std::string_view status, Milliseconds more);
  void Alive();

  // How often Alive() is to be called: half of what the manager waits for. nullopt: never.
  std::optional<Milliseconds> alive_interval() const { return alive_interval_; }

 private:
  void Send(const std::string& lines) const;

  int socket_ = -1;
  std::optional<Milliseconds> alive_interval_;
};

}  // namespace semaphored
