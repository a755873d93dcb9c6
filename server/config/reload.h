// What a second reading of the configuration changes in a running daemon.
#pragma once

#include <string>
#include <vector>

#include "server/config/config.h"

namespace semaphored {

struct SettingChange {
  std::string key;
  std::string from;  // As in the file; secrets in URLs are masked.
  std::string to;    // Likewise; "(another secret)" if only that differs.
  bool reloadable = false;
};

// What differs, in the order of the settings' table. Pure.
std::vector<SettingChange> ChangesBetween(const Config& running, const Config& read);

// `running` with the reloadable settings of `read`. Pure. It may break what CheckConfig demands,
// when one of two settings that must fit each other is reloadable: check it.
Config WithReloadable(Config running, const Config& read);

// Reads the sources as at the start. OK: what is to be in force from now on (checked), and what
// differs between `running` and what was read, in `changes` if it is not nullptr. Else the error of
// ParseConfig or CheckConfig, and nothing is to change.
absl::StatusOr<Config> ReadAgain(const ConfigSources& sources, const Config& running,
                                 std::vector<SettingChange>* changes);

}  // namespace semaphored
