// The engines that the contract is run on.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "tests/contract/contract.h"
#include "tests/contract/shared_engine.h"

namespace semaphored::contract {
namespace {

namespace fs = std::filesystem;

class SqliteInMemory : public Fixture {
 public:
  absl::StatusOr<std::unique_ptr<Engine>> Open() override { return OpenEngine("sqlite::memory:"); }
  bool can_restart() const override { return false; }
};

// A file in a folder of its own. `options` are those of the URL, after the '?'.
class SqliteOnDisk : public Fixture {
 public:
  explicit SqliteOnDisk(std::string options) : options_(std::move(options)) {
    std::string pattern = (fs::temp_directory_path() / "semaphored-contract-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~SqliteOnDisk() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  absl::StatusOr<std::unique_ptr<Engine>> Open() override {
    return OpenEngine("sqlite://" + (folder_ / "state.db").string() + options_);
  }
  bool can_restart() const override { return true; }

 private:
  const std::string options_;
  fs::path folder_;
};

}  // namespace

const std::vector<EngineUnderTest>& EnginesUnderTest() {
  static const auto* engines = new std::vector<EngineUnderTest>{
      {"sqlite-memory", [] { return std::make_unique<SqliteInMemory>(); }},
      {"sqlite-disk", [] { return std::make_unique<SqliteOnDisk>(""); }},
      // As on disk, but one guarantee less: what it cannot do must be refused, and nothing else
      // change.
      {"sqlite-no-history",
       [] { return std::make_unique<SqliteOnDisk>("?history_rows=0&synchronous=off"); }},
      {"shared", [] { return MakeSharedFixture(/*lossy=*/false); }},
      {"shared-lossy", [] { return MakeSharedFixture(/*lossy=*/true); }},
  };
  return *engines;
}

}  // namespace semaphored::contract
