#include "server/guard/tls.h"

#include <openssl/err.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/openssl_objects.h"

namespace semaphored::guard {
namespace {

using openssl::Bio;
using openssl::Key;
using openssl::NoPassphrase;
using openssl::Over;
using openssl::X509Ptr;

// As ALPN writes them: each behind its length.
constexpr std::string_view kHttp1 = "\x08http/1.1";
constexpr std::string_view kHttp2 = "\x02h2";

absl::Status Refused(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", TakeTlsError()));
}

bool UseChain(SSL_CTX* context, const std::string& pem) {
  const Bio bio = Over(pem);
  const X509Ptr own(PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (const X509Ptr signer{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)})
    if (SSL_CTX_add1_chain_cert(context, signer.get()) != 1) return false;
  ERR_clear_error();  // The end of the text is one.
  return true;
}

bool UseKey(SSL_CTX* context, const std::string& pem) {
  const Bio bio = Over(pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

// Clients are verified by these, and learn their names.
bool UseClientCa(SSL_CTX* context, const std::string& pem) {
  const Bio bio = Over(pem);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  bool any = false;
  while (const X509Ptr authority{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    if (X509_STORE_add_cert(store, authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1)
      return false;
    any = true;
  }
  ERR_clear_error();
  return any;
}

int SelectProtocol(SSL* ssl, const unsigned char** chosen, unsigned char* size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  const auto* const ours = static_cast<const std::string_view*>(SSL_get_app_data(ssl));
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, reinterpret_cast<const unsigned char*>(ours->data()),
                            static_cast<unsigned int>(ours->size()), offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

absl::StatusOr<Tls::ContextPtr> Tls::MakeContext(const Certificates& certificates,
                                                 ClientCertificates clients) {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return Refused("TLS cannot be used");
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // A session that is taken up again would bring a certificate that was verified by older rules.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  // A reading ends at each key update, however many follow it.
  SSL_CTX_clear_mode(raw, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_alpn_select_cb(raw, SelectProtocol, nullptr);
  // What HTTP/2 allows (RFC 9113, section 9.2.2).
  if (SSL_CTX_set_cipher_list(raw, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
    return Refused("TLS has no ciphers");
  if (!UseChain(raw, certificates.chain)) return Refused("tls_cert_file");
  if (!UseKey(raw, certificates.key)) return Refused("tls_key_file");
  if (certificates.client_ca.empty() || clients == ClientCertificates::kNone) return context;
  if (!UseClientCa(raw, certificates.client_ca)) return Refused("tls_client_ca_file");
  const int required =
      clients == ClientCertificates::kRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | required, nullptr);
  return context;
}

absl::StatusOr<std::unique_ptr<Tls>> Tls::Make(const Certificates& certificates,
                                               ClientCertificates clients) {
  absl::StatusOr<ContextPtr> context = MakeContext(certificates, clients);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Tls>(new Tls(*std::move(context), clients));
}

Tls::Tls(ContextPtr context, ClientCertificates clients)
    : clients_(clients), context_(std::move(context)) {}

absl::Status Tls::Set(const Certificates& certificates) {
  absl::StatusOr<ContextPtr> context = MakeContext(certificates, clients_);
  if (!context.ok()) return context.status();
  const std::lock_guard lock(mutex_);
  context_ = *std::move(context);
  return absl::OkStatus();
}

TlsSocketPtr Tls::Accept(int socket, Protocol protocol) const {
  ContextPtr context;
  {
    const std::lock_guard lock(mutex_);
    context = context_;
  }
  SslPtr ssl(SSL_new(context.get()));  // Keeps the context.
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket) != 1) return nullptr;
  // OpenSSL only keeps it, and does not write to it.
  SSL_set_app_data(ssl.get(),
                   const_cast<std::string_view*>(protocol == Protocol::kHttp1 ? &kHttp1 : &kHttp2));
  return std::make_unique<TlsSocket>(std::move(ssl));
}

}  // namespace semaphored::guard
