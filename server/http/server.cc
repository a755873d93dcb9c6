#include "server/http/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/rare_line.h"
#include "server/base/signals.h"
#include "server/http/connection.h"
#include "server/http/server_thread.h"

namespace semaphored::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using tcp = net::ip::tcp;
using ConnectionPtr = std::shared_ptr<Connection>;
using State = Connection::State;

constexpr Milliseconds kSweepInterval{250};
// While the system has no descriptor for a connection: nothing says when it has one again.
constexpr Milliseconds kAcceptPause{100};
// What the kernel may keep of one answer: without a bound it is megabytes for each connection.
constexpr int kSendBufferBytes = 256 << 10;

// The system gives a connection up whose client machine does not answer it: also one on which nothing is sent, as
// while a call waits for a permit.
void EndIfUnacknowledged(int descriptor, Milliseconds most) {
  const auto most_ms = static_cast<int>(most.count());
  setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof most_ms);
  const int idle_s = std::max(1, most_ms / 1'000);
  const int probe_interval_s = std::max(1, idle_s / 3);
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &probe_interval_s, sizeof probe_interval_s);
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

std::string PeerText(const tcp::endpoint& endpoint) {
  const net::ip::address address = endpoint.address();
  return address.is_v4() ? absl::StrCat("ipv4:", address.to_string(), ":", endpoint.port())
                         : absl::StrCat("ipv6:[", address.to_string(), "]:", endpoint.port());
}

bool IsBusy(const Connection& connection) {
  return connection.state() == State::kAsking || connection.state() == State::kStreaming;
}

// Of one address, where what is busy stays.
size_t ShareOf(size_t connections_max) { return connections_max - connections_max / 4; }

}  // namespace

const char* ClosedName(Closed reason) {
  switch (reason) {
    case Closed::kIdle:
      return "idle";
    case Closed::kSlow:
      return "slow";
    case Closed::kTls:
      return "tls";
    case Closed::kCrowded:
    case Closed::kCount:
      break;
  }
  return "crowded";
}

Server::Impl::Impl(const ServerOptions& options, Resources resources)
    : options_(options),
      patience_{options.request_timeout, options.body_timeout,  options.idle_timeout,
                options.answer_timeout,  options.stall_timeout, options.silence_timeout},
      resources_(std::move(resources)),
      events_{
          [this](Connection* each, HeadReader::Result result) { OnHead(each, std::move(result)); },
          [this](Connection* each, std::variant<Request, Status> result) {
            OnRequest(each, std::move(result));
          },
          [this](size_t before, size_t now) { OnBodyBytes(before, now); },
          [this](size_t bytes) { sent_bytes_ += bytes; },
          [this](Connection* each) { unread_bytes_ -= each->unread_bytes(); },
          [this](Connection* each) { OnEof(*each); },
          [this](Connection* each) { Close(*each); },
      } {
  mailbox_->context = &context_;
  if (options_.tls == nullptr) return;
  guard::DoorOptions door;
  door.clock = options_.clock;
  door.tls = options_.tls;
  door.protocol = guard::Protocol::kHttp1;
  door.handshake_timeout = options_.handshake_timeout;
  door.connections_max = static_cast<int64_t>(options_.connections_max);
  door_ = std::make_unique<guard::Door>(door, [this](guard::ConnectionPtr let_in) {
    mailbox_->Post([this, let_in = std::move(let_in)]() mutable { OnLetIn(std::move(let_in)); });
  });
}

std::string Server::Impl::Listen() {
  const size_t colon = options_.listen.rfind(':');
  std::string host = options_.listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  uint32_t port = 0;
  error_code error;
  const net::ip::address ip = net::ip::make_address(host, error);
  if (colon == options_.listen.npos || error ||
      !absl::SimpleAtoi(options_.listen.substr(colon + 1), &port) || port > UINT16_MAX)
    return "it is no address";
  const tcp::endpoint endpoint(ip, static_cast<uint16_t>(port));
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
  if (error == net::error::address_in_use) return "the address is in use";
  if (error) return error.message();
  fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  address_ =
      absl::StrCat(options_.listen.substr(0, colon), ":", acceptor_.local_endpoint(error).port());
  return "";
}

void Server::Impl::Run() {
  thread_ = std::thread([this] {
    BlockSignals();
    Accept();
    context_.run();
  });
}

