// Who has signed in with a browser: a cookie stands for a token, which the browser's scripts never see again.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "server/access/access.h"
#include "server/base/clock.h"

namespace semaphored::web {

// Any thread. Memory alone: a restart of the daemon signs all out.
class SignIns {
 public:
  static constexpr Milliseconds kLongest{12 * 3'600'000};
  static constexpr size_t kMax = 4'096;         // At the bound the oldest goes.
  static constexpr size_t kMaxOfIdentity = 64;  // The same of one identity's.

  // A cookie of 64 hexadecimal digits, which stands for `token` until kLongest has passed, SignOut(), or the token is no
  // identity's any more. `identity`: whose token it is.
  std::string SignIn(std::string token, std::string identity, SteadyTime now);
  // Without effect if there is no such cookie.
  void SignOut(std::string_view cookie);
  // nullopt: there is no such cookie, or it stands for a token no more that `policy` has; then it is forgotten.
  std::optional<std::string> TokenOf(std::string_view cookie, const AccessPolicy* policy,
                                     SteadyTime now);
  size_t size() const;

 private:
  struct One {
    AccessPolicy::Digest key;
    std::string token;
    std::string identity;
    SteadyTime ends_at;
  };
  using List = std::list<One>;

  void Forget(List::iterator one);
  void MakeRoom(const std::string& identity, SteadyTime now);

  mutable std::mutex mutex_;
  // Guarded by mutex_. By the cookie's hash, so that the time of a look-up tells nothing of it.
  absl::flat_hash_map<AccessPolicy::Digest, List::iterator> by_key_;
  List all_;  // Guarded by mutex_. The oldest first.
};

}  // namespace semaphored::web
