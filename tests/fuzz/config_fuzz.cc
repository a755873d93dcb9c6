// The configuration: any file, environment or flags are either refused with a message, or give a
// configuration that prints as a file which, read again, is the same configuration.
// Input: the first byte chooses the source, the rest is its text.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/config/config.h"
#include "tests/fuzz/fuzz.h"

namespace {

using semaphored::ConfigSources;

ConfigSources FromFile(std::string text) {
  ConfigSources sources;
  sources.host_name = "host";
  sources.arguments = {"--config", "/file.toml"};
  sources.read_file = [text = std::move(text)](const std::string&) -> absl::StatusOr<std::string> {
    return text;
  };
  return sources;
}

ConfigSources FromArguments(const std::string& text) {
  ConfigSources sources = FromFile("");
  sources.arguments = absl::StrSplit(text, '\n');
  return sources;
}

ConfigSources FromEnvironment(const std::string& text) {
  ConfigSources sources = FromFile("");
  sources.arguments.clear();
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    sources.environment.emplace_back("SEMAPHORED_" + std::string(line.substr(0, equals)),
                                     std::string(line.substr(equals + 1)));
  }
  return sources;
}

ConfigSources SourcesOf(uint8_t choice, const std::string& text) {
  if (choice == 'a') return FromArguments(text);
  if (choice == 'e') return FromEnvironment(text);
  return FromFile(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto parsed = semaphored::ParseConfig(SourcesOf(data[0], text));
  if (!parsed.ok()) {
    FUZZ_CHECK(!parsed.status().message().empty());
    return 0;
  }
  // --help and --version look at nothing else.
  if (parsed->config.node_id.empty()) return 0;
  // Passwords in a URL are masked when printed, so only a store without any comes back the same.
  if (parsed->config.store.find('@') != std::string::npos) return 0;
  const std::string printed = semaphored::PrintConfig(parsed->config);
  const auto again = semaphored::ParseConfig(FromFile(printed));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(semaphored::PrintConfig(again->config) == printed);
  return 0;
}
