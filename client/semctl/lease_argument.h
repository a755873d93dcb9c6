// How a command is given the lease that it is about.
#ifndef SEMAPHORED_CLIENT_SEMCTL_LEASE_ARGUMENT_H_
#define SEMAPHORED_CLIENT_SEMCTL_LEASE_ARGUMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/semctl/options.h"

namespace semaphore::semctl {

// Either the lease id itself, which all users of the machine can read in the list of its processes, or a file with it.
class LeaseArgument {
 public:
  // An option or argument of this name, and --lease-file. Must outlive the command.
  void AddTo(Command command, const std::string& name = "LEASE");
  std::vector<Option> options() const { return options_; }
  bool given() const { return !id_.empty() || !file_.empty(); }

  // Fills in the id, from the first line of the file ("-": standard input) if there is one. Blocks to read it.
  // INVALID_ARGUMENT: neither was given, or no lease id can be read.
  absl::Status Read(std::string* id) const;

 private:
  std::string id_;
  std::string file_;
  std::vector<Option> options_;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_LEASE_ARGUMENT_H_
