// The traces on this client's session machine. Their format: README.md.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/session_machine.h"
#include "proto/google/rpc/error_details.pb.h"
#include "tests/conformance/matching.h"

namespace semaphore::conformance {
namespace {

using std::chrono::milliseconds;

const TimePoint kStart{std::chrono::hours(1)};
constexpr int kTurnsMax = 1'000;

Json Read(const std::filesystem::path& file) {
  std::ifstream stream(std::filesystem::path(CONFORMANCE_FOLDER) / file);
  return Json::parse(stream);
}

void Require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

template <typename Message>
Message FromJson(const Json& json) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &message);
  Require(status.ok(), absl::StrCat("not a message: ", status.ToString()));
  return message;
}

Json ToJson(const google::protobuf::Message& message) {
  std::string text;
  Require(google::protobuf::util::MessageToJsonString(message, &text).ok(), "not JSON");
  return Json::parse(text);
}

std::string Name(LossCause cause) {
  switch (cause) {
    case LossCause::kNoContact:
      return "NO_CONTACT";
    case LossCause::kExpired:
      return "EXPIRED";
    case LossCause::kRevoked:
      return "REVOKED";
    case LossCause::kRecalled:
      return "RECALLED";
    case LossCause::kDestroyed:
      return "DESTROYED";
    case LossCause::kDisconnected:
      return "DISCONNECTED";
    case LossCause::kEngineLost:
      return "ENGINE_LOST";
    case LossCause::kMoved:
      return "MOVED";
    case LossCause::kUnknown:
      return "UNKNOWN";
  }
  return "?";
}

absl::StatusCode CodeOf(const std::string& name) {
  for (int code = 0; code <= 16; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name)
      return static_cast<absl::StatusCode>(code);
  }
  throw std::runtime_error("no such code: " + name);
}

ClientOptions OptionsOf(const Json& json) {
  ClientOptions options;
  options.endpoints.clear();
  for (int i = 0; i < json["endpoints"]; ++i)
    options.endpoints.push_back(absl::StrCat("e", i, ":1"));
  const auto time = [&](const char* name) { return milliseconds(json[name].get<std::int64_t>()); };
  options.ttl = time("ttl_ms");
  options.margin = time("margin_ms");
  options.connect_timeout = time("connect_timeout_ms");
  options.reconnect_timeout = time("reconnect_timeout_ms");
  options.release_timeout = time("release_timeout_ms");
  options.holder = json["holder"];
  options.operations_max = json["operations_max"];
  options.release_on_disconnect = json["release_on_disconnect"];
  return options;
}

// One trace: a machine, its clock, and what was seen since the last step.
class Run {
 public:
  explicit Run(const Json& options)
      : machine_(OptionsOf(options), [this] { return absl::StrCat("client-", ++clients_); }) {}

  // Does the step, and compares what was seen.
  void Step(const Json& step);

 private:
  struct Call {
    std::uint64_t number = 0;
    std::shared_ptr<LeaseState> lease;
  };

  void Input(const std::string& kind, const Json& value);
  void Acquire(const Json& what);
  void Acquire(const std::string& name, const Json& what);
  void Release(const Json& what);
  void Handled(const Json& what);
  void End(const Json& what);
  void Advance(milliseconds by);
  // Does what the machine wants, until it wants nothing more at this time.
  void Settle();
  bool Turn();
  void Refused(const std::string& call, const absl::Status& status);
  Json SeenReports() const;
  void Check(const Json& step);
  static Json Milliseconds(TimePoint at);

  SessionMachine machine_;
  Matcher matcher_;
  TimePoint now_ = kStart;
  int clients_ = 0;
  bool has_stream_ = false;
  bool was_closed_ = false;
  std::map<std::string, Call> calls_;
  std::vector<LeaseKeeper::Recalled> recalls_;
  Json wire_ = Json::array();
  Json reports_ = Json::array();
};

void Run::Settle() {
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    if (!Turn()) return;
  }
  throw std::runtime_error("the machine does not come to rest");
}

