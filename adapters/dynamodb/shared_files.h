// The files that the tools of AWS share.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "adapters/dynamodb/credential_places.h"

namespace semaphored::dynamodb {

// The settings of one section, by names in lower case.
using Section = std::map<std::string, std::string>;

// Empty: it is not there.
std::string TextOf(const Section& section, const char* name);

class SharedFiles {
 public:
  explicit SharedFiles(const Environment& environment);

  // The settings of a profile; what the credentials file says counts before the config file. nullopt: it is in
  // neither. Each call reads the files again.
  std::optional<Section> Profile(const std::string& name) const;
  // A section "[sso-session NAME]" of the config file.
  std::optional<Section> SsoSession(const std::string& name) const;
  // Where they are, for an error.
  std::string Names() const;

 private:
  const std::string credentials_;  // Paths; empty: none is known.
  const std::string config_;
};

}  // namespace semaphored::dynamodb
