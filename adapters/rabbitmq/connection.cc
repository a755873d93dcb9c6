#include "adapters/rabbitmq/connection.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/wire.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

constexpr int kFrameBytesMax = 131'072;
constexpr int kChannelsMax = 2047;
constexpr char kAuthorities[] = "/etc/ssl/certs/ca-certificates.crt";
constexpr uint8_t kPersistent = 2;

amqp_bytes_t Bytes(const std::string& text) {
  return {text.size(), const_cast<char*>(text.data())};  // NOLINT: a C library's type.
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

std::string TextIn(const amqp_table_t& table, std::string_view name) {
  for (int i = 0; i < table.num_entries; ++i) {
    const amqp_table_entry_t& entry = table.entries[i];
    if (std::string_view(static_cast<const char*>(entry.key.bytes), entry.key.len) == name &&
        entry.value.kind == AMQP_FIELD_KIND_UTF8)
      return Text(entry.value.value.bytes);
  }
  return "";
}

// What is sent on a channel that the broker has closed would cost the connection, with the permits of all others.
absl::Status IsClosed() { return Unavailable("the broker has closed the channel"); }

// From 4.0 on a quorum queue drops a message that has come back too often, unless its limit is -1.
// An earlier one would drop it because of that.
bool DropsReturned(const std::string& server_version) {
  int major = 0;
  const size_t dot = server_version.find('.');
  return absl::SimpleAtoi(absl::string_view(server_version).substr(0, dot), &major) && major >= 4;
}

}  // namespace

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
  late_.clear();
  closing_.clear();
  deleting_.clear();
  probe_ = 0;
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
  answered_at_ = SteadyClock::now();
  if (!keeps_late_) return absl::OkStatus();
  absl::StatusOr<Channel> probe = OpenChannel();
  if (probe.ok()) probe_ = *probe;
  return probe.status();
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
  late_.erase(channel);
  closing_.erase(channel);
  deleting_.erase(channel);
}

// ---- calls ----

absl::Status Connection::Send(Channel channel, amqp_method_number_t id, void* method) {
  if (state_ == nullptr) return Unavailable("not connected");
  if (const int status = amqp_send_method(state_, channel, id, method); status != AMQP_STATUS_OK)
    return Break(amqp_error_string2(status));
  return absl::OkStatus();
}

absl::StatusOr<amqp_method_t> Connection::Call(
    Channel channel, amqp_method_number_t id, void* method,
    std::initializer_list<amqp_method_number_t> answers) {
  if (state_ == nullptr) return Unavailable("not connected");
  if (late_.contains(channel))
    return absl::DeadlineExceededError("rabbitmq: the queue has not answered yet");
  if (id != AMQP_CHANNEL_OPEN_METHOD && !open_.contains(channel)) return IsClosed();
  amqp_maybe_release_buffers(state_);
  awaited_.assign(answers);
  answer_.reset();
  got_.reset();
  answer_channel_ = channel;
  closed_ = absl::OkStatus();
  if (absl::Status status = Send(channel, id, method); !status.ok()) return status;
  const bool keeps = keeps_late_ && open_.contains(channel) && channel != probe_;
  // To make a queue takes longer than to ask one.
  const bool makes =
      id == AMQP_QUEUE_DELETE_METHOD ||
      (id == AMQP_QUEUE_DECLARE_METHOD && static_cast<amqp_queue_declare_t*>(method)->passive == 0);
  const auto patience = keeps_late_ && !makes ? url_.timeout / 2 : url_.timeout;
  const SteadyTime deadline = SteadyClock::now() + patience;
  while (!answer_) {
    absl::StatusOr<bool> taken = TakeFrame(deadline);
    if (!taken.ok()) return taken.status();
    if (!closed_.ok()) return std::exchange(closed_, absl::OkStatus());
    if (*taken || SteadyClock::now() < deadline) continue;
    if (keeps) return LeaveLate(channel, patience);
    return Break(
        absl::StrCat("no answer for ", patience.count(), " ms: the connection was given up"));
  }
  answered_at_ = SteadyClock::now();
  awaited_.clear();
  return *std::exchange(answer_, std::nullopt);
}

