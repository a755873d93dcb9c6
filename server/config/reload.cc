#include "server/config/reload.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "server/base/logging.h"
#include "server/config/config_checks.h"
#include "server/config/settings.h"

namespace semaphored {

std::vector<SettingChange> ChangesBetween(const Config& running, const Config& read) {
  std::vector<SettingChange> changes;
  for (const Setting& setting : AllSettings()) {
    const std::string from = TomlValue(setting, running);
    const std::string to = TomlValue(setting, read);
    if (from == to) continue;
    SettingChange change{setting.key, MaskSecrets(from), MaskSecrets(to), setting.reloadable};
    if (change.from == change.to) change.to = "(another secret)";
    changes.push_back(std::move(change));
  }
  return changes;
}

Config WithReloadable(Config running, const Config& read) {
  // The table speaks of members of a Config that may be changed; this one is a copy.
  Config source = read;
  for (const Setting& setting : AllSettings()) {
    if (!setting.reloadable) continue;
    std::visit(
        [&](auto* from) {
          *std::get<std::remove_const_t<decltype(from)>>(setting.field(running)) = *from;
        },
        setting.field(source));
  }
  return running;
}

absl::StatusOr<Config> ReadAgain(const ConfigSources& sources, const Config& running,
                                 std::vector<SettingChange>* changes) {
  absl::StatusOr<ParsedConfig> read = ParseConfig(sources);
  if (!read.ok()) return read.status();
  Config next = WithReloadable(running, read->config);
  if (absl::Status status = CheckConfig(next); !status.ok()) return status;
  if (changes != nullptr) *changes = ChangesBetween(running, read->config);
  return next;
}

}  // namespace semaphored
