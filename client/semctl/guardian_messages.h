// What semctl and its guardian write into the socket between them (SOCK_SEQPACKET: one message a
// packet).
#ifndef SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_MESSAGES_H_
#define SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_MESSAGES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace semaphore::semctl {

inline constexpr std::size_t kEnvironmentBytesMax = 16'384;

struct GuardianOrder {
  enum class Kind : std::int32_t { kStart, kExtend, kSignal, kTerminate };
  Kind kind;
  std::int32_t signal_number = 0;
  // On BootClock.
  std::int64_t good_until_ns = 0;
};

// A packet: an order, and for kStart the variables, each ended by a zero byte.
struct GuardianPacket {
  GuardianOrder order;
  char environment[kEnvironmentBytesMax];
};

// The guardian's whole life, in its own process. Never returns.
[[noreturn]] void RunGuardian(int socket, std::vector<std::string> command,
                              std::chrono::milliseconds kill_after);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_MESSAGES_H_
