#include "server/rpc/inside_peer.h"

#include <openssl/rand.h>

#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace semaphored {
namespace {

// Behind the address: " c6f7073 d61" for the common name "ops" and the DNS name "a". Digits have no blanks, so no name can
// be taken for two.
enum Kind : char { kCommonName = 'c', kDns = 'd', kUri = 'u', kEmail = 'e' };

void Append(Kind kind, const std::string& name, std::string* text) {
  absl::StrAppend(text, " ", absl::string_view(std::string(1, kind)), absl::BytesToHexString(name));
}

}  // namespace

std::string NewInsideKey() {
  std::array<unsigned char, 32> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) std::abort();
  return absl::StrCat(absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(random.data()), random.size())),
                      " ");
}

std::string InsidePeerText(const std::string& address, const CertificateNames* certificate) {
  std::string text = address;
  if (certificate == nullptr) return text;
  if (!certificate->common_name.empty()) Append(kCommonName, certificate->common_name, &text);
  for (const std::string& name : certificate->dns) Append(kDns, name, &text);
  for (const std::string& name : certificate->uris) Append(kUri, name, &text);
  for (const std::string& name : certificate->emails) Append(kEmail, name, &text);
  return text;
}

InsidePeer ParseInsidePeer(std::string_view text) {
  InsidePeer peer;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
  peer.address = std::string(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    std::string name = absl::HexStringToBytes(parts[i].substr(1));
    switch (static_cast<Kind>(parts[i].front())) {
      case kCommonName:
        peer.certificate.common_name = std::move(name);
        break;
      case kDns:
        peer.certificate.dns.push_back(std::move(name));
        break;
      case kUri:
        peer.certificate.uris.push_back(std::move(name));
        break;
      case kEmail:
        peer.certificate.emails.push_back(std::move(name));
        break;
    }
  }
  return peer;
}

}  // namespace semaphored
