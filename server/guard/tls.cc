#include "server/guard/tls.h"

#include <openssl/err.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/openssl_objects.h"

namespace semaphored::guard {
namespace {

using openssl::Bio;
using openssl::Key;
using openssl::Names;
using openssl::NoPassphrase;
using openssl::Over;
using openssl::X509Ptr;

constexpr unsigned char kHttp2[] = {2, 'h', '2'};

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

int SelectHttp2(SSL*, const unsigned char** chosen, unsigned char* size,
                const unsigned char* offered, unsigned int offered_size, void*) {
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kHttp2, sizeof kHttp2, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

// OpenSSL's callback, at each part of a record that goes or comes.
void CountMessage(int sent, int /*version*/, int type, const void* /*bytes*/, size_t /*size*/,
                  SSL* /*ssl*/, void* count) {
  if (sent == 0 && type == SSL3_RT_HANDSHAKE) ++*static_cast<int64_t*>(count);
}

std::string Text(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string CommonName(const X509* certificate) {
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const int place = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (place < 0) return "";
  unsigned char* utf8 = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)));
  if (size < 0) return "";
  std::string name(reinterpret_cast<const char*>(utf8), static_cast<size_t>(size));
  OPENSSL_free(utf8);
  return name;
}

}  // namespace

std::string TakeTlsError() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's.
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "" : reason;
}

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
  SSL_CTX_set_alpn_select_cb(raw, SelectHttp2, nullptr);
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

SslPtr Tls::Accept(int socket) const {
  ContextPtr context;
  {
    const std::lock_guard lock(mutex_);
    context = context_;
  }
  SslPtr ssl(SSL_new(context.get()));  // Keeps the context.
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket) != 1) return nullptr;
  SSL_set_accept_state(ssl.get());
  return ssl;
}

void CountMessages(SSL* ssl, int64_t* count) {
  SSL_set_msg_callback_arg(ssl, count);
  SSL_set_msg_callback(ssl, CountMessage);
}

CertificateNames NamesOf(const SSL* ssl) {
  CertificateNames names;
  const X509* const certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) return names;
  names.common_name = CommonName(certificate);
  const Names others(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(others.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(others.get(), i);
    if (name->type == GEN_DNS) names.dns.push_back(Text(name->d.dNSName));
    if (name->type == GEN_URI) names.uris.push_back(Text(name->d.uniformResourceIdentifier));
    if (name->type == GEN_EMAIL) names.emails.push_back(Text(name->d.rfc822Name));
  }
  return names;
}

}  // namespace semaphored::guard
