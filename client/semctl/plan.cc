#include "client/semctl/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphore::semctl {
namespace {

using Act = Step::Act;
using Kind = Difference::Kind;

std::vector<Difference::Change> Changes(const Definition& from, const Definition& to,
                                        bool from_nothing) {
  std::vector<Difference::Change> changes;
  const std::vector<Field> before = FieldsOf(from);
  const std::vector<Field> after = FieldsOf(to);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (before[i].value == after[i].value && !(from_nothing && after[i].key == "limit")) continue;
    changes.push_back({after[i].key, from_nothing ? "" : before[i].value, after[i].value});
  }
  return changes;
}

// Why it cannot be destroyed as it stands; empty: it can.
std::string InUse(const v1::SemaphoreInfo& info) {
  const v1::TicketCounts& tickets = info.tickets();
  const std::uint64_t in_queue = tickets.queued() + tickets.delayed() + tickets.assigned();
  if (info.held() == 0 && info.waiting() == 0 && in_queue == 0 && tickets.dead() == 0 &&
      info.offers() == 0) {
    return "";
  }
  return absl::StrCat(info.held(), " held, ", info.waiting(), " waiting, ", in_queue, " tickets, ",
                      tickets.dead(), " dead letters, ", info.offers(), " free hands of workers");
}

class Planner {
 public:
  Planner(const Declarations& declared, const Semaphores& current, const PlanOptions& options)
      : declared_(declared), current_(current), options_(options) {}

  Plan Make() {
    for (const auto& [name, declared] : declared_.semaphores) {
      const auto stands = current_.find(name);
      if (stands == current_.end()) {
        Create(name, declared);
      } else {
        Change(name, declared, stands->second);
      }
    }
    if (options_.prune) Prune();
    std::stable_sort(plan_.steps.begin(), plan_.steps.end(),
                     [](const Step& a, const Step& b) { return a.act < b.act; });
    std::sort(plan_.differences.begin(), plan_.differences.end(),
              [](const auto& a, const auto& b) { return a.semaphore < b.semaphore; });
    std::sort(plan_.problems.begin(), plan_.problems.end());
    return std::move(plan_);
  }

 private:
  void Problem(const std::string& name, const std::string& what) {
    plan_.problems.push_back(absl::StrCat(name, ": ", what));
  }

  void Create(const std::string& name, const Declared& declared) {
    const Definition& to = declared.definition;
    plan_.differences.push_back({Kind::kCreate, name, Changes(Definition(), to, true)});
    plan_.steps.push_back({Act::kCreate, name, Definition(), to, declared.shrinking});
    if (to.limit == 0) Problem(name, "does not exist, and none is made with a limit of 0");
  }

  void Change(const std::string& name, const Declared& declared, const v1::SemaphoreInfo& info) {
    const Definition from = DefinitionOf(info);
    const Definition& to = declared.definition;
    if (info.destroying()) Problem(name, "is being destroyed; wait until it is gone");
    if (from == to) {
      ++plan_.unchanged;
      return;
    }
    plan_.differences.push_back({Kind::kChange, name, Changes(from, to, false)});
    if (!options_.replace) Problem(name, "exists already, and is not the same; see --replace");
    Definition between = to;
    between.limit = from.limit;
    if (between != from)
      plan_.steps.push_back({Act::kConfigure, name, from, between, declared.shrinking});
    if (from.limit == to.limit) return;
    const bool grows = to.limit > from.limit;
    plan_.steps.push_back(
        {grows ? Act::kGrow : Act::kShrink, name, between, to, declared.shrinking});
    if (declared.shrinking.policy == v1::SHRINK_POLICY_REFUSE && info.held() > to.limit) {
      Problem(name, absl::StrCat("the limit would be ", to.limit, ", but ", info.held(),
                                 " are held, and shrink is \"refuse\""));
    }
  }

  void Prune() {
    for (const auto& [name, info] : current_) {
      if (declared_.semaphores.contains(name) || !declared_.Covers(name)) continue;
      if (info.destroying()) continue;
      const Definition from = DefinitionOf(info);
      plan_.differences.push_back(
          {Kind::kDestroy, name, {{"limit", absl::StrCat(from.limit), ""}}});
      plan_.steps.push_back({Act::kDestroy, name, from, Definition(), Shrinking()});
      if (const std::string in_use = InUse(info); !in_use.empty())
        Problem(name, absl::StrCat("is not declared, but in use (", in_use, "): not destroyed"));
    }
  }

  const Declarations& declared_;
  const Semaphores& current_;
  const PlanOptions& options_;
  Plan plan_;
};

}  // namespace

Plan MakePlan(const Declarations& declared, const Semaphores& current, const PlanOptions& options) {
  return Planner(declared, current, options).Make();
}

}  // namespace semaphore::semctl
