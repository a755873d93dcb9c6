// Compares what a trace expects with what was seen; see README.md.
#ifndef SEMAPHORED_TESTS_CONFORMANCE_MATCHING_H_
#define SEMAPHORED_TESTS_CONFORMANCE_MATCHING_H_

#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace semaphore::conformance {

using Json = nlohmann::json;

// One for each trace: placeholders keep their values.
class Matcher {
 public:
  // Fields of `actual` that `expected` does not name may be anything.
  bool Matches(const Json& expected, const Json& actual);
  // Messages in order. Each names all fields of the message; what is in them it may name in part.
  bool IsWire(const Json& expected, const Json& actual);
  // Reports in any order.
  bool AreReports(const Json& expected, const Json& actual);

 private:
  bool IsPlaceholderFor(const std::string& name, const Json& actual);

  std::map<std::string, Json> values_;
};

}  // namespace semaphore::conformance

#endif  // SEMAPHORED_TESTS_CONFORMANCE_MATCHING_H_
