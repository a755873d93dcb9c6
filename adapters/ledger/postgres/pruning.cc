#include "adapters/ledger/postgres/pruning.h"

#include "adapters/ledger/postgres/statements.h"

namespace semaphored::postgres {

void Pruner::PruneIfDue(std::chrono::steady_clock::time_point now, const Query& query) {
  if (now < last_ + options_.interval) return;
  last_ = now;
  if (looks_++ % options_.thorough_every == 0) {
    // Also what became visible after higher numbers had gone.
    history_from_ = "0";
    look_for_ended_ = true;
  }
  query("prune_parts", sql_->prune_parts, {});
  const bool more_history = PruneHistory(query);
  const bool more_lives = PruneLives(now, query);
  // There is more, perhaps: soon again.
  if (more_history || more_lives) last_ = now - options_.interval * 19 / 20;
}

bool Pruner::PruneHistory(const Query& query) {
  const Answered pruned = query("prune", sql_->prune,
                                {std::to_string(options_.history_rows),
                                 std::to_string(options_.history_age_ms), history_from_});
  if (!pruned.ok) return false;
  const bool some = pruned.rows[0][0].as<int>() > 0;
  history_from_ = some ? pruned.rows[0][1].as<std::string>() : "0";
  return some;
}

// A client that repeats a request has until then to do so.
bool Pruner::PruneLives(std::chrono::steady_clock::time_point now, const Query& query) {
  if (look_for_ended_) {
    const Answered ended = query("ended_lives", sql_->ended_lives, {});
    if (!ended.ok) return false;
    look_for_ended_ = false;
    std::map<Life, std::chrono::steady_clock::time_point> seen;
    for (const auto& row : ended.rows) {
      const Life life(row[0].as<int64_t>(), row[1].as<int64_t>());
      const auto before = ended_.find(life);
      seen[life] = before == ended_.end() ? now : before->second;
    }
    ended_ = std::move(seen);
  }
  for (const auto& [life, since] : ended_) {
    if (now < since + options_.answers_kept) continue;
    const Arguments place = {std::to_string(life.first), std::to_string(life.second)};
    const Answered pruned = query("prune_answers", sql_->prune_answers, place);
    if (!pruned.ok) return false;
    if (pruned.rows[0][0].as<int>() > 0) return true;
    if (!query("drop_life", sql_->drop_life, place).ok) return false;
    query("prune_clients", sql_->prune_clients, {});
    query("drop_node", sql_->drop_node, {place[0]});
    ended_.erase(life);
    return !ended_.empty();
  }
  return false;
}

}  // namespace semaphored::postgres