void Server::Impl::Stop(Milliseconds grace) {
  if (thread_.joinable() && grace > Milliseconds(0)) {
    const auto all_ended = std::make_shared<std::promise<void>>();
    mailbox_->Post([this, all_ended] {
      all_ended_ = all_ended;
      BeginEnd();
    });
    all_ended->get_future().wait_for(grace);
  }
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->context = nullptr;
  }
  context_.stop();
  if (!thread_.joinable()) return;
  thread_.join();
  if (door_ != nullptr) door_->Stop();
  error_code ignored;
  acceptor_.close(ignored);
  while (!connections_.empty()) Close(*connections_.begin()->second);
  connected_ = 0;
}

ServerFigures Server::Impl::figures() const {
  ServerFigures figures;
  figures.connections = connected_;
  figures.sent_bytes = sent_bytes_;
  std::ranges::copy(answers_, figures.answers.begin());
  std::ranges::copy(closed_, figures.closed.begin());
  if (door_ == nullptr) return figures;
  using guard::Breach;
  figures.closed[static_cast<size_t>(Closed::kTls)] = door_->closed(Breach::kTls);
  figures.closed[static_cast<size_t>(Closed::kCrowded)] +=
      door_->closed(Breach::kConnections) + door_->closed(Breach::kShare);
  return figures;
}

// ---- on its thread: connections come ----

void Server::Impl::Accept() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    OnAccepted(error, std::move(socket));
  });
}

// The usual error is that the process, or the system, has no descriptor left. That lasts until one
// is closed, so to try again at once would be a busy loop.
void Server::Impl::OnAccepted(const error_code& error, tcp::socket socket) {
  if (!error) Knock(std::move(socket));
  if (all_ended_ != nullptr) return;
  if (!error || error == net::error::connection_aborted) return Accept();
  if (const auto more = warning_.Again(Now()))
    spdlog::warn("http://{}: cannot accept connections for the moment: {}{}", address_,
                 error.message(), *more);
  MakeRoom([](const Connection& each) { return each.state() != State::kAsking; });
  accept_pause_.expires_after(kAcceptPause);
  accept_pause_.async_wait([this](const error_code& stopped) {
    if (!stopped) Accept();
  });
}

void Server::Impl::Knock(tcp::socket socket) {
  if (door_ == nullptr) return Take(std::move(socket), nullptr);
  if (door_->connections() >= options_.connections_max) return CountClosed(Closed::kCrowded);
  error_code error;
  socket.native_non_blocking(true, error);
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) door_->Take(socket.release(error));
}

void Server::Impl::OnLetIn(guard::ConnectionPtr let_in) {
  guard::Connection::Released released = let_in->Release();
  door_->OnOver(std::move(let_in));
  error_code error;
  tcp::socket socket(context_);
  socket.assign(acceptor_.local_endpoint(error).protocol(), released.client, error);
  if (error) {
    close(released.client);
  } else if (all_ended_ == nullptr) {
    Take(std::move(socket), std::move(released.tls));
  }
}

void Server::Impl::Take(tcp::socket socket, guard::TlsSocketPtr tls) {
  error_code error;
  const tcp::endpoint remote = socket.remote_endpoint(error);
  if (error) return;  // It has gone already.
  const net::ip::address address = remote.address();
  const auto of_address = by_address_.find(address);
  const bool has_share = options_.keeps_busy && of_address != by_address_.end() &&
                         of_address->second >= ShareOf(options_.connections_max);
  const auto may_go = [&](const Connection& each) {
    return !options_.keeps_busy || (!IsBusy(each) && (!has_share || each.address() == address));
  };
  const bool full = connections_.size() >= options_.connections_max;
  if ((full || has_share) && !MakeRoom(may_go))
    return Refuse(Transport(std::move(socket), std::move(tls)));
  if (!error) socket.set_option(tcp::no_delay(true), error);
  if (!error) socket.set_option(net::socket_base::send_buffer_size(kSendBufferBytes), error);
  if (error) return;  // It has gone already.
  const int descriptor = socket.native_handle();
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  EndIfUnacknowledged(descriptor, options_.unacknowledged_max);
  const uint64_t number = ++last_number_;
  const auto connection =
      std::make_shared<Connection>(number, Transport(std::move(socket), std::move(tls)), address,
                                   PeerText(remote), options_.clock, &patience_, &events_);
  connections_.emplace(number, connection);
  ++by_address_[address];
  connected_ = connections_.size();
  connection->Begin();
  if (!std::exchange(sweeping_, true)) Sweep();
}

