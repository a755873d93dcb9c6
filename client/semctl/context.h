// What all subcommands share: the options before them, the daemon, and how results are told.
#ifndef SEMAPHORED_CLIENT_SEMCTL_CONTEXT_H_
#define SEMAPHORED_CLIENT_SEMCTL_CONTEXT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "client/semaphore/security.h"
#include "client/semaphore/transport.h"
#include "client/semaphore/unary_caller.h"
#include "proto/semaphore/v1/semaphore.pb.h"

// <CLI/CLI.hpp> makes each file that includes it as large as the parser: only files with options do.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace semaphore::semctl {

using Json = nlohmann::ordered_json;

struct Context {
  // HOST:PORT[,HOST:PORT…]
  std::string server = "127.0.0.1:7420";
  SecurityOptions security;
  std::string output = "text";
  std::chrono::milliseconds connect_timeout{5'000};
  // What stood behind `--`.
  std::vector<std::string> command;
  // Set by the subcommand that was chosen; returns the exit code.
  std::function<int()> action;

  bool json() const { return output == "json"; }
  std::vector<std::string> endpoints() const;
  // Reads the files of `security`. It may start threads of gRPC: not before a fork.
  absl::StatusOr<std::shared_ptr<Transport>> MakeTransport() const {
    return Transport::Create(security, endpoints());
  }
  UnaryCaller MakeCaller() const {
    return UnaryCaller(endpoints(), MakeTransport(), connect_timeout);
  }

  // Tells the error on stderr (with -o json as an object), and returns its exit code.
  int Fail(const absl::Status& status) const;
  // A word to people on stderr: "semctl: …", or an object with `event` and `message`.
  void Say(const std::string& event, const std::string& message) const;
};

// Adds an option that takes a duration. `value` keeps its default if the option is absent.
CLI::Option* AddDuration(CLI::App* app, const std::string& name, std::chrono::milliseconds* value,
                         const std::string& description);

// A subcommand that sets Context::action to `action`. `examples` follow its help.
CLI::App* AddCommand(CLI::App& app, Context& context, const std::string& name,
                     const std::string& description, const std::string& examples,
                     std::function<int()> action);

// A request id that no other run of semctl has, so that retries are safe.
v1::RequestId NewRequestId();

// Subcommands, by file. `app` and `context` must outlive the parsing and the action.
void AddRunCommand(CLI::App& app, Context& context);
void AddLeaseCommands(CLI::App& app, Context& context);
void AddAdminCommands(CLI::App& app, Context& context);
void AddApplyCommands(CLI::App& app, Context& context);
void AddQueryCommands(CLI::App& app, Context& context);
void AddTicketCommands(CLI::App& app, Context& context);
void AddWorkCommand(CLI::App& app, Context& context);
void AddWatchCommand(CLI::App& app, Context& context);
void AddTopCommand(CLI::App& app, Context& context);
void AddCompletionCommand(CLI::App& app, Context& context);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_CONTEXT_H_
