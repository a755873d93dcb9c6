// What is requested of an engine's HTTP interface. Every URL to Consul and to AWS is built here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace semaphored {

// A path and its options. A value; any thread.
class HttpTarget {
 public:
  // `route` is the interface's own: a literal such as "/v1/kv/", which is not encoded. `resource` may
  // hold any bytes: each of its segments is encoded, and '/' separates them. It may end with '/'.
  template <size_t n>
  HttpTarget(const char (&route)[n], std::string_view resource = "")  // NOLINT: a literal is one.
      : HttpTarget(std::string_view(route, n - 1), resource, 0) {}

  // "name", or "name=value" with the value encoded.
  HttpTarget& Option(std::string_view name, std::string_view value = "");

  // The whole URL; `origin` is such as "http://127.0.0.1:8500". Empty, which the HTTP library
  // refuses before it sends a byte, if a segment of the resource is empty, "." or "..": servers and
  // proxies take these, encoded too, for another path.
  std::string UrlAt(std::string_view origin) const;

 private:
  HttpTarget(std::string_view route, std::string_view resource, int);

  std::string text_;  // Empty: no such target.
  bool has_options_;
};

}  // namespace semaphored
