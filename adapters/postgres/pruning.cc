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

Answered Pruner::Ask(const Query& query, UpkeepWork work, const Statement& statement,
                     const Arguments& arguments) {
  Answered answered;
  answered.ok = false;
  if (!broken_.ok()) return answered;
  answered = query(statement, arguments);
  if (answered.ok) return answered;
  // Without a state it was not the server that refused.
  if (answered.failure.state.empty()) {
    broken_ = answered.failure.status;
  } else {
    upkeep_->Failed(work, answered.failure.status);
  }
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
  if (!walked_ || now >= *walked_ + options_.interval) {
    walked_ = now;
    Walk(query);
  }
  const bool more_history = PruneHistory(query);
  const bool more_lives = PruneLives(now, query);
  Measure(now, query);
  // There is more, perhaps: soon again.
  if (more_history || more_lives) last_ = now - options_.interval * 39 / 40;
  return broken_;
}

void Pruner::Walk(const Query& query) {
  Ask(query, UpkeepWork::kHistory, sql_->prune_parts, {});
  // Not between the requests of a life that goes and the floors that go with it: a floor stays as long as any request
  // of its client does.
  if (going_.empty()) PruneEnded(query);
}

bool Pruner::PruneHistory(const Query& query) {
  const Answered pruned = Ask(query, UpkeepWork::kHistory, sql_->prune,
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
      Ask(query, UpkeepWork::kRequests, sql_->prune_ended, {ended_from_.first, ended_from_.second});
  if (!pruned.ok) return;
  ended_from_ = {"", "0"};
  if (!pruned.rows.empty())
    ended_from_ = {pruned.rows[0][0].as<std::string>(), pruned.rows[0][1].as<std::string>()};
}

bool Pruner::LookForEnded(SteadyTime now, const Query& query) {
  const Answered ended = Ask(query, UpkeepWork::kNodes, sql_->ended_lives, {});
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
  if (clients_from_) {
    const Answered walked =
        Ask(query, UpkeepWork::kRequests, sql_->prune_clients, {*clients_from_});
    if (!walked.ok) return false;
    if (!walked.rows.empty()) {
      clients_from_ = walked.rows[0][0].as<std::string>();
      return true;
    }
    // The lives go last: until then another daemon finds them, should this one end. They can have written nothing since.
    clients_from_.reset();
    going_.clear();
    Ask(query, UpkeepWork::kNodes, sql_->drop_lives, {node_array, incarnation_array});
    Ask(query, UpkeepWork::kNodes, sql_->drop_nodes, {node_array});
    return false;
  }
  const auto place = [](int64_t page) { return absl::StrCat("(", page, ",0)"); };
  const Answered pruned =
      Ask(query, UpkeepWork::kRequests, sql_->prune_requests,
          {node_array, incarnation_array, place(page_), place(page_ + kPagesAtOnce)});
  if (!pruned.ok) return false;
  page_ += kPagesAtOnce;
  if (page_ < pruned.rows[0][0].as<int64_t>()) return true;
  clients_from_ = "";
  return true;
}

void Pruner::Measure(SteadyTime now, const Query& query) {
  if (measured_ && now < *measured_ + options_.measured_every) return;
  measured_ = now;
  const Answered span = Ask(query, UpkeepWork::kFigures, sql_->history_span, {});
  if (span.ok) upkeep_->SetHistory(span.rows[0][0].as<uint64_t>(), options_.history_rows);
  const Answered seen = Ask(query, UpkeepWork::kFigures, sql_->oldest_snapshot, {});
  if (!seen.ok) return;
  const std::string oldest = seen.rows.empty() ? "" : seen.rows[0][0].as<std::string>();
  if (oldest != oldest_) oldest_since_ = now;
  oldest_ = oldest;
  const auto age = oldest.empty() ? SteadyTime::duration::zero() : now - oldest_since_;
  upkeep_->SetOldestSnapshot(std::chrono::duration_cast<std::chrono::milliseconds>(age));
}

}  // namespace semaphored::postgres
