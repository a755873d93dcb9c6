// One blocking connection to Postgres. Not thread-safe.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace semaphored::bench {

// The parameters of a prepared statement, in Postgres's binary format, which spares the server from
// reading text. Its memory is used again.
class PostgresParameters {
 public:
  void Clear();

  void Int32(int32_t value);
  void Int64(int64_t value);
  void Text(std::string_view value);

  int count() const { return static_cast<int>(starts_.size()); }
  // Valid until something is added.
  std::vector<const char*> values() const;
  std::vector<int> lengths() const;

 private:
  template <typename Integer>
  void Append(Integer value);

  std::string bytes_;
  std::vector<size_t> starts_;
};

class PostgresResult {
 public:
  explicit PostgresResult(PGresult* result) : result_(result) {}

  // What went wrong, in one line; empty: nothing.
  std::string error() const;
  int rows() const { return PQntuples(result_.get()); }
  // Of a text result.
  std::string_view Value(int row, int column) const {
    return PQgetvalue(result_.get(), row, column);
  }
  // Empty if there is no such column.
  std::string_view Value(int row, const char* column) const {
    const int number = PQfnumber(result_.get(), column);
    return number < 0 ? std::string_view() : Value(row, number);
  }

 private:
  struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  std::unique_ptr<PGresult, Clear> result_;
};

class PostgresConnection {
 public:
  // Returns what went wrong; empty: nothing.
  std::string Open(const std::string& url);
  std::string Prepare(const char* name, const std::string& statement);

  // The last one's result, if `statements` are several; those after one that fails are not run.
  PostgresResult Run(const std::string& statements);
  // All of their results.
  std::vector<PostgresResult> RunAll(const std::string& statements);
  PostgresResult RunPrepared(const char* name, const PostgresParameters& parameters = {});
  // As text; nullopt: NULL.
  PostgresResult RunPrepared(const char* name,
                             const std::vector<std::optional<std::string>>& parameters);

 private:
  struct Finish {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };
  std::unique_ptr<PGconn, Finish> connection_;
};

}  // namespace semaphored::bench
