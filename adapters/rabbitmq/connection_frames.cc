// Of Connection: what comes in.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/wire.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr size_t kBodyBytesMax = 8 << 20;

// The number behind a name in a table; 0: it is not there.
int64_t NumberIn(const amqp_table_t& table, std::string_view name) {
  for (int i = 0; i < table.num_entries; ++i) {
    const amqp_table_entry_t& entry = table.entries[i];
    if (std::string_view(static_cast<const char*>(entry.key.bytes), entry.key.len) != name)
      continue;
    switch (entry.value.kind) {
      case AMQP_FIELD_KIND_I8:
        return entry.value.value.i8;
      case AMQP_FIELD_KIND_U8:
        return entry.value.value.u8;
      case AMQP_FIELD_KIND_I16:
        return entry.value.value.i16;
      case AMQP_FIELD_KIND_U16:
        return entry.value.value.u16;
      case AMQP_FIELD_KIND_I32:
        return entry.value.value.i32;
      case AMQP_FIELD_KIND_U32:
        return entry.value.value.u32;
      case AMQP_FIELD_KIND_I64:
      case AMQP_FIELD_KIND_U64:
        return entry.value.value.i64;
      default:
        return 0;
    }
  }
  return 0;
}

}  // namespace

absl::Status StatusOf(int code, const std::string& text) {
  const std::string message = absl::StrCat("rabbitmq: ", text, " (", code, ")");
  switch (code) {
    case AMQP_NOT_FOUND:
      return absl::NotFoundError(message);
    case AMQP_RESOURCE_LOCKED:
      return absl::AlreadyExistsError(message);
    case AMQP_PRECONDITION_FAILED:
      return absl::FailedPreconditionError(message);
    case AMQP_ACCESS_REFUSED:
    case AMQP_NOT_ALLOWED:
      return absl::PermissionDeniedError(message);
    case AMQP_RESOURCE_ERROR:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<bool> Connection::TakeFrame(SteadyTime deadline) {
  if (state_ == nullptr) return Unavailable("not connected");
  const SteadyTime now = SteadyClock::now();
  const auto left = deadline <= now ? std::chrono::milliseconds(0)
                                    : std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  const timeval timeout = TimevalOf(left);
  amqp_frame_t frame;
  const int status = amqp_simple_wait_frame_noblock(state_, &frame, &timeout);
  if (status == AMQP_STATUS_TIMEOUT) return false;
  if (status != AMQP_STATUS_OK) return Break(amqp_error_string2(status));
  if (absl::Status handled = OnFrame(frame); !handled.ok()) return handled;
  return true;
}

absl::Status Connection::OnFrame(const amqp_frame_t& frame) {
  if (frame.frame_type == AMQP_FRAME_METHOD) return OnMethod(frame);
  const auto found = incoming_.find(frame.channel);
  if (found == incoming_.end()) return absl::OkStatus();
  Incoming& message = found->second;
  if (frame.frame_type == AMQP_FRAME_HEADER) {
    message.has_header = true;
    message.body_size = frame.payload.properties.body_size;
    const auto* properties =
        static_cast<const amqp_basic_properties_t*>(frame.payload.properties.decoded);
    // From 4.3 on x-delivery-count leaves out what was nacked, taken back by a timeout or lost to a
    // partition; x-acquired-count, which is in no earlier version, counts that, too.
    if ((properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0)
      message.delivery.returned_count = std::max(NumberIn(properties->headers, "x-delivery-count"),
                                                 NumberIn(properties->headers, "x-acquired-count"));
  } else if (frame.frame_type == AMQP_FRAME_BODY) {
    // What is too long is none of ours: its beginning is enough to see that.
    const amqp_bytes_t& part = frame.payload.body_fragment;
    message.body_size -= std::min<uint64_t>(message.body_size, part.len);
    if (message.delivery.body.size() + part.len <= kBodyBytesMax)
      message.delivery.body.append(static_cast<const char*>(part.bytes), part.len);
  }
  if (message.has_header && message.body_size == 0) {
    Incoming whole = std::move(message);
    incoming_.erase(found);
    OnMessage(std::move(whole));
  }
  return absl::OkStatus();
}

void Connection::OnMessage(Incoming message) {
  switch (message.kind) {
    case Incoming::Kind::kDelivered:
      if (closing_.contains(message.delivery.channel)) return;  // It goes back with the channel.
      events_.push_back({BrokerEvent::Kind::kDelivery, message.delivery.channel,
                         std::move(message.delivery), "", absl::OkStatus()});
      return;
    case Incoming::Kind::kGot:
      if (const Channel channel = message.delivery.channel; late_.contains(channel)) {
        AnsweredLate(channel);
        if (!closing_.contains(channel))
          events_.push_back({BrokerEvent::Kind::kDelivery, channel, std::move(message.delivery), "",
                             absl::OkStatus()});
        return;
      }
      got_ = std::move(message.delivery);
      answer_ = amqp_method_t{AMQP_BASIC_GET_OK_METHOD, nullptr};
      return;
    case Incoming::Kind::kReturned:
      if (publishing_ && publishing_->channel == message.delivery.channel)
        publishing_->confirms.Return(
            absl::StrCat(message.delivery.consumer_tag, "\n", message.delivery.body));
  }
}

absl::Status Connection::OnChannelClose(Channel channel, const amqp_channel_close_t& close) {
  absl::Status why = StatusOf(close.reply_code, Text(close.reply_text));
  amqp_channel_close_ok_t ok{};
  if (absl::Status status = Send(channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok); !status.ok())
    return status;
  const bool known = is_open(channel);
  Forget(channel);
  if (!awaited_.empty() && channel == answer_channel_) closed_ = why;
  if (publishing_ && channel == publishing_->channel) publishing_->closed = why;
  if (known)
    events_.push_back({BrokerEvent::Kind::kChannelClosed, channel, {}, "", std::move(why)});
  return absl::OkStatus();
}

void Connection::AnsweredLate(Channel channel) {
  // (Once it is being closed nothing but the end of it is waited for.)
  if (closing_.contains(channel)) return;
  late_.erase(channel);
  events_.push_back({BrokerEvent::Kind::kAnsweredLate, channel, {}, "", absl::OkStatus()});
}

// The methods that begin a message.
bool Connection::BeginMessage(Channel channel, const amqp_method_t& method) {
  Incoming message;
  Delivery& delivery = message.delivery;
  switch (method.id) {
    case AMQP_BASIC_DELIVER_METHOD: {
      const auto* deliver = static_cast<const amqp_basic_deliver_t*>(method.decoded);
      message.kind = Incoming::Kind::kDelivered;
      delivery.consumer_tag = Text(deliver->consumer_tag);
      delivery.delivery_tag = deliver->delivery_tag;
      delivery.redelivered = deliver->redelivered != 0;
      break;
    }
    case AMQP_BASIC_GET_OK_METHOD: {
      const auto* got = static_cast<const amqp_basic_get_ok_t*>(method.decoded);
      message.kind = Incoming::Kind::kGot;
      delivery.delivery_tag = got->delivery_tag;
      delivery.redelivered = got->redelivered != 0;
      break;
    }
    case AMQP_BASIC_RETURN_METHOD: {
      const auto* returned = static_cast<const amqp_basic_return_t*>(method.decoded);
      message.kind = Incoming::Kind::kReturned;
      // The queue's name travels in the consumer tag's place.
      delivery.consumer_tag = Text(returned->routing_key);
      break;
    }
    default:
      return false;
  }
  delivery.channel = channel;
  incoming_[channel] = std::move(message);
  return true;
}

absl::Status Connection::OnMethod(const amqp_frame_t& frame) {
  const amqp_method_t& method = frame.payload.method;
  const Channel channel = frame.channel;
  if (BeginMessage(channel, method)) return absl::OkStatus();
  switch (method.id) {
    case AMQP_BASIC_ACK_METHOD: {
      const auto* ack = static_cast<const amqp_basic_ack_t*>(method.decoded);
      if (publishing_ && publishing_->channel == channel)
        publishing_->confirms.Settle(ack->delivery_tag, ack->multiple != 0, Confirm::kStored);
      return absl::OkStatus();
    }
    case AMQP_BASIC_NACK_METHOD: {
      const auto* nack = static_cast<const amqp_basic_nack_t*>(method.decoded);
      if (publishing_ && publishing_->channel == channel)
        publishing_->confirms.Settle(nack->delivery_tag, nack->multiple != 0, Confirm::kRefused);
      return absl::OkStatus();
    }
    case AMQP_BASIC_CANCEL_METHOD: {
      const auto* cancel = static_cast<const amqp_basic_cancel_t*>(method.decoded);
      events_.push_back({BrokerEvent::Kind::kConsumerCancelled,
                         channel,
                         {},
                         Text(cancel->consumer_tag),
                         absl::OkStatus()});
      return absl::OkStatus();
    }
    case AMQP_CHANNEL_CLOSE_METHOD:
      return OnChannelClose(channel, *static_cast<const amqp_channel_close_t*>(method.decoded));
    case AMQP_CONNECTION_CLOSE_METHOD: {
      const auto* close = static_cast<const amqp_connection_close_t*>(method.decoded);
      return Break(absl::StrCat("the broker closed the connection: ", Text(close->reply_text)));
    }
    case AMQP_CONNECTION_BLOCKED_METHOD:
      blocked_ = Text(static_cast<const amqp_connection_blocked_t*>(method.decoded)->reason);
      if (blocked_.empty()) blocked_ = "blocked";
      return absl::OkStatus();
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
      blocked_.clear();
      return absl::OkStatus();
    case AMQP_CHANNEL_CLOSE_OK_METHOD:
      if (!closing_.contains(channel)) break;
      Forget(channel);
      return absl::OkStatus();
    default:
      break;
  }
  if (const auto late = late_.find(channel); late != late_.end()) {
    if (std::ranges::count(late->second, method.id) > 0) AnsweredLate(channel);
    return absl::OkStatus();
  }
  if (channel == answer_channel_ && std::ranges::count(awaited_, method.id) > 0) answer_ = method;
  return absl::OkStatus();
}

// Takes what has come; if nothing has, waits for something, or Wake, not for long.
absl::Status Connection::TakeSome(SteadyTime deadline) {
  // All that is there, first.
  bool any = false;
  for (;;) {
    absl::StatusOr<bool> taken = TakeFrame(SteadyTime::min());
    if (!taken.ok()) return taken.status();
    if (!*taken) break;
    any = true;
  }
  const SteadyTime now = SteadyClock::now();
  if (any || now >= deadline) return absl::OkStatus();
  // Heartbeats are sent, and missed, when frames are looked for.
  const auto pause = std::min<std::chrono::milliseconds>(
      std::chrono::ceil<std::chrono::milliseconds>(deadline - now),
      std::chrono::milliseconds(url_.heartbeat) / 4);
  pollfd files[] = {{amqp_get_sockfd(state_), POLLIN, 0}, {wake_, POLLIN, 0}};
  poll(files, 2, static_cast<int>(pause.count()));
  if ((files[1].revents & POLLIN) == 0) return absl::OkStatus();
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
  woken_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BrokerEvent>> Connection::Wait(SteadyTime deadline) {
  if (state_ == nullptr) return Unavailable("not connected");
  for (;;) {
    if (events_.empty()) amqp_maybe_release_buffers(state_);
    const bool wait = events_.empty() && !woken_;
    if (absl::Status status = TakeSome(wait ? deadline : SteadyTime::min()); !status.ok())
      return status;
    if (!events_.empty() || woken_ || SteadyClock::now() >= deadline) {
      woken_ = false;
      return std::exchange(events_, {});
    }
  }
}

absl::StatusOr<std::vector<BrokerEvent>> Connection::WaitOn(Channel channel, SteadyTime deadline) {
  if (state_ == nullptr) return Unavailable("not connected");
  for (;;) {
    std::vector<BrokerEvent> found;
    std::vector<BrokerEvent> others;
    for (BrokerEvent& event : events_)
      (event.channel == channel ? found : others).push_back(std::move(event));
    events_ = std::move(others);
    if (!found.empty() || SteadyClock::now() >= deadline) return found;
    if (absl::Status status = TakeSome(deadline); !status.ok()) return status;
  }
}

void Connection::Wake() {
  const uint64_t one = 1;
  // It can only fail when it has been called 2^64 times in vain.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

}  // namespace semaphored::rabbitmq
