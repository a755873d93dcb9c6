// One connection by TLS: what is read and written at its socket, and what its client's certificate says.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/access/access.h"

namespace semaphored::guard {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;

// And takes OpenSSL's errors of this thread away: "no shared cipher", "" if there are none.
std::string TakeTlsError();

// Used by one thread at a time. No call blocks, if the socket does not. The socket is its owner's, and outlives it.
class TlsSocket {
 public:
  static constexpr int64_t kEnd = -1;  // The other side has ended, or failed.
  enum class Handshake : uint8_t { kUnderWay, kDone, kFailed };

  // The server's side. The socket is set in `ssl`, which is not null.
  explicit TlsSocket(SslPtr ssl);

  // Goes on with the handshake: before anything else. While it is under way, wants_write() says what to wait for.
  Handshake ShakeHands();

  // The bytes that were read, as many as there are; 0: none for now, wants_write() says what to wait for; or kEnd. It
  // ends at each of TLS's own messages (TakeMessages), though more may follow.
  int64_t Read(std::span<char> buffer);
  // 1: there is something to be read, which stays; 0 and kEnd as of Read().
  int64_t Peek();
  // The bytes that were taken; 0: none for now, and the socket has to take more before the same bytes, or what begins with
  // them, are written again; or kEnd.
  int64_t Write(std::string_view bytes);
  // Nothing is written any more, and the other side knows. False: the socket does not take it now.
  bool EndWriting();

  // Of the last ShakeHands(), Read() or Peek(), which could not go on: it waits for the socket to take something; else to
  // bring something.
  bool wants_write() const { return wants_write_; }
  // Something was read of the socket that Read() has not given: the socket does not say so.
  bool holds_bytes() const { return SSL_pending(ssl_.get()) > 0; }
  // Behind kEnd: the other side has said that it sends no more. Else the connection is broken, or was cut off.
  bool ended_in_order() const {
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  // Messages of TLS's own, as key updates are, that came behind the handshake and since the last call.
  int64_t TakeMessages() { return std::exchange(messages_, 0); }
  // Bytes that were given to the socket so far.
  int64_t written() const {
    return static_cast<int64_t>(BIO_number_written(SSL_get_wbio(ssl_.get())));
  }
  // TLS's word for why it failed; empty: there is none.
  const std::string& error() const { return error_; }
  // What the verified certificate of the client says, once the handshake is done. Empty: it has shown none.
  CertificateNames certificate() const;

 private:
  // What an SSL_… that returned this, at most 0, means: 0 or kEnd.
  int64_t Judge(int result);
  static void CountMessage(int sent, int version, int type, const void* bytes, size_t size,
                           SSL* ssl, void* count);

  const SslPtr ssl_;
  bool wants_write_ = false;
  int64_t messages_ = 0;
  std::string error_;
};
using TlsSocketPtr = std::unique_ptr<TlsSocket>;

}  // namespace semaphored::guard
