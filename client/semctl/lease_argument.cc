#include "client/semctl/lease_argument.h"

#include <fstream>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

constexpr std::size_t kLineBytesMax = 4'096;

}  // namespace

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
  char line[kLineBytesMax + 1] = "";
  std::ifstream named;
  if (file_ != "-") named.open(file_);
  std::istream& file = file_ == "-" ? std::cin : named;
  file.getline(line, sizeof(line));
  const bool whole = !file.fail();
  *id = std::string(absl::StripAsciiWhitespace(line));
  if (!whole || id->empty() || !IsUtf8(*id))
    return absl::InvalidArgumentError(
        absl::StrCat("--lease-file: no lease id can be read from ", file_));
  return absl::OkStatus();
}

}  // namespace semaphore::semctl
