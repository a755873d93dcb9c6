// What stands in an array, and in a row within one, comes back as it was.
#include "adapters/postgres/array.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {
namespace {

const std::vector<std::string> kAwkward = {
    "",
    " ",
    "plain",
    R"(")",
    R"("")",
    R"(\)",
    R"(\\)",
    R"(\")",
    R"("\)",
    "'",
    "$1",
    ",",
    "a,b",
    "{}",
    "{1,2}",
    R"({"a"})",
    "(",
    "()",
    "(1,2)",
    R"-("(1,)")-",
    "NULL",
    "null",
    "\n\t\r\x1",
    "\x01"
    "00",
    "größer",
    "\u6f22",
    "\U0001f512",
    "ends with \\",
};

Id OnesAndTwos() { return {0x1111111111111111, 0x2222222222222222}; }

TEST_CASE("postgres array: a row is written with both layers of quotes") {
  const Slots slots = {1, 2, 3};
  Array rows;
  rows.AddRow({{"a", 1}, {"b", true}, {"c", Column::Value()}, {"d", OnesAndTwos()}, {"e", slots}});
  rows.AddRow({{"a", -1}, {"b", false}, {"c", "x\"\\"}, {"d", Column::Value()}, {"e", Slots()}});
  CHECK(rows.size() == 2);
  CHECK(absl::StrJoin(rows.columns(), " ") == "a b c d e");
  CHECK(rows.Take() == R"-({"(1,t,,11111111111111112222222222222222,\"{1,2,3}\")",)-"
                       R"-("(-1,f,\"x\\\"\\\\\",,\"{}\")"})-");
}

TEST_CASE("postgres array: one without elements is NULL") {
  Array none;
  CHECK(none.TakeOrNull() == std::nullopt);
  Array some;
  some.Add("");
  CHECK(some.TakeOrNull() == R"({""})");
}

TEST_CASE("postgres array: a text comes back as it was", "[postgres]") {
  const TestSchema schema;
  REQUIRE(OpenEngine(schema.Url()).ok());
  Client client = schema.Connect();
  Array texts;
  Array rows;
  for (const std::string& text : kAwkward) {
    texts.Add(text);
    rows.AddRow({{"node", 7}, {"message", text}, {"news", Column::Value()}});
  }
  const auto quoted = [&](Array& array) { return client.connection().quote(array.Take()); };
  const pqxx::result read = client.Run(
      "SELECT t.text, r.node, r.message, r.news FROM ROWS FROM (unnest(" + quoted(texts) +
      "::text[])) WITH ORDINALITY AS t(text, place) JOIN unnest(" + quoted(rows) +
      "::semaphored.notice[]) WITH ORDINALITY AS r "
      "ON r.ordinality = t.place ORDER BY t.place");
  REQUIRE(read.size() == kAwkward.size());
  for (size_t i = 0; i < kAwkward.size(); ++i) {
    const pqxx::row row = read[static_cast<pqxx::result::size_type>(i)];
    CHECK(row[0].as<std::string>() == kAwkward[i]);
    CHECK(row[1].as<int>() == 7);
    CHECK_FALSE(row[2].is_null());
    CHECK(row[2].as<std::string>() == kAwkward[i]);
    CHECK(row[3].is_null());
  }
}

TEST_CASE("postgres array: a zero byte becomes the replacement character") {
  const std::string zero(1, '\0');
  Array array;
  array.Add(zero);
  CHECK(array.Take() == "{\"\xef\xbf\xbd\"}");
  Array rows;
  rows.AddRow({{"a", zero}});
  CHECK(rows.Take() == "{\"(\\\"\xef\xbf\xbd\\\")\"}");
}

// With a NULL, which another program had written, reading had no end.
TEST_CASE("postgres array: numbers are read, whatever stands among them") {
  using Numbers = std::vector<int64_t>;
  CHECK(ReadNumbers("{}") == Numbers{});
  CHECK(ReadNumbers("{1,-2}") == Numbers{1, -2});
  CHECK(ReadNumbers("{NULL,7,NULL}") == Numbers{0, 7, 0});
  CHECK(ReadNumbers("{1") == Numbers{1});
}

}  // namespace
}  // namespace semaphored::postgres
