#include "adapters/postgres/pruning.h"

#include "absl/strings/str_cat.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/statements.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

namespace {
// Of 8 KiB, each with up to a hundred requests.
constexpr int64_t kPagesAtOnce = 16;
}  // namespace

Answered Pruner::Ask(const Query& query, const char* name, const std::string& sql,
                     const Arguments& arguments) {
  Answered answered;
  answered.ok = false;
  if (!broken_.ok()) return answered;
  answered = query(name, sql, arguments);
  // Without a state it was not the server who said so.
  if (!answered.ok && answered.failure.state.empty()) broken_ = answered.failure.status;
  return answered;
}

absl::Status Pruner::PruneIfDue(SteadyTime now, const Query& query) {
  if (last_ && now < *last_ + options_.interval) return absl::OkStatus();
  broken_ = absl::OkStatus();
  last_ = now;
  if (looks_++ % options_.thorough_every == 0) {
    // Also what became visible after higher numbers had gone.
    history_from_ = "0";
    look_for_ended_ = true;
  }
  Ask(query, "prune_parts", sql_->prune_parts, {});
  const bool more_history = PruneHistory(query);
  PruneEnded(query);
  const bool more_lives = PruneLives(now, query);
  // There is more, perhaps: soon again.
  if (more_history || more_lives) last_ = now - options_.interval * 39 / 40;
  return broken_;
}

bool Pruner::PruneHistory(const Query& query) {
  const Answered pruned = Ask(query, "prune", sql_->prune,
                              {std::to_string(options_.history_rows),
                               std::to_string(options_.history_age_ms), history_from_});
  if (!pruned.ok) return false;
  const bool some = pruned.rows[0][0].as<int>() > 0;
  history_from_ = some ? pruned.rows[0][1].as<std::string>() : "0";
  return some;
}

// Slowly: it finds little, and what it has not found yet does no harm.
void Pruner::PruneEnded(const Query& query) {
  const Answered pruned =
      Ask(query, "prune_ended", sql_->prune_ended, {ended_from_.first, ended_from_.second});
  if (!pruned.ok) return;
  ended_from_ = {"", "0"};
  if (!pruned.rows.empty())
    ended_from_ = {pruned.rows[0][0].as<std::string>(), pruned.rows[0][1].as<std::string>()};
}

bool Pruner::LookForEnded(SteadyTime now, const Query& query) {
  const Answered ended = Ask(query, "ended_lives", sql_->ended_lives, {});
  if (!ended.ok) return false;
  std::map<Life, SteadyTime> seen;
  for (const auto& row : ended.rows) {
    const Life life(row[0].as<int64_t>(), row[1].as<int64_t>());
    const auto before = ended_.find(life);
    seen[life] = before == ended_.end() ? now : before->second;
  }
  ended_ = std::move(seen);
  return true;
}

// A client that repeats a request has until then to do so.
bool Pruner::PruneLives(SteadyTime now, const Query& query) {
  if (going_.empty()) {
    if (!look_for_ended_ || !LookForEnded(now, query)) return false;
    look_for_ended_ = false;
    for (const auto& [life, since] : ended_) {
      if (now >= since + options_.requests_kept) going_.push_back(life);
    }
    if (going_.empty()) return false;
    page_ = 0;
  }
  Array nodes;
  Array incarnations;
  for (const auto& [node, incarnation] : going_) {
    nodes.Add(node);
    incarnations.Add(incarnation);
  }
  const std::string node_array = nodes.Take();
  const std::string incarnation_array = incarnations.Take();
  const auto place = [](int64_t page) { return absl::StrCat("(", page, ",0)"); };
  const Answered pruned =
      Ask(query, "prune_requests", sql_->prune_requests,
          {node_array, incarnation_array, place(page_), place(page_ + kPagesAtOnce)});
  if (!pruned.ok) return false;
  page_ += kPagesAtOnce;
  if (page_ < pruned.rows[0][0].as<int64_t>()) return true;
  // They can have written nothing since: their lanes had ended.
  going_.clear();
  Ask(query, "drop_lives", sql_->drop_lives, {node_array, incarnation_array});
  Ask(query, "prune_clients", sql_->prune_clients, {});
  Ask(query, "drop_nodes", sql_->drop_nodes, {node_array});
  return false;
}

}  // namespace semaphored::postgres
