#include "server/base/state_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace semaphored {
namespace {

constexpr char kOfSystem[] = "/var/lib/semaphored";

std::string ValueOf(const std::vector<std::pair<std::string, std::string>>& environment,
                    std::string_view name) {
  for (const auto& [key, value] : environment) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace

absl::StatusOr<StateFolder> FindStateFolder(
    const std::vector<std::pair<std::string, std::string>>& environment,
    const std::function<bool(const std::string& path)>& may_write) {
  const std::string given = ValueOf(environment, "STATE_DIRECTORY");
  if (!given.empty()) return StateFolder{given.substr(0, given.find(':')), "$STATE_DIRECTORY"};
  if (may_write(kOfSystem)) return StateFolder{kOfSystem, "it may write there"};
  const std::string why = fmt::format("it may not write in {}", kOfSystem);
  const std::string xdg = ValueOf(environment, "XDG_STATE_HOME");
  if (xdg.starts_with('/')) return StateFolder{xdg + "/semaphored", why};
  const std::string home = ValueOf(environment, "HOME");
  if (home.starts_with('/')) return StateFolder{home + "/.local/state/semaphored", why};
  return absl::InvalidArgumentError(
      fmt::format("store: is not set, {}, and there is neither HOME nor XDG_STATE_HOME: name one, "
                  "such as sqlite:///PATH, or set STATE_DIRECTORY",
                  why));
}

bool MayWriteIn(const std::string& path) {
  std::filesystem::path folder = path;
  // That which is there decides about those that are to be made below it.
  std::error_code error;
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path())
    folder = folder.parent_path();
  return std::filesystem::is_directory(folder, error) && access(folder.c_str(), W_OK | X_OK) == 0;
}

absl::Status MakeStateFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = path;
  if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  std::filesystem::create_directories(folder.parent_path(), error);
  if (!error && (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST)) return absl::OkStatus();
  const std::string why = error ? error.message() : std::generic_category().message(errno);
  return absl::PermissionDeniedError(
      fmt::format("the folder {} cannot be made: {}; --store names another place", path, why));
}

}  // namespace semaphored
