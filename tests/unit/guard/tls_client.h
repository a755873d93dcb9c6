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
  // A record of its own.
  void UpdateKey() const {
    REQUIRE(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    REQUIRE(SSL_do_handshake(ssl_.get()) == 1);
  }

 private:
  const std::unique_ptr<SSL_CTX, FreeSsl> context_;
  const SslPtr ssl_;
};

}  // namespace semaphored::guard
