// A daemon of version 1, as far as tests of upgrades need it: the statements that it sends, which
// are kept in postgres_version1 and never change.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/array.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {

inline std::string Frozen(const std::string& name) {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "postgres_version1" /
                     (name + ".sql"));
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The arguments of commit_1 after the four numbers, in their order.
inline constexpr const char* kArguments[] = {
    "moved_from",  "s_name",      "s_revision", "s_kind",      "s_next_order", "w_name",
    "w_number",    "r_name",      "r_revision", "c_session",   "c_epoch",      "q_client",
    "q_sequence",  "e_semaphore", "e_claim",    "e_number",    "e_of",         "e_slot",
    "u_semaphore", "u_claim",     "u_number",   "u_of",        "u_slot",       "g_semaphore",
    "g_claim",     "g_holder",    "g_session",  "g_client",    "g_number",     "g_of",
    "g_slot",      "d_semaphore", "d_order",    "n_semaphore", "n_claim",      "n_holder",
    "n_session",   "n_client",    "n_number",   "o_id",        "o_number",     "x_id",
    "y_id",        "y_client",    "y_holder",   "y_number",    "a_client",     "a_semaphore",
    "a_claim",     "a_number",    "f_client",   "f_below",     "forgotten",    "t_node",
    "t_message",   "t_news"};
using Version1Arguments = std::map<std::string, std::string>;  // What is not named is '{}'.

// One semaphore as a daemon of version 1 read it.
struct View {
  int64_t revision = 0;
  int64_t limit = 0;
  std::map<int64_t, std::string> slots;  // The claims by slot.
};

// One lane of a daemon of version 1, as far as these tests need it: the statements that it sends.
class Version1Daemon {
 public:
  Version1Daemon(const TestSchema& schema, const std::string& node_id) : client_(schema.Connect()) {
    client_.Run(Frozen("settings"));
    for (const char* name :
         {"join", "open_lane", "commit", "load", "changed", "settle", "given", "answers"})
      client_.connection().prepare(name, schema.For(Frozen(name)));
    const pqxx::result joined = Run("join", {node_id});
    node_ = joined[0][0].as<std::string>();
    incarnation_ = joined[0][1].as<std::string>();
    commits_ = Run("open_lane", {node_, incarnation_, "0"})[0][0].as<int64_t>();
  }

  // Empty: it has won. Otherwise the refusal.
  std::string Commit(const Version1Arguments& arguments) {
    std::vector<std::string> all = {node_, incarnation_, "0", std::to_string(commits_)};
    for (const char* name : kArguments) {
      const auto given = arguments.find(name);
      all.push_back(given == arguments.end() ? "{}" : given->second);
    }
    const pqxx::result answered = Run("commit", all);
    std::string refusal = answered[0][2].as<std::string>();
    if (refusal.empty()) {
      ++commits_;
      const std::vector<int64_t> tokens = ReadNumbers(answered[0][0].c_str());
      if (!tokens.empty()) last_token_ = tokens.back();
    }
    return refusal;
  }
  // True: the number was used up.
  bool Settle() {
    const bool used = !Run("settle", {node_, incarnation_, "0", std::to_string(commits_)}).empty();
    if (used) ++commits_;
    return used;
  }
  std::vector<std::string> Changed(const std::string& semaphore, int64_t revision) {
    std::vector<std::string> names;
    for (const auto& row :
         Run("changed", {"{" + semaphore + "}", absl::StrCat("{", revision, "}")}))
      names.push_back(row[0].as<std::string>());
    return names;
  }
  View Load(const std::string& semaphore) {
    View view;
    for (const auto& row : Run("load", {"{" + semaphore + "}"})) {
      const std::vector<int64_t> numbers = ReadNumbers(row[6].c_str());
      if (*row[0].c_str() == 's') {
        view.limit = numbers[0];
        view.revision = numbers[9];
      } else if (*row[0].c_str() == 'l') {
        view.slots[numbers[0]] = ReadId(row[2].c_str()).Hex();
      }
    }
    return view;
  }

  std::string Create(const std::string& semaphore, int64_t limit) {
    return Commit({{"s_name", "{" + semaphore + "}"},
                   {"s_revision", "{0}"},
                   {"s_kind", "{1}"},
                   {"s_next_order", "{1}"},
                   {"w_name", "{" + semaphore + "}"},
                   {"w_number", absl::StrCat("{", limit, ",0,0,30000,0,0,0,0,1000}")}});
  }
  std::string Grant(const std::string& semaphore, int64_t revision, const Id& claim, int64_t slot,
                    const std::string& client, int64_t sequence) {
    Version1Arguments arguments = Touch(semaphore, revision);
    arguments.merge(
        Version1Arguments{{"g_semaphore", "{" + semaphore + "}"},
                          {"g_claim", "{" + claim.Hex() + "}"},
                          {"g_holder", "{old}"},
                          {"g_session", "{" + claim.Hex() + "}"},
                          {"g_client", "{\"" + client + "\"}"},
                          {"g_number", absl::StrCat("{1,", sequence, ",", node_, ",", incarnation_,
                                                    ",1,30000,0,7,0,0,1000,0,1000}")},
                          {"g_of", "{1}"},
                          {"g_slot", absl::StrCat("{", slot, "}")}});
    if (!client.empty()) {
      arguments.merge(Version1Arguments{{"a_client", "{" + client + "}"},
                                        {"a_semaphore", "{" + semaphore + "}"},
                                        {"a_claim", "{" + claim.Hex() + "}"},
                                        {"a_number", absl::StrCat("{", sequence, ",1,0,0,0,0}")}});
    }
    return Commit(arguments);
  }
  std::string Release(const std::string& semaphore, int64_t revision, const std::string& claim,
                      int64_t slot) {
    Version1Arguments arguments = Touch(semaphore, revision);
    arguments.merge(Version1Arguments{{"e_semaphore", "{" + semaphore + "}"},
                                      {"e_claim", "{" + claim + "}"},
                                      {"e_number", "{1,1,2000}"},
                                      {"e_of", "{1}"},
                                      {"e_slot", absl::StrCat("{", slot, "}")}});
    return Commit(arguments);
  }

  int64_t last_token() const { return last_token_; }
  pqxx::result Run(const std::string& name, const std::vector<std::string>& arguments) {
    pqxx::nontransaction work(client_.connection());
    return work.exec_prepared(name, pqxx::prepare::make_dynamic_params(arguments));
  }

 private:
  static Version1Arguments Touch(const std::string& semaphore, int64_t revision) {
    return {{"s_name", "{" + semaphore + "}"},
            {"s_revision", absl::StrCat("{", revision, "}")},
            {"s_kind", "{0}"},
            {"s_next_order", "{8}"}};
  }

  Client client_;
  std::string node_, incarnation_;
  int64_t commits_ = 0;
  int64_t last_token_ = 0;
};

// A database as a version-1 daemon has made it, with a lease of client "client" on slot 1 of "s".
struct OldDatabase {
  TestSchema schema;
  Client other = schema.Connect();
  std::optional<Version1Daemon> old;
  const Id held = MakeId(1);
  int64_t token = 0;

  OldDatabase() {
    other.Run(Frozen("schema"));
    REQUIRE(Version() == 1);
    old.emplace(schema, "old");
    REQUIRE(old->Create("s", 3).empty());
    REQUIRE(old->Grant("s", old->Load("s").revision, held, 1, "client", 5).empty());
    token = old->last_token();
  }
  int64_t Version() { return other.Number("SELECT version FROM semaphored.store"); }
};

}  // namespace semaphored::postgres
