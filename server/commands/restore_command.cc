#include "server/commands/restore_command.h"

#include <charconv>
#include <map>

#include "absl/strings/str_cat.h"
#include "adapters/open.h"
#include "server/base/logging.h"
#include "server/config/settings.h"

namespace semaphored {
namespace {

enum ExitCode { kDone = 0, kBadArguments = 2, kNotRestored = 3 };

constexpr char kHelp[] =
    R"(Puts a back-up of the embedded store in the store's place, while no daemon runs on it.

Usage: semaphored restore --from FILE [--longest-ttl DURATION] [--store URL] [--epoch N]

  --from FILE             The back-up, as `semaphored backup` makes it; or a copy of the file of a daemon
                          that had ended, with its log, if there was one, beside it as FILE-wal.
  --longest-ttl DURATION  The longest TTL that a client asks for; the longest that stands in the back-up
                          if this is not given. So long it waits, with the store locked, before it
                          puts the back-up in place: by then every client that was granted something
                          after the back-up was made has stopped. Needed if clients have come since
                          that ask for a longer one; 0s if all have stopped for certain.
  --store URL             The store, sqlite:///PATH. In the environment: SEMAPHORED_STORE.
  --epoch N               The store's new epoch, the high bits of every fencing token, 1 to 32767.
                          Only needed if the store that is replaced, and the file PATH.epoch beside
                          it, cannot be read: then higher than it ever was. FILE.epoch, beside the
                          back-up, notes what it was restored with.
  --help, -h              Print this help and end.

The store that is replaced is kept as PATH.before-restore. Tokens of grants to come are above all that
were ever given.

Examples:
  semaphored restore --from /backup/state.db --store sqlite:///var/lib/semaphored/state.db
)";

using Values = std::map<std::string, std::string>;

// False: the one at *wrong is not understood.
bool Read(const std::vector<std::string>& arguments, Values* values, std::string* wrong) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const bool known =
        name == "--from" || name == "--longest-ttl" || name == "--store" || name == "--epoch";
    *wrong = argument;
    if (!known || (equals == std::string::npos && i + 1 >= arguments.size())) return false;
    (*values)[name] = equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
  }
  return true;
}

std::string Line(std::string_view text) {
  return absl::StrCat("semaphored restore: ", MaskSecrets(text), "\n");
}

int Fail(const RestoreCommand& command, std::string_view why, int code = kBadArguments) {
  command.error(Line(why));
  return code;
}

}  // namespace

int RunRestore(const RestoreCommand& command) {
  for (const std::string& argument : command.arguments) {
    if (argument != "--help" && argument != "-h") continue;
    command.out(kHelp);
    return kDone;
  }
  Values values;
  std::string wrong;
  if (!Read(command.arguments, &values, &wrong))
    return Fail(command, absl::StrCat(wrong, " is not known, or lacks its value; see --help"));
  if (values["--store"].empty()) values["--store"] = command.store.value_or("");
  for (const char* needed : {"--from", "--store"}) {
    if (values[needed].empty())
      return Fail(command, absl::StrCat("needs ", needed, "; see --help"));
  }
  std::optional<int64_t> asked_ms;
  if (values.contains("--longest-ttl")) {
    asked_ms = ParseDurationMs(values["--longest-ttl"]);
    if (!asked_ms) return Fail(command, "--longest-ttl must be a duration such as 30s");
  }
  RestoreRequest request;
  request.from = values["--from"];
  const std::string& epoch = values["--epoch"];
  const auto [end, error] =
      std::from_chars(epoch.data(), epoch.data() + epoch.size(), request.epoch);
  if (!epoch.empty() &&
      (error != std::errc() || end != epoch.data() + epoch.size() || request.epoch < 1)) {
    return Fail(command, "--epoch must be a number from 1 to 32767");
  }
  request.wait = [&](int64_t longest_ttl_ms) {
    const int64_t ttl_ms = asked_ms.value_or(longest_ttl_ms);
    if (ttl_ms == 0) return;
    command.error(Line(absl::StrCat("the back-up is good; waiting for ", ttl_ms / 1000.0, "s, ",
                                    asked_ms ? "as asked," : "the longest TTL in it,",
                                    " until all holders have stopped")));
    command.pause(Milliseconds(ttl_ms));
  };
  const absl::StatusOr<std::string> done = RestoreEngine(values["--store"], request);
  if (done.ok()) {
    command.out(absl::StrCat(*done, "\n"));
    return kDone;
  }
  const std::string message(done.status().message().data(), done.status().message().size());
  const bool asked_wrongly =
      absl::IsInvalidArgument(done.status()) || absl::IsUnimplemented(done.status());
  return Fail(command, message, asked_wrongly ? kBadArguments : kNotRestored);
}

}  // namespace semaphored
