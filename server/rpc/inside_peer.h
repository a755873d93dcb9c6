// What a call from within the daemon (server/web) says of its caller, which no client of gRPC can say: it stands behind a
// random key in the call's metadata.
#pragma once

#include <string>
#include <string_view>

#include "server/access/access.h"

namespace semaphored {

struct InsidePeer {
  std::string address;           // "ipv4:192.0.2.1:4711".
  CertificateNames certificate;  // Of the certificate that TLS has verified; else empty.
  friend bool operator==(const InsidePeer&, const InsidePeer&) = default;
};

// The metadata: AccessControl::inside_key, and InsidePeerText() behind it.
inline constexpr char kInsidePeerKey[] = "semaphored-inside-peer";

// A random one. Ends the process if the system has no random bytes.
std::string NewInsideKey();

// Printable, whatever the names are made of. `certificate` is null: none was shown.
std::string InsidePeerText(const std::string& address, const CertificateNames* certificate);
// Of what InsidePeerText() has made.
InsidePeer ParseInsidePeer(std::string_view text);

}  // namespace semaphored
