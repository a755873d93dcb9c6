// The contract of adapters/adapter.h as cases that every engine runs unchanged. A new engine adds a
// fixture to EnginesUnderTest() and nothing else; each case is then also "<engine>/<case>".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/open.h"

namespace semaphored::contract {

// One engine, empty at first, that lives as long as the fixture and is removed with it.
class Fixture {
 public:
  virtual ~Fixture() = default;

  // One more daemon's connection to this engine. On an exclusive engine the one before must be
  // gone.
  virtual absl::StatusOr<std::unique_ptr<Engine>> Open() = 0;

  // What was told outlives all connections. False for an engine that is the process's memory: each
  // Open() then finds nothing, and cases about restarts check just that.
  virtual bool can_restart() const = 0;

  // Changes the counter of a node: up, as another process would that takes itself for it; down, as a
  // store that was put back. False: on this engine no such thing is possible.
  virtual bool AddToCounter(const std::string& node_id, int by) {
    return node_id.empty() || by == 0;
  }
};

struct EngineUnderTest {
  std::string name;  // As it appears in the names of the cases.
  std::function<std::unique_ptr<Fixture>()> make;
};

const std::vector<EngineUnderTest>& EnginesUnderTest();

class World;
using Case = void (*)(World& world);

// Makes the case known once for each engine. Returns true.
bool RegisterCase(const char* title, Case function, const char* file, int line);

}  // namespace semaphored::contract

// CONTRACT_CASE("what is promised") { … }, with `world` in its body: a World (world.h) of its own,
// which is opened when it is first used.
#define CONTRACT_CASE(title) CONTRACT_CASE_AT(title, __COUNTER__)
#define CONTRACT_CASE_AT(title, number) CONTRACT_CASE_NAMED(title, number)
#define CONTRACT_CASE_NAMED(title, number)                                                    \
  static void ContractCase##number(World& world);                                             \
  [[maybe_unused]] static const bool contract_case_registered_##number =                      \
      ::semaphored::contract::RegisterCase(title, &ContractCase##number, __FILE__, __LINE__); \
  static void ContractCase##number([[maybe_unused]] World& world)
