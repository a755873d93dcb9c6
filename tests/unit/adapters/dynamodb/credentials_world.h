// What tests of credentials stand on: a process with an environment, files and a clock of its own.
#pragma once

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/credentials.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::dynamodb {

inline constexpr char kDate[] = "Date: Wed, 01 Jan 2020 12:00:00 GMT";

// A folder that is there until the end of the test.
class CredentialFolder {
 public:
  CredentialFolder()
      : path_(std::filesystem::temp_directory_path() /
              absl::StrCat("semaphored-unit-keys-", getpid(), "-", ++count_)) {
    std::filesystem::create_directories(path_);
  }
  ~CredentialFolder() { std::filesystem::remove_all(path_); }
  CredentialFolder(const CredentialFolder&) = delete;
  CredentialFolder& operator=(const CredentialFolder&) = delete;

  std::string Put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  const std::filesystem::path path_;
};

// A process with an environment and a clock of its own, and neither files nor metadata at first.
struct CredentialWorld {
  CredentialFolder folder;
  std::map<std::string, std::string> environment = {{"HOME", folder.path()},
                                                    {"AWS_EC2_METADATA_DISABLED", "true"}};
  SteadyTime now = SteadyTime() + std::chrono::hours(1000);

  std::shared_ptr<CredentialSource> Source(const std::string& profile = "") {
    CredentialOptions options;
    options.profile = profile;
    options.now = [this] { return now; };
    options.region = "eu-west-1";
    options.environment = [this](const char* name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    return MakeCredentials(std::move(options));
  }
  // What it finds, "id/secret/token", or the name of a status's code.
  std::string Find(const std::string& profile = "") {
    const absl::StatusOr<Credentials> found = Source(profile)->Get();
    if (!found.ok()) return absl::StatusCodeToString(found.status().code());
    return absl::StrCat(found->access_key_id, "/", found->secret_access_key, "/",
                        found->session_token);
  }
  void UseContainer(const LoopbackHttp& server) {
    environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.address() + "/keys";
  }
  void UseInstance(const LoopbackHttp& server) {
    environment.erase("AWS_EC2_METADATA_DISABLED");
    environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.address() + "/";
  }
};

// `expiration` as a time of 2020-01-01, the day of kDate: "13:00:00".
inline LoopbackHttp::Answer Keys(const std::string& id, const std::string& expiration) {
  return {200,
          absl::StrCat(R"({"Code":"Success","AccessKeyId":")", id,
                       R"(","SecretAccessKey":"secret","Token":"token","Expiration":"2020-01-01T)",
                       expiration, R"(Z"})"),
          {kDate},
          false};
}

}  // namespace semaphored::dynamodb
