#include "client/semctl/context.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/transport.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

// gRPC has no code for it. Where TLS 1.3 refuses the client's certificate, all that it says is that the connection ended:
// what is left when there was a connection.
bool SeemsToFailInTls(const absl::Status& status) {
  if (ErrorReason(status) != "UNREACHABLE") return false;
  constexpr const char* kNoConnection[] = {"Failed to connect to remote host", "nothing answers",
                                           "resolution fail"};
  return std::none_of(std::begin(kNoConnection), std::end(kNoConnection), [&](const char* words) {
    return absl::StrContains(status.message(), words);
  });
}

}  // namespace

std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> Context::endpoints() const {
  return absl::StrSplit(server, ',', absl::SkipWhitespace());
}

absl::StatusOr<std::shared_ptr<Transport>> Context::MakeTransport() const {
  return Transport::Create(security, endpoints());
}

UnaryCaller Context::MakeCaller(bool once) const {
  return UnaryCaller(endpoints(), MakeTransport(), patience(), once);
}

int Context::Fail(const absl::Status& status) const {
  const int code = ExitCodeOf(status);
  const std::string message = MessageOf(status, has_option);
  const std::string advice =
      security.wants_tls() && SeemsToFailInTls(status)
          ? "it seems that the TLS handshake failed: semctl doctor, with the same options, says why"
          : AdviceOf(status, has_option);
  if (json()) {
    Json error = {{"code", absl::StatusCodeToString(status.code())},
                  {"reason", ErrorReason(status)},
                  {"message", message},
                  {"exit_code", code}};
    if (!advice.empty()) error["advice"] = advice;
    PrintErrorLine(LineOf({{"error", error}}));
    return code;
  }
  PrintErrorLine(absl::StrCat("semctl: ", message));
  if (!advice.empty()) PrintErrorLine(absl::StrCat("semctl: ", advice));
  return code;
}

void Context::Say(const std::string& event, const std::string& message) const {
  if (json()) {
    PrintErrorLine(LineOf({{"event", event}, {"message", message}}));
  } else {
    PrintErrorLine(absl::StrCat("semctl: ", message));
  }
}

int Context::Misused(const std::string& message) const {
  Say("usage", message);
  return kUsage;
}

Command AddCommand(Command app, Context& context, const std::string& name,
                   const std::string& description, const std::string& examples,
                   std::function<int()> action) {
  const bool has_codes = examples.find("Exit codes:\n") != std::string::npos;
  const std::string footer =
      "Examples:\n" + examples +
      (has_codes ? ""
                 : "\n\nsemctl help lists all exit codes (123: no daemon could be "
                   "reached), and the options\nthat every command has.");
  return app.AddCommand(name, description, footer,
                        [&context, action = std::move(action)] { context.action = action; });
}

std::string NewClientId() {
  std::random_device device;
  return absl::StrFormat("semctl-%08x%08x%08x%08x", device(), device(), device(), device());
}

v1::RequestId NewRequestId() {
  std::random_device device;
  v1::RequestId id;
  const auto part = [&device](int shift) { return device() >> shift; };
  id.set_one_shot(absl::StrFormat("%08x-%04x-4%03x-a%03x-%08x%04x", device(), part(16), part(20),
                                  part(20), device(), part(16)));
  return id;
}

}  // namespace semaphore::semctl
