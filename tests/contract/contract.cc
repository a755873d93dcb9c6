#include "tests/contract/contract.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

class CaseOnEngine : public Catch::ITestInvoker {
 public:
  CaseOnEngine(const EngineUnderTest* engine, Case function)
      : engine_(engine), function_(function) {}

  void invoke() const override {
    World world(*engine_);
    function_(world);
  }

 private:
  const EngineUnderTest* engine_;
  Case function_;
};

}  // namespace

bool RegisterCase(const char* title, Case function, const char* file, int line) {
  for (const EngineUnderTest& engine : EnginesUnderTest()) {
    const std::string name = engine.name + "/" + title;
    const std::string tags = "[" + engine.name + "]";
    Catch::AutoReg(
        Catch::Detail::unique_ptr<Catch::ITestInvoker>(new CaseOnEngine(&engine, function)),
        Catch::SourceLineInfo(file, static_cast<size_t>(line)), Catch::StringRef(),
        Catch::NameAndTags(name, tags));
  }
  return true;
}

}  // namespace semaphored::contract
