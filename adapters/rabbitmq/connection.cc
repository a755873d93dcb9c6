#include "adapters/rabbitmq/connection.h"

#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored::rabbitmq {
namespace {

constexpr int kFrameBytesMax = 131'072;
constexpr int kChannelsMax = 2047;
constexpr char kAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";
constexpr uint8_t kPersistent = 2;
constexpr size_t kBodyBytesMax = 8 << 20;

amqp_bytes_t Bytes(const std::string& text) {
  return {text.size(), const_cast<char*>(text.data())};  // NOLINT: a C library's type.
}
std::string Text(const amqp_bytes_t& bytes) {
  return {static_cast<const char*>(bytes.bytes), bytes.len};
}

timeval TimevalOf(std::chrono::milliseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {seconds.count(), std::chrono::microseconds(duration - seconds).count()};
}

amqp_table_entry_t Entry(const char* key, int64_t number) {
  amqp_table_entry_t entry{};
  entry.key = amqp_cstring_bytes(key);
  entry.value.kind = AMQP_FIELD_KIND_I64;
  entry.value.value.i64 = number;
  return entry;
}
amqp_table_entry_t Entry(const char* key, const char* text) {
  amqp_table_entry_t entry{};
  entry.key = amqp_cstring_bytes(key);
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = amqp_cstring_bytes(text);
  return entry;
}
amqp_table_entry_t Flag(const char* key) {
  amqp_table_entry_t entry{};
  entry.key = amqp_cstring_bytes(key);
  entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
  entry.value.value.boolean = 1;
  return entry;
}
amqp_table_t Table(std::vector<amqp_table_entry_t>& entries) {
  return {static_cast<int>(entries.size()), entries.data()};
}

absl::Status Unavailable(std::string_view why) {
  return absl::UnavailableError(absl::StrCat("rabbitmq: ", std::string(why)));
}

// Why the broker closed a channel or the connection.
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

std::string TextIn(const amqp_table_t& table, std::string_view name) {
  for (int i = 0; i < table.num_entries; ++i) {
    const amqp_table_entry_t& entry = table.entries[i];
    if (std::string_view(static_cast<const char*>(entry.key.bytes), entry.key.len) == name &&
        entry.value.kind == AMQP_FIELD_KIND_UTF8)
      return Text(entry.value.value.bytes);
  }
  return "";
}

}  // namespace

struct Connection::Incoming {
  enum class Kind : uint8_t { kDelivered, kGot, kReturned };
  Kind kind = Kind::kDelivered;
  Delivery delivery;
  uint64_t body_size = 0;
  bool has_header = false;
};

struct Connection::Confirming {
  Channel channel = 0;
  uint64_t first = 0;  // Sequence number.
  std::vector<Confirm> confirms;
  size_t left = 0;

  void Settle(uint64_t sequence, bool multiple, Confirm confirm) {
    for (size_t i = 0; i < confirms.size(); ++i) {
      const uint64_t each = first + i;
      if (multiple ? each > sequence : each != sequence) continue;
      if (confirms[i] == Confirm::kUnknown) {
        confirms[i] = confirm;
        --left;
      } else if (confirms[i] == Confirm::kNoQueue && !returned_counted.contains(i)) {
        // It was returned before, and is confirmed now.
        returned_counted.insert(i);
        --left;
      }
    }
  }
  // Returns come in the order of publishing, each before its confirm.
  void Returned(const std::string& body_and_queue) {
    for (size_t i = 0; i < confirms.size(); ++i) {
      if (confirms[i] != Confirm::kUnknown || keys[i] != body_and_queue) continue;
      confirms[i] = Confirm::kNoQueue;
      return;
    }
  }
  std::vector<std::string> keys;
  std::set<size_t> returned_counted;
};

