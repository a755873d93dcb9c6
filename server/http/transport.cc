#include "server/http/transport.h"

#include <sys/socket.h>

#include <cerrno>

#include <boost/asio/post.hpp>

namespace semaphored::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using guard::TlsSocket;
using tcp = net::ip::tcp;

// A key is renewed after gigabytes.
constexpr int64_t kTlsMessagesMax = 1'000;

std::shared_ptr<const CertificateNames> NamesOf(const TlsSocket* tls) {
  if (tls == nullptr) return nullptr;
  CertificateNames names = tls->certificate();
  if (names == CertificateNames()) return nullptr;
  return std::make_shared<const CertificateNames>(std::move(names));
}

}  // namespace

Transport::Transport(tcp::socket socket, guard::TlsSocketPtr tls)
    : socket_(std::move(socket)), tls_(std::move(tls)), certificate_(NamesOf(tls_.get())) {}

void Transport::BoundUnsent(int bytes) {
  error_code ignored;
  socket_.set_option(net::socket_base::send_buffer_size(bytes), ignored);
}

void Transport::Post(OnMoved done, bool ok, size_t bytes) {
  net::post(socket_.get_executor(),
            [done = std::move(done), ok, bytes]() mutable { done(ok, bytes); });
}

bool Transport::IsFlooded() {
  tls_messages_ += tls_->TakeMessages();
  return tls_messages_ > kTlsMessagesMax;
}

// ---- reading ----

// Each time the other connections have their turn, however much there is.
void Transport::ReadTls(std::span<char> room, OnMoved done) {
  const int64_t got = IsFlooded() ? TlsSocket::kEnd : tls_->Read(room);
  if (got != 0) return Post(std::move(done), got > 0, got > 0 ? static_cast<size_t>(got) : 0);
  Wait(tls_->wants_write() ? tcp::socket::wait_write : tcp::socket::wait_read,
       [this, room, done = std::move(done)](bool ok, size_t) mutable {
         if (!ok || !is_open()) return done(false, 0);
         ReadTls(room, std::move(done));
       });
}

Transport::Sight Transport::Look() {
  if (tls_ != nullptr) {
    if (IsFlooded()) return Sight::kBroken;
    const int64_t seen = tls_->Peek();
    if (seen != TlsSocket::kEnd) return seen > 0 ? Sight::kBytes : Sight::kNothing;
    return tls_->ended_in_order() ? Sight::kEnd : Sight::kBroken;
  }
  char byte = 0;
  const ssize_t got = recv(descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got >= 0) return got > 0 ? Sight::kBytes : Sight::kEnd;
  return errno == EAGAIN || errno == EINTR ? Sight::kNothing : Sight::kBroken;
}

// ---- writing ----

void Transport::WriteTls(std::string_view bytes, OnMoved done) {
  const int64_t sent = tls_->Write(bytes);
  if (sent != 0) return Post(std::move(done), sent > 0, sent > 0 ? static_cast<size_t>(sent) : 0);
  Wait(tcp::socket::wait_write, [this, bytes, done = std::move(done)](bool ok, size_t) mutable {
    if (!ok || !is_open()) return done(false, 0);
    WriteTls(bytes, std::move(done));
  });
}

// Of TLS, what is not taken at once cannot be taken back.
int64_t Transport::WriteNow(std::string_view bytes) {
  const auto all = static_cast<int64_t>(bytes.size());
  if (tls_ != nullptr) return tls_->Write(bytes) == all ? all : kNoUse;
  const ssize_t sent = send(descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) return 0;
  return sent == all ? all : kNoUse;
}

void Transport::EndWriting(std::shared_ptr<void> owner) {
  if (!is_open()) return;
  if (tls_ != nullptr && !tls_->EndWriting())
    return Wait(tcp::socket::wait_write, [this, owner = std::move(owner)](bool ok, size_t) mutable {
      if (ok) EndWriting(std::move(owner));
    });
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

// ---- the end ----

void Transport::Cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void Transport::Close(bool in_order) {
  if (in_order && tls_ != nullptr) tls_->EndWriting();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace semaphored::http
