// The server's part that runs on its thread, for server.cc and requests.cc.
//
// Invariants: connections, and what counts them, are used on the server's thread alone; a connection
// stands in Impl::connections_ from Take() to Close(), and no longer; Sweep() enforces the deadline
// of each.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "adapters/common/rare_line.h"
#include "server/guard/door.h"
#include "server/http/connection.h"
#include "server/http/server.h"

namespace semaphored::http {

// Replies come from other threads, and may come when the server has gone.
struct Mailbox {
  std::mutex mutex;
  boost::asio::io_context* context = nullptr;  // Guarded by mutex. Null: the server has gone.

  // The task runs on the server's thread, or never.
  template <typename Task>
  void Post(Task task) {
    const std::lock_guard lock(mutex);
    if (context != nullptr) boost::asio::post(*context, std::move(task));
  }
};

// One request of one connection, for its reply.
struct Asked {
  uint64_t connection = 0;
  uint64_t request = 0;
  bool keep_alive = false;
  bool with_body = true;
  bool is_1_1 = true;
};

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Resources resources);
  ~Impl() { Stop(Milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // What is wrong; empty: it listens.
  std::string Listen();
  void Run();
  void Stop(Milliseconds grace);
  const std::string& address() const { return address_; }
  ServerFigures figures() const;

 private:
  class Sink;

  void Accept();
  void OnAccepted(const boost::system::error_code& error, boost::asio::ip::tcp::socket socket);
  // To the door, if there is one; the door's thread then calls OnLetIn().
  void Knock(boost::asio::ip::tcp::socket socket);
  void OnLetIn(guard::ConnectionPtr let_in);
  void Take(boost::asio::ip::tcp::socket socket, guard::TlsSocketPtr tls);
  void Refuse(Transport transport);
  // The connection still has this request with its handler; else nullptr.
  Connection* Find(const Asked& asked) const;
  void OnHead(Connection* connection, HeadReader::Result result);
  void OnRequest(Connection* connection, std::variant<Request, Status> result);
  void OnBodyBytes(size_t before, size_t now);
  void OnEof(const Connection& connection);
  void Ask(Connection* connection, Request request, bool keep_alive);
  void OnReply(const Asked& asked, Response response);
  void OnBegin(const Asked& asked, Response head, const StreamPtr& stream);
  void OnPump(const Asked& asked);
  void SetOnGone(const Asked& asked, std::function<void()> on_gone);
  void Answer(Connection* connection, Response response, bool keep_alive, bool with_body);
  void AnswerLast(Connection* connection, Status status, bool with_body = true) {
    Answer(connection, RefusalOf(status), false, with_body);
  }
  Response RefusalOf(Status status) const {
    return options_.refusal ? options_.refusal(status) : Refusal(status);
  }
  void AddHeaders(Response* response);
  void BeginEnd();
  void MaybeEnded();
  // Closes the connection that is to go first, of those that `may` go; false: there is none.
  bool MakeRoom(const std::function<bool(const Connection&)>& may);
  void Sweep();
  void OnOverdue(Connection* connection);
  void Close(const Connection& connection);
  void CountClosed(Closed reason) { ++closed_[static_cast<size_t>(reason)]; }
  SteadyTime Now() const { return options_.clock->Now(); }

  const ServerOptions options_;
  const Connection::Patience patience_;
  const Resources resources_;
  const Connection::Events events_;
  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::acceptor acceptor_{context_};
  boost::asio::steady_timer accept_pause_{context_};
  boost::asio::steady_timer sweep_timer_{context_};
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::string address_;
  std::unique_ptr<guard::Door> door_;  // Null: without TLS.

  std::map<uint64_t, std::shared_ptr<Connection>> connections_;  // By number.
  std::map<boost::asio::ip::address, size_t> by_address_;        // How many of them there are.
  uint64_t last_number_ = 0;
  // What is to be called when they close: of those whose request is with a handler.
  std::map<uint64_t, std::function<void()>> on_gone_;
  size_t unread_bytes_ = 0;
  size_t bodies_bytes_ = 0;
  bool sweeping_ = false;
  std::shared_ptr<std::promise<void>> all_ended_;  // Not null: it is stopping.
  bool ended_ = false;                             // The promise is kept.
  RareLine warning_;
  int64_t date_unix_s_ = -1;  // Of date_.
  std::string date_;          // DateText.

  std::atomic<uint64_t> connected_ = 0;
  std::atomic<uint64_t> sent_bytes_ = 0;
  std::array<std::atomic<uint64_t>, kStatuses> answers_{};
  std::array<std::atomic<uint64_t>, kClosed> closed_{};
  std::thread thread_;
};

}  // namespace semaphored::http
