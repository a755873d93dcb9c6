#include "client/semctl/lease_argument.h"

#include <fstream>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace semaphore::semctl {

void LeaseArgument::AddTo(Command command, const std::string& name) {
  const Option id = command.Add(name, &id_, "The lease id");
  const Option file = command
                          .Add("--lease-file", &file_,
                               "A file with the lease id in its first line, \"-\" "
                               "for stdin: arguments are seen by all users "
                               "of the machine")
                          .Takes(kTakesFile)
                          .Excludes(id);
  options_ = {id, file};
}

absl::Status LeaseArgument::Read(std::string* id) const {
  *id = id_;
  if (!id_.empty()) return absl::OkStatus();
  if (file_.empty())
    return absl::InvalidArgumentError("a lease id, or --lease-file, must be given");
  std::string line;
  if (file_ == "-") {
    std::getline(std::cin, line);
  } else {
    std::ifstream file(file_);
    std::getline(file, line);
  }
  *id = std::string(absl::StripAsciiWhitespace(line));
  if (id->empty())
    return absl::InvalidArgumentError(
        absl::StrCat("--lease-file: no lease id can be read from ", file_));
  return absl::OkStatus();
}

}  // namespace semaphore::semctl
