#include "server/commands/backup_command.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/open.h"
#include "server/backup/channel.h"
#include "server/base/logging.h"
#include "server/commands/new_file.h"
#include "server/config/settings.h"

namespace semaphored {
namespace {

enum ExitCode { kDone = 0, kBadArguments = 2, kNotBackedUp = 3 };

constexpr int64_t kMegabyte = 1'000'000;
constexpr int64_t kRateDefault = 50;
constexpr int64_t kRateMax = 100'000;
// A step of the daemon's takes milliseconds, also on a disk that is slow.
constexpr Milliseconds kSilenceMax(60'000);
constexpr Milliseconds kReportInterval(2'000);

constexpr char kHelp[] =
    R"(Backs up the embedded store of a daemon that runs, into a file that `semaphored restore` takes.

Usage: semaphored backup FILE [--rate MEGABYTES] [SETTINGS]

  FILE               Where the copy comes to be. It must not be there yet. It appears under this name
                     only when it is complete and on disk.
  --rate MEGABYTES   How much is copied in a second, at most: 1 to 100000. Default 50.
  --help, -h         Print this help and end.

The settings (--config, --store, SEMAPHORED_CONFIG, SEMAPHORED_STORE) name the store as they do for
the daemon. The daemon makes the copy in the store's folder, which needs as much room as the store's
file has, and 64 MiB more; this command copies it on to FILE. It must run as the daemon's user, or as
root, on the daemon's machine. Every grant that was answered before it began is in the copy.

Exit codes: 0 the file is there; 2 the arguments are wrong; 3 it could not be made.

Examples:
  semaphored backup /backup/state.db
  semaphored backup /backup/state.db --store sqlite:///var/lib/semaphored/state.db --rate 10
)";

struct Arguments {
  bool help = false;
  std::vector<std::string> files;
  std::string rate;
  std::vector<std::string> settings;
};

// Of the daemon's options: whether the next word is its value.
bool TakesNext(const std::string& option) {
  const auto& all = AllSettings();
  return option == "--config" || std::any_of(all.begin(), all.end(), [&](const Setting& setting) {
           return setting.kind != Setting::Kind::kSwitch && FlagName(setting) == option;
         });
}

Arguments Read(const std::vector<std::string>& arguments) {
  Arguments result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      result.help = true;
    } else if (!argument.starts_with("-")) {
      result.files.push_back(argument);
    } else if (argument.starts_with("--rate=")) {
      result.rate = argument.substr(7);
    } else if (argument == "--rate") {
      result.rate = i + 1 < arguments.size() ? arguments[++i] : "none";
    } else {
      result.settings.push_back(argument);
      if (TakesNext(argument) && i + 1 < arguments.size())
        result.settings.push_back(arguments[++i]);
    }
  }
  return result;
}

std::string Line(std::string_view text) {
  return absl::StrCat("semaphored backup: ", MaskSecrets(text), "\n");
}

int Fail(const BackUpCommand& command, std::string_view why, int code) {
  command.error(Line(why));
  return code;
}

std::string TextOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// nullopt: it is no number of megabytes.
std::optional<int64_t> RateOf(const std::string& text) {
  if (text.empty()) return kRateDefault * kMegabyte;
  int64_t rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (rate < 1 || rate > kRateMax) return std::nullopt;
  return rate * kMegabyte;
}

// A line at most every two seconds, from two seconds on.
class Progress {
 public:
  Progress(const BackUpCommand* command, std::string doing)
      : command_(*command), doing_(std::move(doing)), reported_at_(SystemClock().Now()) {}

  void Report(int64_t done_bytes, int64_t all_bytes) {
    const SteadyTime now = SystemClock().Now();
    if (now - reported_at_ < kReportInterval) return;
    reported_at_ = now;
    command_.error(Line(
        absl::StrCat(doing_, " ", done_bytes / kMegabyte, " of ", all_bytes / kMegabyte, " MB")));
  }

