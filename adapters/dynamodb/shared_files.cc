#include "adapters/dynamodb/shared_files.h"

#include <fstream>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace semaphored::dynamodb {
namespace {

// The name in a header such as "profile name", with any white space between them, quotes around the name
// allowed. Empty: the header is of another kind.
std::string NameIn(absl::string_view header, absl::string_view kind) {
  absl::string_view name = absl::StripAsciiWhitespace(header);
  if (!kind.empty()) {
    if (!absl::ConsumePrefix(&name, kind)) return "";
    name = absl::StripAsciiWhitespace(name);
  }
  if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'') &&
      name.back() == name.front())
    name = name.substr(1, name.size() - 2);
  return std::string(name);
}

// Only a command may have spaces; after any other value they begin a comment.
absl::string_view ValueOf(absl::string_view name, absl::string_view text) {
  const absl::string_view value = absl::StripAsciiWhitespace(text);
  return name == "credential_process" ? value : value.substr(0, value.find_first_of(" \t"));
}

// nullopt: there is no such section, or no file. Sections that stand twice count together.
std::optional<Section> ReadSection(const std::string& path,
                                   const std::function<bool(absl::string_view header)>& is_meant) {
  std::optional<Section> section;
  std::ifstream file(path);
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text.front() == '#' || text.front() == ';') continue;
    if (text.front() == '[') {
      inside = is_meant(text.substr(1, text.find(']') - 1));
      if (inside && !section) section.emplace();
      continue;
    }
    // A line that begins with a space belongs to the one before it.
    if (!inside || absl::ascii_isspace(static_cast<unsigned char>(line.front()))) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(pair.first));
    (*section)[name] = std::string(ValueOf(name, pair.second));
  }
  return section;
}

std::string PathOf(const Environment& environment, const char* variable, const char* usual) {
  const std::string home = environment("HOME").value_or("");
  std::string path = environment(variable).value_or("");
  if (path.empty()) return home.empty() ? "" : absl::StrCat(home, "/.aws/", usual);
  if (path.rfind("~/", 0) == 0) return absl::StrCat(home, path.substr(1));
  return path;
}

}  // namespace

std::string TextOf(const Section& section, const char* name) {
  const auto found = section.find(name);
  return found == section.end() ? "" : found->second;
}

SharedFiles::SharedFiles(const Environment& environment)
    : credentials_(PathOf(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials")),
      config_(PathOf(environment, "AWS_CONFIG_FILE", "config")) {}

std::optional<Section> SharedFiles::Profile(const std::string& name) const {
  std::optional<Section> profile = ReadSection(
      credentials_, [&name](absl::string_view header) { return NameIn(header, "") == name; });
  std::optional<Section> config = ReadSection(config_, [&name](absl::string_view header) {
    return NameIn(header, "profile") == name || (name == "default" && NameIn(header, "") == name);
  });
  if (!profile) return config;
  if (!config) return profile;
  // Both keys are of one file, or none: half of each would belong to no one identity.
  const bool has_keys =
      profile->count("aws_access_key_id") > 0 || profile->count("aws_secret_access_key") > 0;
  for (const auto& [key, value] : *config) {
    if (!has_keys || !absl::StartsWith(key, "aws_")) profile->emplace(key, value);
  }
  return profile;
}

std::optional<Section> SharedFiles::SsoSession(const std::string& name) const {
  return ReadSection(
      config_, [&name](absl::string_view header) { return NameIn(header, "sso-session") == name; });
}

std::string SharedFiles::Names() const {
  return absl::StrCat(credentials_.empty() ? "~/.aws/credentials" : credentials_, " and ",
                      config_.empty() ? "~/.aws/config" : config_);
}

}  // namespace semaphored::dynamodb
