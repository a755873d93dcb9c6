#include "tests/worlds/explorer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/worlds/rewound_world.h"

namespace semaphored::worlds {
namespace {

// Of one act so many commits may be lost, each in each way.
constexpr int kCommitsLost = 2;
// Of so many states one is reached by a world of its own, too.
constexpr size_t kReachedTwice = 512;

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
  // How a state was reached first.
  struct Reached {
    uint32_t from =
        0;  // Where in `reached_` the state before stands. The first one is the beginning.
    Action action;
    Hash hash;
  };

  bool Begin() {
    return Guarded([&] {
      world_ = std::make_unique<RewoundWorld>(&spec_, &planted_);
      Look(0, {}, [](SmallWorld&) {});
    });
  }

  // Runs it; a violation is recorded with the acts that lead to it.
  template <typename Run>
  bool Guarded(Run&& run) {
    std::string what;
    try {
      run();
      return true;
    } catch (const simulation::Violation& violation) {
      what = violation.what;
    }
    result_.violation = absl::StrCat("the world ", spec_.name, ": ", what, "\n", Text(trail_));
    return false;
  }

  std::string Text(const std::vector<Action>& acts) const {
    std::string text;
    for (const Action& action : acts) absl::StrAppend(&text, "  ", Describe(spec_, action), "\n");
    return text;
  }

  // ---- one state ----

  Path PathTo(size_t index) const {
    Path path;
    for (size_t i = index; i != 0; i = reached_[i].from) {
      path.acts.push_back(reached_[i].action);
      path.steps.push_back(i);
    }
    std::ranges::reverse(path.acts);
    std::ranges::reverse(path.steps);
    return path;
  }

  // A world that is led there for the first time is in the same state. (It has other addresses.)
  bool IsReachedAgain(size_t index) const {
    if (index % kReachedTwice != 0) return true;
    SmallWorld world(&spec_, &planted_);
    for (const Action& action : path_.acts) world.Do(action);
    return HashOf(world) == reached_[index].hash;
  }

  // Every act at the end of the path, with each fate that its commits may have. False: one has failed.
  template <typename Try>
  bool ForEachAct(Try&& attempt) {
    const std::vector<Action> actions = world_->world().Enabled();
    const bool may_lose = world_->world().MayLose();
    for (Action action : actions) {
      int commits = 0;
      if (!attempt(action, &commits)) return false;
      for (int lost = 0; may_lose && lost < std::min(commits, kCommitsLost); ++lost) {
        for (const Fate fate : {Fate::kAnswerLost, Fate::kNever, Fate::kLater}) {
          action.commit = static_cast<int8_t>(lost);
          action.fate = fate;
          int ignored = 0;
          if (!attempt(action, &ignored)) return false;
        }
      }
    }
    return true;
  }

  bool Expand(size_t index) {
    path_ = PathTo(index);
    trail_ = path_.acts;
    const bool same = Guarded([&] {
      world_->Follow(path_);
      if (HashOf(world_->world()) != reached_[index].hash || !IsReachedAgain(index))
        Fail("the same acts lead to two states");
    });
    return same && ForEachAct([&](const Action& action, int* commits) {
             ++result_.transitions;
             return Guarded([&] {
               Rewind(path_, action);
               Look(index, action, [&](SmallWorld& world) { *commits = world.Do(action); });
             });
           });
  }

  // To the end of the path, where the action comes next.
  void Rewind(const Path& path, const Action& action) {
    world_->Rewind();
    trail_ = path.acts;
    trail_.push_back(action);
  }

  // Checks the state to which `act` leads.
  template <typename Act>
  void Look(size_t from, const Action& action, Act&& act) {
    Hash form;
    world_->Do([&](SmallWorld& world) {
      act(world);
      world.CheckState();
      form = world.Canonical(&known_forms_);
    });
    const Spent& spent = world_->world().spent();
    const Hash hash = With(form, spent);
    if (const auto same = seen_.find(hash); same != seen_.end())
      return Compare(action, same->second);
    if (IsCovered(form, spent)) return;
    seen_.emplace(hash, static_cast<uint32_t>(reached_.size()));
    reached_.push_back({static_cast<uint32_t>(from), action, hash});
    ++result_.states;
    world_->Do([](SmallWorld& world) { world.CheckQuiescence(); });
  }

  // A state that was reached before, at no greater depth and with less spent, can do all that this one can.
  bool IsCovered(const Hash& form, const Spent& spent) const {
    Spent less;
    for (less.losses = 0; less.losses <= spent.losses; ++less.losses) {
      for (less.restarts = 0; less.restarts <= spent.restarts; ++less.restarts) {
        for (less.deaths = 0; less.deaths <= spent.deaths; ++less.deaths) {
          if (seen_.contains(With(form, less))) return true;
        }
      }
    }
    return false;
  }
  static Hash With(const Hash& form, const Spent& spent) {
    const auto all =
        static_cast<uint64_t>((spent.losses * 16 + spent.restarts) * 16 + spent.deaths);
    return {form.high, form.low ^ (all * 0x9e3779b97f4a7c15u)};
  }
  static Hash HashOf(const SmallWorld& world) { return With(world.Canonical(), world.spent()); }

  // ---- whether the canonical form leaves out too much ----

  // The act leads from the end of the path to a state that was reached as `known`: both have one future.
  void Compare(const Action& action, size_t known) {
    if (bounds_.compared_every == 0 || ++met_again_ % bounds_.compared_every != 0) return;
    Path again = path_;
    again.acts.push_back(action);
    again.steps.push_back(UINT64_MAX - met_again_);
    const std::map<Hash, Action> future = FutureOf(again);
    const std::map<Hash, Action> other = FutureOf(PathTo(known));
    const auto only_in = [](const auto& some, const auto& others) {
      return std::ranges::find_if(some,
                                  [&](const auto& each) { return !others.contains(each.first); });
    };
    const auto one = only_in(future, other);
    const auto two = only_in(other, future);
    if (one != future.end() || two != other.end()) {
      trail_ = again.acts;
      const Action& act = one != future.end() ? one->second : two->second;
      Fail(absl::StrCat("two states of one form differ after: ", Describe(spec_, act),
                        "\nOne was reached by\n", Text(PathTo(known).acts), "and one by"));
    }
    world_->Follow(path_);
  }

  // The states to which one act leads from the end of the path, and that where nothing is done.
  std::map<Hash, Action> FutureOf(const Path& path) {
    trail_ = path.acts;
    world_->Follow(path);
    std::map<Hash, Action> future{{HashOf(world_->world()), {}}};
    ForEachAct([&](const Action& action, int* commits) {
      Hash hash;
      Rewind(path, action);
      world_->Do([&](SmallWorld& world) {
        *commits = world.Do(action);
        hash = With(world.Canonical(&known_forms_), world.spent());
      });
      future.emplace(hash, action);
      return true;
    });
    return future;
  }

  const WorldSpec& spec_;
  const Planted& planted_;
  const Bounds bounds_;
  Explored result_;
  std::vector<Reached> reached_;
  absl::flat_hash_map<Hash, uint32_t> seen_;  // To where it stands in `reached_`.
  KnownForms known_forms_;
  std::unique_ptr<RewoundWorld> world_;
  Path path_;                  // To the state that is expanded.
  std::vector<Action> trail_;  // What was done to the world.
  uint64_t met_again_ = 0;
};

}  // namespace

Explored Explore(const WorldSpec& spec, const Planted& planted, const Bounds& bounds) {
  return Explorer(spec, planted, bounds).Run();
}

}  // namespace semaphored::worlds