Connection::Connection(Url url, std::string name)
    : url_(std::move(url)), name_(std::move(name)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Connection::~Connection() {
  Close();
  close(wake_);
}

void Connection::Close() {
  if (state_ == nullptr) return;
  // Without a word of farewell, for which it would have to wait: the broker sees the socket close.
  amqp_destroy_connection(state_);
  state_ = nullptr;
  open_.clear();
  incoming_.clear();
  events_.clear();
  published_.clear();
  blocked_.clear();
}

absl::Status Connection::Break(std::string_view why) {
  Close();
  return Unavailable(why);
}

absl::Status Connection::Open() {
  if (state_ != nullptr) return absl::OkStatus();
  state_ = amqp_new_connection();
  const timeval timeout = TimevalOf(url_.timeout);
  amqp_set_handshake_timeout(state_, &timeout);
  amqp_set_rpc_timeout(state_, &timeout);
  amqp_socket_t* socket = url_.tls ? amqp_ssl_socket_new(state_) : amqp_tcp_socket_new(state_);
  if (socket == nullptr) return Break("out of memory");
  if (url_.tls) {
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, url_.verify_host ? 1 : 0);
    const std::string authorities = url_.ca_file.empty() ? kAuthorities : url_.ca_file;
    if (amqp_ssl_socket_set_cacert(socket, authorities.c_str()) != AMQP_STATUS_OK)
      return Break(absl::StrCat("cannot read the authorities in ", authorities));
    if (!url_.certificate_file.empty() &&
        amqp_ssl_socket_set_key(socket, url_.certificate_file.c_str(), url_.key_file.c_str()) !=
            AMQP_STATUS_OK)
      return Break(absl::StrCat("cannot read the certificate in ", url_.certificate_file,
                                " with the key in ", url_.key_file));
  }
  if (const int status = amqp_socket_open_noblock(socket, url_.host.c_str(), url_.port, &timeout);
      status != AMQP_STATUS_OK) {
    return Break(absl::StrCat("cannot connect to ", url_.host, ":", url_.port, ": ",
                              amqp_error_string2(status)));
  }
  if (absl::Status status = Login(); !status.ok()) return status;
  ++life_;
  next_channel_ = 1;
  answered_at_ = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

absl::Status Connection::Login() {
  std::vector<amqp_table_entry_t> capabilities = {
      Flag("publisher_confirms"), Flag("consumer_cancel_notify"), Flag("connection.blocked"),
      Flag("authentication_failure_close")};
  amqp_table_entry_t capability{};
  capability.key = amqp_cstring_bytes("capabilities");
  capability.value.kind = AMQP_FIELD_KIND_TABLE;
  capability.value.value.table = Table(capabilities);
  std::vector<amqp_table_entry_t> properties = {
      Entry("product", "semaphored"), Entry("connection_name", name_.c_str()), capability};
  const amqp_table_t table = Table(properties);
  const amqp_rpc_reply_t reply =
      amqp_login_with_properties(state_, url_.vhost.c_str(), kChannelsMax, kFrameBytesMax,
                                 static_cast<int>(url_.heartbeat.count()), &table,
                                 AMQP_SASL_METHOD_PLAIN, url_.user.c_str(), url_.password.c_str());
  if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
    if (const amqp_table_t* server = amqp_get_server_properties(state_))
      server_version_ = TextIn(*server, "version");
    return absl::OkStatus();
  }
  absl::Status status = Unavailable("the broker does not answer");
  if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
    status = Unavailable(amqp_error_string2(reply.library_error));
  } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
             reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
    const auto* close = static_cast<const amqp_connection_close_t*>(reply.reply.decoded);
    status = StatusOf(close->reply_code, Text(close->reply_text));
  }
  Close();
  return status;
}

void Connection::Forget(Channel channel) {
  open_.erase(channel);
  incoming_.erase(channel);
  published_.erase(channel);
}

// ---- calls ----

template <typename Method>
absl::Status Connection::Send(Channel channel, amqp_method_number_t id, Method* method) {
  if (state_ == nullptr) return Unavailable("not connected");
  if (const int status = amqp_send_method(state_, channel, id, method); status != AMQP_STATUS_OK)
    return Break(amqp_error_string2(status));
  return absl::OkStatus();
}

