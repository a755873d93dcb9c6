// Invariants: connections, and what counts them, are used on the server's thread alone; a connection
// stands in Impl::connections_ from Take() to Close(), and no longer; Sweep() enforces the deadline
// of each.
#include "server/http/server.h"

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "adapters/common/rare_line.h"
#include "server/http/connection.h"

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

// A signal is for the threads that wait for it.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// Replies come from other threads, and may come when the server has gone.
struct Mailbox {
  std::mutex mutex;
  net::io_context* context = nullptr;  // Guarded by mutex. Null: the server has gone.
};

}  // namespace

const char* ClosedName(Closed reason) {
  switch (reason) {
    case Closed::kIdle:
      return "idle";
    case Closed::kSlow:
      return "slow";
    case Closed::kCrowded:
    case Closed::kCount:
      break;
  }
  return "crowded";
}

class Server::Impl {
 public:
  Impl(const ServerOptions& options, std::map<std::string, Handler> handlers);
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // What is wrong; empty: it listens.
  std::string Listen();
  void Run();
  void Stop();
  const std::string& address() const { return address_; }
  ServerFigures figures() const;

 private:
  void Accept();
  void OnAccepted(const error_code& error, tcp::socket socket);
  void Take(tcp::socket socket);
  void OnHead(Connection* connection, const HeadReader::Result& result);
  void Ask(uint64_t number, const Head& head, const Handler& handler);
  void OnReply(uint64_t number, bool keep_alive, bool with_body, Response response);
  void Answer(Connection* connection, Response response, bool keep_alive, bool with_body);
  // Closes the connection that is to go first, of those that `may` go; false: there is none.
  bool MakeRoom(const std::function<bool(const Connection&)>& may);
  void Sweep();
  void Close(const Connection& connection);
  void CountClosed(Closed reason) { ++closed_[static_cast<size_t>(reason)]; }
  SteadyTime Now() const { return options_.clock->Now(); }

  const ServerOptions options_;
  const Connection::Patience patience_;
  const std::map<std::string, Handler> handlers_;
  const Connection::Events events_;
  net::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  net::steady_timer accept_pause_{context_};
  net::steady_timer sweep_timer_{context_};
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::string address_;

  std::map<uint64_t, ConnectionPtr> connections_;  // By number.
  std::map<net::ip::address, size_t> by_address_;  // How many of them there are.
  uint64_t last_number_ = 0;
  size_t unread_bytes_ = 0;
  bool sweeping_ = false;
  RareLine warning_;

  std::atomic<uint64_t> connected_ = 0;
  std::atomic<uint64_t> sent_bytes_ = 0;
  std::array<std::atomic<uint64_t>, kStatuses> answers_{};
  std::array<std::atomic<uint64_t>, kClosed> closed_{};
  std::thread thread_;
};

Server::Impl::Impl(const ServerOptions& options, std::map<std::string, Handler> handlers)
    : options_(options),
      patience_{options.request_timeout, options.idle_timeout, options.answer_timeout,
                options.stall_timeout},
      handlers_(std::move(handlers)),
      events_{
          [this](Connection* each, const HeadReader::Result& result) { OnHead(each, result); },
          [this](size_t bytes) { sent_bytes_ += bytes; },
          [this](Connection* each) { unread_bytes_ -= each->unread_bytes(); },
          [this](Connection* each) { Close(*each); },
      } {
  mailbox_->context = &context_;
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

void Server::Impl::Stop() {
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->context = nullptr;
  }
  context_.stop();
  if (!thread_.joinable()) return;
  thread_.join();
  error_code ignored;
  acceptor_.close(ignored);
  for (const auto& [number, connection] : connections_) connection->Shut();
  connections_.clear();
  connected_ = 0;
}

