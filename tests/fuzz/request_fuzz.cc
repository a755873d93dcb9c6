// Validation of requests: whatever a client sends is either refused with INVALID_ARGUMENT and a
// message that says what would be right, or lies within the limits that the core relies on. Input:
// the first byte chooses the request, the rest are its bytes on the wire.
#include <string>

#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/rpc/validate.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace api = semaphore::v1;
using semaphored::Check;

const semaphored::RequestLimits kLimits;

// True if `Request` could be parsed and was accepted; `out` then is filled.
template <typename Request, typename Out>
bool Accepted(const uint8_t* data, size_t size, Out* out) {
  Request request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return false;
  const semaphored::Problem problem = Check(request, kLimits, out);
  if (!problem) return true;
  FUZZ_CHECK(problem->code == absl::StatusCode::kInvalidArgument);
  FUZZ_CHECK(problem->reason == semaphored::Reason::kInvalidField);
  FUZZ_CHECK(!problem->message.empty());
  return false;
}

void CheckClaim(const semaphored::AcquireParams& acquire) {
  FUZZ_CHECK(!acquire.semaphore.empty() && acquire.semaphore.size() <= 255);
  FUZZ_CHECK(acquire.permits >= 1 && acquire.permits <= kLimits.permits_per_request_max);
  FUZZ_CHECK(acquire.limit <= kLimits.limit_max);
  FUZZ_CHECK(acquire.priority >= -1000 && acquire.priority <= 1000);
  FUZZ_CHECK(acquire.wait_ms <= kLimits.wait_max_ms);
  FUZZ_CHECK(acquire.holder.size() <= 256);
}

void CheckAcquire(const semaphored::AcquireParams& acquire) {
  CheckClaim(acquire);
  FUZZ_CHECK(acquire.ttl_ms >= kLimits.ttl_min_ms && acquire.ttl_ms <= kLimits.ttl_max_ms);
}

template <typename Request, typename Out>
void Any(const uint8_t* data, size_t size) {
  Out out;
  Accepted<Request>(data, size, &out);
}

void Administer(const uint8_t* data, size_t size) {
  semaphored::AdminParams out;
  if (!Accepted<api::AdministerRequest>(data, size, &out)) return;
  FUZZ_CHECK(out.wait_ms <= kLimits.wait_max_ms);
}

void Enqueue(const uint8_t* data, size_t size) {
  semaphored::EnqueueCommand out;
  if (!Accepted<api::EnqueueRequest>(data, size, &out)) return;
  FUZZ_CHECK(out.payload == nullptr || out.payload->size() <= kLimits.payload_bytes_max);
  FUZZ_CHECK(out.content_type.size() <= 255 && out.trace.size() <= 255);
  FUZZ_CHECK(out.limit <= kLimits.limit_max);
  FUZZ_CHECK(out.priority >= -1000 && out.priority <= 1000);
  FUZZ_CHECK(out.delay_ms >= 0 && out.max_attempts <= 1000);
  FUZZ_CHECK(out.back_off.initial_ms > 0 && out.back_off.max_ms >= out.back_off.initial_ms);
  FUZZ_CHECK(out.back_off.multiplier_percent >= 100);
}

void Work(const uint8_t* data, size_t size) {
  semaphored::OpenParams out;
  if (!Accepted<api::OpenWork>(data, size, &out)) return;
  FUZZ_CHECK(out.work != nullptr);
  FUZZ_CHECK(out.work->tickets_max >= 1 && out.work->tickets_max <= 1000);
  FUZZ_CHECK(!out.work->semaphores.empty() || !out.work->prefixes.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t* bytes = data + 1;
  const size_t count = size - 1;
  semaphored::AcquireParams acquire;
  semaphored::HoldParams hold;
  switch (data[0] % 16) {
    case 0:
      if (Accepted<api::AcquireRequest>(bytes, count, &acquire)) CheckAcquire(acquire);
      break;
    case 1:
      if (Accepted<api::HoldRequest>(bytes, count, &hold)) CheckAcquire(hold.acquire);
      break;
    case 2:
      if (Accepted<api::SessionAcquire>(bytes, count, &acquire)) CheckClaim(acquire);
      break;
    case 3:
      Any<api::OpenSession, semaphored::OpenParams>(bytes, count);
      break;
    case 4:
      Any<api::ReleaseRequest, semaphored::ReleaseCommand>(bytes, count);
      break;
    case 5:
      Any<api::SessionRelease, semaphored::ReleaseCommand>(bytes, count);
      break;
    case 6:
      Any<api::VerifyRequest, semaphored::VerifyCommand>(bytes, count);
      break;
    case 7:
      Any<api::RenewRequest, semaphored::RenewParams>(bytes, count);
      break;
    case 8:
      Any<api::WatchRequest, semaphored::WatchParams>(bytes, count);
      break;
    case 10:
      Enqueue(bytes, count);
      break;
    case 11:
      Work(bytes, count);
      break;
    case 12:
      Any<api::FinishTicket, semaphored::FinishCommand>(bytes, count);
      break;
    default:
      Administer(bytes, count);
      break;
  }
  return 0;
}
