// The bytes of a connection of HTTP: those of its socket, or by TLS over it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "server/access/access.h"
#include "server/guard/tls_socket.h"

namespace semaphored::http {

// Used on the thread that runs the socket's context. Of each kind at most one operation is under way: of those that read, wait
// for bytes, and write. A handler is never called within the call that it was given to. It keeps what the transport belongs
// to, and looks first whether is_open().
class Transport {
 public:
  // Whether it went well, and the bytes that were moved.
  using OnMoved = std::function<void(bool ok, size_t bytes)>;
  // What a client has done.
  enum class Sight : uint8_t {
    kNothing,
    kBytes,  // There is something to be read.
    kEnd,    // It sends no more.
    kBroken,
  };

  // `tls` is null: without TLS; else its handshake is done.
  Transport(boost::asio::ip::tcp::socket socket, guard::TlsSocketPtr tls);

  bool is_open() const { return socket_.is_open(); }
  int descriptor() { return socket_.native_handle(); }
  // Of the client's certificate, which was verified; null: it has shown none.
  const std::shared_ptr<const CertificateNames>& certificate() const { return certificate_; }
  // What the kernel may keep of what is written.
  void BoundUnsent(int bytes);

  // Some bytes. Not ok: the client sends no more, or the connection is broken, or Cancel() was called.
  template <typename Done>
  void ReadSome(std::span<char> room, Done done) {
    if (tls_ != nullptr) return ReadTls(room, std::move(done));
    ReadRaw(room, std::move(done));
  }
  // Until Look() may have something to say.
  template <typename Done>
  void WaitForBytes(Done done) {
    if (tls_ != nullptr && tls_->holds_bytes()) return Post(std::move(done), true, 0);
    Wait(boost::asio::ip::tcp::socket::wait_read, std::move(done));
  }
  // Takes nothing away.
  Sight Look();
  // Some bytes of both, one behind the other, which stay as they are meanwhile.
  template <typename Done>
  void WriteSome(std::string_view first, std::string_view then, Done done) {
    if (tls_ != nullptr) return WriteTls(first.empty() ? then : first, std::move(done));
    const std::array<boost::asio::const_buffer, 2> both = {
        boost::asio::buffer(first.data(), first.size()),
        boost::asio::buffer(then.data(), then.size())};
    socket_.async_write_some(both, [done = std::move(done)](const boost::system::error_code& error,
                                                            size_t bytes) { done(!error, bytes); });
  }
  // All of it, at once: the bytes that were taken; 0: none, as the socket takes none now; kNoUse: the connection is of no use any
  // more. REQUIRES: nothing is being written.
  static constexpr int64_t kNoUse = -1;
  int64_t WriteNow(std::string_view bytes);
  // Nothing more is written, and the client knows. `owner` is kept until it has been said.
  void EndWriting(std::shared_ptr<void> owner);
  // As ReadSome(), of what is thrown away, whatever TLS would make of it.
  template <typename Done>
  void Discard(std::span<char> room, Done done) {
    ReadRaw(room, std::move(done));
  }

  // What is under way ends, not ok.
  void Cancel();
  // At once. `in_order`: between an answer and the next request, which the client knows then.
  void Close(bool in_order);

 private:
  using Readiness = boost::asio::ip::tcp::socket::wait_type;

  template <typename Done>
  void ReadRaw(std::span<char> room, Done done) {
    socket_.async_read_some(boost::asio::buffer(room.data(), room.size()),
                            [done = std::move(done)](const boost::system::error_code& error,
                                                     size_t bytes) { done(!error, bytes); });
  }
  template <typename Done>
  void Wait(Readiness readiness, Done done) {
    socket_.async_wait(readiness,
                       [done = std::move(done)](const boost::system::error_code& error) mutable {
                         done(!error, 0);
                       });
  }
  void ReadTls(std::span<char> room, OnMoved done);
  void WriteTls(std::string_view bytes, OnMoved done);
  void Post(OnMoved done, bool ok, size_t bytes);
  // The client sends more of TLS's own messages than any does.
  bool IsFlooded();

  boost::asio::ip::tcp::socket socket_;
  guard::TlsSocketPtr tls_;  // Null: without TLS.
  std::shared_ptr<const CertificateNames> certificate_;
  int64_t tls_messages_ = 0;
};

}  // namespace semaphored::http
