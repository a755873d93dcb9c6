// A listener between a client and a server that fails as networks do: answers get lost, requests
// are late, connections end on one side only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

namespace semaphored {

// Passes bytes on, in a thread of its own. What is said of connections is said of those that there
// are; new ones are passed on. Any thread.
class Relay {
 public:
  // To a server on a port of the loopback device.
  explicit Relay(uint16_t server_port);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  uint16_t port() const { return port_; }
  // Requests of HTTP that have come from clients. Right for clients that send a request's head at once, and
  // none before the former is answered.
  uint64_t http_requests() const { return http_requests_; }

  // The server hears everything, and is not heard any more.
  void LoseAnswers();
  // The same, when each connection has been sent so many bytes more.
  void LoseAnswersAfter(size_t bytes);
  // Nor on new ones.
  void LoseAllAnswers();
  // What the client says is still on its way, also when it has hung up.
  void DelayRequests();
  // What was on its way arrives; returns when the server has answered it, to nobody. False: not
  // within ten seconds.
  bool DeliverDelayed();
  // Ends the clients' side. The server does not learn of it.
  void CutClients();
  // Of servers that speak AMQP 0-9-1: the answers by this method are late, with all that follows on their channels.
  // REQUIRES: no answer is on its way.
  void DelayAnswers(uint32_t amqp_method);
  // They arrive.
  void DeliverAnswers();

 private:
  struct Link {
    int client = -1;
    int server = -1;
    bool answers_lost = false;
    size_t answer_bytes_left = SIZE_MAX;
    bool requests_delayed = false;
    // What was delayed has been sent on; the client gave up before, though its end may not have been seen yet.
    bool delivered_late = false;
    std::string delayed;
    uint32_t delayed_method = 0;  // 0: no answer is delayed.
    std::set<uint16_t> delayed_channels;
    std::string frames;  // The beginning of one.
    std::string delayed_answers;
  };

  void Run();
  void Accept();
  void FromClient(Link* link);
  void FromServer(Link* link);
  static void SortFrames(Link* link, std::string_view bytes);
  void Notify();

  int listener_ = -1;
  int wake_ = -1;  // An eventfd.
  uint16_t port_ = 0;
  const uint16_t server_port_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::list<Link> links_;
  bool all_lost_ = false;
  uint64_t late_answers_ = 0;  // To clients that have gone.
  std::atomic<uint64_t> http_requests_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// A listener that takes connections and never says a word.
class SilentListener {
 public:
  SilentListener();
  ~SilentListener();
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  uint16_t port() const { return port_; }

 private:
  int socket_ = -1;
  uint16_t port_ = 0;
};

}  // namespace semaphored