template <typename Method>
absl::StatusOr<amqp_method_t> Connection::Call(
    Channel channel, amqp_method_number_t id, Method* method,
    std::initializer_list<amqp_method_number_t> answers) {
  if (state_ == nullptr) return Unavailable("not connected");
  amqp_maybe_release_buffers(state_);
  awaited_.assign(answers);
  answer_.reset();
  got_.reset();
  answer_channel_ = channel;
  closed_ = absl::OkStatus();
  if (absl::Status status = Send(channel, id, method); !status.ok()) return status;
  const SteadyTime deadline = std::chrono::steady_clock::now() + url_.timeout;
  while (!answer_) {
    absl::StatusOr<bool> taken = TakeFrame(deadline);
    if (!taken.ok()) return taken.status();
    if (!closed_.ok()) return std::exchange(closed_, absl::OkStatus());
    if (!*taken && std::chrono::steady_clock::now() >= deadline)
      return Break(
          absl::StrCat("no answer for ", url_.timeout.count(), " ms: the connection was given up"));
  }
  answered_at_ = std::chrono::steady_clock::now();
  awaited_.clear();
  return *std::exchange(answer_, std::nullopt);
}

absl::StatusOr<Channel> Connection::OpenChannel() {
  const int most = state_ == nullptr ? 0 : amqp_get_channel_max(state_);
  const auto limit = static_cast<Channel>(most == 0 ? kChannelsMax : most);
  if (open_.size() >= limit)
    return absl::OutOfRangeError(
        absl::StrCat("rabbitmq: all ", limit,
                     " channels of the connection are in use, one for each semaphore in use; raise "
                     "the broker's channel_max, or start another daemon"));
  while (open_.contains(next_channel_)) next_channel_ = next_channel_ % limit + 1;
  const Channel channel = next_channel_;
  next_channel_ = next_channel_ % limit + 1;
  amqp_channel_open_t method{};
  auto answer = Call(channel, AMQP_CHANNEL_OPEN_METHOD, &method, {AMQP_CHANNEL_OPEN_OK_METHOD});
  if (!answer.ok()) return answer.status();
  open_.insert(channel);
  return channel;
}

absl::Status Connection::CloseChannel(Channel channel) {
  amqp_channel_close_t method{};
  method.reply_code = AMQP_REPLY_SUCCESS;
  auto answer = Call(channel, AMQP_CHANNEL_CLOSE_METHOD, &method, {AMQP_CHANNEL_CLOSE_OK_METHOD});
  Forget(channel);
  return answer.status();
}

absl::StatusOr<QueueState> Connection::Declare(Channel channel, const std::string& queue,
                                               const QueueOptions& options) {
  amqp_queue_declare_t method{};
  method.queue = Bytes(queue);
  method.durable = options.durable;
  method.exclusive = options.exclusive;
  method.auto_delete = options.auto_delete;
  std::vector<amqp_table_entry_t> arguments;
  if (options.quorum) arguments.push_back(Entry("x-queue-type", "quorum"));
  if (options.messages_max >= 0) arguments.push_back(Entry("x-max-length", options.messages_max));
  if (options.returns_max) arguments.push_back(Entry("x-delivery-limit", *options.returns_max));
  method.arguments = Table(arguments);
  auto answer = Call(channel, AMQP_QUEUE_DECLARE_METHOD, &method, {AMQP_QUEUE_DECLARE_OK_METHOD});
  if (!answer.ok()) return answer.status();
  const auto* ok = static_cast<const amqp_queue_declare_ok_t*>(answer->decoded);
  return QueueState{ok->message_count, ok->consumer_count};
}

absl::StatusOr<QueueState> Connection::DeclarePassively(Channel channel, const std::string& queue) {
  amqp_queue_declare_t method{};
  method.queue = Bytes(queue);
  method.passive = 1;
  auto answer = Call(channel, AMQP_QUEUE_DECLARE_METHOD, &method, {AMQP_QUEUE_DECLARE_OK_METHOD});
  if (!answer.ok()) return answer.status();
  const auto* ok = static_cast<const amqp_queue_declare_ok_t*>(answer->decoded);
  return QueueState{ok->message_count, ok->consumer_count};
}

