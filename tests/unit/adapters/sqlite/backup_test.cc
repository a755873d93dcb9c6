// A copy of the store that is made while the store commits.
#include "adapters/sqlite/backup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "adapters/sqlite/restore.h"
#include "adapters/sqlite/store.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"
#include "tests/unit/adapters/sqlite/ticket_store.h"

namespace semaphored::sqlite {
namespace {

constexpr int64_t kNoBound = int64_t{100} << 30;

// What a client of the daemon does with the descriptor.
void WriteOut(const Descriptor& copy, const std::string& path) {
  struct stat about {};
  REQUIRE(fstat(copy.get(), &about) == 0);
  std::vector<char> bytes(static_cast<size_t>(about.st_size));
  REQUIRE(pread(copy.get(), bytes.data(), bytes.size(), 0) == about.st_size);
  std::ofstream(path, std::ios::binary).write(bytes.data(), about.st_size);
}

int64_t Faults(Database* database) {
  return database
      ->QueryInt("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'")
      .value();
}

// The numbers of the tickets in the copy, whose payloads must be theirs.
std::vector<uint64_t> TicketsIn(const Descriptor& copy) {
  TemporaryFolder elsewhere;
  WriteOut(copy, elsewhere / "copy.db");
  OpenStore open = Open(elsewhere / "copy.db", {}, false);
  CHECK(Faults(open.database.get()) == 0);
  std::vector<uint64_t> found;
  for (uint64_t number = 1; number <= 2'000; ++number) {
    const PayloadPtr payload = open.store->ReadPayloads({{{"s", MakeId(number)}}}).value()[0];
    if (payload == nullptr) continue;
    found.push_back(number);
    REQUIRE(*payload == *TicketStore::PayloadOf(number));
  }
  return found;
}

std::vector<uint64_t> Numbers(uint64_t first, uint64_t last) {
  std::vector<uint64_t> numbers;
  for (uint64_t number = first; number <= last; ++number) numbers.push_back(number);
  return numbers;
}

std::vector<std::string> NamesIn(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Carries out `act` once, when half of the store is copied.
std::function<bool(int64_t, int64_t)> AtHalf(std::function<void()> act) {
  return [act = std::move(act), done = false](int64_t copied, int64_t all) mutable {
    if (!done && copied * 2 >= all) {
      done = true;
      act();
    }
    return true;
  };
}

TEST_CASE(
    "sqlite back-up: what is committed between its steps is in it, and what is removed is not") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Add(1, 500);
  int steps = 0;
  const auto change = AtHalf([&store] {
    // Pages that are copied already, and pages to come.
    store.Remove(1, 100);
    store.Add(501, 900);
    store.Remove(450, 500);
  });
  const absl::StatusOr<Descriptor> copy =
      BackUp(&store.database(), {kNoBound, [&](int64_t done, int64_t all) {
                                   ++steps;
                                   return change(done, all);
                                 }});
  REQUIRE(copy.ok());
  CHECK(steps > 10);
  std::vector<uint64_t> expected = Numbers(101, 449);
  for (const uint64_t number : Numbers(501, 900)) expected.push_back(number);
  CHECK(TicketsIn(*copy) == expected);
  CHECK(NamesIn(folder) == std::vector<std::string>{"state.db", "state.db-wal", "state.db.lock"});
  // The store goes on as ever.
  store.Add(1'000, 1'010);
  CHECK(Faults(&store.database()) == 0);
}

TEST_CASE("sqlite back-up: a file that gives space back meanwhile") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Add(1, 800);
  const int64_t before = store.FileBytes();
  const absl::StatusOr<Descriptor> copy =
      BackUp(&store.database(), {kNoBound, AtHalf([&store] {
                                   store.Remove(1, 790);
                                   store.IdleUntilAtMost(5 * kMiB, 200);
                                 })});
  REQUIRE(copy.ok());
  CHECK(store.FileBytes() < before / 2);
  CHECK(TicketsIn(*copy) == Numbers(791, 800));
}

TEST_CASE("sqlite back-up: every commit that was answered before it began is in it") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  std::atomic<uint64_t> answered = 0;
  std::atomic<bool> stop = false;
  std::thread lane([&] {
    while (!stop && answered < 1'500) {
      store.Add(answered + 1, answered + 1);
      ++answered;
    }
  });
  while (answered < 300) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const uint64_t before = answered;
  const absl::StatusOr<Descriptor> copy = BackUp(&store.database(), {kNoBound, nullptr});
  stop = true;
  lane.join();
  REQUIRE(copy.ok());
  const std::vector<uint64_t> found = TicketsIn(*copy);
  CHECK(found.size() >= before);
  CHECK(found == Numbers(1, found.size()));
}

TEST_CASE("sqlite back-up: one that is given up leaves nothing, and the next is made") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Add(1, 300);
  const auto given_up =
      BackUp(&store.database(), {kNoBound, [](int64_t, int64_t) { return false; }});
  CHECK(absl::IsCancelled(given_up.status()));
  CHECK(NamesIn(folder) == std::vector<std::string>{"state.db", "state.db-wal", "state.db.lock"});
  // As a kill in the moment before the name goes has left it.
  std::ofstream(folder / "state.db.backup") << "left";
  const absl::StatusOr<Descriptor> copy = BackUp(&store.database(), {kNoBound, nullptr});
  REQUIRE(copy.ok());
  CHECK(TicketsIn(*copy) == Numbers(1, 300));
  CHECK(NamesIn(folder) == std::vector<std::string>{"state.db", "state.db-wal", "state.db.lock"});
}

TEST_CASE("sqlite back-up: its rate is kept") {
  TemporaryFolder folder;
  TicketStore store(Open(folder / "state.db", {}, false));
  store.Add(1, 50);
  const SteadyTime began = SteadyClock::now();
  REQUIRE(BackUp(&store.database(), {10 * kMiB, nullptr}).ok());
  CHECK(SteadyClock::now() - began > std::chrono::milliseconds(250));
}

TEST_CASE("sqlite back-up: a store in memory has none") {
  const OpenStore open = Open("");
  CHECK(absl::IsFailedPrecondition(BackUp(open.database.get(), {kNoBound, nullptr}).status()));
}

TEST_CASE("sqlite back-up: it restores as a copy of a stopped daemon's files does") {
  TemporaryFolder folder;
  const std::string path = folder / "state.db";
  int64_t epoch = 0;
  {
    TicketStore store(Open(path, {}, false));
    store.Add(1, 20);
    epoch = store.database().QueryInt("SELECT value FROM meta WHERE key = 'store_epoch'").value();
    WriteOut(BackUp(&store.database(), {kNoBound, nullptr}).value(), folder / "copy.db");
    store.Add(21, 40);
  }
  RestoreOptions options;
  options.path = path;
  options.from = folder / "copy.db";
  const absl::StatusOr<Restored> restored = Restore(options);
  REQUIRE(restored.ok());
  CHECK(restored->epoch > epoch);
  const OpenStore open = Open(path, {}, false);
  CHECK(open.image.semaphores.at(0).tickets.size() == 20);
}

}  // namespace
}  // namespace semaphored::sqlite
