// The thin client: checks options, and turns the session's answers into Permits and statuses.
#include "client/semaphore/client.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/semaphore/connection.h"
#include "client/semaphore/endpoint.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/lease_state.h"
#include "client/semaphore/status_conversion.h"
#include "client/semaphore/transport.h"
#include "client/semaphore/unary_caller.h"
#include "client/semaphore/wording.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;
using LeaseOr = absl::StatusOr<std::shared_ptr<LeaseState>>;

constexpr std::size_t kHolderBytesMax = 256;

std::string DefaultHolder() {
  char host[128] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

absl::Status CheckOptions(const ClientOptions& options) {
  const auto invalid = [](absl::string_view message) {
    return MakeError(absl::StatusCode::kInvalidArgument, message, "INVALID_FIELD");
  };
  const absl::Status endpoints = CheckEndpoints(options.endpoints);
  if (!endpoints.ok()) return invalid(absl::StrCat("endpoints: ", endpoints.message()));
  if (options.ttl < milliseconds(0)) return invalid("ttl: not negative");
  if (options.margin < milliseconds(0)) return invalid("margin: not negative");
  if (options.ttl > milliseconds(0) && options.margin * 2 >= options.ttl) {
    return invalid("margin: less than half of the ttl");
  }
  if (options.holder.size() > kHolderBytesMax) return invalid("holder: at most 256 bytes");
  if (options.connect_timeout <= milliseconds(0)) return invalid("connect_timeout: more than 0");
  if (options.reconnect_timeout <= milliseconds(0)) {
    return invalid("reconnect_timeout: more than 0");
  }
  if (options.release_timeout <= milliseconds(0)) return invalid("release_timeout: more than 0");
  if (options.operations_max == 0) return invalid("operations_max: at least 1");
  return absl::OkStatus();
}

v1::SessionAcquire ToRequest(absl::string_view semaphore, const AcquireOptions& options) {
  v1::SessionAcquire request;
  request.set_semaphore(std::string(semaphore));
  request.set_permits(options.permits);
  request.set_limit(options.limit);
  request.set_limit_mismatch(options.adopt_limit ? v1::LIMIT_MISMATCH_ADOPT
                                                 : v1::LIMIT_MISMATCH_FAIL);
  request.set_priority(options.priority);
  request.set_holder(options.holder);
  return request;
}

// Gives up an acquire when its caller's stop token says so. Shared with the acquire's answer, after
// which it is gone.
class CancelOnStop {
 public:
  // REQUIRES: called once. If stop is requested already, cancels at once.
  void Arm(const std::stop_token& token, std::shared_ptr<SessionDriver> driver,
           std::uint64_t operation) {
    callback_.emplace(token,
                      [driver = std::move(driver), operation] { driver->Cancel(operation); });
  }
  void Disarm() { callback_.reset(); }

 private:
  std::optional<std::stop_callback<std::function<void()>>> callback_;
};

struct Answer {
  std::mutex mutex;
  std::condition_variable given;
  std::optional<LeaseOr> result;
};

}  // namespace

class ClientImpl final : public Client {
 public:
  ClientImpl(const ClientOptions& options, const std::shared_ptr<Transport>& transport)
      : options_(options),
        connection_(std::make_shared<Connection>(options, transport)),
        unary_(options.endpoints, transport, options.connect_timeout) {}

  ~ClientImpl() override { connection_->driver().CancelAllAcquires(); }

  using Client::Verify;

  absl::StatusOr<Permit> Acquire(absl::string_view semaphore, AcquireOptions options) override;
  void AcquireAsync(absl::string_view semaphore, AcquireOptions options,
                    std::function<void(absl::StatusOr<Permit>)> done) override;
  absl::StatusOr<Verdict> Verify(const Permit& permit) override;
  absl::StatusOr<Verdict> Verify(absl::string_view semaphore, std::uint32_t slot,
                                 std::uint64_t token) override;

 private:
  AcquireCall ToCall(absl::string_view semaphore, AcquireOptions options);
  absl::StatusOr<Verdict> Verify(const v1::VerifyRequest& request);
  // `connection` may be gone: then the session ends, and the lease with it.
  static absl::StatusOr<Permit> ToPermit(std::shared_ptr<Connection> connection, LeaseOr lease,
                                         bool fail_open, const std::string& semaphore);

  const ClientOptions options_;
  const std::shared_ptr<Connection> connection_;
  UnaryCaller unary_;
};

AcquireCall ClientImpl::ToCall(absl::string_view semaphore, AcquireOptions options) {
  AcquireCall call;
  call.request = ToRequest(semaphore, options);
  call.wait = options.wait;
  call.on_lost = std::move(options.on_lost);
  call.on_recall = std::move(options.on_recall);
  if (options.on_queued) {
    call.on_queued = [driver = std::weak_ptr<SessionDriver>(connection_->shared_driver()),
                      tell = std::move(options.on_queued)](const QueuePlace& place) {
      const std::shared_ptr<SessionDriver> alive = driver.lock();
      if (alive != nullptr) alive->results().Post([tell, place] { tell(place); });
    };
  }
  return call;
}

absl::StatusOr<Permit> ClientImpl::ToPermit(std::shared_ptr<Connection> connection, LeaseOr lease,
                                            bool fail_open, const std::string& semaphore) {
  if (lease.ok() && connection != nullptr) {
    return Permit(std::move(connection), *std::move(lease));
  }
  if (connection == nullptr) return absl::CancelledError("the client was destroyed");
  if (!fail_open || ErrorReason(lease.status()) != "UNREACHABLE") return InOptions(lease.status());
  auto nothing = std::make_shared<LeaseState>(semaphore, "", std::vector<std::uint32_t>(), 0,
                                              std::make_shared<SharedDeadline>(kNever));
  nothing->fail_open = true;
  return Permit(std::move(connection), std::move(nothing));
}

