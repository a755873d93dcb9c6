#include "tests/bench/postgres_connection.h"

#include <type_traits>

namespace semaphored::bench {
namespace {

constexpr int kBinary = 1;

std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

void PostgresParameters::Clear() {
  bytes_.clear();
  starts_.clear();
}

template <typename Integer>
void PostgresParameters::Append(Integer value) {
  const auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
  for (int shift = static_cast<int>(8 * sizeof(Integer)) - 8; shift >= 0; shift -= 8) {
    bytes_.push_back(static_cast<char>(bits >> shift & 0xff));
  }
}

void PostgresParameters::Int32(int32_t value) {
  starts_.push_back(bytes_.size());
  Append(value);
}

void PostgresParameters::Int64(int64_t value) {
  starts_.push_back(bytes_.size());
  Append(value);
}

void PostgresParameters::Text(std::string_view value) {
  starts_.push_back(bytes_.size());
  bytes_.append(value);
}

std::vector<const char*> PostgresParameters::values() const {
  std::vector<const char*> values;
  values.reserve(starts_.size());
  for (size_t start : starts_) values.push_back(bytes_.data() + start);
  return values;
}

std::vector<int> PostgresParameters::lengths() const {
  std::vector<int> lengths;
  lengths.reserve(starts_.size());
  for (size_t i = 0; i < starts_.size(); ++i) {
    const size_t end = i + 1 < starts_.size() ? starts_[i + 1] : bytes_.size();
    lengths.push_back(static_cast<int>(end - starts_[i]));
  }
  return lengths;
}

std::string PostgresResult::error() const {
  const ExecStatusType status = PQresultStatus(result_.get());
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return {};
  std::string text = OneLine(PQresultErrorMessage(result_.get()));
  return text.empty() ? "no answer" : text;
}

std::string PostgresConnection::Open(const std::string& url) {
  connection_.reset(PQconnectdb(url.c_str()));
  if (PQstatus(connection_.get()) == CONNECTION_OK) return {};
  return OneLine(PQerrorMessage(connection_.get()));
}

std::string PostgresConnection::Prepare(const char* name, const std::string& statement) {
  return PostgresResult(PQprepare(connection_.get(), name, statement.c_str(), 0, nullptr)).error();
}

PostgresResult PostgresConnection::Run(const std::string& statements) {
  return PostgresResult(PQexec(connection_.get(), statements.c_str()));
}

std::vector<PostgresResult> PostgresConnection::RunAll(const std::string& statements) {
  std::vector<PostgresResult> results;
  PQsendQuery(connection_.get(), statements.c_str());
  while (PGresult* result = PQgetResult(connection_.get())) results.emplace_back(result);
  return results;
}

PostgresResult PostgresConnection::RunPrepared(const char* name,
                                               const PostgresParameters& parameters) {
  const std::vector<const char*> values = parameters.values();
  const std::vector<int> lengths = parameters.lengths();
  const std::vector<int> formats(values.size(), kBinary);
  return PostgresResult(PQexecPrepared(connection_.get(), name, parameters.count(), values.data(),
                                       lengths.data(), formats.data(), /*resultFormat=*/0));
}

PostgresResult PostgresConnection::RunPrepared(
    const char* name, const std::vector<std::optional<std::string>>& parameters) {
  std::vector<const char*> values;
  values.reserve(parameters.size());
  for (const auto& parameter : parameters)
    values.push_back(parameter ? parameter->c_str() : nullptr);
  return PostgresResult(PQexecPrepared(connection_.get(), name, static_cast<int>(values.size()),
                                       values.data(), /*paramLengths=*/nullptr,
                                       /*paramFormats=*/nullptr, /*resultFormat=*/0));
}

}  // namespace semaphored::bench
