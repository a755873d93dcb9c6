#include "server/access/certificates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>

#include "server/base/openssl_objects.h"

namespace semaphored {
namespace {

constexpr size_t kBytesMax = 1 << 20;

using openssl::Bio;
using openssl::Key;
using openssl::NoPassphrase;
using openssl::Over;
using openssl::X509Ptr;

absl::Status Wrong(const char* setting, const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}: {}", setting, path, what));
}

absl::StatusOr<std::string> ReadSetting(const char* setting, const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kBytesMax);
  if (!text.ok()) return Wrong(setting, path, std::string(text.status().message()));
  return text;
}

// The first of the certificates in `pem`; all of them can be read. nullptr: there is none, or one
// is damaged.
X509Ptr FirstOf(const std::string& pem) {
  const Bio bio = Over(pem);
  X509Ptr first(PEM_read_bio_X509_AUX(bio.get(), nullptr, nullptr, nullptr));
  if (first == nullptr) return nullptr;
  while (X509Ptr{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)} != nullptr) {
  }
  // The end is the lack of another "-----BEGIN"; anything else is a certificate that is cut off.
  const unsigned long error = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's.
  if (ERR_GET_REASON(error) != PEM_R_NO_START_LINE) return nullptr;
  return first;
}

int64_t ExpiresUnixS(const X509* certificate) {
  std::tm time{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) return 0;
  return timegm(&time);
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return absl::NotFoundError(
        fmt::format("cannot be read: {}", std::generic_category().message(errno)));
  struct stat about {};
  std::string text;
  absl::Status status;
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
    status = absl::NotFoundError("is not a file");
  }
  char part[16384];
  while (status.ok() && text.size() <= bytes_max) {
    const ssize_t got = read(file, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      status = absl::NotFoundError(
          fmt::format("cannot be read: {}", std::generic_category().message(errno)));
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  close(file);
  if (!status.ok()) return status;
  if (text.size() > bytes_max)
    return absl::NotFoundError(fmt::format("is longer than {} bytes", bytes_max));
  return text;
}

absl::StatusOr<Certificates> ReadCertificates(const CertificateFiles& files) {
  Certificates read;
  absl::StatusOr<std::string> chain = ReadSetting("tls_cert_file", files.cert_file);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<std::string> key_text = ReadSetting("tls_key_file", files.key_file);
  if (!key_text.ok()) return key_text.status();

  ERR_clear_error();
  const X509Ptr certificate = FirstOf(*chain);
  if (certificate == nullptr) {
    return Wrong("tls_cert_file", files.cert_file,
                 "must be certificates in PEM, the daemon's own first, none of them cut off");
  }
  ERR_clear_error();
  const Bio bio = Over(*key_text);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Wrong("tls_key_file", files.key_file,
                 "must be a private key in PEM, without a passphrase");
  }
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return Wrong("tls_key_file", files.key_file,
                 fmt::format("is not the key of the certificate in {}", files.cert_file));
  }
  if (!files.client_ca_file.empty()) {
    absl::StatusOr<std::string> ca = ReadSetting("tls_client_ca_file", files.client_ca_file);
    if (!ca.ok()) return ca.status();
    const bool good = FirstOf(*ca) != nullptr;
    ERR_clear_error();
    if (!good) {
      return Wrong("tls_client_ca_file", files.client_ca_file,
                   "must be certificates in PEM, none of them cut off");
    }
    read.client_ca = *std::move(ca);
  }
  read.expires_unix_s = ExpiresUnixS(certificate.get());
  read.chain = *std::move(chain);
  read.key = *std::move(key_text);
  return read;
}

}  // namespace semaphored
