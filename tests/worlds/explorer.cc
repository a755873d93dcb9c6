#include "tests/worlds/explorer.h"

#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace semaphored::worlds {
namespace {

// Of one act so many commits may be lost, each in each way.
constexpr int kCommitsLost = 2;

class Explorer {
 public:
  Explorer(const WorldSpec& spec, const Planted& planted, const Bounds& bounds)
      : spec_(spec), planted_(planted), bounds_(bounds) {}

  Explored Run() {
    if (!Begin()) return std::move(result_);
    size_t level = 0;  // The first state of this depth.
    while (result_.depth < bounds_.depth && level < reached_.size()) {
      const size_t end = reached_.size();
      for (size_t i = level; i < end; ++i) {
        if (!Expand(i)) return std::move(result_);
        if (reached_.size() > bounds_.states_max) return std::move(result_);
      }
      level = end;
      ++result_.depth;
      if (bounds_.on_level) bounds_.on_level(result_);
    }
    result_.complete = level == reached_.size();
    return std::move(result_);
  }

 private:
  struct Reached {
    uint32_t from = 0;
    Action action;
    Hash hash;
  };

  bool Begin() {
    path_.clear();
    return Guarded({}, [&] {
      SmallWorld world(&spec_, &planted_);
      world.CheckState();
      Add(0, {}, world);
    });
  }

  // Runs it; a violation is recorded with the acts that lead to it.
  template <typename Run>
  bool Guarded(std::optional<Action> last, Run&& run) {
    std::string what;
    try {
      run();
      return true;
    } catch (const simulation::Violation& violation) {
      what = violation.what;
    }
    std::string text = absl::StrCat("the world ", spec_.name, ": ", what, "\n");
    for (const Action& action : path_) absl::StrAppend(&text, "  ", Describe(spec_, action), "\n");
    if (last) absl::StrAppend(&text, "  ", Describe(spec_, *last), "\n");
    result_.violation = std::move(text);
    return false;
  }

  std::unique_ptr<SmallWorld> Replay() const {
    auto world = std::make_unique<SmallWorld>(&spec_, &planted_);
    for (const Action& action : path_) world->Do(action);
    return world;
  }

  bool Expand(size_t index) {
    path_.clear();
    for (size_t i = index; i != 0; i = reached_[i].from) path_.push_back(reached_[i].action);
    std::ranges::reverse(path_);
    std::unique_ptr<SmallWorld> world;
    std::vector<Action> actions;
    bool may_lose = false;
    const bool replays = Guarded({}, [&] {
      world = Replay();
      if (world->Canonical() != reached_[index].hash) Fail("the same acts lead to two states");
      actions = world->Enabled();
      may_lose = world->MayLose();
    });
    if (!replays) return false;
    for (Action action : actions) {
      int commits = 0;
      if (!Try(index, action, std::move(world), &commits)) return false;
      for (int lost = 0; may_lose && lost < std::min(commits, kCommitsLost); ++lost) {
        for (const Fate fate : {Fate::kAnswerLost, Fate::kNever, Fate::kLater}) {
          action.commit = static_cast<int8_t>(lost);
          action.fate = fate;
          int ignored = 0;
          if (!Try(index, action, nullptr, &ignored)) return false;
        }
      }
    }
    return true;
  }

  // `world`: as the path leads to it; nullptr: to be made.
  bool Try(size_t index, const Action& action, std::unique_ptr<SmallWorld> world, int* commits) {
    ++result_.transitions;
    return Guarded(action, [&] {
      if (!world) world = Replay();
      *commits = world->Do(action);
      world->CheckState();
      Add(index, action, *world);
    });
  }

  void Add(size_t from, const Action& action, SmallWorld& world) {
    const Hash hash = world.Canonical();
    if (!seen_.insert(hash).second) return;
    reached_.push_back({static_cast<uint32_t>(from), action, hash});
    ++result_.states;
    world.CheckQuiescence();
  }

  const WorldSpec& spec_;
  const Planted& planted_;
  const Bounds bounds_;
  Explored result_;
  std::vector<Reached> reached_;
  absl::flat_hash_set<Hash> seen_;
  std::vector<Action> path_;
};

}  // namespace

Explored Explore(const WorldSpec& spec, const Planted& planted, const Bounds& bounds) {
  return Explorer(spec, planted, bounds).Run();
}

}  // namespace semaphored::worlds
