// One signed request on its way, among others over the same connections.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "adapters/dynamodb/credentials.h"
#include "adapters/dynamodb/reply.h"
#include "adapters/dynamodb/url.h"

using CURL = void;
struct curl_slist;

namespace semaphored::dynamodb {

// The HTTP library is made ready for this process. Any thread, any number of times.
void InitHttp();

// Used again and again, by one thread.
class Exchange {
 public:
  explicit Exchange(const Url& url);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Makes the handle ready to be driven; nullptr: out of memory. `body` outlives Take().
  // `once`: a kept connection that turns out to be closed is not followed by another.
  CURL* Prepare(const std::string& operation, const std::string& body,
                const Credentials& credentials, std::chrono::milliseconds timeout, bool once);
  // After the handle was driven to its end.
  Received Take(int curl_code);
  // How often the request was sent, by the library's own choice too.
  int times_sent() const { return times_sent_; }

 private:
  static size_t TakeBody(char* data, size_t size, size_t count, void* self);
  static size_t TakeHeader(char* data, size_t size, size_t count, void* self);
  static int BeforeSending(void* self, char* remote, char* local, int remote_port, int local_port);

  CURL* const handle_;
  curl_slist* headers_ = nullptr;
  std::string answer_;
  std::optional<uint32_t> crc32_;
  std::array<char, 256> error_{};
  int times_sent_ = 0;
  bool once_ = false;
};

}  // namespace semaphored::dynamodb
