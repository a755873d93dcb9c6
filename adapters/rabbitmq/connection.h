// One connection to a RabbitMQ broker, with its channels. Used by one thread at a time, but for
// Wake(); never throws. Calls block for at most the time-out, after which the connection is given
// up: what was sent may or may not have been carried out.
//
// A channel that the broker closes (for RESOURCE_LOCKED, NOT_FOUND …) takes its consumers and
// unacknowledged deliveries with it, and no other channel. The number may be opened again.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/confirms.h"
#include "adapters/rabbitmq/librabbitmq.h"
#include "adapters/rabbitmq/url.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using Channel = uint16_t;

// A message that was handed to us.
struct Delivery {
  Channel channel = 0;
  std::string consumer_tag;  // Empty: of Get.
  uint64_t delivery_tag = 0;
  bool redelivered = false;
  // How often it came back to its queue before, in whatever way; only quorum queues count.
  int64_t returned_count = 0;
  std::string body;
};

// What the broker did of itself.
struct BrokerEvent {
  enum class Kind : uint8_t {
    kDelivery,
    kConsumerCancelled,  // The queue has gone; or, from 4.3 on, it has kept a message for too long.
    kChannelClosed,      // With all that was held through it.
    kAnsweredLate,       // The channel can be used again.
  };
  Kind kind = Kind::kDelivery;
  Channel channel = 0;
  Delivery delivery;
  std::string consumer_tag;  // kConsumerCancelled.
  absl::Status status;       // kChannelClosed: why.
};

struct QueueOptions {
  bool durable = true;
  bool exclusive = false;
  bool auto_delete = false;
  // A message may come back to it any number of times, on every version.
  bool quorum = false;
  // x-max-length; negative: none.
  int64_t messages_max = -1;
};

struct QueueState {
  uint32_t ready = 0;  // Messages that no connection has.
  uint32_t consumers = 0;
};

