// HTTP to an engine, and to what gives credentials for one. http.cc alone knows the HTTP library.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

struct curl_slist;

namespace semaphored {

// What does not change from request to request.
struct HttpOptions {
  std::string ca_file;    // PEM; empty: the system's.
  std::string cert_file;  // PEM, as is the key; empty: none.
  std::string key_file;
  std::string header;  // The name of the one header of an answer that is kept.
  // "region:service": requests are signed for it (AWS Signature, version 4). Empty: they are not.
  std::string signed_for;
  // True: a proxy of the environment (HTTPS_PROXY, NO_PROXY) may lead there. False: past any proxy.
  bool by_proxy = false;
  size_t answer_bytes_max = SIZE_MAX;
  std::chrono::milliseconds connect_timeout{2000};
};

struct HttpRequest {
  const char* method = "GET";
  std::string address;  // Empty, or not of http or https: it is not sent.
  std::vector<std::string> headers;
  const std::string* body = nullptr;  // Outlives the request; nullptr: none.
  std::string key_id;                 // Of a request that is signed.
  std::string secret_key;
  std::chrono::milliseconds timeout{0};  // At least 1.
  // A kept connection that ends without an answer is not followed by another.
  bool once = false;
};

struct HttpAnswer {
  enum class Fault : uint8_t {
    kNone,     // An answer came, with any status.
    kAddress,  // The request's address is not one.
    kTrust,    // The server's certificate is not trusted, or there is nothing to judge it by.
    kTimeOut,
    kOther,
  };
  Fault fault = Fault::kNone;
  std::string why = {};  // Of a fault.
  int times_sent = 0;    // By the library's own choice too. 0: nothing of the request has left.
  int http_status = 0;   // 0: none came.
  std::string body = {};
  std::string header = {};  // The value of HttpOptions::header; empty: it did not come.
};

// One request after another, over a connection that is kept. Redirections are not followed. Used by
// one thread at a time.
class HttpClient {
 public:
  explicit HttpClient(HttpOptions options);
  // What is under way in a pool is given up.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Blocks until the answer or the time-out.
  HttpAnswer Send(const HttpRequest& request);
  // In a pool.
  bool under_way() const { return multi_ != nullptr; }

 private:
  friend class HttpPool;

  static size_t TakeBody(char* data, size_t size, size_t count, void* self);
  static size_t TakeHeader(char* data, size_t size, size_t count, void* self);
  static int BeforeSending(void* self, char* remote, char* local, int remote_port, int local_port);
  void Prepare(const HttpRequest& request);
  HttpAnswer Take(int code);
  void LeavePool();

  const HttpOptions options_;
  void* const handle_;  // nullptr: out of memory.
  curl_slist* headers_ = nullptr;
  std::array<char, 256> error_{};
  HttpAnswer answer_;  // Of the request under way.
  bool once_ = false;
  void* multi_ = nullptr;
  std::function<void(HttpAnswer)> done_;
};

// Requests side by side, over connections that they share. Outlives what is under way. Used by one
// thread at a time, but for Wake().
class HttpPool {
 public:
  // `connections_max` 0: as many as requests.
  explicit HttpPool(int connections_max = 0);
  ~HttpPool();
  HttpPool(const HttpPool&) = delete;
  HttpPool& operator=(const HttpPool&) = delete;

  // Turn() calls `done` with the answer, unless the client has gone before; it may start others.
  // False: out of memory.
  bool Start(HttpClient* client, const HttpRequest& request, std::function<void(HttpAnswer)> done);
  // Moves what is under way. True: something of it has ended.
  bool Turn();
  // Until something can move, Wake(), or the time-out.
  void Wait(std::chrono::milliseconds timeout);
  // Ends a Wait() that waits, this one or the next. Any thread.
  void Wake();

 private:
  void* const multi_;  // nullptr: out of memory.
};

// A Date header as Unix time in seconds; nullopt: it is not one.
std::optional<int64_t> UnixTimeOfHttpDate(const std::string& date);

}  // namespace semaphored
