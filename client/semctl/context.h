// What all subcommands share: the options before them, the daemon, and how results are printed.
#ifndef SEMAPHORED_CLIENT_SEMCTL_CONTEXT_H_
#define SEMAPHORED_CLIENT_SEMCTL_CONTEXT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/semaphore/security.h"
#include "client/semctl/options.h"
#include "client/semctl/wording.h"
#include "proto/semaphore/v1/semaphore.pb.h"

// Most files need no gRPC.
namespace semaphore {
class Transport;
class UnaryCaller;
}  // namespace semaphore

namespace semaphore::semctl {

using Json = nlohmann::ordered_json;

// In one line. Bytes that are no UTF-8, of an argument or the name of a file, become U+FFFD.
std::string LineOf(const Json& json);

struct Context {
  // HOST:PORT[,HOST:PORT…]
  std::string server = "127.0.0.1:7420";
  SecurityOptions security;
  std::string output = "text";
  // --connect-timeout; negative: not given.
  std::chrono::milliseconds connect_timeout{-1};
  // What stood behind `--`, if that was there.
  std::vector<std::string> command;
  // Of the subcommand that was chosen.
  HasOption has_option = [](const std::string&) { return false; };
  // Set by the subcommand that was chosen; returns the exit code.
  std::function<int()> action;

  bool json() const { return output == "json"; }
  std::vector<std::string> endpoints() const;
  // Reads the files of `security`. It may start threads of gRPC: not before a fork.
  absl::StatusOr<std::shared_ptr<Transport>> MakeTransport() const;
  // For how long a daemon is looked for: by a command that asks something, and by one that waits for
  // permits or tickets anyway.
  std::chrono::milliseconds patience() const { return PatienceOr(kPatience); }
  std::chrono::milliseconds long_patience() const { return PatienceOr(kLongPatience); }
  // `once`: every endpoint is tried once, and then it is over.
  UnaryCaller MakeCaller(bool once = false) const;

  // Prints the error to stderr (with -o json as an object), and returns its exit code.
  int Fail(const absl::Status& status) const;
  // A word to people on stderr: "semctl: …", or an object with `event` and `message`.
  void Say(const std::string& event, const std::string& message) const;
  // The command line is wrong: says so, and returns that exit code.
  int Misused(const std::string& message) const;

 private:
  static constexpr std::chrono::milliseconds kPatience{2'000};
  static constexpr std::chrono::milliseconds kLongPatience{5'000};

  std::chrono::milliseconds PatienceOr(std::chrono::milliseconds by_default) const {
    return connect_timeout.count() < 0 ? by_default : connect_timeout;
  }
};

// A subcommand that sets Context::action to `action`. `examples` follow its help.
Command AddCommand(Command app, Context& context, const std::string& name,
                   const std::string& description, const std::string& examples,
                   std::function<int()> action);

// A request id that no other run of semctl has, so that retries are safe.
v1::RequestId NewRequestId();
// The id of a client that counts its requests.
std::string NewClientId();

// Subcommands, by file. `app` and `context` must outlive the parsing and the action.
void AddRunCommand(Command app, Context& context);
void AddLeaseCommands(Command app, Context& context);
void AddAdminCommands(Command app, Context& context);
void AddAdoptCommand(Command app, Context& context);
void AddApplyCommands(Command app, Context& context);
void AddQueryCommands(Command app, Context& context);
void AddTicketCommands(Command app, Context& context);
void AddWorkCommand(Command app, Context& context);
void AddWatchCommand(Command app, Context& context);
void AddTopCommand(Command app, Context& context);
void AddDoctorCommand(Command app, Context& context);
// Last: they speak of the commands before them.
void AddCompletionCommands(Command app, Context& context);
void AddHelpCommands(Command app, Context& context);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_CONTEXT_H_