absl::StatusOr<uint32_t> Connection::Delete(Channel channel, const std::string& queue) {
  amqp_queue_delete_t method{};
  method.queue = Bytes(queue);
  auto answer = Call(channel, AMQP_QUEUE_DELETE_METHOD, &method, {AMQP_QUEUE_DELETE_OK_METHOD});
  if (!answer.ok()) return answer.status();
  return static_cast<const amqp_queue_delete_ok_t*>(answer->decoded)->message_count;
}

absl::StatusOr<std::string> Connection::Subscribe(Channel channel, const std::string& exchange) {
  amqp_exchange_declare_t made{};
  made.exchange = Bytes(exchange);
  made.type = amqp_cstring_bytes("fanout");
  made.durable = 1;
  auto answer =
      Call(channel, AMQP_EXCHANGE_DECLARE_METHOD, &made, {AMQP_EXCHANGE_DECLARE_OK_METHOD});
  if (!answer.ok()) return answer.status();
  amqp_queue_declare_t own{};
  own.exclusive = 1;
  answer = Call(channel, AMQP_QUEUE_DECLARE_METHOD, &own, {AMQP_QUEUE_DECLARE_OK_METHOD});
  if (!answer.ok()) return answer.status();
  std::string queue = Text(static_cast<const amqp_queue_declare_ok_t*>(answer->decoded)->queue);
  amqp_queue_bind_t bound{};
  bound.queue = Bytes(queue);
  bound.exchange = Bytes(exchange);
  answer = Call(channel, AMQP_QUEUE_BIND_METHOD, &bound, {AMQP_QUEUE_BIND_OK_METHOD});
  if (!answer.ok()) return answer.status();
  return queue;
}

absl::StatusOr<std::optional<Delivery>> Connection::Get(Channel channel, const std::string& queue) {
  amqp_basic_get_t method{};
  method.queue = Bytes(queue);
  auto answer = Call(channel, AMQP_BASIC_GET_METHOD, &method,
                     {AMQP_BASIC_GET_OK_METHOD, AMQP_BASIC_GET_EMPTY_METHOD});
  if (!answer.ok()) return answer.status();
  return std::exchange(got_, std::nullopt);
}

absl::Status Connection::Consume(Channel channel, const std::string& queue,
                                 const std::string& consumer_tag, uint16_t prefetch,
                                 int32_t priority) {
  // It counts for the consumers of this channel that come after it.
  amqp_basic_qos_t qos{};
  qos.prefetch_count = prefetch;
  auto set = Call(channel, AMQP_BASIC_QOS_METHOD, &qos, {AMQP_BASIC_QOS_OK_METHOD});
  if (!set.ok()) return set.status();
  amqp_basic_consume_t method{};
  method.queue = Bytes(queue);
  method.consumer_tag = Bytes(consumer_tag);
  std::vector<amqp_table_entry_t> arguments = {Entry("x-priority", int64_t{priority})};
  method.arguments = Table(arguments);
  return Call(channel, AMQP_BASIC_CONSUME_METHOD, &method, {AMQP_BASIC_CONSUME_OK_METHOD}).status();
}

absl::Status Connection::ConsumeForGood(Channel channel, const std::string& queue,
                                        const std::string& consumer_tag) {
  amqp_basic_consume_t method{};
  method.queue = Bytes(queue);
  method.consumer_tag = Bytes(consumer_tag);
  method.no_ack = 1;
  return Call(channel, AMQP_BASIC_CONSUME_METHOD, &method, {AMQP_BASIC_CONSUME_OK_METHOD}).status();
}

absl::Status Connection::Cancel(Channel channel, const std::string& consumer_tag) {
  amqp_basic_cancel_t method{};
  method.consumer_tag = Bytes(consumer_tag);
  return Call(channel, AMQP_BASIC_CANCEL_METHOD, &method, {AMQP_BASIC_CANCEL_OK_METHOD}).status();
}

