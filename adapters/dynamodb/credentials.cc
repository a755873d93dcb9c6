#include "adapters/dynamodb/credentials.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/credential_places.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr seconds kSearchTimeout{2};
// Of a profile or a web identity: a program may be run, or two services be asked in turn.
constexpr seconds kExchangesTimeout{10};
// New ones are fetched so long before the old ones run out.
constexpr minutes kAhead{5};
// When it is not said how long they are good, or it could not be understood.
constexpr minutes kRenewInterval{10};
// Those that are about to run out, or have: the endpoint will have others soon.
constexpr seconds kSoon{60};
// Between attempts to get others while the old ones are good.
constexpr seconds kRetryInterval{30};
// After a search that found nothing, no thread searches again for so long.
constexpr seconds kNothingInterval{2};
constexpr seconds kRefusedInterval{30};

bool IsSame(const Credentials& one, const Credentials& other) {
  return one.access_key_id == other.access_key_id && one.session_token == other.session_token &&
         one.secret_access_key == other.secret_access_key;
}

class Search : public CredentialSource {
 public:
  explicit Search(CredentialOptions options) : options_(std::move(options)) {}

  absl::StatusOr<Credentials> Get() override;
  bool Refused(const Credentials& credentials) override;

 private:
  // From here on under the lock, but for the search itself.
  bool IsGood(SteadyTime now) const { return found_ && now < good_until_; }
  void Keep(Found found, SteadyTime asked_at);
  absl::StatusOr<Found> Find() const;

  const CredentialOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Found> found_;
  SteadyTime good_until_;
  SteadyTime renew_at_;  // Also after a failure.
  SteadyTime refused_at_ = SteadyTime::min();
  absl::Status failure_;  // Of the last search.
  bool searching_ = false;
};

absl::StatusOr<Found> Search::Find() const {
  Lookup lookup;
  lookup.environment = [this](const char* name) {
    std::optional<std::string> value = options_.environment(name);
    return value && value->empty() ? std::nullopt : value;
  };
  lookup.region = options_.region;
  lookup.deadline = SteadyClock::now() + kExchangesTimeout;
  // A profile that the URL names is meant, whatever else there is.
  if (!options_.profile.empty()) return FindByProfile(options_.profile, lookup);
  std::string looked;
  const auto missed = [&looked](const absl::StatusOr<Found>& found) {
    if (found.status().code() != absl::StatusCode::kNotFound) return false;
    absl::StrAppend(&looked, looked.empty() ? "" : "; ", found.status().message());
    return true;
  };
  absl::StatusOr<Found> found = FindInEnvironment(lookup);
  if (!missed(found)) return found;
  found = FindByWebIdentity(lookup);
  if (!missed(found)) return found;
  found = FindByProfile("", lookup);
  if (!missed(found)) return found;
  lookup.deadline = SteadyClock::now() + kSearchTimeout;
  found = FindInContainer(lookup);
  if (!missed(found)) return found;
  found = FindInInstance(lookup);
  if (!missed(found)) return found;
  return absl::UnauthenticatedError(absl::StrCat("dynamodb: no credentials: ", looked));
}

void Search::Keep(Found found, SteadyTime asked_at) {
  good_until_ = SteadyTime::max();
  renew_at_ = SteadyTime::max();
  if (found.lifetime && *found.lifetime > seconds(0)) {
    good_until_ = asked_at + *found.lifetime;
    renew_at_ = *found.lifetime > kAhead + kSoon
                    ? good_until_ - kAhead
                    : asked_at + std::min<seconds>(kSoon, *found.lifetime / 2);
  } else if (found.lifetime) {
    // An endpoint that cannot get others gives the old ones on: the engine says whether it takes
    // them still.
    renew_at_ = asked_at + kSoon;
  } else if (found.may_change) {
    renew_at_ = asked_at + kRenewInterval;
  }
  found_ = std::move(found);
  failure_ = absl::OkStatus();
}

absl::StatusOr<Credentials> Search::Get() {
  std::unique_lock lock(mutex_);
  const SteadyTime now = options_.now();
  if (IsGood(now) && (now < renew_at_ || searching_)) return found_->credentials;
  if (!searching_ && !failure_.ok() && now < renew_at_) return failure_;
  if (searching_) {
    // Not on the injected clock: this is a wait for another thread.
    changed_.wait_for(lock, kExchangesTimeout, [this] { return !searching_; });
    if (IsGood(options_.now())) return found_->credentials;
    return failure_.ok() ? absl::UnavailableError("dynamodb: no credentials: looked for too long")
                         : failure_;
  }
  searching_ = true;
  lock.unlock();
  absl::StatusOr<Found> found = Find();
  lock.lock();
  searching_ = false;
  changed_.notify_all();
  if (found.ok()) {
    Keep(*std::move(found), now);
    return found_->credentials;
  }
  if (IsGood(now)) {
    renew_at_ = now + kRetryInterval;
    return found_->credentials;
  }
  found_.reset();
  failure_ = found.status();
  renew_at_ = now + kNothingInterval;
  return failure_;
}

bool Search::Refused(const Credentials& credentials) {
  const std::lock_guard lock(mutex_);
  if (!found_ || !IsSame(found_->credentials, credentials)) return true;
  const SteadyTime now = options_.now();
  const bool just_now = refused_at_ != SteadyTime::min() && now < refused_at_ + kRefusedInterval;
  if (!found_->may_change || just_now) return false;
  refused_at_ = now;
  found_.reset();
  failure_ = absl::OkStatus();
  return true;
}

}  // namespace

std::shared_ptr<CredentialSource> MakeCredentials(CredentialOptions options) {
  return std::make_shared<Search>(std::move(options));
}

std::shared_ptr<CredentialSource> FindCredentials(const std::string& profile,
                                                  const std::string& region) {
  CredentialOptions options;
  options.profile = profile;
  options.region = region;
  options.environment = [](const char* name) -> std::optional<std::string> {
    // Nothing changes the environment of a daemon. NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* const value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  };
  options.now = [] { return SteadyClock::now(); };
  return MakeCredentials(std::move(options));
}

}  // namespace semaphored::dynamodb