// A queue of which the leader is being elected answers later; the broker itself answers now, or the
// connection is dead.
absl::Status Connection::LeaveLate(Channel channel, std::chrono::milliseconds patience) {
  late_[channel] = std::exchange(awaited_, {});
  if (absl::Status alive = Sync(probe_); !alive.ok()) return alive;
  return absl::DeadlineExceededError(
      absl::StrCat("rabbitmq: a queue has not answered for ", patience.count(), " ms"));
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

// What is late will come before the answer to this.
absl::Status Connection::CloseWithoutWaiting(Channel channel) {
  if (!closing_.insert(channel).second) return absl::OkStatus();
  amqp_channel_close_t method{};
  method.reply_code = AMQP_REPLY_SUCCESS;
  return Send(channel, AMQP_CHANNEL_CLOSE_METHOD, &method);
}

absl::Status Connection::CloseChannel(Channel channel) {
  if (late_.contains(channel)) return CloseWithoutWaiting(channel);
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
  if (options.quorum && DropsReturned(server_version_))
    arguments.push_back(Entry("x-delivery-limit", int64_t{-1}));
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

// The broker does in order what it is sent on one channel.
absl::Status Connection::DeleteWhenAnswered(Channel channel, const std::string& queue) {
  amqp_queue_delete_t method{};
  method.queue = Bytes(queue);
  method.nowait = 1;
  if (absl::Status status = Send(channel, AMQP_QUEUE_DELETE_METHOD, &method); !status.ok())
    return status;
  deleting_[channel] = queue;
  return CloseWithoutWaiting(channel);
}

bool Connection::is_deleting(const std::string& queue) const {
  return std::ranges::any_of(deleting_, [&](const auto& each) { return each.second == queue; });
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
  if (!open_.contains(channel)) return IsClosed();
  amqp_basic_reject_t method{};
  method.delivery_tag = delivery_tag;
  method.requeue = 1;
  return Send(channel, AMQP_BASIC_REJECT_METHOD, &method);
}

absl::Status Connection::Acknowledge(Channel channel, uint64_t delivery_tag) {
  if (!open_.contains(channel)) return IsClosed();
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
  std::vector<std::string> keys;
  keys.reserve(messages.size());
  for (const Publish& message : messages)
    keys.push_back(absl::StrCat(message.queue, "\n", message.body));
  publishing_ = Publishing{channel, Confirms(sequence + 1, std::move(keys))};
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
  const SteadyTime deadline = SteadyClock::now() + url_.timeout;
  std::string blocked;
  while (!broken && publishing_->confirms.left() > 0) {
    absl::StatusOr<bool> taken = TakeFrame(deadline);
    broken = !taken.ok() || !open_.contains(channel) || (!*taken && SteadyClock::now() >= deadline);
    // The broker says so when a connection publishes, and reads no further: no confirm comes soon.
    if (!broken && publishing_->confirms.left() > 0 && !blocked_.empty()) {
      blocked = blocked_;
      broken = true;
    }
  }
  const Publishing done = *std::move(publishing_);
  publishing_.reset();
  if (!blocked.empty()) {
    // What it has not read it never will.
    Close();
    return absl::UnavailableError(
        absl::StrCat("rabbitmq: the broker takes no messages now: ", blocked));
  }
  if (broken) {
    // What was not confirmed may have arrived: unknown. Without the right to publish, nothing has.
    Close();
    if (absl::IsPermissionDenied(done.closed)) return done.closed;
  } else {
    answered_at_ = SteadyClock::now();
  }
  return done.confirms.Answers();
}

}  // namespace semaphored::rabbitmq