// All that stand are busy. The client gets to know why, if what it has sent lets it.
void Server::Impl::Refuse(Transport transport) {
  CountClosed(Closed::kCrowded);
  Response response = RefusalOf(Status::kUnavailable);
  AddHeaders(&response);
  ++answers_[static_cast<size_t>(response.status)];
  const std::string text = HeadText(response, /*keep_alive=*/false) + *response.body;
  transport.WriteNow(text);
  transport.EndWriting(nullptr);
}

// ---- on its thread: connections go ----

// One that waits for a handler is about to be answered: it goes after the others of its address.
bool Server::Impl::MakeRoom(const std::function<bool(const Connection&)>& may) {
  using Rank = std::tuple<size_t, bool, SteadyTime::duration>;
  const SteadyTime now = Now();
  const Connection* first = nullptr;
  Rank highest;
  for (const auto& [number, each] : connections_) {
    if (!may(*each)) continue;
    const bool asking = each->state() == State::kAsking;
    const Rank rank(by_address_.at(each->address()), !asking, now - each->moved_at());
    if (first != nullptr && rank <= highest) continue;
    first = each.get();
    highest = rank;
  }
  if (first == nullptr) return false;
  CountClosed(Closed::kCrowded);
  Close(*first);
  return true;
}

void Server::Impl::Sweep() {
  const SteadyTime now = Now();
  std::vector<ConnectionPtr> overdue;
  std::vector<ConnectionPtr> gone;
  for (const auto& [number, each] : connections_) {
    if (each->deadline() <= now) overdue.push_back(each);
    if (each->is_silent(now)) each->WriteComment();
    if (each->HasGone(now)) gone.push_back(each);
  }
  for (const ConnectionPtr& each : overdue) OnOverdue(each.get());
  for (const ConnectionPtr& each : gone) Close(*each);
  sweeping_ = !connections_.empty();
  if (!sweeping_) return;
  sweep_timer_.expires_after(kSweepInterval);
  sweep_timer_.async_wait([this](const error_code& stopped) {
    if (!stopped) Sweep();
  });
}

void Server::Impl::OnOverdue(Connection* connection) {
  switch (connection->state()) {
    case State::kIdle:
      CountClosed(Closed::kIdle);
      break;
    case State::kReading:
    case State::kBody:
      CountClosed(Closed::kSlow);
      // One that has not said anything, as a browser's in reserve, expects no answer.
      if (connection->has_begun()) return connection->GiveUpReading();
      break;
    case State::kWriting:
    case State::kStreaming:
      CountClosed(Closed::kSlow);
      break;
    case State::kAsking:
    case State::kLingering:
      break;
  }
  Close(*connection);
}

// What has begun is answered, and what streams stand are ended by their owners.
void Server::Impl::BeginEnd() {
  error_code ignored;
  acceptor_.close(ignored);
  std::vector<ConnectionPtr> idle;
  for (const auto& [number, each] : connections_) {
    const State state = each->state();
    if (state == State::kIdle || state == State::kReading || state == State::kBody)
      idle.push_back(each);
  }
  for (const ConnectionPtr& each : idle) Close(*each);
  MaybeEnded();
}

void Server::Impl::MaybeEnded() {
  if (!connections_.empty() || all_ended_ == nullptr || std::exchange(ended_, true)) return;
  all_ended_->set_value();
}

void Server::Impl::Close(const Connection& connection) {
  const auto node = connections_.extract(connection.number());
  if (node.empty()) return;
  Connection& closed = *node.mapped();
  const auto gone = on_gone_.extract(connection.number());
  unread_bytes_ -= closed.unread_bytes();
  bodies_bytes_ -= closed.body_bytes();
  const auto of_address = by_address_.find(closed.address());
  if (--of_address->second == 0) by_address_.erase(of_address);
  connected_ = connections_.size();
  closed.Shut();
  if (closed.stream() != nullptr) closed.stream()->Gone();
  if (!gone.empty()) gone.mapped()();
  MaybeEnded();
}

// ---- what others see ----

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      Resources resources) {
  auto impl = std::make_unique<Impl>(options, std::move(resources));
  if (const std::string wrong = impl->Listen(); !wrong.empty())
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": ", wrong));
  impl->Run();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::Stop(Milliseconds grace) { impl_->Stop(grace); }

const std::string& Server::address() const { return impl_->address(); }

ServerFigures Server::figures() const { return impl_->figures(); }

}  // namespace semaphored::http
