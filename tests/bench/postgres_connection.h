// One blocking connection to Postgres. Not thread-safe.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace semaphored::bench {

// The parameters of a prepared statement, in Postgres's binary format, which spares the server from
// reading text. An array's elements are added after BeginArray, up to the next parameter. Its
// memory is used again.
class PostgresParameters {
 public:
  void Clear();

  void Int32(int32_t value);
  void Int64(int64_t value);
  void Text(std::string_view value);

  enum class Element : uint32_t {
    kBool = 16,
    kInt64 = 20,
    kInt16 = 21,
    kInt32 = 23,
    kText = 25,
    kUuid = 2950
  };
  void BeginArray(Element element);
  void Add(int64_t value);
  void Add(std::string_view text);
  void AddUuid(uint64_t high, uint64_t low);

  int count() const { return static_cast<int>(starts_.size()); }
  // Valid until something is added.
  std::vector<const char*> values() const;
  std::vector<int> lengths() const;

 private:
  template <typename Integer>
  void Append(Integer value);
  void PutAt(size_t at, uint32_t value);
  void CountElement();

  std::string bytes_;
  std::vector<size_t> starts_;
  size_t array_at_ = 0;
  uint32_t array_count_ = 0;
  Element element_ = Element::kInt64;
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

 private:
  struct Finish {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };
  std::unique_ptr<PGconn, Finish> connection_;
};

}  // namespace semaphored::bench
