// Credentials in the files that the tools of AWS share.
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/dynamodb/credential_places.h"

namespace semaphored::dynamodb {
namespace {

using Section = std::map<std::string, std::string>;

// "profile name", with any white space between them, quotes around the name allowed.
std::string SectionName(absl::string_view header, bool is_config) {
  absl::string_view name = absl::StripAsciiWhitespace(header);
  if (is_config && name != "default") {
    if (!absl::ConsumePrefix(&name, "profile")) return "";
    name = absl::StripAsciiWhitespace(name);
  }
  if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'') &&
      name.back() == name.front())
    name = name.substr(1, name.size() - 2);
  return std::string(name);
}

// The settings of one profile; nullopt: it is not in the file, or there is no file. In the config
// file its header is "profile name".
std::optional<Section> ReadProfile(const std::string& path, const std::string& profile,
                                   bool is_config) {
  std::optional<Section> section;
  std::ifstream file(path);
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text.front() == '#' || text.front() == ';') continue;
    if (text.front() == '[') {
      inside = SectionName(text.substr(1, text.find(']') - 1), is_config) == profile;
      if (inside && !section) section.emplace();
      continue;
    }
    // A line that begins with a space belongs to the one before it.
    if (!inside || absl::ascii_isspace(static_cast<unsigned char>(line.front()))) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(pair.second);
    // Neither keys nor tokens have a space in them; after it stands a comment.
    (*section)[absl::AsciiStrToLower(absl::StripAsciiWhitespace(pair.first))] =
        std::string(value.substr(0, value.find_first_of(" \t")));
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

std::string TextOf(const Section& section, const char* name) {
  const auto found = section.find(name);
  return found == section.end() ? "" : found->second;
}

// What else a profile may say, which only AWS's own tools carry out.
absl::string_view OtherWay(const Section& section) {
  for (const char* name : {"role_arn", "credential_process", "sso_session", "sso_start_url",
                           "web_identity_token_file"}) {
    if (section.count(name) > 0) return name;
  }
  return "";
}

absl::Status Unusable(absl::string_view profile, absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("dynamodb: no credentials: the profile '", profile, "' ", why));
}

}  // namespace

absl::StatusOr<Found> FindInSharedFiles(const std::string& profile,
                                        const Environment& environment) {
  std::string name = profile.empty() ? environment("AWS_PROFILE").value_or("") : profile;
  const bool meant = !name.empty();
  if (!meant) name = "default";
  const std::string shared = PathOf(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const std::string config = PathOf(environment, "AWS_CONFIG_FILE", "config");
  std::string other_way;
  bool seen = false;
  for (const bool is_config : {false, true}) {
    const std::optional<Section> section =
        ReadProfile(is_config ? config : shared, name, is_config);
    if (!section) continue;
    seen = true;
    Found found;
    found.credentials.access_key_id = TextOf(*section, "aws_access_key_id");
    found.credentials.secret_access_key = TextOf(*section, "aws_secret_access_key");
    found.credentials.session_token = TextOf(*section, "aws_session_token");
    const bool id = !found.credentials.access_key_id.empty();
    const bool secret = !found.credentials.secret_access_key.empty();
    if (id && secret) return found;
    if (id || secret)
      return Unusable(name, "has one of aws_access_key_id and aws_secret_access_key alone");
    if (other_way.empty()) other_way = std::string(OtherWay(*section));
  }
  if (!other_way.empty())
    return Unusable(name, absl::StrCat("says ", other_way,
                                       ", which needs AWS's own tools: let `aws configure "
                                       "export-credentials` put keys into the environment"));
  const std::string files = absl::StrCat(shared.empty() ? "~/.aws/credentials" : shared, " and ",
                                         config.empty() ? "~/.aws/config" : config);
  if (meant) return Unusable(name, absl::StrCat(seen ? "has no keys in " : "is not in ", files));
  return absl::NotFoundError(absl::StrCat("no profile 'default' with keys in ", files));
}

absl::StatusOr<Found> FindInEnvironment(const Environment& environment) {
  Found found;
  found.may_change = false;
  found.credentials.access_key_id = environment("AWS_ACCESS_KEY_ID").value_or("");
  found.credentials.secret_access_key = environment("AWS_SECRET_ACCESS_KEY").value_or("");
  found.credentials.session_token = environment("AWS_SESSION_TOKEN").value_or("");
  const bool id = !found.credentials.access_key_id.empty();
  const bool secret = !found.credentials.secret_access_key.empty();
  if (id && secret) return found;
  if (id || secret)
    return absl::UnauthenticatedError(
        "dynamodb: no credentials: one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set, the "
        "other is not");
  return absl::NotFoundError("AWS_ACCESS_KEY_ID is not set");
}

}  // namespace semaphored::dynamodb
