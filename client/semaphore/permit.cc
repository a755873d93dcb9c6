// A permit that a program holds: what it shows, and how it is released.
#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/semaphore/client.h"
#include "client/semaphore/connection.h"
#include "client/semaphore/lease_state.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

// An answer that one thread waits for and another one gives. Shared by the two, since the first may
// leave.
struct Answer {
  std::mutex mutex;
  std::condition_variable given;
  bool is_given = false;
  absl::Status status;
};

}  // namespace

Permit::Permit(std::shared_ptr<Connection> connection, std::shared_ptr<LeaseState> lease)
    : connection_(std::move(connection)), lease_(std::move(lease)) {}

Permit::Permit(Permit&& other) noexcept
    : connection_(std::move(other.connection_)), lease_(std::move(other.lease_)) {}

Permit& Permit::operator=(Permit&& other) noexcept {
  if (this == &other) return *this;
  Permit given_back(std::move(*this));
  connection_ = std::move(other.connection_);
  lease_ = std::move(other.lease_);
  return *this;
}

Permit::~Permit() {
  if (lease_ != nullptr && !lease_->fail_open) connection_->driver().Release(lease_, nullptr);
}

const std::string& Permit::semaphore() const { return lease_->semaphore; }
absl::Span<const std::uint32_t> Permit::slots() const { return lease_->slots; }
std::uint64_t Permit::token() const { return lease_->token; }
const std::string& Permit::lease_id() const { return lease_->lease_id; }
std::chrono::milliseconds Permit::ttl() const { return lease_->ttl; }
bool Permit::fail_open() const { return lease_->fail_open; }

bool Permit::held() const { return lease_->Held(connection_->driver().clock().Now()); }
TimePoint Permit::good_until() const { return lease_->GoodUntil(); }
std::stop_token Permit::lost() const { return lease_->stop_token(); }
Loss Permit::loss() const { return lease_->GetLoss(); }

void Permit::OnLost(std::function<void(const Loss&)> callback) {
  lease_->AddLossCallback(std::move(callback));
}

absl::Status Permit::Release() {
  if (lease_ == nullptr) return absl::OkStatus();
  const std::shared_ptr<Connection> connection = std::move(connection_);
  const std::shared_ptr<LeaseState> lease = std::move(lease_);
  if (lease->fail_open) return absl::OkStatus();
  auto answer = std::make_shared<Answer>();
  connection->driver().Release(lease, [answer](absl::Status status) {
    std::lock_guard<std::mutex> lock(answer->mutex);
    answer->status = std::move(status);
    answer->is_given = true;
    answer->given.notify_one();
  });
  std::unique_lock<std::mutex> lock(answer->mutex);
  if (!answer->given.wait_for(lock, connection->release_timeout(),
                              [&] { return answer->is_given; })) {
    return MakeError(absl::StatusCode::kUnavailable,
                     "no daemon answered in time; it is still tried, and at the latest the TTL "
                     "gives the permits back",
                     "UNREACHABLE");
  }
  return answer->status;
}

void Permit::ReleaseAsync(std::function<void(absl::Status)> done) {
  const std::shared_ptr<Connection> connection = std::move(connection_);
  const std::shared_ptr<LeaseState> lease = std::move(lease_);
  if (lease == nullptr || lease->fail_open) {
    done(absl::OkStatus());
    return;
  }
  connection->driver().Release(lease, [driver = connection->shared_driver(),
                                       done = std::move(done)](const absl::Status& status) mutable {
    driver->results().Post([done = std::move(done), status] { done(status); });
  });
}

}  // namespace semaphore
