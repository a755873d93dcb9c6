// Inside the client and semctl: what an endpoint may look like.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_ENDPOINT_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_ENDPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace semaphore {

// 1 to 64 of them, each HOST:PORT, [HOST]:PORT or unix:PATH; also as gRPC writes them: dns:///HOST:PORT,
// ipv4:HOST:PORT, ipv6:[HOST]:PORT, unix-abstract:NAME. INVALID_ARGUMENT: the message says what is
// wrong with which one, and what would be right. The same rules and words as in the clients of other
// languages.
absl::Status CheckEndpoints(const std::vector<std::string>& endpoints);

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_ENDPOINT_H_