absl::Status Connection::Reject(Channel channel, uint64_t delivery_tag) {
  amqp_basic_reject_t method{};
  method.delivery_tag = delivery_tag;
  method.requeue = 1;
  return Send(channel, AMQP_BASIC_REJECT_METHOD, &method);
}

absl::Status Connection::Acknowledge(Channel channel, uint64_t delivery_tag) {
  amqp_basic_ack_t method{};
  method.delivery_tag = delivery_tag;
  return Send(channel, AMQP_BASIC_ACK_METHOD, &method);
}

absl::Status Connection::Sync(Channel channel) {
  amqp_channel_flow_t method{};
  method.active = 1;
  return Call(channel, AMQP_CHANNEL_FLOW_METHOD, &method, {AMQP_CHANNEL_FLOW_OK_METHOD}).status();
}

// ---- publishing ----

absl::Status Connection::SelectConfirms(Channel channel) {
  amqp_confirm_select_t method{};
  auto answer = Call(channel, AMQP_CONFIRM_SELECT_METHOD, &method, {AMQP_CONFIRM_SELECT_OK_METHOD});
  if (answer.ok()) published_.try_emplace(channel, 0);
  return answer.status();
}

absl::StatusOr<std::vector<Connection::Confirm>> Connection::PublishAll(
    Channel channel, const std::vector<Publish>& messages) {
  if (state_ == nullptr) return Unavailable("not connected");
  if (!blocked_.empty())
    return absl::UnavailableError(
        absl::StrCat("rabbitmq: the broker takes no messages now: ", blocked_));
  uint64_t& sequence = published_[channel];
  confirming_ = std::make_unique<Confirming>();
  confirming_->channel = channel;
  confirming_->first = sequence + 1;
  confirming_->confirms.assign(messages.size(), Confirm::kUnknown);
  confirming_->left = messages.size();
  for (const Publish& message : messages)
    confirming_->keys.push_back(absl::StrCat(message.queue, "\n", message.body));
  sequence += messages.size();
  bool broken = false;
  for (const Publish& message : messages) {
    amqp_basic_properties_t properties{};
    properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.delivery_mode = message.persistent ? kPersistent : 1;
    const amqp_boolean_t mandatory = message.exchange.empty() ? 1 : 0;
    if (amqp_basic_publish(state_, channel, Bytes(message.exchange), Bytes(message.queue),
                           mandatory, 0, &properties, Bytes(message.body)) != AMQP_STATUS_OK) {
      broken = true;
      break;
    }
  }
  const SteadyTime deadline = std::chrono::steady_clock::now() + url_.timeout;
  std::string blocked;
  while (!broken && confirming_->left > 0) {
    absl::StatusOr<bool> taken = TakeFrame(deadline);
    broken = !taken.ok() || !open_.contains(channel) ||
             (!*taken && std::chrono::steady_clock::now() >= deadline);
    // It says so when somebody publishes, and reads no further: nothing will be confirmed soon.
    if (!broken && confirming_->left > 0 && !blocked_.empty()) {
      blocked = blocked_;
      broken = true;
    }
  }
  const std::unique_ptr<Confirming> done = std::move(confirming_);
  if (!blocked.empty()) {
    // What it has not read it never will.
    Close();
    return absl::UnavailableError(
        absl::StrCat("rabbitmq: the broker takes no messages now: ", blocked));
  }
  if (broken) {
    // Some may have arrived: those that were not confirmed stay unknown.
    Close();
  } else {
    answered_at_ = std::chrono::steady_clock::now();
  }
  return done->confirms;
}

// ---- what comes in ----

