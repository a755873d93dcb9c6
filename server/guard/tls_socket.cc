#include "server/guard/tls_socket.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/base/openssl_objects.h"

namespace semaphored::guard {
namespace {

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

// What OpenSSL takes in one call.
int SizeOf(size_t size) {
  return static_cast<int>(std::min<size_t>(size, std::numeric_limits<int>::max()));
}

}  // namespace

std::string TakeTlsError() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's.
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "" : reason;
}

TlsSocket::TlsSocket(SslPtr ssl) : ssl_(std::move(ssl)) { SSL_set_accept_state(ssl_.get()); }

// OpenSSL's callback, at each part of a record that goes or comes.
void TlsSocket::CountMessage(int sent, int /*version*/, int type, const void* /*bytes*/,
                             size_t /*size*/, SSL* /*ssl*/, void* count) {
  if (sent == 0 && type == SSL3_RT_HANDSHAKE) ++*static_cast<int64_t*>(count);
}

int64_t TlsSocket::Judge(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return 0;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return 0;
    default:
      error_ = TakeTlsError();
      return kEnd;
  }
}

TlsSocket::Handshake TlsSocket::ShakeHands() {
  wants_write_ = false;
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  if (done != 1) return Judge(done) == kEnd ? Handshake::kFailed : Handshake::kUnderWay;
  SSL_set_msg_callback_arg(ssl_.get(), &messages_);
  SSL_set_msg_callback(ssl_.get(), CountMessage);
  return Handshake::kDone;
}

int64_t TlsSocket::Read(std::span<char> buffer) {
  wants_write_ = false;
  ERR_clear_error();
  size_t size = 0;
  // TLS may have taken in more than one reading gives: the socket would not tell of the rest.
  do {
    const std::span<char> rest = buffer.subspan(size);
    const int got = SSL_read(ssl_.get(), rest.data(), SizeOf(rest.size()));
    if (got <= 0) {
      const int64_t result = Judge(got);
      return size > 0 ? static_cast<int64_t>(size) : result;
    }
    size += static_cast<size_t>(got);
  } while (holds_bytes() && size < buffer.size());
  return static_cast<int64_t>(size);
}

int64_t TlsSocket::Peek() {
  wants_write_ = false;
  ERR_clear_error();
  char byte = 0;
  const int got = SSL_peek(ssl_.get(), &byte, 1);
  return got > 0 ? got : Judge(got);
}

int64_t TlsSocket::Write(std::string_view bytes) {
  ERR_clear_error();
  const bool reading_wants_write = wants_write_;
  const int sent = SSL_write(ssl_.get(), bytes.data(), SizeOf(bytes.size()));
  if (sent > 0) return sent;
  const int64_t result = Judge(sent);
  wants_write_ = reading_wants_write;
  return result;
}

bool TlsSocket::EndWriting() {
  ERR_clear_error();
  const int result = SSL_shutdown(ssl_.get());
  const bool full = result < 0 && SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_WRITE;
  ERR_clear_error();
  return !full;
}

CertificateNames TlsSocket::certificate() const {
  CertificateNames names;
  const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
  if (certificate == nullptr || SSL_get_verify_result(ssl_.get()) != X509_V_OK) return names;
  names.common_name = CommonName(certificate);
  const openssl::Names others(static_cast<GENERAL_NAMES*>(
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
