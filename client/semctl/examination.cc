#include "client/semctl/examination.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/unary_caller.h"
#include "server/base/version.h"

namespace semaphore::semctl {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Between the two samples of the clocks: the longer, the finer.
constexpr milliseconds kBetweenSamples(1'000);
// A client counts on a lease for 1 % less than its validity (LeaseValidity in the .proto).
constexpr double kDriftFail = 0.01;
constexpr double kDriftWarn = 0.001;
// Wall clocks decide nothing: they are in lists, in the history and in logs.
constexpr int64_t kWallWarnUs = 2'000'000;
constexpr uint64_t kSlowEngineUs = 500'000;

int64_t SteadyNow() {
  return std::chrono::duration_cast<microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Only shown, beside the daemon's: nothing is decided by it.
int64_t WallNow() { return absl::ToUnixMicros(absl::Now()); }

std::string Milliseconds(int64_t us) {
  return absl::StrFormat("%.1f ms", static_cast<double>(us) / 1'000);
}

// One endpoint's checks.
class Examiner {
 public:
  Examiner(const ProbeOptions& options, const std::shared_ptr<Transport>& transport)
      : options_(options), caller_({options.endpoint}, transport, options.timeout, /*once=*/true) {
    result_.endpoint = options.endpoint;
  }

  Examination Run() {
    result_.findings = ProbeConnection(options_);
    for (const Finding& finding : result_.findings) {
      if (finding.grade == Grade::kFail) return std::move(result_);
    }
    v1::DescribeDaemonResponse daemon;
    ClockSample first;
    if (absl::Status status = Ask(false, &daemon, &first); !status.ok()) {
      Refused(status);
      return std::move(result_);
    }
    result_.reached = true;
    result_.daemon = daemon;
    AddRights(daemon);
    std::this_thread::sleep_for(kBetweenSamples);
    ClockSample second;
    v1::DescribeDaemonResponse again;
    if (Ask(false, &again, &second).ok()) {
      result_.findings.push_back(JudgeClocks(options_.endpoint, first, second));
    }
    AddEngine();
    AddVersion(daemon);
    return std::move(result_);
  }

 private:
  absl::Status Ask(bool probe_engine, v1::DescribeDaemonResponse* daemon, ClockSample* sample) {
    v1::DescribeDaemonRequest request;
    request.set_probe_engine(probe_engine);
    absl::Status status = caller_.Call(
        [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
          sample->sent_steady = SteadyNow();
          grpc::Status answer = stub.DescribeDaemon(call, request, daemon);
          sample->received_steady = SteadyNow();
          sample->received_wall = WallNow();
          return answer;
        },
        options_.timeout);
    sample->daemon_steady = static_cast<int64_t>(daemon->steady_us());
    sample->daemon_wall = daemon->time().seconds() * 1'000'000 + daemon->time().nanos() / 1'000;
    return status;
  }

  void Add(const char* check, Grade grade, std::string message, std::string advice = "") {
    result_.findings.push_back(
        {options_.endpoint, check, grade, std::move(message), std::move(advice)});
  }

  // A connection alone is no answer.
  void Unreached(std::string message, std::string advice) {
    result_.findings.front() = {options_.endpoint, "reach", Grade::kFail, std::move(message),
                                std::move(advice)};
  }

  void Refused(const absl::Status& status) {
    const std::string message(status.message());
    result_.reached = ErrorReason(status) != "UNREACHABLE";
    switch (status.code()) {
      case absl::StatusCode::kUnauthenticated:
        return Add(
            "rights", Grade::kFail, message,
            "check --token-file and the client's certificate against the daemon's access file");
      case absl::StatusCode::kUnimplemented:
        return Add("version", Grade::kWarn,
                   "the daemon is older than this semctl, and cannot be examined further",
                   "upgrade the daemon");
      case absl::StatusCode::kDeadlineExceeded:
        return Unreached("connected, and no answer in time", "look at the daemon's log");
      default:
        return Unreached(
            message,
            "is it semaphored that listens there? with TLS, does it require a client's "
            "certificate?");
    }
  }

  void AddRights(const v1::DescribeDaemonResponse& daemon) {
    if (daemon.identity().empty())
      return Add("rights", Grade::kOk, "everything: the daemon has no access file");
    std::vector<std::string> rules;
    for (const v1::AccessRule& rule : daemon.rules()) {
      rules.push_back(absl::StrCat(absl::StrJoin(rule.verbs(), ", "), " at '",
                                   absl::StrJoin(rule.prefixes(), "', '"), "'",
                                   rule.create() ? "" : " if it exists"));
    }
    if (rules.empty()) {
      return Add("rights", Grade::kWarn, absl::StrCat("'", daemon.identity(), "' may do nothing"),
                 "add a rule to the daemon's access file");
    }
    Add("rights", Grade::kOk,
        absl::StrCat("'", daemon.identity(), "' may ", absl::StrJoin(rules, "; ")));
  }

  void AddEngine() {
    v1::DescribeDaemonResponse daemon;
    ClockSample ignored;
    const absl::Status status = Ask(true, &daemon, &ignored);
    if (!status.ok()) {
      return Add("engine", Grade::kFail, absl::StrCat("no answer: ", status.message()),
                 "look at the engine, and at the daemon's log");
    }
    const std::string name = daemon.engine();
    if (daemon.probe().has_error())
      return Add("engine", Grade::kFail, absl::StrCat(name, ": ", daemon.probe().error().message()),
                 "look at the engine, and at the daemon's log");
    if (!daemon.in_touch())
      return Add("engine", Grade::kFail,
                 name + ": the daemon is out of touch with it, and vouches for nothing",
                 "look at the engine, and at the daemon's log");
    const uint64_t took = daemon.probe().latency_us();
    const std::string message =
        absl::StrCat(name, " answered in ", Milliseconds(static_cast<int64_t>(took)));
    if (took > kSlowEngineUs)
      return Add("engine", Grade::kWarn, message,
                 "every request waits for it: look at the engine's load");
    Add("engine", Grade::kOk, message);
  }

  void AddVersion(const v1::DescribeDaemonResponse& daemon) {
    const std::string own = semaphored::kVersion;
    if (daemon.version() == own) return Add("version", Grade::kOk, own + ", as semctl");
    Add("version", Grade::kWarn, absl::StrCat("the daemon is ", daemon.version(), ", semctl ", own),
        "docs/compatibility.md says which go together");
  }

  const ProbeOptions& options_;
  UnaryCaller caller_;
  Examination result_;
};

}  // namespace

Finding JudgeClocks(const std::string& endpoint, const ClockSample& first,
                    const ClockSample& second) {
  const auto half_way = [](const ClockSample& sample) {
    return (sample.received_steady - sample.sent_steady) / 2;
  };
  // The daemon read its clock between sending and receiving: half of the round trip is left open.
  const int64_t open = half_way(second);
  const int64_t wall = second.daemon_wall - (second.received_wall - open);
  const int64_t own =
      (second.received_steady - half_way(second)) - (first.received_steady - half_way(first));
  const int64_t theirs = second.daemon_steady - first.daemon_steady;
  const double drift =
      static_cast<double>(theirs - own) / static_cast<double>(std::max<int64_t>(own, 1));
  const double drift_open = static_cast<double>(half_way(first) + half_way(second)) /
                            static_cast<double>(std::max<int64_t>(own, 1));
  const double certain = std::abs(drift) - drift_open;
  Finding finding{endpoint, "clock", Grade::kOk,
                  absl::StrCat("wall clocks differ by ", Milliseconds(std::abs(wall)), " (± ",
                               Milliseconds(open), "), speeds by ",
                               absl::StrFormat("%.2f %% (± %.2f %%)", std::abs(drift) * 100,
                                               drift_open * 100))};
  if (certain > kDriftFail) {
    finding.grade = Grade::kFail;
    finding.advice =
        "a lease may end before its holder stops: this is more than the 1 % that clients leave; "
        "repair the clock";
  } else if (certain > kDriftWarn) {
    finding.grade = Grade::kWarn;
    finding.advice = "clients leave 1 %; look at the clock of the slower or faster machine";
  } else if (std::abs(wall) - open > kWallWarnUs) {
    finding.grade = Grade::kWarn;
    finding.advice = "no promise rests on it, but times in lists and logs are wrong: set up NTP";
  }
  return finding;
}

Examination Examine(const ProbeOptions& options, const std::shared_ptr<Transport>& transport) {
  return Examiner(options, transport).Run();
}

}  // namespace semaphore::semctl
