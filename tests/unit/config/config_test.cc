#include "server/config/config.h"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/config/config_checks.h"
#include "server/config/settings.h"

namespace semaphored {
namespace {

using Catch::Matchers::ContainsSubstring;
using Arguments = std::vector<std::string>;

struct Given {
  Arguments arguments = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string file = "";  // What --config reads.

  absl::StatusOr<ParsedConfig> Parse() const {
    ConfigSources sources;
    sources.arguments = arguments;
    sources.environment = environment;
    sources.host_name = "host";
    sources.read_file = [this](const std::string&) { return file; };
    return ParseConfig(sources);
  }

  std::string Error() const {
    const absl::StatusOr<ParsedConfig> parsed = Parse();
    return parsed.ok() ? "(none)" : std::string(parsed.status().message());
  }

  Config Parsed() const {
    const absl::StatusOr<ParsedConfig> parsed = Parse();
    INFO(parsed.status().ToString());
    REQUIRE(parsed.ok());
    return parsed->config;
  }
};

TEST_CASE("config: without anything said, the defaults hold and fit each other") {
  const Config config = Given{}.Parsed();
  CHECK(config.listen == "127.0.0.1:7420");
  CHECK(config.node_id == "host:7420");
  CHECK(config.ttl_default_ms == 30'000);
  CHECK(config.limits.waiters_per_semaphore_max == 200'000);
}

TEST_CASE("config: every default is within the limits of its setting") {
  const Config defaults;
  for (const Setting& setting : AllSettings()) {
    INFO(setting.key);
    std::string value = TomlValue(setting, defaults);
    if (value.starts_with('"')) value = value.substr(1, value.size() - 2);
    Config config;
    CHECK(SetValue(setting, value, &config).ok());
    CHECK(TomlValue(setting, config) == TomlValue(setting, defaults));
    CHECK(FindSetting(setting.key) == &setting);
  }
}

TEST_CASE("config: file, then environment, then flags; the later wins") {
  Given given;
  given.file = "ttl_min = \"2s\"\nttl_max = \"2h\"\nttl_default = \"20s\"\n";
  given.arguments = {"--config", "x.toml", "--ttl-default", "40s"};
  given.environment = {{"SEMAPHORED_TTL_DEFAULT", "30m"}, {"SEMAPHORED_TTL_MAX", "1h"}};
  const Config config = given.Parsed();
  CHECK(config.ttl_min_ms == 2'000);
  CHECK(config.ttl_max_ms == 3'600'000);
  CHECK(config.ttl_default_ms == 40'000);
}

TEST_CASE("config: the file can be named by the environment, a flag wins") {
  std::vector<std::string> read;
  ConfigSources sources;
  sources.environment = {{"SEMAPHORED_CONFIG", "from-environment"}};
  sources.read_file = [&](const std::string& path) {
    read.push_back(path);
    return std::string("lanes = 3");
  };
  CHECK(ParseConfig(sources)->config.lanes == 3);
  sources.arguments = {"--config=from-flag"};
  CHECK(ParseConfig(sources)->config.lanes == 3);
  CHECK(read == Arguments{"from-environment", "from-flag"});
}

TEST_CASE("config: a file that cannot be read is that error") {
  ConfigSources sources;
  sources.arguments = {"--config", "gone.toml"};
  sources.read_file = [](const std::string& path) -> absl::StatusOr<std::string> {
    return absl::NotFoundError(path + ": no such file");
  };
  const auto parsed = ParseConfig(sources);
  CHECK(absl::IsNotFound(parsed.status()));
  CHECK_THAT(std::string(parsed.status().message()), ContainsSubstring("gone.toml"));
}

TEST_CASE("config: durations") {
  const std::vector<std::pair<std::string, int64_t>> right = {
      {"1500ms", 1'500},  {"90s", 90'000},    {"2m", 120'000},
      {"3h", 10'800'000}, {"1d", 86'400'000}, {"2500", 2'500}};
  for (const auto& [text, ms] : right) {
    INFO(text);
    CHECK(Given{.arguments = {"--wait-max", text}}.Parsed().wait_max_ms == ms);
  }
  for (const char* text : {"", "s", "-1s", "1.5s", "1 s", "5 sek", "1e3", "99999999999999999999",
                           "31d", "9223372036854775807d"}) {
    INFO(text);
    CHECK_THAT((Given{.arguments = {std::string("--wait-max=") + text}}.Error()),
               ContainsSubstring("wait-max"));
  }
  CHECK(Given{.arguments = {"--config=f"}, .file = "wait_max = 2500"}.Parsed().wait_max_ms ==
        2'500);
}

TEST_CASE(
    "config: a bad value's error names where it was set, the value, and what would be right") {
  CHECK(Given{.arguments = {"--ttl-min", "5 sek"}}.Error() ==
        R"(--ttl-min: "5 sek" must be written like 5s or 500ms, and 100ms to 24h)");
  CHECK(Given{.arguments = {"--config=f.toml"}, .file = "ttl_min = \"5 s\""}.Error() ==
        R"(ttl_min (f.toml, line 1): "5 s" must be written like 5s or 500ms, and 100ms to 24h)");
  CHECK(Given{.arguments = {"--ttl-min", "2d"}}.Error() ==
        R"(--ttl-min: "2d" must be 100ms to 24h)");
  CHECK(Given{.environment = {{"SEMAPHORED_LANES", "many"}}}.Error() ==
        R"(SEMAPHORED_LANES: "many" must be 0 to 64)");
  CHECK(Given{.arguments = {"--config=f.toml"}, .file = "lanes = 1\nlog_format = \"xml\"\n"}
            .Error() == R"(log_format (f.toml, line 2): "xml" must be one of text, json)");
  CHECK(Given{.arguments = {"--config=f.toml"}, .file = "lanes = [1]"}.Error() ==
        "lanes (f.toml, line 1) must be 0 to 64");
  CHECK_THAT((Given{.arguments = {"--config=f.toml"}, .file = "lanes = 1\nlanes = 2"}.Error()),
             ContainsSubstring("f.toml, line 2"));
  CHECK_THAT((Given{.arguments = {"--config=f.toml"}, .file = "lanes ="}.Error()),
             ContainsSubstring("f.toml, line 1"));
}

TEST_CASE("config: all mistakes are reported at once, a line each, wherever they were made") {
  const Given given{.arguments = {"--config=f.toml", "--batch-max=0", "--no-such", "--lans", "3"},
                    .environment = {{"SEMAPHORED_LANES", "many"}},
                    .file = "waiter_max = 3\nlog_format = \"xml\"\nlisten = \"nowhere\"\n"};
  CHECK(given.Error() ==
        "--no-such is not known; --help shows what is\n"
        "--lans is not known; the nearest is --lanes\n"
        "waiter_max (f.toml, line 1) is not known; the nearest is waiters_max\n"
        "log_format (f.toml, line 2): \"xml\" must be one of text, json\n"
        "SEMAPHORED_LANES: \"many\" must be 0 to 64\n"
        "--batch-max: \"0\" must be 1 to 65536\n"
        "listen: \"nowhere\" must be HOST:PORT, [HOST]:PORT or unix:PATH, such as 127.0.0.1:7420");
}

// The store of a daemon that was not given one.
std::string OwnStore(std::vector<std::pair<std::string, std::string>> environment,
                     bool may_write_in_var) {
  ConfigSources sources;
  sources.environment = std::move(environment);
  sources.may_write = [=](const std::string& path) {
    CHECK(path == "/var/lib/semaphored");
    return may_write_in_var;
  };
  const absl::StatusOr<ParsedConfig> parsed = ParseConfig(sources);
  if (!parsed.ok()) return std::string(parsed.status().message());
  CHECK(parsed->config.store == "sqlite://" + parsed->state.path + "/state.db");
  CHECK_FALSE(parsed->state.why.empty());
  return parsed->state.path;
}

TEST_CASE("config: without a store, the state is kept in a folder that the daemon may write to") {
  CHECK(OwnStore({{"STATE_DIRECTORY", "/s"}, {"HOME", "/home/me"}}, true) == "/s");
  CHECK(OwnStore({{"STATE_DIRECTORY", "/s:/t"}}, false) == "/s");
  CHECK(OwnStore({{"HOME", "/home/me"}}, true) == "/var/lib/semaphored");
  CHECK(OwnStore({{"HOME", "/home/me"}, {"XDG_STATE_HOME", "/x"}}, false) == "/x/semaphored");
  CHECK(OwnStore({{"HOME", "/home/me"}}, false) == "/home/me/.local/state/semaphored");
  CHECK_THAT(OwnStore({}, false), ContainsSubstring("such as sqlite:///PATH"));
  const auto given = Given{.arguments = {"--store=sqlite::memory:"}}.Parse();
  REQUIRE(given.ok());
  CHECK(given->state.path.empty());
}

TEST_CASE("config: numbers outside their limits are refused, at them taken") {
  CHECK(Given{.arguments = {"--batch-max", "65536"}}.Parsed().batch_max == 65'536);
  CHECK(Given{.arguments = {"--batch-max", "65537"}}.Error() != "(none)");
  CHECK(Given{.arguments = {"--batch-max", "0"}}.Error() != "(none)");
  CHECK(Given{.arguments = {"--batch-max", "4294967297"}}.Error() != "(none)");
}

TEST_CASE("config: a flag without its value says so") {
  CHECK(Given{.arguments = {"--lanes"}}.Error() == "--lanes needs a value");
  CHECK(Given{.arguments = {"--lanes=1", "--lanes=2"}}.Parsed().lanes == 2);
}

TEST_CASE("config: unknown keys name the nearest that exists") {
  CHECK(Given{.arguments = {"--ttl-defualt", "3s"}}.Error() ==
        "--ttl-defualt is not known; the nearest is --ttl-default");
  CHECK_THAT((Given{.arguments = {"--zzzzzzzzzzzz"}}.Error()), ContainsSubstring("--help"));
  CHECK(Given{.arguments = {"--config=f"}, .file = "waiter_max = 3"}.Error() ==
        "waiter_max (f, line 1) is not known; the nearest is waiters_max");
  CHECK_THAT((Given{.arguments = {"--config=f"}, .file = "[limits]\nleases_max = 3"}.Error()),
             ContainsSubstring("limits (f, line 1) is not known"));
  CHECK_THAT((Given{.arguments = {"stray"}}.Error()), ContainsSubstring("stray"));
}

TEST_CASE(
    "config: an environment variable that is nearly a setting is a warning, others are not ours") {
  const Given given{.environment = {{"SEMAPHORED_TTL_MINN", "3s"},
                                    {"SEMAPHORED_SERVICE_HOST", "10.0.0.1"},
                                    {"PATH", "/bin"},
                                    {"SEMAPHORED_LANES", ""}}};
  const auto parsed = given.Parse();
  REQUIRE(parsed.ok());
  REQUIRE_FALSE(parsed->warnings.empty());
  CHECK_THAT(parsed->warnings[0], ContainsSubstring("SEMAPHORED_TTL_MIN?"));
  CHECK(parsed->config.ttl_min_ms == Config().ttl_min_ms);
}

TEST_CASE("config: switches") {
  CHECK_FALSE(Given{.arguments = {"--health=false"}}.Parsed().health);
  CHECK(Given{.arguments = {"--allow-insecure-remote"}}.Parsed().allow_insecure_remote);
  CHECK_FALSE(Given{.environment = {{"SEMAPHORED_REFLECTION", "off"}}}.Parsed().reflection);
  CHECK_FALSE(Given{.arguments = {"--config=f"}, .file = "health = false"}.Parsed().health);
  CHECK_THAT((Given{.arguments = {"--health=maybe"}}.Error()), ContainsSubstring("true or false"));
}

TEST_CASE("config: only loopback, unless it is said that the network is safe") {
  for (const char* address :
       {"127.0.0.1:0", "127.8.9.1:7420", "localhost:7420", "[::1]:7420", "unix:/run/s.sock"}) {
    INFO(address);
    CHECK(Given{.arguments = {"--listen", address}}.Parsed().listen == address);
  }
  for (const char* address :
       {"0.0.0.0:7420", "[::]:7420", "10.1.2.3:7420", "example.org:7420", "128.0.0.1:1"}) {
    INFO(address);
    CHECK_THAT(
        (Given{.arguments = {"--listen", address}}.Error()),
        ContainsSubstring("--allow-insecure-remote") && ContainsSubstring("neither encrypted"));
    CHECK(Given{.arguments = {"--listen", address, "--allow-insecure-remote"}}.Parsed().listen ==
          address);
  }
  for (const char* address : {"7420", ":7420", "localhost", "localhost:", "localhost:x",
                              "localhost:65536", "::1:7420", "[]:1", "unix:", "a:b:1"}) {
    INFO(address);
    CHECK_THAT((Given{.arguments = {"--listen", address}}.Error()), ContainsSubstring("HOST:PORT"));
  }
}

TEST_CASE("config: the names of HTTP are names alone") {
  for (const char* good : {"sem.example", " Sem.Example , sem_1.local.,", "10.0.0.1,[::1]"})
    CHECK(Given{.arguments = {std::string("--http-hosts=") + good}}.Parsed().http_hosts == good);
  const std::pair<std::string, std::string> wrong[] = {{"sem.example:8443", "sem.example"},
                                                       {"https://x.example/page", "x.example"},
                                                       {"*.example", "sem.example.org"},
                                                       {"::1", "sem.example.org"}};
  for (const auto& [host, right] : wrong)
    CHECK(Given{.arguments = {"--http-hosts=sem.example, " + host}}.Error() ==
          "http_hosts: \"" + host + "\" must be a name without scheme, port and path, such as " +
              right);
}

TEST_CASE("config: with TLS another address needs no more words, and its files go together") {
  const std::vector<std::string> pair = {"--tls-cert-file=c.pem", "--tls-key-file=k.pem"};
  CHECK(Given{.arguments = {"--listen=0.0.0.0:7420", pair[0], pair[1]}}.Parsed().tls_key_file ==
        "k.pem");
  CHECK_THAT((Given{.arguments = {pair[0]}}.Error()), ContainsSubstring("together"));
  CHECK_THAT((Given{.arguments = {pair[1]}}.Error()), ContainsSubstring("together"));
  CHECK_THAT((Given{.arguments = {"--tls-client-ca-file=ca.pem"}}.Error()),
             ContainsSubstring("tls_client_ca_file needs tls_cert_file"));
  CHECK_THAT((Given{.arguments = {"--tls-client-certificates=maybe"}}.Error()),
             ContainsSubstring("require, optional"));
}

TEST_CASE("config: HTTP is by TLS where other machines can reach it, or as it is said") {
  const auto by_tls = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--tls-cert-file=c.pem", "--tls-key-file=k.pem"});
    return IsHttpByTls(Given{.arguments = std::move(more)}.Parsed());
  };
  CHECK_FALSE(by_tls({}));
  CHECK_FALSE(by_tls({"--http-listen=[::1]:7422"}));
  CHECK_FALSE(by_tls({"--http-listen=off", "--listen=0.0.0.0:7420"}));
  CHECK(by_tls({"--http-listen=0.0.0.0:7422"}));
  // As it was said before there was TLS.
  CHECK_FALSE(by_tls({"--http-listen=0.0.0.0:7422", "--allow-insecure-remote"}));
  CHECK(by_tls({"--http-listen=0.0.0.0:7422", "--allow-insecure-remote", "--http-tls=on"}));
  CHECK(by_tls({"--http-tls=on"}));
  CHECK_FALSE(IsHttpByTls(Given{}.Parsed()));

  for (const std::vector<std::string>& open :
       {std::vector<std::string>{}, {"--tls-cert-file=c", "--tls-key-file=k", "--http-tls=off"}}) {
    std::vector<std::string> arguments = open;
    arguments.emplace_back("--http-listen=0.0.0.0:7422");
    CHECK_THAT((Given{.arguments = arguments}.Error()),
               ContainsSubstring("http_listen: other machines can reach 0.0.0.0:7422"));
  }
  CHECK_THAT((Given{.arguments = {"--http-tls=on"}}.Error()),
             ContainsSubstring("http_tls cannot be on without tls_cert_file"));
  CHECK_THAT((Given{.arguments = {"--http-tls=yes"}}.Error()), ContainsSubstring("auto, on, off"));
}

TEST_CASE("config: where clients must show a certificate, HTTP is served that asks for it") {
  const auto listen = [](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--tls-cert-file=c.pem", "--tls-key-file=k.pem", "--tls-client-ca-file=ca.pem"});
    return HttpAddressOf(Given{.arguments = std::move(more)}.Parsed()).listen;
  };
  CHECK(listen({}).empty());
  CHECK(listen({"--http-tls=on"}) == "127.0.0.1:7422");
  CHECK(listen({"--http-tls=on", "--listen=unix:/run/s.sock"}).empty());
  CHECK(listen({"--tls-client-certificates=optional"}) == "127.0.0.1:7422");
}

TEST_CASE("config: a warning of what all can do by TLS") {
  const auto warns = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--tls-cert-file=c.pem", "--tls-key-file=k.pem"});
    const auto parsed = Given{.arguments = std::move(more)}.Parse();
    REQUIRE(parsed.ok());
    return !parsed->warnings.empty();
  };
  CHECK_FALSE(warns({}));
  CHECK(warns({"--listen=0.0.0.0:7420"}));
  CHECK(warns({"--http-listen=0.0.0.0:7422", "--http-writes=on"}));
  CHECK_FALSE(warns({"--http-listen=0.0.0.0:7422"}));
  CHECK_FALSE(
      warns({"--http-listen=0.0.0.0:7422", "--http-writes=on", "--tls-client-ca-file=ca.pem"}));
}

TEST_CASE("config: connections are guarded where others may come, or as it is said") {
  const auto guarded = [](std::vector<std::string> arguments) {
    return IsGuarded(Given{.arguments = std::move(arguments)}.Parsed());
  };
  CHECK_FALSE(guarded({}));
  CHECK_FALSE(guarded({"--listen=unix:/run/s.sock"}));
  CHECK(guarded({"--listen=0.0.0.0:7420", "--allow-insecure-remote"}));
  CHECK(guarded({"--access-file=a.toml"}));
  CHECK(guarded({"--tls-cert-file=c.pem", "--tls-key-file=k.pem"}));
  CHECK(guarded({"--frame-guard=on"}));
  CHECK_FALSE(guarded({"--frame-guard=off", "--access-file=a.toml"}));
  CHECK_THAT(
      (Given{.arguments = {"--frame-guard=off", "--tls-cert-file=c.pem", "--tls-key-file=k.pem"}}
           .Error()),
      ContainsSubstring("frame_guard cannot be off with tls_cert_file"));
  CHECK_THAT((Given{.arguments = {"--frame-guard=maybe"}}.Error()),
             ContainsSubstring("auto, on, off"));
}

TEST_CASE("config: TTLs must fit each other") {
  CHECK_THAT((Given{.arguments = {"--ttl-default", "500ms"}}.Error()),
             ContainsSubstring("ttl_default"));
  CHECK_THAT((Given{.arguments = {"--ttl-min", "2h", "--ttl-max", "1h"}}.Error()),
             ContainsSubstring("ttl_min"));
}

TEST_CASE("config: what is printed is a file that means the same") {
  const Config config = Given{
      .arguments = {
          "--store", "sqlite:///a\\b\"c", "--ttl-max", "36h", "--lanes=7", "--health=false",
          "--log-format=json",
          "--node-id=n1"}}.Parsed();
  const std::string printed = PrintConfig(config);
  const Config again = Given{.arguments = {"--config=f"}, .file = printed}.Parsed();
  CHECK(PrintConfig(again) == printed);
  CHECK(again.store == config.store);
  CHECK(again.ttl_max_ms == config.ttl_max_ms);
}

TEST_CASE("config: --print-config shows what is in force, and no password") {
  const auto parsed = Given{.arguments = {"--print-config", "--store",
                                          "postgres://joe:se:c@ret@db/x?sslpassword=other"}}
                          .Parse();
  REQUIRE(parsed.ok());
  CHECK_THAT(parsed->answer,
             ContainsSubstring("store = \"postgres://joe:***@db/x?sslpassword=***\""));
  const auto quoted =
      Given{.arguments = {"--print-config", "--store", "amqp://joe:a\"b'c@host"}}.Parse();
  CHECK_THAT(quoted->answer, ContainsSubstring("store = \"amqp://joe:***@host\""));
  CHECK_THAT(parsed->answer, !ContainsSubstring("ret"
                                                "@db") &&
                                 !ContainsSubstring("other\""));
  CHECK(parsed->config.store == "postgres://joe:se:c@ret@db/x?sslpassword=other");
}

TEST_CASE("config: an error about a value shows no password") {
  const std::string url = "amqp://joe:secret@host/" + std::string(5000, 'x');
  CHECK_THAT((Given{.arguments = {"--store", url}}.Error()), !ContainsSubstring("secret"));
}

TEST_CASE("config: help and version") {
  const auto help = Given{.arguments = {"--help"}}.Parse();
  REQUIRE(help.ok());
  CHECK_THAT(help->answer, ContainsSubstring("Examples:"));
  CHECK_THAT(help->answer, ContainsSubstring("; 5 the store cannot be used"));
  for (const Setting& setting : AllSettings()) {
    CHECK_THAT(help->answer, ContainsSubstring(FlagName(setting)));
  }
  CHECK_THAT((Given{.arguments = {"--version"}}.Parse()->answer),
             ContainsSubstring("semaphored 0."));
}

TEST_CASE("config: the example file has every setting, at its default") {
  std::ifstream file(SEMAPHORED_EXAMPLE_CONFIG);
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE_FALSE(text.str().empty());
  for (const Setting& setting : AllSettings()) {
    INFO(setting.key);
    const std::string line =
        std::string("\n#") + setting.key + " = " + TomlValue(setting, Config());
    CHECK(text.str().find(line + "\n") != std::string::npos);
  }
  // Without the signs of comment before the settings it is a file that means the defaults.
  std::string uncommented = text.str();
  for (size_t at = 0; (at = uncommented.find("\n#", at)) != std::string::npos; ++at) {
    if (uncommented[at + 2] != ' ') uncommented.erase(at + 1, 1);
  }
  const Config config =
      Given{.arguments = {"--config=f", "--node-id=n"}, .file = uncommented}.Parsed();
  Config defaults;
  defaults.node_id = "n";
  defaults.store = config.store;
  CHECK(PrintConfig(config) == PrintConfig(defaults));
}

}  // namespace
}  // namespace semaphored
