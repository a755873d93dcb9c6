// A client of TLS for the tests of the guard, and a certificate for its server.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

#include <catch2/catch_test_macros.hpp>

#include "server/access/certificates.h"
#include "server/base/openssl_objects.h"
#include "server/guard/tls.h"

namespace semaphored::guard {

inline std::string TakeText(BIO* bio) {
  std::string text(BIO_ctrl_pending(bio), '\0');
  const int size = static_cast<int>(text.size());
  REQUIRE(BIO_read(bio, text.data(), size) == size);
  return text;
}

// For an hour, and for no name.
inline Certificates SelfSigned() {
  constexpr int64_t kValidS = 3'600;
  const openssl::Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  const openssl::X509Ptr own(X509_new());
  X509_gmtime_adj(X509_getm_notBefore(own.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(own.get()), kValidS);
  REQUIRE(X509_set_pubkey(own.get(), key.get()) == 1);
  REQUIRE(X509_sign(own.get(), key.get(), EVP_sha256()) > 0);
  const openssl::Bio bio(BIO_new(BIO_s_mem()));
  Certificates certificates;
  REQUIRE(PEM_write_bio_X509(bio.get(), own.get()) == 1);
  certificates.chain = TakeText(bio.get());
  REQUIRE(PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) ==
          1);
  certificates.key = TakeText(bio.get());
  return certificates;
}

// It verifies no certificate.
class TlsClient {
 public:
  // The socket stays the caller's, and is set not to block.
  explicit TlsClient(int socket)
      : context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_.get())) {
    REQUIRE(SSL_set_fd(ssl_.get(), socket) == 1);
    SSL_set_connect_state(ssl_.get());
  }

  // Goes on with the handshake. False: the other end has to say something.
  bool ShakeHands() const { return SSL_do_handshake(ssl_.get()) == 1; }
  void Send(std::string_view bytes) const {
    const int size = static_cast<int>(bytes.size());
    REQUIRE(SSL_write(ssl_.get(), bytes.data(), size) == size);
  }
  // All that comes until `last` has, or the end. REQUIRES: the socket blocks.
  std::string ReadUntil(std::string_view last) const {
    std::string got;
    std::string part(16 << 10, '\0');
    while (last.empty() || !std::string_view(got).ends_with(last)) {
      const int size = SSL_read(ssl_.get(), part.data(), static_cast<int>(part.size()));
      if (size <= 0) break;
      got.append(part, 0, static_cast<size_t>(size));
    }
    return got;
  }
  // It sends no more, and says so.
  void EndWriting() const { SSL_shutdown(ssl_.get()); }
  // Behind ReadUntil(): the other end has said that it sends no more.
  bool was_ended() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }
  // False: the handshake failed. REQUIRES: the socket blocks. The client may say what it speaks: "\x02h2".
  bool Connect(std::string_view protocols = "") const {
    if (!protocols.empty())
      SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned>(protocols.size()));
    return SSL_connect(ssl_.get()) == 1;
  }
  // A record of its own.
  void UpdateKey() const {
    REQUIRE(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    REQUIRE(SSL_do_handshake(ssl_.get()) == 1);
  }
  // As UpdateKey(); without effect if the other end has gone.
  void TryUpdateKey() const {
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    SSL_do_handshake(ssl_.get());
  }
  // The certificate of the other end, as PEM.
  std::string shown() const {
    const openssl::Bio bio(BIO_new(BIO_s_mem()));
    REQUIRE(PEM_write_bio_X509(bio.get(), SSL_get0_peer_certificate(ssl_.get())) == 1);
    return TakeText(bio.get());
  }

 private:
  const std::unique_ptr<SSL_CTX, FreeSsl> context_;
  const SslPtr ssl_;
};

}  // namespace semaphored::guard
