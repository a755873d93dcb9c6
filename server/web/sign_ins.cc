#include "server/web/sign_ins.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"

namespace semaphored::web {
namespace {

std::string NewCookie() {
  std::array<unsigned char, 32> random{};
  // It fails only where the system has no source of random bytes: nothing is safe then.
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) std::abort();
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(random.data()), random.size()));
}

}  // namespace

std::string SignIns::SignIn(std::string token, std::string identity, SteadyTime now) {
  std::string cookie = NewCookie();
  const std::lock_guard lock(mutex_);
  MakeRoom(identity, now);
  const AccessPolicy::Digest key = Sha256(cookie);
  all_.push_back({key, std::move(token), std::move(identity), now + kLongest});
  by_key_.emplace(key, std::prev(all_.end()));
  return cookie;
}

void SignIns::MakeRoom(const std::string& identity, SteadyTime now) {
  while (!all_.empty() && (all_.front().ends_at <= now || all_.size() >= kMax))
    Forget(all_.begin());
  const auto is_its = [&identity](const One& one) { return one.identity == identity; };
  if (static_cast<size_t>(std::ranges::count_if(all_, is_its)) >= kMaxOfIdentity)
    Forget(std::ranges::find_if(all_, is_its));
}

void SignIns::Forget(List::iterator one) {
  by_key_.erase(one->key);
  all_.erase(one);
}

void SignIns::SignOut(std::string_view cookie) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(Sha256(cookie));
  if (found != by_key_.end()) Forget(found->second);
}

std::optional<std::string> SignIns::TokenOf(std::string_view cookie, const AccessPolicy* policy,
                                            SteadyTime now) {
  const AccessPolicy::Digest key = Sha256(cookie);
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  const One& one = *found->second;
  const Identity* const identity = policy == nullptr ? nullptr : policy->ByToken(one.token);
  if (one.ends_at <= now || identity == nullptr || identity->name() != one.identity) {
    Forget(found->second);
    return std::nullopt;
  }
  return one.token;
}

size_t SignIns::size() const {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

}  // namespace semaphored::web
