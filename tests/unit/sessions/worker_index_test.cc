#include "server/sessions/worker_index.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

using Ids = absl::btree_set<Id>;

TEST_CASE("worker index: a session works for names, and for what begins with its prefixes",
          "[unit]") {
  WorkerIndex index;
  CHECK(index.empty());
  index.Add(Id{1, 1}, {"a/1", "b"}, {});
  index.Add(Id{1, 2}, {}, {"a/"});
  CHECK(index.WorkingFor("a/1") == Ids{{1, 1}, {1, 2}});
  CHECK(index.WorkingFor("a/2") == Ids{{1, 2}});
  CHECK(index.WorkingFor("c").empty());
  CHECK(index.WithPrefix("a/") == Ids{{1, 2}});
  CHECK(index.WithPrefix("a").empty());
  index.Remove(Id{1, 1}, {"a/1", "b"}, {});
  CHECK(index.WorkingFor("a/1") == Ids{{1, 2}});
  CHECK(index.sessions() == Ids{{1, 2}});
}

TEST_CASE("worker index: a semaphore is found by each of its prefixes, and by no other", "[unit]") {
  WorkerIndex index;
  const std::vector<std::string> prefixes = {"",    "a",  "a/", "a/b", "a/bc", "a/b/d",
                                             "a/c", "a0", "b",  "a!",  "a/b!", "a/bcd/e"};
  for (uint64_t i = 0; i < prefixes.size(); ++i) index.Add(Id{2, i}, {}, {prefixes[i]});
  for (const std::string semaphore : {"a/bcd", "a/b", "a", "a/bb", "c", "a/b/d/e", "", "a!x"}) {
    Ids expected;
    for (uint64_t i = 0; i < prefixes.size(); ++i) {
      if (semaphore.starts_with(prefixes[i])) expected.insert(Id{2, i});
    }
    CHECK(index.WorkingFor(semaphore) == expected);
  }
}

TEST_CASE("worker index: what a session worked for goes when it is tidied", "[unit]") {
  WorkerIndex index;
  index.Add(Id{1, 1}, {"a"}, {"p"});
  index.Add(Id{1, 2}, {"a"}, {});
  index.Remove(Id{1, 1});
  CHECK(index.WorkingFor("a") == Ids{{1, 1}, {1, 2}});
  index.Tidy();
  CHECK(index.WorkingFor("a") == Ids{{1, 2}});
  CHECK(index.WithPrefix("p").empty());
  index.Remove(Id{1, 2});
  CHECK(index.empty());
}

}  // namespace
}  // namespace semaphored
