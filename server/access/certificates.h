// What the daemon shows to prove who it is, and by what it verifies its clients: PEM files, read
// and checked as a whole before anything of them is put to use.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored {

// Paths; the settings of the same names with tls_ before them.
struct CertificateFiles {
  std::string cert_file;       // The daemon's certificate, and behind it those that signed it.
  std::string key_file;        // Its private key, without a passphrase.
  std::string client_ca_file;  // Empty: clients are not asked for certificates.
};

// PEM texts that fit each other.
struct Certificates {
  std::string chain;
  std::string key;
  std::string client_ca;       // Empty: clients are not asked for certificates.
  int64_t expires_unix_s = 0;  // The daemon's own; 0: it does not say.
  friend bool operator==(const Certificates&, const Certificates&) = default;
};

// Reads the files, each at most 1 MiB; blocks for that. INVALID_ARGUMENT: the message names the
// setting and the file, and says what is wrong: it cannot be read, is not PEM or cut off within a
// certificate, or the key is not the certificate's. That a certificate has expired is not looked
// at: its clients say so.
absl::StatusOr<Certificates> ReadCertificates(const CertificateFiles& files);

// The whole of a file of at most `bytes_max`. NOT_FOUND otherwise, with the reason.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

}  // namespace semaphored
