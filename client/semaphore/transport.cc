#include "client/semaphore/transport.h"

#include <arpa/inet.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/create_channel.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::size_t kTokenBytesMax = 4'096;

absl::Status Invalid(absl::string_view option, absl::string_view message) {
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(option, ": ", message),
                   "INVALID_FIELD");
}

absl::StatusOr<std::string> ReadFile(absl::string_view option, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));  // Of a folder it sets bad().
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) {
    const std::string why = errno != 0 ? std::generic_category().message(errno) : "not a file";
    return Invalid(option, absl::StrCat("cannot read ", path, ": ", why));
  }
  if (text.size() > kFileBytesMax)
    return Invalid(option, absl::StrCat("cannot read ", path, ": it is over 1 MiB"));
  return text;
}

// Empty if the option is.
absl::StatusOr<std::string> ReadPem(absl::string_view option, const std::string& path,
                                    absl::string_view kind) {
  if (path.empty()) return std::string();
  absl::StatusOr<std::string> text = ReadFile(option, path);
  if (text.ok() && (!absl::StrContains(*text, "-----BEGIN ") || !absl::StrContains(*text, kind))) {
    return Invalid(option, absl::StrCat(path, " holds no ", kind, " in PEM"));
  }
  return text;
}

// What can travel as metadata, and is no name of a file by mistake.
bool IsToken(absl::string_view text) {
  if (text.empty() || text.size() > kTokenBytesMax) return false;
  for (const char c : text) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

bool IsLoopback(const std::string& endpoint) {
  absl::string_view text = endpoint;
  if (absl::StartsWith(text, "unix:")) return true;
  absl::ConsumePrefix(&text, "dns:///");
  absl::ConsumePrefix(&text, "ipv4:");
  absl::ConsumePrefix(&text, "ipv6:");
  const std::size_t colon = text.rfind(':');
  std::string host(text.substr(0, colon));
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const SecurityOptions& options) {
  if (!options.wants_tls()) return grpc::InsecureChannelCredentials();
  if (options.cert_file.empty() != options.key_file.empty()) {
    return options.cert_file.empty() ? Invalid("cert_file", "needed, since there is a key_file")
                                     : Invalid("key_file", "needed, since there is a cert_file");
  }
  const auto roots = ReadPem("ca_file", options.ca_file, "CERTIFICATE");
  if (!roots.ok()) return roots.status();
  const auto certificate = ReadPem("cert_file", options.cert_file, "CERTIFICATE");
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadPem("key_file", options.key_file, "PRIVATE KEY");
  if (!key.ok()) return key.status();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = *roots;
  ssl.pem_cert_chain = *certificate;
  ssl.pem_private_key = *key;
  auto credentials = grpc::SslCredentials(ssl);
  if (credentials == nullptr) return Invalid("tls", "the certificates cannot be used");
  return credentials;
}

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Transport>> Transport::Create(
    const SecurityOptions& options, const std::vector<std::string>& endpoints) {
  std::shared_ptr<Transport> transport(new Transport(options));
  auto credentials = MakeCredentials(options);
  if (!credentials.ok()) return credentials.status();
  transport->credentials_ = *std::move(credentials);
  if (options.token.empty() && options.token_file.empty()) return transport;
  if (!options.token.empty() && !options.token_file.empty()) {
    return Invalid("token", "there is a token_file as well: give one of them");
  }
  if (!options.wants_tls()) {
    for (const std::string& endpoint : endpoints) {
      if (IsLoopback(endpoint)) continue;
      return Invalid(options.token.empty() ? "token_file" : "token",
                     absl::StrCat("is never sent without TLS, except to loopback or a Unix "
                                  "socket, and ",
                                  endpoint, " is neither: set tls, or ca_file"));
    }
  }
  if (options.token_file.empty()) {
    if (!IsToken(options.token)) {
      return Invalid("token", "must be 1 to 4096 characters without spaces");
    }
    transport->token_ = options.token;
    return transport;
  }
  const std::lock_guard<std::mutex> lock(transport->mutex_);
  absl::Status read = transport->ReadToken();
  if (!read.ok()) return read;
  return transport;
}

std::shared_ptr<Transport> Transport::Plain() { return *Create({}, {}); }

std::shared_ptr<grpc::Channel> Transport::Connect(const std::string& endpoint,
                                                  grpc::ChannelArguments arguments) const {
  if (!options_.server_name.empty()) arguments.SetSslTargetNameOverride(options_.server_name);
  return grpc::CreateCustomChannel(endpoint, credentials_, arguments);
}

std::shared_ptr<grpc::Channel> Transport::ConnectAlone(const std::string& endpoint) const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return Connect(endpoint, arguments);
}

absl::Status Transport::ReadToken() {
  struct stat found {};
  if (stat(options_.token_file.c_str(), &found) != 0) {
    return Invalid("token_file", absl::StrCat("cannot read ", options_.token_file, ": ",
                                              std::generic_category().message(errno)));
  }
  if (!token_.empty() && SameFile(found, token_file_)) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadFile("token_file", options_.token_file);
  if (!text.ok()) return text.status();
  const absl::string_view token = absl::StripAsciiWhitespace(*text);
  if (!IsToken(token)) {
    return Invalid("token_file", absl::StrCat(options_.token_file,
                                              " must hold one token: 1 to 4096 characters "
                                              "without spaces"));
  }
  token_ = std::string(token);
  token_file_ = found;
  return absl::OkStatus();
}

void Transport::Authorize(grpc::ClientContext* context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Who could not read it goes on with the token before: the daemon says if it does not do.
  if (!options_.token_file.empty()) (void)ReadToken();
  if (!token_.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", token_));
}

}  // namespace semaphore
