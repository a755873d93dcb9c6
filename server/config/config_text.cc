#include "server/config/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "server/base/logging.h"
#include "server/base/version.h"
#include "server/config/config.h"
#include "server/config/settings.h"

namespace semaphored {
namespace {

constexpr char kDescription[] =
    R"(semaphored hands out the permits of named, counting semaphores over gRPC. Without arguments it serves at
127.0.0.1:7420, and keeps its state in a folder of this machine; see --store.

Usage: semaphored [--config FILE] [--store URL] [--listen ADDRESS] [SETTING...]
       semaphored backup FILE [--rate MEGABYTES] [--store URL]
       semaphored restore --from FILE [--longest-ttl DURATION] [--store URL]
       semaphored health [--address ADDRESS]
       semaphored schema --print | --create [--store URL]
       semaphored token [--hash]

Every setting below can stand in the file that --config names (ttl_min = "2s"), in the environment
(SEMAPHORED_TTL_MIN=2s) or on the command line (--ttl-min 2s); the later of these wins. Durations
are numbers with ms, s, m, h or d.

  --config FILE
      TOML file with settings. In the environment: SEMAPHORED_CONFIG.
  --print-config
      Print the settings that would be in force, as a TOML file, and end.
  --version
      Print the version and end.
  --help, -h
      Print this help and end.
)";

constexpr char kExamples[] = R"(
Examples:
  semaphored
  semaphored --store sqlite:///var/lib/semaphored/state.db
  semaphored --store 'postgres://semaphored@db/semaphored?password_file=/run/secrets/db' --node-id a
  semaphored --store sqlite::memory: --listen 127.0.0.1:0 --log-level debug
  semaphored --config /etc/semaphored.toml --print-config
  SEMAPHORED_LOG_FORMAT=json semaphored --config /etc/semaphored.toml

SIGHUP reads file, environment and flags again and puts in force what has changed of the settings
that are called reloadable; of the others it only says in the log that they need a restart. If
anything is wrong with what was read, all stays as it was.
SIGTERM or SIGINT ends the daemon: it finishes what it is writing, and ends the streams with
SHUTTING_DOWN; claims and their positions stay in the store for the next start. A second signal ends
it at once.

Exit codes: 0 stopped cleanly; 1 it could not go on (another process took its node, or it was declared
dead); 2 the configuration is wrong; 3 the store could not be opened, or another daemon that is alive
has the node id; 4 an address could not be listened on; 5 the store cannot be used, and another start
would end alike (a newer daemon or another program has made it, the engine is too old, or the embedded
store is damaged); 130 and 143 a second SIGINT or SIGTERM.
)";

// `text` as lines that are not too long to read, each after `indent`.
std::string Wrap(std::string_view text, std::string_view indent) {
  const size_t width = 100 - indent.size();
  std::string lines;
  while (!text.empty()) {
    size_t end = text.size();
    if (end > width) end = text.rfind(' ', width);
    end = std::min(end, text.size());
    lines += fmt::format("{}{}\n", indent, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string ValueAndDefault(const Setting& setting) {
  return fmt::format("Value: {}; default {}.{}", WhatIsRight(setting), TomlValue(setting, Config()),
                     setting.reloadable ? " Reloadable." : "");
}

// "--node-ttl VALUE"; a switch as one writes it to have the other than its default.
std::string UsageOf(const Setting& setting) {
  const std::string flag = FlagName(setting);
  if (setting.kind != Setting::Kind::kSwitch) return flag + " VALUE";
  return TomlValue(setting, Config()) == "true" ? flag + "=false" : flag;
}

}  // namespace

std::string HelpText() {
  std::string text = kDescription;
  std::string_view group;
  for (const Setting& setting : AllSettings()) {
    if (group != setting.group) {
      group = setting.group;
      text += fmt::format("\n{}:\n", group);
    }
    text += fmt::format("  {}\n{}{}", UsageOf(setting), Wrap(setting.text, "      "),
                        Wrap(ValueAndDefault(setting), "      "));
  }
  return text + kExamples;
}

std::string PrintConfig(const Config& config) {
  Config shown = config;
  shown.store = MaskSecrets(config.store);
  std::string text = fmt::format("# semaphored {}: the settings in force.\n", kVersion);
  std::string_view group;
  for (const Setting& setting : AllSettings()) {
    if (group != setting.group) {
      group = setting.group;
      text += fmt::format("\n# ---- {} ----\n", group);
    }
    text +=
        fmt::format("\n{}{}{} = {}\n", Wrap(setting.text, "# "),
                    Wrap(ValueAndDefault(setting), "# "), setting.key, TomlValue(setting, shown));
  }
  return text;
}

}  // namespace semaphored
