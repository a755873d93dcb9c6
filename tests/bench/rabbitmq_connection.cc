#include "tests/bench/rabbitmq_connection.h"

#include <array>

namespace semaphored::bench {
namespace {

constexpr amqp_channel_t kChannel = 1;
constexpr int kFrameBytesMax = 131'072;
constexpr timeval kPatience{30, 0};
constexpr timeval kAtOnce{0, 0};
constexpr uint8_t kTransient = 1;
constexpr uint8_t kPersistent = 2;
// As long as a token of the daemon's.
constexpr const char* kBody = R"({"base":4294967296,"slot":10})";

amqp_bytes_t Bytes(const std::string& text) {
  return {text.size(), const_cast<char*>(text.data())};  // NOLINT: a C library's type.
}

}  // namespace

RabbitConnection::~RabbitConnection() {
  if (state_ != nullptr) amqp_destroy_connection(state_);
}

std::string RabbitConnection::ErrorOf(std::string_view what, const amqp_rpc_reply_t& reply) const {
  std::string text = std::string(what) + ": ";
  if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
    return text + amqp_error_string2(reply.library_error);
  if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
    const auto* close = static_cast<const amqp_channel_close_t*>(reply.reply.decoded);
    return text.append(static_cast<const char*>(close->reply_text.bytes), close->reply_text.len);
  }
  if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
    const auto* close = static_cast<const amqp_connection_close_t*>(reply.reply.decoded);
    return text.append(static_cast<const char*>(close->reply_text.bytes), close->reply_text.len);
  }
  return text + "refused";
}

std::string RabbitConnection::Open(const std::string& url) {
  // It is parsed in place. Options behind a question mark are the daemon's.
  std::string parsed_url = url.substr(0, url.find_first_of("?\r\n"));
  amqp_connection_info parsed{};
  if (amqp_parse_url(parsed_url.data(), &parsed) != AMQP_STATUS_OK) return "not a URL: " + url;
  state_ = amqp_new_connection();
  amqp_socket_t* socket = amqp_tcp_socket_new(state_);
  const int status = amqp_socket_open_noblock(socket, parsed.host, parsed.port, &kPatience);
  if (status != AMQP_STATUS_OK) return std::string("connect: ") + amqp_error_string2(status);
  const std::string vhost = *parsed.vhost == '\0' ? "/" : parsed.vhost;
  amqp_rpc_reply_t reply = amqp_login(state_, vhost.c_str(), 0, kFrameBytesMax, 0,
                                      AMQP_SASL_METHOD_PLAIN, parsed.user, parsed.password);
  if (reply.reply_type != AMQP_RESPONSE_NORMAL) return ErrorOf("login", reply);
  if (amqp_channel_open(state_, kChannel) == nullptr)
    return ErrorOf("opening a channel", amqp_get_rpc_reply(state_));
  return {};
}

std::string RabbitConnection::DeclareQueue(const std::string& queue, const std::string& type) {
  amqp_table_entry_t entry{};
  entry.key = amqp_cstring_bytes("x-queue-type");
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = Bytes(type);
  const amqp_table_t arguments{1, &entry};
  if (amqp_queue_declare(state_, kChannel, Bytes(queue), 0, /*durable=*/1, 0, 0, arguments) ==
      nullptr)
    return ErrorOf("declaring a queue", amqp_get_rpc_reply(state_));
  return {};
}

std::string RabbitConnection::DeleteQueue(const std::string& queue) {
  if (amqp_queue_delete(state_, kChannel, Bytes(queue), 0, 0) == nullptr)
    return ErrorOf("deleting a queue", amqp_get_rpc_reply(state_));
  return {};
}

std::string RabbitConnection::Publish(const std::string& queue, uint32_t count, bool persistent) {
  if (amqp_confirm_select(state_, kChannel) == nullptr)
    return ErrorOf("asking for confirms", amqp_get_rpc_reply(state_));
  amqp_basic_properties_t properties{};
  properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
  properties.delivery_mode = persistent ? kPersistent : kTransient;
  for (uint32_t i = 0; i < count; ++i) {
    const int status = amqp_basic_publish(state_, kChannel, amqp_empty_bytes, Bytes(queue), 0, 0,
                                          &properties, amqp_cstring_bytes(kBody));
    if (status != AMQP_STATUS_OK) return std::string("publish: ") + amqp_error_string2(status);
  }
  uint32_t confirmed = 0;
  while (confirmed < count) {
    amqp_frame_t frame;
    const int status = amqp_simple_wait_frame_noblock(state_, &frame, &kPatience);
    if (status != AMQP_STATUS_OK) return std::string("confirms: ") + amqp_error_string2(status);
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
      return "what was published was not confirmed";
    const auto* ack = static_cast<const amqp_basic_ack_t*>(frame.payload.method.decoded);
    confirmed = ack->multiple != 0 ? static_cast<uint32_t>(ack->delivery_tag) : confirmed + 1;
  }
  return {};
}

std::string RabbitConnection::Consume(const std::string& queue) {
  if (amqp_basic_qos(state_, kChannel, 0, /*prefetch_count=*/1, 0) == nullptr)
    return ErrorOf("setting the prefetch", amqp_get_rpc_reply(state_));
  if (amqp_basic_consume(state_, kChannel, Bytes(queue), amqp_empty_bytes, 0, 0, 0,
                         amqp_empty_table) == nullptr)
    return ErrorOf("consuming", amqp_get_rpc_reply(state_));
  return {};
}

bool RabbitConnection::Reject(uint64_t delivery_tag) {
  return amqp_basic_reject(state_, kChannel, delivery_tag, /*requeue=*/1) == AMQP_STATUS_OK;
}

RabbitConnection::Taken RabbitConnection::TakeFrame() {
  amqp_frame_t frame;
  const int status = amqp_simple_wait_frame_noblock(state_, &frame, &kAtOnce);
  if (status == AMQP_STATUS_TIMEOUT) return Taken::kNothing;
  if (status != AMQP_STATUS_OK) return Taken::kBroken;
  switch (frame.frame_type) {
    case AMQP_FRAME_METHOD:
      // Nothing else comes to a consumer, but for the end of its queue, channel or connection.
      if (frame.payload.method.id != AMQP_BASIC_DELIVER_METHOD) return Taken::kBroken;
      delivery_tag_ =
          static_cast<const amqp_basic_deliver_t*>(frame.payload.method.decoded)->delivery_tag;
      return Taken::kPart;
    case AMQP_FRAME_HEADER:
      body_left_bytes_ = frame.payload.properties.body_size;
      return body_left_bytes_ == 0 ? Taken::kDelivery : Taken::kPart;
    case AMQP_FRAME_BODY:
      body_left_bytes_ -= frame.payload.body_fragment.len;
      return body_left_bytes_ == 0 ? Taken::kDelivery : Taken::kPart;
    default:
      return Taken::kPart;
  }
}

}  // namespace semaphored::bench
