// All statements that are prepared, those of the store and those of the nodes. Their texts are written for the schema "semaphored";
// see ForSchema.
#pragma once

#include <deque>
#include <string>
#include <utility>

namespace semaphored::postgres {

// A statement with arguments, which a connection prepares on its first use. Only Statements makes one, so that a test finds each of
// them there, and sees how it is carried out.
class Statement {
 public:
  const std::string& name() const { return name_; }
  const std::string& sql() const { return sql_; }

 private:
  friend class Statements;
  Statement(std::string name, std::string sql) : name_(std::move(name)), sql_(std::move(sql)) {}

  std::string name_;
  std::string sql_;
};

// Of one schema. Does not change while it lives.
class Statements {
 private:
  std::deque<Statement> all_;  // Before those that stand in it.

 public:
  explicit Statements(const std::string& schema);
  Statements(const Statements&) = delete;
  Statements& operator=(const Statements&) = delete;

  const std::deque<Statement>& all() const { return all_; }

  const Statement& commit;
  const Statement& load;
  const Statement& look;
  const Statement& payloads;
  const Statement& changed;
  const Statement& settle;
  const Statement& given;
  const Statement& tokens;
  const Statement& lock;
  const Statement& busy;
  const Statement& requests;
  const Statement& session;
  const Statement& session_semaphores;
  const Statement& end_lanes;
  const Statement& hosted_sessions;
  const Statement& held_by_sessions;
  const Statement& hosted_leases;
  const Statement& hosted_waiters;
  const Statement& hosted_tickets;
  const Statement& names;
  const Statement& history;
  const Statement& history_of;
  const Statement& end_foreign;
  const Statement& withheld;
  const Statement& withheld_over;
  const Statement& prune;
  const Statement& prune_parts;
  const Statement& ended_lives;
  const Statement& prune_ended;
  const Statement& prune_requests;
  const Statement& drop_lives;
  const Statement& prune_clients;
  const Statement& drop_nodes;
  const Statement& history_span;
  const Statement& oldest_snapshot;
  const Statement& open_lane;
  const Statement& join;
  const Statement& heartbeat;
  const Statement& synchronous;
  const Statement& leave;
  const Statement& observe;
  const Statement& declare_dead;

 private:
  const Statement& Add(const char* name, const std::string& sql, const std::string& schema);
};

}  // namespace semaphored::postgres
