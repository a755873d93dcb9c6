// One connection to a RabbitMQ broker with one channel, straight on librabbitmq.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/rabbitmq/librabbitmq.h"

namespace semaphored::bench {

// Not thread-safe. All but Reject and Receive block. Calls return an error's text, or nothing.
class RabbitConnection {
 public:
  RabbitConnection() = default;
  RabbitConnection(const RabbitConnection&) = delete;
  RabbitConnection& operator=(const RabbitConnection&) = delete;
  ~RabbitConnection();

  // Connects to amqp://user:password@host:port/vhost and opens the channel. First of all calls.
  std::string Open(const std::string& url);

  // `type`: "quorum" or "classic". Durable; a classic queue keeps nothing on disk as long as what
  // is published is not persistent.
  std::string DeclareQueue(const std::string& queue, const std::string& type);
  std::string DeleteQueue(const std::string& queue);

  // Publishes `count` messages and returns when the broker has confirmed them. For a connection
  // that consumes nothing.
  std::string Publish(const std::string& queue, uint32_t count, bool persistent);

  // From now on Receive hands out deliveries, one at a time until it is rejected.
  std::string Consume(const std::string& queue);

  // Gives a delivery back to its queue. Returns false if the connection is broken.
  bool Reject(uint64_t delivery_tag);

  // Reads what is there and hands each delivery to `on_delivery(delivery_tag)`. Returns false if
  // the connection is broken.
  template <typename OnDelivery>
  bool Receive(OnDelivery on_delivery) {
    amqp_maybe_release_buffers(state_);
    do {
      switch (TakeFrame()) {
        case Taken::kNothing:
          return true;
        case Taken::kBroken:
          return false;
        case Taken::kPart:
          break;
        case Taken::kDelivery:
          if (!on_delivery(delivery_tag_)) return false;
      }
      // Else the next look costs a system call in vain; whoever waits for the socket knows better.
    } while (amqp_data_in_buffer(state_) != 0 || amqp_frames_enqueued(state_) != 0);
    return true;
  }

  int descriptor() const { return amqp_get_sockfd(state_); }

 private:
  enum class Taken : uint8_t { kNothing, kPart, kDelivery, kBroken };

  Taken TakeFrame();
  std::string ErrorOf(std::string_view what, const amqp_rpc_reply_t& reply) const;

  amqp_connection_state_t state_ = nullptr;
  // Of the delivery whose frames are coming in.
  uint64_t delivery_tag_ = 0;
  uint64_t body_left_bytes_ = 0;
};

}  // namespace semaphored::bench
