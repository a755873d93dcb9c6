#include "server/config/config.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include <CLI/CLI.hpp>

#include "server/base/logging.h"
#include "server/base/version.h"
#include "server/config/config_checks.h"
#include "server/config/config_text.h"
#include "server/config/settings.h"

extern char** environ;

namespace semaphored {
namespace {

constexpr char kPrefix[] = "SEMAPHORED_";
constexpr char kConfigVariable[] = "SEMAPHORED_CONFIG";

// The value as it may be shown in an error.
std::string Shown(std::string_view value) {
  constexpr size_t kBytesMax = 80;
  std::string shown = MaskSecrets(value.substr(0, kBytesMax));
  for (char& c : shown) {
    if (!absl::ascii_isprint(c)) c = '?';
  }
  return value.size() > kBytesMax ? shown + "…" : shown;
}

// What is wrong, a line each: all of it is reported at once.
using Mistakes = std::vector<std::string>;

std::string UnknownKey(const std::string& what, std::string_view key) {
  const std::string nearest = NearestKey(key);
  return nearest.empty() ? fmt::format("{} is not known", what)
                         : fmt::format("{} is not known; the nearest is {}", what, nearest);
}

void Set(const Setting& setting, std::string_view value, const std::string& where, Config* config,
         Mistakes* mistakes) {
  const absl::Status status = SetValue(setting, value, config);
  if (status.ok()) return;
  mistakes->push_back(
      fmt::format("{}: \"{}\" must be {}", where, Shown(value), std::string(status.message())));
}

// ---- flags ----

struct Flags {
  std::map<std::string, std::string> values;  // By key; only those that were given.
  std::string config_path;
  bool print_config = false;
  std::string answer;  // Of --help and --version.
};

std::string UnknownFlag(const std::string& word) {
  std::string key = word.substr(0, word.find('='));
  key.erase(0, std::min(key.find_first_not_of('-'), key.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  const std::string nearest = NearestKey(key);
  return nearest.empty() ? fmt::format("{} is not known; --help shows what is", Shown(word))
                         : fmt::format("{} is not known; the nearest is {}", Shown(word),
                                       FlagName(*FindSetting(nearest)));
}

// `words` are those that are no flag. One behind an unknown flag is taken for its value.
void AddUnknownFlags(const std::vector<std::string>& words, Mistakes* mistakes) {
  bool value_may_follow = false;
  for (const std::string& word : words) {
    const bool is_value = value_may_follow && !word.starts_with('-');
    value_may_follow = word.starts_with('-') && word.find('=') == word.npos;
    if (!is_value) mistakes->push_back(UnknownFlag(word));
  }
}

void AddFlag(CLI::App* app, const Setting& setting, std::string* value) {
  if (setting.kind == Setting::Kind::kSwitch) {
    app->add_flag(FlagName(setting) + "{true}", *value)->take_last();
  } else {
    app->add_option(FlagName(setting), *value)->take_last();
  }
}

absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& arguments, Mistakes* mistakes) {
  Flags flags;
  CLI::App app("", "semaphored");
  app.set_version_flag("--version", std::string("semaphored ") + kVersion);
  app.set_help_flag("--help,-h");
  app.allow_extras();
  app.add_option("--config", flags.config_path);
  app.add_flag("--print-config", flags.print_config);
  std::map<std::string, std::string> values;
  for (const Setting& setting : AllSettings()) AddFlag(&app, setting, &values[setting.key]);

  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    flags.answer = HelpText();
  } catch (const CLI::CallForVersion&) {
    flags.answer = app.version() + "\n";
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view text = error.what();
    return absl::InvalidArgumentError(Shown(text.substr(0, text.find(':'))) + " needs a value");
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(Shown(error.what()));
  }
  AddUnknownFlags(app.remaining(), mistakes);
  for (const Setting& setting : AllSettings()) {
    if (app.count(FlagName(setting)) > 0) flags.values[setting.key] = values[setting.key];
  }
  return flags;
}

// ---- file ----

// nullopt: a kind of value that no setting has.
std::optional<std::string> TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* on = node.as_boolean()) return on->get() ? "true" : "false";
  return std::nullopt;
}

