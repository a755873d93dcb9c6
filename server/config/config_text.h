// What the daemon says about its settings. Internal to the configuration.
#pragma once

#include <string>

namespace semaphored {

// Of --help, with its line's end.
std::string HelpText();

}  // namespace semaphored
