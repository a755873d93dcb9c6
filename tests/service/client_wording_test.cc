// The words of semctl's errors: no name of the protocol is left in them.
#include <set>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semaphore/endpoint.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"
#include "client/semaphore/wording.h"
#include "client/semctl/wording.h"

namespace semaphore::semctl {
namespace {

HasOption Having(const std::set<std::string>& options) {
  return [options](const std::string& name) { return options.contains(name); };
}

std::string WordsFor(const std::string& message, const std::set<std::string>& options = {},
                     const std::string& reason = "INVALID_FIELD") {
  return MessageOf(MakeError(absl::StatusCode::kInvalidArgument, message, reason), Having(options));
}

// The paths of all fields that may be named, of messages within messages too.
void AddPaths(const google::protobuf::Descriptor& message, const std::string& before,
              std::vector<std::string>* paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    // A range of slots is typed as slots.
    if (field.message_type() != nullptr && field.message_type()->name() != "SlotRange") {
      AddPaths(*field.message_type(), std::string(field.name()) + ".", paths);
    } else {
      paths->push_back(before + std::string(field.name()));
    }
  }
}

TEST_CASE("wording: the library speaks of its own options, and semctl of semctl's") {
  const auto error = [](const std::string& message, const std::string& reason = "INVALID_FIELD") {
    absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, message, reason);
    SetErrorDetail("semaphore", "my_ttl_ms", &status);
    SetErrorDetail("advice", "wait (wait_ms), or try again later", &status);
    return status;
  };
  const absl::Status ttl = InOptions(error("open.ttl_ms: must be 1000 to 86400000, not 5"));
  CHECK(ttl.message() == "ttl: must be 1000 ms to 86400000 ms, not 5 ms");
  CHECK(ErrorReason(ttl) == "INVALID_FIELD");
  CHECK(ErrorDetail(ttl, "semaphore") == "my_ttl_ms");
  CHECK(ErrorDetail(ttl, "advice") == "wait (wait), or try again later");
  CHECK(MessageOf(ttl, Having({})) == "--ttl: must be 1s to 1d, not 5ms");
  CHECK(InOptions(error("my_ttl_ms: its limit is 3; see limit_mismatch")).message() ==
        "my_ttl_ms: its limit is 3; see adopt_limit");
  CHECK(InOptions(error("permits: must be 1 or more, not 0")).message() ==
        "permits: must be 1 or more, not 0");
  CHECK(InOptions(error("wait_ms: too many", "LIMIT_REACHED")).message() == "wait_ms: too many");
  CHECK(InOptions(absl::OkStatus()).ok());
}

TEST_CASE("wording: every field of the requests that semctl sends has an option") {
  // Not typed by a user.
  const std::set<std::string> own = {"numbered.client_id",     "numbered.sequence",
                                     "request_id.one_shot",    "client_id",
                                     "resume_session_id",      "release_on_disconnect",
                                     "acknowledged_recall_id", "back_off.multiplier_percent",
                                     "report_queued"};
  std::vector<std::string> paths;
  for (const google::protobuf::Descriptor* message :
       {v1::AcquireRequest::descriptor(), v1::RenewRequest::descriptor(),
        v1::ReleaseRequest::descriptor(), v1::VerifyRequest::descriptor(),
        v1::AdministerRequest::descriptor(), v1::WatchRequest::descriptor(),
        v1::EnqueueRequest::descriptor(), v1::OpenWork::descriptor(),
        v1::SessionAcquire::descriptor()}) {
    AddPaths(*message, "", &paths);
  }
  for (const std::string& path : paths) {
    if (own.contains(path)) continue;
    INFO(path);
    const std::string option = OptionOf(path, Having({}));
    CHECK_FALSE(option.empty());
    CHECK(option.find('_') == std::string::npos);
  }
}