void ApplyFile(const std::string& path, const std::string& text, Config* config,
               Mistakes* mistakes) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    mistakes->push_back(fmt::format("{}, line {}: {}", path, error.source().begin.line,
                                    Shown(error.description())));
    return;
  }
  // As they stand in the file: the table is in the order of its keys.
  std::multimap<toml::source_index, std::pair<std::string_view, const toml::node*>> rows;
  for (const auto& [name, node] : table)
    rows.insert({node.source().begin.line, {name.str(), &node}});
  for (const auto& [line, row] : rows) {
    const auto& [key, node] = row;
    const std::string where = fmt::format("{} ({}, line {})", Shown(key), path, line);
    const Setting* setting = FindSetting(key);
    if (setting == nullptr) {
      mistakes->push_back(UnknownKey(where, key));
    } else if (const std::optional<std::string> value = TextOf(*node)) {
      Set(*setting, *value, where, config, mistakes);
    } else {
      mistakes->push_back(fmt::format("{} must be {}", where, WhatIsRight(*setting)));
    }
  }
}

// ---- environment ----

void ApplyEnvironment(const ConfigSources& sources, ParsedConfig* parsed, Mistakes* mistakes) {
  for (const auto& [name, value] : sources.environment) {
    if (!name.starts_with(kPrefix) || name == kConfigVariable || value.empty()) continue;
    std::string key = name.substr(sizeof kPrefix - 1);
    absl::AsciiStrToLower(&key);
    if (const Setting* setting = FindSetting(key);
        setting != nullptr && EnvironmentName(*setting) == name) {
      Set(*setting, value, name, &parsed->config, mistakes);
    } else if (const std::string nearest = NearestKey(key); !nearest.empty()) {
      // Not an error: who runs the daemon does not choose all of its environment (Kubernetes adds
      // names of services).
      parsed->warnings.push_back(
          fmt::format("{} in the environment is not known and has no effect; did you mean {}?",
                      Shown(name), EnvironmentName(*FindSetting(nearest))));
    }
  }
}

// Without a store: a file in the folder for state.
absl::Status FillStore(const ConfigSources& sources, ParsedConfig* parsed) {
  if (!parsed->config.store.empty()) return absl::OkStatus();
  absl::StatusOr<StateFolder> state = FindStateFolder(sources.environment, sources.may_write);
  if (!state.ok()) return state.status();
  parsed->state = *std::move(state);
  parsed->config.store = fmt::format("sqlite://{}/state.db", parsed->state.path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(fmt::format("{}: the file cannot be read, or is empty", path));
  }
  return text.str();
}

}  // namespace

absl::StatusOr<ParsedConfig> ParseConfig(const ConfigSources& sources) {
  Mistakes mistakes;
  absl::StatusOr<Flags> flags = ParseFlags(sources.arguments, &mistakes);
  if (!flags.ok()) return flags.status();
  ParsedConfig parsed;
  parsed.answer = std::move(flags->answer);
  if (!parsed.answer.empty()) return parsed;

  std::string path = flags->config_path;
  for (const auto& [name, value] : sources.environment) {
    if (path.empty() && name == kConfigVariable) path = value;
  }
  if (!path.empty()) {
    const absl::StatusOr<std::string> text = sources.read_file(path);
    if (!text.ok()) return text.status();
    ApplyFile(path, *text, &parsed.config, &mistakes);
  }
  ApplyEnvironment(sources, &parsed, &mistakes);
  for (const auto& [key, value] : flags->values) {
    const Setting& setting = *FindSetting(key);
    Set(setting, value, FlagName(setting), &parsed.config, &mistakes);
  }
  if (absl::Status status = FillStore(sources, &parsed); !status.ok())
    mistakes.emplace_back(status.message());
  AddMistakes(parsed.config, &mistakes);
  if (!mistakes.empty())
    return absl::InvalidArgumentError(fmt::format("{}", fmt::join(mistakes, "\n")));
  if (IsOpenToAll(parsed.config)) {
    parsed.warnings.emplace_back(
        "connections are encrypted, but every client that reaches the port can take and revoke "
        "every permit: set access_file, or tls_client_ca_file");
  }
  if (parsed.config.node_id.empty()) {
    const std::string host = sources.host_name.empty() ? "localhost" : sources.host_name;
    parsed.config.node_id = host + ":" + ParseListenAddress(parsed.config.listen)->port;
    parsed.config.node_id.resize(std::min<size_t>(parsed.config.node_id.size(), 128));
  }
  if (flags->print_config) parsed.answer = PrintConfig(parsed.config);
  return parsed;
}

ConfigSources ProcessSources(int argc, char** argv) {
  ConfigSources sources;
  sources.arguments.assign(argv + (argc > 0 ? 1 : 0), argv + argc);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != text.npos)
      sources.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  char host[HOST_NAME_MAX + 1] = {};
  if (gethostname(host, sizeof host - 1) == 0) sources.host_name = host;
  sources.read_file = ReadWholeFile;
  sources.may_write = MayWriteIn;
  return sources;
}

}  // namespace semaphored