 private:
  const BackUpCommand& command_;
  const std::string doing_;
  SteadyTime reported_at_;
};

// "NAME A B": the numbers. 0 where there is none.
std::pair<int64_t, int64_t> NumbersOf(std::string_view text) {
  int64_t numbers[2] = {0, 0};
  const char* end = text.data() + text.size();
  const char* at = text.data() + std::min(text.find(' '), text.size());
  for (int64_t& number : numbers) {
    if (at < end) at = std::from_chars(at + 1, end, number).ptr;
  }
  return {numbers[0], numbers[1]};
}

// The daemon's copy, and its size.
absl::StatusOr<Descriptor> AskDaemon(const BackUpCommand& command, const std::string& store_file,
                                     int64_t rate, int64_t* size) {
  absl::StatusOr<Descriptor> channel = ConnectForBackUp(BackUpSocketOf(store_file));
  if (absl::IsNotFound(channel.status()))
    return absl::NotFoundError(absl::StrCat("no daemon that runs has ", store_file,
                                            "; a store that no daemon has can be copied as it is"));
  if (!channel.ok()) return channel.status();
  // What comes tells whether it has arrived.
  SendBackUpMessage(channel->get(), absl::StrCat("backup 1 ", rate), -1, kSilenceMax);
  Progress progress(&command, "copied");
  while (std::optional<BackUpMessage> message = ReceiveBackUpMessage(channel->get(), kSilenceMax)) {
    if (message->text.starts_with("failed "))
      return absl::UnavailableError(message->text.substr(7));
    const auto [first, second] = NumbersOf(message->text);
    if (message->text.starts_with("progress ")) progress.Report(first, second);
    if (!message->text.starts_with("done ")) continue;
    if (!message->file.open()) return absl::UnavailableError("the daemon's copy did not arrive");
    *size = first;
    return std::move(message->file);
  }
  return absl::UnavailableError("the daemon has ended, or does not answer");
}

}  // namespace

int RunBackUp(const BackUpCommand& command) {
  const Arguments arguments = Read(command.sources.arguments);
  if (arguments.help) {
    command.out(kHelp);
    return kDone;
  }
  const std::optional<int64_t> rate = RateOf(arguments.rate);
  if (!rate)
    return Fail(command, "--rate must be a number of megabytes, 1 to 100000", kBadArguments);
  ConfigSources sources = command.sources;
  sources.arguments = arguments.settings;
  const absl::StatusOr<ParsedConfig> parsed = ParseConfig(sources);
  // Before FILE: an option that is not known may have brought a value.
  if (!parsed.ok()) return Fail(command, TextOf(parsed.status()), kBadArguments);
  if (arguments.files.size() != 1 || arguments.files.front().empty())
    return Fail(command, "needs one FILE; see --help", kBadArguments);
  const std::string store_file = EmbeddedFile(parsed->config.store);
  if (store_file.empty())
    return Fail(command, "only the embedded store, in a file, is backed up so", kBadArguments);
  const std::string& path = arguments.files.front();
  // Before the daemon is asked: it may copy for long.
  absl::StatusOr<NewFile> file = NewFile::Make(path);
  if (!file.ok()) return Fail(command, TextOf(file.status()), kNotBackedUp);
  int64_t size = 0;
  const absl::StatusOr<Descriptor> copy = AskDaemon(command, store_file, *rate, &size);
  if (!copy.ok()) return Fail(command, TextOf(copy.status()), kNotBackedUp);
  Progress progress(&command, "written");
  absl::Status status = file->CopyFrom(
      copy->get(), size, [&](int64_t done_bytes) { progress.Report(done_bytes, size); });
  if (status.ok()) status = file->Publish();
  if (!status.ok()) return Fail(command, TextOf(status), kNotBackedUp);
  command.out(absl::StrCat("backed up: ", path, ", ", size, " bytes\n"));
  return kDone;
}

}  // namespace semaphored
