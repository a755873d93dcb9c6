// What sweeps and lists ask of Consul, counted.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::consul {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Names = std::vector<std::string>;

constexpr uint32_t kSemaphores = 120;
constexpr uint64_t kAtOnce = 32;

// Semaphores with a lease each, on a store whose requests are counted.
class Counted {
 public:
  explicit Counted(const TestPrefix& prefix)
      : relay_(prefix.port()), open_(Open(prefix, relay_.port())) {
    for (uint32_t i = 0; i < kSemaphores; ++i) {
      names_.push_back(absl::StrFormat("%s/%03d", i % 2 == 0 ? "team" : "jobs", i));
      SemaphoreRow row = Make(open_, names_.back(), 1);
      Transaction grant = Grant(open_, row, MakeLease(open_, i + 1));
      REQUIRE(open_.Commit(grant).kind == Kind::kWon);
    }
    Load();
  }

  OpenStore& open() { return open_; }
  const Names& names() const { return names_; }

  void Load() {
    rows_.clear();
    const ledger::Image image = open_.store->Load(names_).value();
    for (const ledger::LoadedSemaphore& each : image.semaphores) rows_.push_back(each.row);
  }
  Names Changed() {
    std::vector<const SemaphoreRow*> rows;
    for (const SemaphoreRow& row : rows_) rows.push_back(&row);
    return open_.store->Changed(rows).value();
  }
  template <typename Call>
  uint64_t Count(Call call) {
    const uint64_t before = relay_.http_requests();
    call();
    return relay_.http_requests() - before;
  }

 private:
  Relay relay_;
  OpenStore open_;
  Names names_;
  std::vector<SemaphoreRow> rows_;
};

TEST_CASE("consul: a sweep in which nothing has changed is three requests, however many are in use",
          "[consul]") {
  TestPrefix prefix;
  Counted counted(prefix);
  const uint64_t first = counted.Count([&] { CHECK(counted.Changed().empty()); });
  const uint64_t second = counted.Count([&] { CHECK(counted.Changed().empty()); });
  // The documents, the records of t… and of j….
  for (int sweep = 0; sweep < 3; ++sweep)
    CHECK(counted.Count([&] { CHECK(counted.Changed().empty()); }) == 3);
  std::printf("consul: %u in use: the first sweep is %u requests, the second %u, each other 3\n",
              kSemaphores, static_cast<unsigned>(first), static_cast<unsigned>(second));
  const uint64_t all = (kSemaphores + kAtOnce - 1) / kAtOnce;
  CHECK(first <= 1 + all);
  CHECK(second <= 3 + all);
}

// docs/consul.md, "What a sweep costs".
TEST_CASE("consul: a sweep after a change elsewhere is one request, and one for each 32 in use",
          "[consul]") {
  constexpr uint64_t kAll = (kSemaphores + kAtOnce - 1) / kAtOnce;
  TestPrefix prefix;
  Counted counted(prefix);
  OpenStore other = Open(prefix);
  const auto sweep = [&] { CHECK(counted.Changed().empty()); };
  for (int i = 0; i < 3; ++i) sweep();
  REQUIRE(counted.Count(sweep) == 3);
  for (int i = 0; i < 3; ++i) {
    Make(other, absl::StrFormat("team/other/%d", i));
    CHECK(counted.Count(sweep) == 1 + kAll);
  }
  // The documents have stood still since, and the records of t… are found to have changed.
  CHECK(counted.Count(sweep) == 3 + kAll);
  CHECK(counted.Count(sweep) == 3);
}

TEST_CASE("consul: a sweep finds what changed in a quiet store", "[consul]") {
  TestPrefix prefix;
  Counted counted(prefix);
  OpenStore other = Open(prefix);
  const auto quiet = [&] {
    counted.Load();
    for (int sweep = 0; sweep < 3; ++sweep) CHECK(counted.Changed().empty());
    CHECK(counted.Count([&] { CHECK(counted.Changed().empty()); }) == 3);
  };
  quiet();
  const std::string& name = counted.names()[7];
  SECTION("another daemon has committed") {
    ledger::LoadedSemaphore loaded = LoadOne(other, name);
    Transaction end = Begin(other);
    ledger::SemaphoreDelta delta;
    delta.name = name;
    delta.before = delta.after = loaded.row;
    delta.after->limit = 2;
    end.semaphores.push_back(delta);
    REQUIRE(other.Commit(end).kind == Kind::kWon);
    CHECK(counted.Changed() == Names{name});
  }
  SECTION("a record was removed") {
    prefix.Delete(prefix.keys().Lock(name));
    CHECK(counted.Changed() == Names{name});
  }
  SECTION("a record was written") {
    prefix.Put(prefix.keys().Lock(name), "garbled");
    CHECK(counted.Changed() == Names{name});
  }
  SECTION("a foreign client contends") {
    ForeignClient foreign(&prefix, name, 1);
    CHECK_FALSE(foreign.TryAcquire());
    CHECK(counted.Changed() == Names{name});
    quiet();
    foreign.Die();
    CHECK(counted.Changed() == Names{name});
  }
  SECTION("the session of a holder of ours was ended") {
    // It has a place in each.
    prefix.DestroySession(*Record(prefix, name).holders.begin());
    CHECK(std::ranges::count(counted.Changed(), name) == 1);
    return;
  }
  SECTION("a document was removed") {
    prefix.Delete(prefix.keys().Document(name));
    CHECK(counted.Changed() == Names{name});
  }
  // It is found again and again, until it is loaded.
  CHECK(counted.Changed() == Names{name});
  CHECK(counted.Changed() == Names{name});
}

TEST_CASE("consul: the names of all semaphores are read once, for all pages", "[consul]") {
  TestPrefix prefix;
  Counted counted(prefix);
  ForeignClient foreign(&prefix, "x/theirs", 1);
  REQUIRE(foreign.TryAcquire());
  OpenStore& open = counted.open();
  Names all = counted.names();
  all.push_back("x/theirs");
  std::ranges::sort(all);
  const auto pages = [&](uint32_t rows, uint32_t shown) {
    Names names;
    std::string after;
    for (;;) {
      const Names page = open.store->Names("", after, rows).value();
      for (size_t i = 0; i < page.size() && i < shown; ++i) names.push_back(page[i]);
      if (page.size() <= shown) return names;
      after = names.back();
    }
  };
  // The documents; the folders; the records of j…, t… and x….
  CHECK(counted.Count([&] { CHECK(pages(51, 50) == all); }) == 5);
  CHECK(counted.Count([&] { CHECK(pages(2, 1) == all); }) == 5);
  CHECK(counted.Count(
            [&] { CHECK(open.store->Names("x/", "", 10).value() == Names{"x/theirs"}); }) == 2);
  // A page that does not go on where another ended is read.
  const Names since(std::ranges::upper_bound(all, all[100]), all.end());
  CHECK(open.store->Names("", all[100], 1000).value() == since);
  // A list begins with what there is now.
  Make(open, "a/new");
  CHECK(open.store->Names("", "", 1).value() == Names{"a/new"});
}

}  // namespace
}  // namespace semaphored::consul