class Connection {
 public:
  // `name` is shown in the broker's list of connections.
  Connection(Url url, std::string name);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Connects if it is not connected. UNAVAILABLE, PERMISSION_DENIED (the user, its password, the
  // virtual host).
  absl::Status Open();
  bool is_open() const { return state_ != nullptr; }
  void Close();
  // Rises with each Open that made a new connection.
  uint64_t life() const { return life_; }
  const Url& url() const { return url_; }
  // "3.10.8".
  const std::string& server_version() const { return server_version_; }
  // When the broker last answered a call, so that it lived for us and we for it; of this life.
  SteadyTime answered_at() const { return answered_at_; }
  // The broker takes no publishes now, and why (connection.blocked); empty: it does.
  const std::string& blocked() const { return blocked_; }

  // Before Open. A channel whose call is not answered for half the time-out (to make or delete a
  // queue: all of it) is left alone, with what is held through it, if the broker answers on another
  // one: that call and all others on it are DEADLINE_EXCEEDED until the answer has come. What was
  // asked will be done, or the channel closed. (Otherwise the connection is given up.)
  void KeepLate() { keeps_late_ = true; }
  bool is_late(Channel channel) const { return late_.contains(channel); }

  // ---- Calls. Errors of the broker close the channel: NOT_FOUND, ALREADY_EXISTS (locked by
  // another connection), FAILED_PRECONDITION (another kind of queue), PERMISSION_DENIED; else the
  // connection has broken: UNAVAILABLE. ----

  // OUT_OF_RANGE: there are as many as may be.
  absl::StatusOr<Channel> OpenChannel();
  // Of one that is late: does not wait.
  absl::Status CloseChannel(Channel channel);
  bool is_open(Channel channel) const {
    return open_.contains(channel) && !closing_.contains(channel);
  }

  absl::StatusOr<QueueState> Declare(Channel channel, const std::string& queue,
                                     const QueueOptions& options);
  // NOT_FOUND if there is none.
  absl::StatusOr<QueueState> DeclarePassively(Channel channel, const std::string& queue);
  // How many ready messages went with it. A queue that is not there is no error.
  absl::StatusOr<uint32_t> Delete(Channel channel, const std::string& queue);
  // After a Declare or Delete that was DEADLINE_EXCEEDED: once that has been done the queue is deleted
  // and the channel closed. Does not wait.
  absl::Status DeleteWhenAnswered(Channel channel, const std::string& queue);
  // As far as is known, this has not been done yet: what is declared by that name may be deleted.
  bool is_deleting(const std::string& queue) const;

  // A queue of this connection alone, with a name that the broker makes up, which gets what is
  // published to the fan-out exchange; both are made.
  absl::StatusOr<std::string> Subscribe(Channel channel, const std::string& exchange);

  // nullopt: no message is ready.
  absl::StatusOr<std::optional<Delivery>> Get(Channel channel, const std::string& queue);
  // Deliveries come as events, at most `prefetch` that are neither acknowledged nor given back.
  // The broker gives to consumers of a higher priority first.
  absl::Status Consume(Channel channel, const std::string& queue, const std::string& consumer_tag,
                       uint16_t prefetch, int32_t priority);
  // What comes is gone from the queue when it is sent.
  absl::Status ConsumeForGood(Channel channel, const std::string& queue,
                              const std::string& consumer_tag);
  // Deliveries that were on their way still come.
  absl::Status Cancel(Channel channel, const std::string& consumer_tag);

  // ---- Sent without waiting; Sync then says whether they have arrived. ----

  // Gives back, to the queue, at its old place where that is possible.
  absl::Status Reject(Channel channel, uint64_t delivery_tag);
  // Takes it out of the queue for good.
  absl::Status Acknowledge(Channel channel, uint64_t delivery_tag);
  // Everything sent on this channel before has been carried out.
  absl::Status Sync(Channel channel);

  // ---- Publishing, with confirms ----

  absl::Status SelectConfirms(Channel channel);
  struct Publish {
    std::string queue;
    std::string body;
    bool persistent = true;
    // Empty: the default one, to the queue of that name. Otherwise `queue` says nothing, and a
    // message that no queue gets is no failure.
    std::string exchange = {};
  };
  using Confirm = rabbitmq::Confirm;
  // Mandatory, all to one exchange. One answer for each, in order; UNAVAILABLE: the broker takes no messages
  // now, and nothing was sent; or it said so meanwhile, and the connection was given up. PERMISSION_DENIED:
  // this user may not publish there; nothing was sent.
  absl::StatusOr<std::vector<Confirm>> PublishAll(Channel channel,
                                                  const std::vector<Publish>& messages);

  // ---- Events ----

  // Takes what has come; waits for something until `deadline` or Wake(). A deadline in the past:
  // only looks. Error: the connection has broken, and everything held through it is lost.
  absl::StatusOr<std::vector<BrokerEvent>> Wait(SteadyTime deadline);
  // The same, of one channel; the events of others are kept.
  absl::StatusOr<std::vector<BrokerEvent>> WaitOn(Channel channel, SteadyTime deadline);
  // Any thread.
  void Wake();

 private:
  // A message whose frames are coming in.
  struct Incoming {
    enum class Kind : uint8_t { kDelivered, kGot, kReturned };
    Kind kind = Kind::kDelivered;
    Delivery delivery;
    uint64_t body_size = 0;
    bool has_header = false;
  };
  // What one PublishAll waits for.
  struct Publishing {
    Channel channel = 0;
    Confirms confirms;
    absl::Status closed = {};  // Why the broker closed the channel meanwhile.
  };

  absl::Status Break(std::string_view why);
  absl::Status LeaveLate(Channel channel, std::chrono::milliseconds patience);
  absl::Status CloseWithoutWaiting(Channel channel);
  void AnsweredLate(Channel channel);
  absl::Status Login();
  // `method` is the library's struct of that number.
  absl::Status Send(Channel channel, amqp_method_number_t id, void* method);
  // Sends and waits for one of these answers.
  absl::StatusOr<amqp_method_t> Call(Channel channel, amqp_method_number_t id, void* method,
                                     std::initializer_list<amqp_method_number_t> answers);
  // One frame, or none until the deadline: false. Broken: an error.
  absl::StatusOr<bool> TakeFrame(SteadyTime deadline);
  absl::Status OnFrame(const amqp_frame_t& frame);
  absl::Status OnMethod(const amqp_frame_t& frame);
  bool BeginMessage(Channel channel, const amqp_method_t& method);
  void OnMessage(Incoming message);
  absl::Status OnChannelClose(Channel channel, const amqp_channel_close_t& close);
  void Forget(Channel channel);
  absl::Status TakeSome(SteadyTime deadline);

  const Url url_;
  const std::string name_;
  amqp_connection_state_t state_ = nullptr;
  uint64_t life_ = 0;
  int wake_ = -1;       // An eventfd.
  bool woken_ = false;  // Read from it, and no Wait has ended for it yet.
  std::string server_version_;
  std::string blocked_;
  SteadyTime answered_at_{};
  std::set<Channel> open_;
  bool keeps_late_ = false;
  // Channels whose last call is not answered, and which answers there are to it.
  std::map<Channel, std::vector<amqp_method_number_t>> late_;
  std::set<Channel> closing_;                // Open for the broker, and not used any more.
  std::map<Channel, std::string> deleting_;  // See DeleteWhenAnswered. All are in closing_.
  Channel probe_ = 0;                        // On which the broker is asked whether it lives.
  Channel next_channel_ = 1;
  std::vector<BrokerEvent> events_;
  std::map<Channel, Incoming> incoming_;
  // Of the call under way.
  std::optional<amqp_method_t> answer_;
  Channel answer_channel_ = 0;
  std::vector<amqp_method_number_t> awaited_;
  std::optional<Delivery> got_;
  absl::Status closed_;                    // Why the broker closed the channel of the call.
  std::map<Channel, uint64_t> published_;  // Sequence numbers, of channels with confirms.
  std::optional<Publishing> publishing_;
};

}  // namespace semaphored::rabbitmq