bool Run::Turn() {
  Effects effects = machine_.TakeEffects();
  if (effects.drop_stream) {
    has_stream_ = false;
    wire_.push_back({{"drop", true}});
  }
  for (Closure& result : effects.results) result();
  for (Closure& loss : effects.losses) loss();
  for (LeaseKeeper::Recalled& recalled : effects.recalls) {
    reports_.push_back({{"recalled", recalled.lease->lease_id},
                        {"grace_ms", recalled.notice.grace.count()},
                        {"reason", recalled.notice.reason}});
    recalls_.push_back(std::move(recalled));
  }
  if (machine_.closed() && !was_closed_) {
    was_closed_ = true;
    reports_.push_back({{"closed", true}});
  }
  std::size_t endpoint = 0;
  const bool connects = machine_.StartConnecting(&endpoint, now_);
  if (connects) {
    has_stream_ = true;
    wire_.push_back({{"connect", endpoint}});
  }
  v1::SessionRequest message;
  if (has_stream_ && machine_.NextMessage(&message, now_)) {
    wire_.push_back(ToJson(message));
    return true;
  }
  if (!machine_.closed() && machine_.NextDue(has_stream_) <= now_) {
    machine_.Tick(now_);
    return true;
  }
  return connects || effects.drop_stream;
}

// ---- what goes in ----

void Run::Acquire(const Json& what) {
  const std::string name = what["call"];
  if (!what.contains("times")) return Acquire(name, what);
  for (int i = 1; i <= what["times"]; ++i) Acquire(absl::StrCat(name, i), what);
}

void Run::Acquire(const std::string& name, const Json& what) {
  AcquireCall call;
  call.request =
      FromJson<v1::SessionAcquire>(what.value("request", Json::object({{"semaphore", "db"}})));
  call.wait = milliseconds(what.value<std::int64_t>("wait_ms", -1));
  call.done = [this, name](const absl::StatusOr<std::shared_ptr<LeaseState>>& result) {
    if (!result.ok()) return Refused(name, result.status());
    calls_[name].lease = *result;
    reports_.push_back({{"granted", name},
                        {"lease_id", (*result)->lease_id},
                        {"slots", (*result)->slots},
                        {"token", (*result)->token}});
  };
  call.on_queued = [this, name](const QueuePlace& place) {
    Json report = {{"queued", name}, {"position", place.position}, {"reason", place.reason}};
    if (place.expected_wait >= milliseconds(0))
      report["expected_wait_ms"] = place.expected_wait.count();
    reports_.push_back(report);
  };
  call.on_lost = [this, name](const Loss& loss) {
    reports_.push_back({{"lost", name}, {"cause", Name(loss.cause)}});
  };
  call.on_recall = [](const RecallNotice&) {};
  calls_[name].number = machine_.Acquire(std::move(call), now_);
}

void Run::Refused(const std::string& call, const absl::Status& status) {
  reports_.push_back({{"refused", call},
                      {"code", absl::StatusCodeToString(status.code())},
                      {"reason", ErrorReason(status)}});
}

void Run::Release(const Json& what) {
  const auto done = [this, name = what["call"].get<std::string>()](const absl::Status& status) {
    if (!status.ok()) return Refused(name, status);
    reports_.push_back({{"released", name}});
  };
  machine_.Release(calls_.at(what["lease"]).lease, done, now_);
}

void Run::Handled(const Json& what) {
  int left = what["recall"];
  for (const LeaseKeeper::Recalled& recalled : recalls_) {
    if (recalled.lease != calls_.at(what["call"]).lease || left-- > 0) continue;
    for (int i = 0; i < what.value("times", 1); ++i) machine_.Acknowledge(recalled);
    return;
  }
  throw std::runtime_error("there is no such recall");
}

void Run::End(const Json& what) {
  has_stream_ = false;
  machine_.OnStreamEnd(absl::Status(CodeOf(what["code"]), what.value("message", "")), now_);
}

void Run::Advance(milliseconds by) {
  const TimePoint target = now_ + by;
  while (!machine_.closed() && machine_.NextDue(has_stream_) <= target) {
    now_ = std::max(now_, machine_.NextDue(has_stream_));
    machine_.Tick(now_);
    Settle();
  }
  now_ = target;
  machine_.Tick(now_);
}

void Run::Input(const std::string& kind, const Json& value) {
  if (kind == "acquire") return Acquire(value);
  if (kind == "cancel") return machine_.Cancel(calls_.at(value).number, now_);
  if (kind == "release") return Release(value);
  if (kind == "handled") return Handled(value);
  if (kind == "close") return machine_.Close(now_);
  if (kind == "message") return machine_.OnMessage(FromJson<v1::SessionResponse>(value), now_);
  if (kind == "end") return End(value);
  if (kind == "advance_ms") return Advance(milliseconds(value.get<std::int64_t>()));
  Require(kind == "stall_ms", "no such input: " + kind);
  now_ += milliseconds(value.get<std::int64_t>());
}