absl::StatusOr<bool> Connection::TakeFrame(SteadyTime deadline) {
  if (state_ == nullptr) return Unavailable("not connected");
  const SteadyTime now = std::chrono::steady_clock::now();
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
  Incoming& message = *found->second;
  if (frame.frame_type == AMQP_FRAME_HEADER) {
    message.has_header = true;
    message.body_size = frame.payload.properties.body_size;
    const auto* properties =
        static_cast<const amqp_basic_properties_t*>(frame.payload.properties.decoded);
    if ((properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0)
      message.delivery.delivery_count = NumberIn(properties->headers, "x-delivery-count");
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
      events_.push_back({BrokerEvent::Kind::kDelivery, message.delivery.channel,
                         std::move(message.delivery), "", absl::OkStatus()});
      return;
    case Incoming::Kind::kGot:
      got_ = std::move(message.delivery);
      answer_ = amqp_method_t{AMQP_BASIC_GET_OK_METHOD, nullptr};
      return;
    case Incoming::Kind::kReturned:
      if (confirming_ != nullptr && confirming_->channel == message.delivery.channel)
        confirming_->Returned(
            absl::StrCat(message.delivery.consumer_tag, "\n", message.delivery.body));
  }
}

absl::Status Connection::OnChannelClose(Channel channel, const amqp_channel_close_t& close) {
  absl::Status why = StatusOf(close.reply_code, Text(close.reply_text));
  amqp_channel_close_ok_t ok{};
  if (absl::Status status = Send(channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok); !status.ok())
    return status;
  const bool known = open_.contains(channel);
  Forget(channel);
  if (!awaited_.empty() && channel == answer_channel_) closed_ = why;
  if (known)
    events_.push_back({BrokerEvent::Kind::kChannelClosed, channel, {}, "", std::move(why)});
  return absl::OkStatus();
}

absl::Status Connection::OnMethod(const amqp_frame_t& frame) {
  const amqp_method_t& method = frame.payload.method;
  const Channel channel = frame.channel;
  const auto begin = [&](Incoming::Kind kind, Delivery delivery) {
    auto message = std::make_unique<Incoming>();
    message->kind = kind;
    message->delivery = std::move(delivery);
    message->delivery.channel = channel;
    incoming_[channel] = std::move(message);
  };
  switch (method.id) {
    case AMQP_BASIC_DELIVER_METHOD: {
      const auto* deliver = static_cast<const amqp_basic_deliver_t*>(method.decoded);
      begin(Incoming::Kind::kDelivered, {channel, Text(deliver->consumer_tag),
                                         deliver->delivery_tag, deliver->redelivered != 0, 0, ""});
      return absl::OkStatus();
    }
    case AMQP_BASIC_GET_OK_METHOD: {
      const auto* got = static_cast<const amqp_basic_get_ok_t*>(method.decoded);
      begin(Incoming::Kind::kGot, {channel, "", got->delivery_tag, got->redelivered != 0, 0, ""});
      return absl::OkStatus();
    }
    case AMQP_BASIC_RETURN_METHOD: {
      const auto* returned = static_cast<const amqp_basic_return_t*>(method.decoded);
      // The queue's name travels in the consumer tag's place.
      begin(Incoming::Kind::kReturned, {channel, Text(returned->routing_key), 0, false, 0, ""});
      return absl::OkStatus();
    }
    case AMQP_BASIC_ACK_METHOD: {
      const auto* ack = static_cast<const amqp_basic_ack_t*>(method.decoded);
      if (confirming_ != nullptr && confirming_->channel == channel)
        confirming_->Settle(ack->delivery_tag, ack->multiple != 0, Confirm::kStored);
      return absl::OkStatus();
    }
    case AMQP_BASIC_NACK_METHOD: {
      const auto* nack = static_cast<const amqp_basic_nack_t*>(method.decoded);
      if (confirming_ != nullptr && confirming_->channel == channel)
        confirming_->Settle(nack->delivery_tag, nack->multiple != 0, Confirm::kRefused);
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
    default:
      break;
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
  const SteadyTime now = std::chrono::steady_clock::now();
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
    if (!events_.empty() || woken_ || std::chrono::steady_clock::now() >= deadline) {
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
    if (!found.empty() || std::chrono::steady_clock::now() >= deadline) return found;
    if (absl::Status status = TakeSome(deadline); !status.ok()) return status;
  }
}

void Connection::Wake() {
  const uint64_t one = 1;
  // It can only fail when it has been called 2^64 times in vain.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

}  // namespace semaphored::rabbitmq