ServerFigures Server::Impl::figures() const {
  ServerFigures figures;
  figures.connections = connected_;
  figures.sent_bytes = sent_bytes_;
  std::ranges::copy(answers_, figures.answers.begin());
  std::ranges::copy(closed_, figures.closed.begin());
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
  if (!error) Take(std::move(socket));
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

void Server::Impl::Take(tcp::socket socket) {
  if (connections_.size() >= options_.connections_max)
    MakeRoom([](const Connection&) { return true; });
  error_code error;
  const net::ip::address address = socket.remote_endpoint(error).address();
  if (!error) socket.set_option(tcp::no_delay(true), error);
  if (!error) socket.set_option(net::socket_base::send_buffer_size(kSendBufferBytes), error);
  if (error) return;  // It has gone already.
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  const uint64_t number = ++last_number_;
  const auto connection = std::make_shared<Connection>(number, std::move(socket), address,
                                                       options_.clock, &patience_, &events_);
  connections_.emplace(number, connection);
  ++by_address_[address];
  connected_ = connections_.size();
  connection->Begin();
  if (!std::exchange(sweeping_, true)) Sweep();
}

// ---- on its thread: requests ----

// After a refusal the connection ends: what follows may be the rest of what was refused.
void Server::Impl::OnHead(Connection* connection, const HeadReader::Result& result) {
  if (const Status* const wrong = std::get_if<Status>(&result))
    return Answer(connection, Refusal(*wrong), false, true);
  const Head& head = std::get<Head>(result);
  const bool with_body = head.method != Head::Method::kHead;
  const auto handler = handlers_.find(head.request.path);
  std::optional<Status> refusal;
  if (handler == handlers_.end()) {
    refusal = Status::kNotFound;
  } else if (head.method == Head::Method::kOther) {
    refusal = Status::kMethodNotAllowed;
  } else if (head.has_body) {
    refusal = Status::kContentTooLarge;
  }
  if (refusal) return Answer(connection, Refusal(*refusal), false, with_body);
  Ask(connection->number(), head, handler->second);
}

void Server::Impl::Ask(uint64_t number, const Head& head, const Handler& handler) {
  const bool with_body = head.method != Head::Method::kHead;
  handler(head.request, [this, number, keep_alive = head.keep_alive, with_body,
                         mailbox = mailbox_](Response response) {
    const std::lock_guard lock(mailbox->mutex);
    if (mailbox->context == nullptr) return;
    net::post(*mailbox->context,
              [this, number, keep_alive, with_body, response = std::move(response)]() mutable {
                OnReply(number, keep_alive, with_body, std::move(response));
              });
  });
}

void Server::Impl::OnReply(uint64_t number, bool keep_alive, bool with_body, Response response) {
  const auto found = connections_.find(number);
  if (found == connections_.end() || found->second->state() != State::kAsking) return;
  Answer(found->second.get(), std::move(response), keep_alive, with_body);
}

void Server::Impl::Answer(Connection* connection, Response response, bool keep_alive,
                          bool with_body) {
  ++answers_[static_cast<size_t>(response.status)];
  const size_t bytes = with_body && response.body != nullptr ? response.body->size() : 0;
  const auto unread = [](const Connection& each) { return each.unread_bytes() > 0; };
  while (bytes > 0 && unread_bytes_ + bytes > options_.unread_bytes_max) {
    if (!MakeRoom(unread)) break;
  }
  unread_bytes_ += bytes;
  connection->Answer(std::move(response), keep_alive, with_body);
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
  for (const auto& [number, each] : connections_) {
    if (each->deadline() <= now) overdue.push_back(each);
  }
  for (const ConnectionPtr& each : overdue) {
    const State state = each->state();
    if (state == State::kIdle) CountClosed(Closed::kIdle);
    if (state == State::kReading || state == State::kWriting) CountClosed(Closed::kSlow);
    Close(*each);
  }
  sweeping_ = !connections_.empty();
  if (!sweeping_) return;
  sweep_timer_.expires_after(kSweepInterval);
  sweep_timer_.async_wait([this](const error_code& stopped) {
    if (!stopped) Sweep();
  });
}

void Server::Impl::Close(const Connection& connection) {
  const auto node = connections_.extract(connection.number());
  if (node.empty()) return;
  Connection& closed = *node.mapped();
  unread_bytes_ -= closed.unread_bytes();
  const auto of_address = by_address_.find(closed.address());
  if (--of_address->second == 0) by_address_.erase(of_address);
  connected_ = connections_.size();
  closed.Shut();
}

// ---- what others see ----

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      std::map<std::string, Handler> handlers) {
  auto impl = std::make_unique<Impl>(options, std::move(handlers));
  if (const std::string wrong = impl->Listen(); !wrong.empty())
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": ", wrong));
  impl->Run();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::Stop() { impl_->Stop(); }

const std::string& Server::address() const { return impl_->address(); }

ServerFigures Server::figures() const { return impl_->figures(); }

}  // namespace semaphored::http
