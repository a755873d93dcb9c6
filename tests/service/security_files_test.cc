// When the files of Security are read again.
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "server/rpc/security.h"

namespace semaphored::test {
namespace {

class WrittenFile {
 public:
  WrittenFile() {
    std::string folder = (std::filesystem::temp_directory_path() / "semaphored-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
  }
  ~WrittenFile() { std::filesystem::remove_all(folder_); }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;

  void Write(const std::string& text) const { std::ofstream(path()) << text; }
  std::string path() const { return folder_ / "access.toml"; }

 private:
  std::filesystem::path folder_;
};

// While it stands, the process can open no file.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit none{0, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("security: a file that could not be read for a moment is read at the next look") {
  const WrittenFile file;
  file.Write("[identities.a]\nrules = []\n[identities.removed]\nrules = []\n");
  SecurityOptions options;
  options.access_file = file.path();
  auto security = Security::Open(options);
  REQUIRE(security.ok());
  CHECK((*security)->policy()->identities().size() == 2);
  file.Write("[identities.a]\nrules = []\n");
  {
    const NoDescriptors none;
    (*security)->LookOnce();
  }
  CHECK((*security)->policy()->identities().size() == 2);
  // It looks as it did at the last look.
  (*security)->LookOnce();
  CHECK((*security)->policy()->identities().size() == 1);
}

}  // namespace semaphored::test
