#include "server/figures/metrics.h"

namespace semaphored {
namespace {

void AddTo(Histogram<uint64_t>* sum, const Histogram<SharedCount>& more) {
  for (size_t i = 0; i < sum->counts.size(); ++i) sum->counts[i] += more.counts[i];
  sum->sum += more.sum;
}

}  // namespace

void EngineFigures::Add(const LaneFigures& lane) {
  AddTo(&step_us, lane.step_us);
  AddTo(&batch, lane.batch);
  for (size_t i = 0; i < errors.size(); ++i) errors[i] += lane.errors[i];
  unknown += lane.unknown;
  unsettled += lane.unsettled;
  quarantined += lane.quarantined;
}

const char* MethodName(Method method) {
  switch (method) {
    case Method::kAcquire:
      return "Acquire";
    case Method::kRenew:
      return "Renew";
    case Method::kRelease:
      return "Release";
    case Method::kVerify:
      return "Verify";
    case Method::kAdminister:
      return "Administer";
    case Method::kEnqueue:
      return "Enqueue";
    case Method::kHold:
      return "Hold";
    case Method::kSession:
      return "Session";
    case Method::kWatch:
      return "Watch";
    case Method::kWork:
      return "Work";
    case Method::kDescribeDaemon:
      return "DescribeDaemon";
    case Method::kHealth:
      return "Health";
    case Method::kReflection:
      return "Reflection";
    case Method::kOther:
    case Method::kCount:
      break;
  }
  return "other";
}

}  // namespace semaphored