TEST_CASE(
    "wording: a field is named by the option that was typed, and its times as they are typed") {
  CHECK(WordsFor("ttl_ms: must be 1000 to 86400000, not 5") == "--ttl: must be 1s to 1d, not 5ms");
  CHECK(WordsFor("open.ttl_ms: must be 1000 to 86400000, not 5") ==
        "--ttl: must be 1s to 1d, not 5ms");
  CHECK(WordsFor("acquire.permits: must be 1 to 9, not 10") == "--permits: must be 1 to 9, not 10");
  CHECK(WordsFor("open.semaphores[3]: must be 1 to 255 bytes") == "NAME: must be 1 to 255 bytes");
  CHECK(WordsFor("semaphore: must be given", {"--semaphore"}) == "--semaphore: must be given");
  CHECK(WordsFor("revoke.lease_id: must be the lease_id of a lease") ==
        "--lease: must be the LEASE of a lease");
  CHECK(WordsFor("limit_mismatch: must be LIMIT_MISMATCH_FAIL or LIMIT_MISMATCH_ADOPT")
            .starts_with("--adopt: "));
  CHECK(WordsFor("wait_ms passed before the permits came free") ==
        "--wait passed before the permits came free");
}

TEST_CASE("wording: settings of the daemon keep their names, and other words theirs") {
  CHECK(WordsFor("waiters_max: this daemon serves no more than 3 at once", {}, "LIMIT_REACHED") ==
        "waiters_max: this daemon serves no more than 3 at once");
  CHECK(WordsFor("limit: would be below 0 or above limit_max") ==
        "--limit: would be below 0 or above limit_max");
  CHECK(WordsFor("no field: of this name") == "no field: of this name");
  CHECK(WordsFor("") == "");
}

TEST_CASE("wording: advice names only options that the command has") {
  const absl::Status none =
      MakeError(absl::StatusCode::kNotFound, "there is no such semaphore", "NO_SUCH_SEMAPHORE");
  CHECK(AdviceOf(none, Having({"--rows"})) == "semctl list shows those that exist");
  CHECK(AdviceOf(none, Having({"--limit", "--adopt"})) == "give --limit to create it");
  const absl::Status full =
      MakeError(absl::StatusCode::kResourceExhausted, "all permits are taken", "FULL");
  CHECK(AdviceOf(full, Having({"--no-wait"})) == "wait with --wait, or try again later");
  CHECK(AdviceOf(full, Having({})).empty());
}

TEST_CASE("wording: ends and events are words") {
  CHECK(Text(v1::END_CAUSE_UNSPECIFIED).empty());
  CHECK(Text(v1::END_CAUSE_WAIT_EXPIRED) == "wait expired");
  CHECK(Text(v1::WATCH_EVENT_KIND_GRANTED) == "granted");
}

std::string WrongEndpoint(const std::string& endpoint) {
  return std::string(CheckEndpoints({endpoint}).message());
}

TEST_CASE("endpoints: what is wrong is said, and what would be right") {
  for (const char* right : {"a:1", "127.0.0.1:65535", "[::1]:7420", "unix:/run/s", "dns:///a:1",
                            "ipv4:127.0.0.1:1", "ipv6:[::1]:1", "unix-abstract:s"}) {
    INFO(right);
    CHECK(WrongEndpoint(right).empty());
  }
  for (const auto& [wrong, why] :
       std::vector<std::pair<std::string, std::string>>{{"http://a:1", "begins with http://"},
                                                        {"a", "has no port"},
                                                        {"a:", "has no port"},
                                                        {"[::1]", "has no port"},
                                                        {":7420", "has no host"},
                                                        {"a:99999", "has the port 99999"},
                                                        {"a:0", "has the port 0"},
                                                        {"a:http", "has the port http"},
                                                        {"::1:7420", "is not in [ ]"},
                                                        {"a b:1", "has a blank"},
                                                        {"unix:", "has no path"},
                                                        {"", "is empty"}}) {
    INFO(wrong);
    CHECK(WrongEndpoint(wrong).find(why) != std::string::npos);
    CHECK(WrongEndpoint(wrong).find("such as 127.0.0.1:7420") != std::string::npos);
  }
  CHECK_FALSE(CheckEndpoints({}).ok());
  CHECK_FALSE(CheckEndpoints(std::vector<std::string>(65, "a:1")).ok());
}

}  // namespace
}  // namespace semaphore::semctl