absl::StatusOr<Permit> ClientImpl::Acquire(absl::string_view semaphore, AcquireOptions options) {
  const std::stop_token cancel = options.cancel;
  AcquireCall call = ToCall(semaphore, std::move(options));
  auto answer = std::make_shared<Answer>();
  call.done = [answer](LeaseOr lease) {
    std::lock_guard<std::mutex> lock(answer->mutex);
    answer->result = std::move(lease);
    answer->given.notify_one();
  };
  const std::uint64_t operation = connection_->driver().Acquire(std::move(call));
  CancelOnStop on_stop;
  if (cancel.stop_possible()) on_stop.Arm(cancel, connection_->shared_driver(), operation);
  std::unique_lock<std::mutex> lock(answer->mutex);
  answer->given.wait(lock, [&] { return answer->result.has_value(); });
  LeaseOr lease = *std::move(answer->result);
  lock.unlock();  // before on_stop goes: it may wait for a cancel that is about to answer
  return ToPermit(connection_, std::move(lease), options_.fail_open, std::string(semaphore));
}

void ClientImpl::AcquireAsync(absl::string_view semaphore, AcquireOptions options,
                              std::function<void(absl::StatusOr<Permit>)> done) {
  const std::stop_token cancel = options.cancel;
  AcquireCall call = ToCall(semaphore, std::move(options));
  auto on_stop = std::make_shared<CancelOnStop>();
  auto armed = std::make_shared<std::mutex>();
  call.done = [on_stop, armed, connection = std::weak_ptr<Connection>(connection_),
               driver = std::weak_ptr<SessionDriver>(connection_->shared_driver()),
               fail_open = options_.fail_open, name = std::string(semaphore),
               done = std::move(done)](LeaseOr lease) mutable {
    const std::shared_ptr<SessionDriver> alive = driver.lock();
    if (alive == nullptr) return;
    alive->results().Post([on_stop, armed, connection, fail_open, name, done = std::move(done),
                           lease = std::move(lease)]() mutable {
      {
        std::lock_guard<std::mutex> lock(*armed);
        on_stop->Disarm();
      }
      done(ToPermit(connection.lock(), std::move(lease), fail_open, name));
    });
  };
  std::lock_guard<std::mutex> lock(*armed);
  const std::uint64_t operation = connection_->driver().Acquire(std::move(call));
  if (cancel.stop_possible()) on_stop->Arm(cancel, connection_->shared_driver(), operation);
}

absl::StatusOr<Verdict> ClientImpl::Verify(const Permit& permit) {
  if (!permit || permit.fail_open()) {
    return MakeError(absl::StatusCode::kInvalidArgument, "the permit holds nothing",
                     "INVALID_FIELD");
  }
  v1::VerifyRequest request;
  request.set_lease_id(permit.lease_id());
  return Verify(request);
}

absl::StatusOr<Verdict> ClientImpl::Verify(absl::string_view semaphore, std::uint32_t slot,
                                           std::uint64_t token) {
  v1::VerifyRequest request;
  request.set_semaphore(std::string(semaphore));
  request.set_slot(slot);
  request.set_token(token);
  return Verify(request);
}

absl::StatusOr<Verdict> ClientImpl::Verify(const v1::VerifyRequest& request) {
  v1::VerifyResponse response;
  TimePoint sent{};
  Clock& clock = connection_->driver().clock();
  const absl::Status status = unary_.Call(
      [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* context) {
        sent = clock.Now();
        return stub.Verify(context, request, &response);
      },
      options_.connect_timeout);
  if (!status.ok()) return status;
  Verdict verdict;
  verdict.held = response.held();
  if (!response.held()) {
    verdict.ended = v1::EndCause_Name(response.ended()).substr(sizeof("END_CAUSE_") - 1);
  }
  verdict.holder = response.lease().holder();
  verdict.slots = SlotsOf(response.lease().slots());
  verdict.token = response.lease().token();
  verdict.recalled = response.has_recall();
  verdict.slot_token = response.slot_token();
  verdict.good_until = GoodUntil(sent + milliseconds(response.validity().elapsed_ms()),
                                 milliseconds(response.validity().valid_for_ms()), options_.margin);
  if (response.has_recall()) {
    const v1::LeaseRecall& recall = response.recall();
    verdict.good_until =
        std::min(verdict.good_until, GoodUntil(sent + milliseconds(recall.elapsed_ms()),
                                               milliseconds(recall.grace_ms()), options_.margin));
  }
  return verdict;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  if (options.holder.empty()) options.holder = DefaultHolder();
  for (milliseconds* span : {&options.ttl, &options.margin, &options.connect_timeout,
                             &options.reconnect_timeout, &options.release_timeout})
    *span = std::min(*span, kLongest);
  const absl::Status checked = CheckOptions(options);
  if (!checked.ok()) return checked;
  const auto transport = Transport::Create(options.security, options.endpoints);
  if (!transport.ok()) return transport.status();
  return std::unique_ptr<Client>(std::make_unique<ClientImpl>(options, *transport));
}

absl::StatusOr<Permit> Client::TryAcquire(absl::string_view semaphore, AcquireOptions options) {
  options.wait = milliseconds(0);
  return Acquire(semaphore, std::move(options));
}

absl::StatusOr<Permit> Client::AcquireUntil(absl::string_view semaphore,
                                            std::chrono::steady_clock::time_point deadline,
                                            AcquireOptions options) {
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  options.wait = deadline > now ? std::chrono::ceil<milliseconds>(deadline - now) : milliseconds(0);
  return Acquire(semaphore, std::move(options));
}

}  // namespace semaphore