// ---- what is seen ----

// Recalls name leases until it is known which calls these belong to.
Json Run::SeenReports() const {
  Json seen = reports_;
  for (Json& report : seen) {
    if (!report.contains("recalled")) continue;
    for (const auto& [name, call] : calls_) {
      if (call.lease != nullptr && call.lease->lease_id == report["recalled"]) {
        report["recalled"] = name;
        break;
      }
    }
  }
  return seen;
}

Json Run::Milliseconds(TimePoint at) {
  if (at == kNever) return nullptr;
  return std::chrono::duration<double, std::milli>(at - kStart).count();
}

void Run::Check(const Json& step) {
  const auto compare = [](const char* what, const Json& expected, const Json& actual, bool holds) {
    Require(holds,
            absl::StrCat(what, ": ", expected.dump(), " expected, ", actual.dump(), " seen"));
  };
  const Json wire = step.value("wire", Json::array());
  const Json reports = step.value("reports", Json::array());
  const Json good_until = step.value("good_until_ms", Json::object());
  const Json held = step.value("held", Json::object());
  const Json seen = SeenReports();
  compare("wire", wire, wire_, matcher_.IsWire(wire, wire_));
  compare("reports", reports, seen, matcher_.AreReports(reports, seen));
  for (const auto& [name, expected] : good_until.items()) {
    const Json at = Milliseconds(calls_.at(name).lease->GoodUntil());
    compare("good until", expected, at, expected == at);
  }
  for (const auto& [name, expected] : held.items()) {
    const Json is_held = calls_.at(name).lease->Held(now_);
    compare("held", expected, is_held, expected == is_held);
  }
  if (step.contains("next_due_ms")) {
    const Json due = machine_.closed() ? Json() : Milliseconds(machine_.NextDue(has_stream_));
    compare("next due", step["next_due_ms"], due, step["next_due_ms"] == due);
  }
  wire_.clear();
  reports_.clear();
}

void Run::Step(const Json& step) {
  static const std::set<std::string> kExpectations = {"wire", "reports",     "good_until_ms",
                                                      "held", "next_due_ms", "why"};
  std::string kind;
  for (const auto& field : step.items()) {
    if (kExpectations.contains(field.key())) continue;
    Require(kind.empty(), "one input in each step");
    kind = field.key();
  }
  Input(kind, step[kind]);
  if (kind != "stall_ms") Settle();
  Check(step);
}

// ---- traces ----

// Empty, or what differs.
std::string Play(const Json& trace, const Json& basis) {
  Json options = basis["options"];
  options.update(trace.value("options", Json::object()));
  Json steps = trace.contains("after") ? basis["prologues"][trace["after"].get<std::string>()]
                                       : Json::array();
  for (const Json& step : trace["steps"]) steps.push_back(step);
  Run run(options);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    try {
      run.Step(steps[i]);
    } catch (const std::exception& error) {
      return absl::StrCat("step ", i + 1, " of ", steps.size(), ", ", steps[i].dump(), ": ",
                          error.what());
    }
  }
  return "";
}

// Of tests/conformance/traces, in the order of their names.
std::vector<Json> Traces() {
  std::set<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(CONFORMANCE_FOLDER) / "traces"))
    files.insert(entry.path());
  std::vector<Json> traces;
  for (const std::filesystem::path& file : files) {
    const Json json = Read(file);
    traces.insert(traces.end(), json["traces"].begin(), json["traces"].end());
  }
  return traces;
}

// CONFORMANCE_TRACE: the name of the only one to play.
TEST_CASE("conformance: every trace holds") {
  google::rpc::ErrorInfo::descriptor();  // So that details can be read.
  const Json basis = Read("basis.json");
  const char* const only = std::getenv("CONFORMANCE_TRACE");
  int played = 0;
  for (const Json& trace : Traces()) {
    const std::string name = trace["name"];
    if (only != nullptr && name != only) continue;
    ++played;
    const std::string difference = Play(trace, basis);
    if (!difference.empty()) FAIL_CHECK("trace \"" << name << "\": " << difference);
  }
  CHECK(played >= (only == nullptr ? 100 : 1));
}

}  // namespace
}  // namespace semaphore::conformance
