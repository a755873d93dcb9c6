// Lists of many semaphores go in small steps, and take none into use.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::rabbitmq {
namespace {

using std::chrono::milliseconds;

// SEMAPHORED_TEST_SEMAPHORES says another number: 5000, for the figures of docs/rabbitmq.md.
size_t Semaphores() {
  const char* text = std::getenv("SEMAPHORED_TEST_SEMAPHORES");
  return text == nullptr ? 60 : static_cast<size_t>(std::atoi(text));
}

struct WholeList {
  std::vector<SemaphoreInfo> infos;
  int parts = 0;
  milliseconds took{0};
  milliseconds longest{0};
};

// As the daemon's core does it: part by part, as long as there is more.
WholeList ListAll(Daemon& daemon, const std::string& prefix) {
  WholeList all;
  ListCommand list{prefix, "", 1000};
  const SteadyTime begun = SteadyClock::now();
  for (bool more = true; more;) {
    const SteadyTime asked = SteadyClock::now();
    const Outcome outcome = daemon.Do(list);
    all.longest =
        std::max(all.longest, std::chrono::duration_cast<milliseconds>(SteadyClock::now() - asked));
    ++all.parts;
    for (const SemaphoreInfo& info : outcome.report->infos) all.infos.push_back(info);
    more = outcome.report->more;
    REQUIRE((!more || !outcome.report->infos.empty()));
    if (more) list.after = all.infos.back().row.name;
  }
  all.took = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - begun);
  return all;
}

// A list by a daemon on whose clock each look at a semaphore takes a fifth of a step, and what goes on between its parts.
void CheckListBesideOthers(const std::string& prefix, size_t semaphores, Daemon* other) {
  constexpr milliseconds kLook{10};
  constexpr size_t kRowsOfPart = 6;
  const Name busy;
  // It did not beat while so much was made: the broker may have given up its connection.
  REQUIRE(Persist([&] { return other->Heartbeat(); }).ok());
  other->Create(busy.text, 1);
  SteadyTime now = SteadyClock::now();
  Daemon lists(std::chrono::hours(1), TestUrl(), [&] { return now += kLook; });
  ListCommand list{prefix, "", 1000};
  size_t shown = 0;
  for (bool more = true; more;) {
    const Outcome part = lists.Do(list);
    const std::vector<SemaphoreInfo>& infos = part.report->infos;
    REQUIRE_FALSE(infos.empty());
    CHECK(infos.size() <= kRowsOfPart);
    shown += infos.size();
    list.after = infos.back().row.name;
    more = part.report->more;
    for (Daemon* daemon : {&lists, other}) {
      CHECK(daemon->Heartbeat().ok());
      daemon->Release(busy.text, daemon->Grant(busy.text)->id);
    }
  }
  CHECK(shown == semaphores);
}

TEST_CASE("rabbitmq: a list of many semaphores goes in small steps", "[rabbitmq]") {
  const Name folder;
  Daemon a;
  std::vector<std::unique_ptr<Name>> names;
  std::vector<std::string> texts;
  const SteadyTime begun = SteadyClock::now();
  for (size_t i = 0; i < Semaphores(); ++i) {
    names.push_back(std::make_unique<Name>());
    names.back()->text = folder.text + "/" + std::to_string(i);
    a.Create(names.back()->text, 3);
    texts.push_back(names.back()->text);
  }
  const auto made = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - begun);
  std::ranges::sort(texts);
  const LeasePtr lease = a.Grant(texts[0]);
  Daemon b;
  const auto check = [&](const WholeList& list) {
    REQUIRE(list.infos.size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      CHECK(list.infos[i].row.name == texts[i]);
      CHECK(list.infos[i].held == (i == 0 ? 1 : 0));
    }
  };
  const WholeList first = ListAll(b, folder.text + "/");
  check(first);
  const WholeList second = ListAll(b, folder.text + "/");
  check(second);
  std::printf(
      "rabbitmq: %zu semaphores: made in %lld ms each; the first list took %lld ms in %d parts, "
      "the longest "
      "%lld ms; the second %lld ms in %d parts, the longest %lld ms\n",
      texts.size(), static_cast<long long>(made.count() / static_cast<int64_t>(texts.size())),
      static_cast<long long>(first.took.count()), first.parts,
      static_cast<long long>(first.longest.count()), static_cast<long long>(second.took.count()),
      second.parts, static_cast<long long>(second.longest.count()));
  // One that takes longer than a step goes in several.
  if (first.took > milliseconds(500)) CHECK(first.parts > 1);
  CHECK(second.parts <= first.parts);
  CheckListBesideOthers(folder.text + "/", texts.size(), &a);
  // What another daemon changes is seen, though it was shown before.
  a.Resize(texts[1], 7);
  CHECK(b.Until([&] { return ListAll(b, texts[1]).infos[0].row.limit == 7; }));
  REQUIRE(a.Administer(texts[2], AdminDestroy{}).kind == OutcomeKind::kDone);
  CHECK(b.Until([&] { return ListAll(b, folder.text + "/").infos.size() == texts.size() - 1; }));
}

// A channel that the broker closes, since a queue is not there, takes along all that is held through it.
TEST_CASE("rabbitmq lists: after a new connection they take no channel of a semaphore in use",
          "[rabbitmq]") {
  const Name name;
  const Name listed;
  Daemon other;
  other.Create(name.text, 1);
  other.Create(listed.text, 1);
  Relay relay(TestPort());
  Daemon daemon(milliseconds(100), TestUrlThrough(relay.port(), ""));
  CHECK(ListAll(daemon, listed.text).infos.size() == 1);
  relay.CutClients();
  const LeasePtr held = daemon.Grant(name.text);
  const auto connection = Connect();
  REQUIRE(connection->Delete(connection->OpenChannel().value(), listed.queue()).ok());
  CHECK(ListAll(daemon, listed.text).infos.size() == 1);
  CHECK(daemon.Holds(name.text, held->id));
}

}  // namespace
}  // namespace semaphored::rabbitmq
