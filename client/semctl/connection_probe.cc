#include "client/semctl/connection_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "adapters/common/descriptor.h"

namespace semaphore::semctl {
namespace {

using semaphored::Descriptor;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kDaysShort = 30;
constexpr char kAlpn[] = "\x02h2";

// ---- Where it is ----

struct Where {
  bool unix = false;
  bool abstract = false;
  std::string path;  // Of a Unix socket.
  std::string host;
  std::string port;
};

Where Read(absl::string_view endpoint) {
  Where where;
  where.abstract = absl::ConsumePrefix(&endpoint, "unix-abstract:");
  where.unix = where.abstract || absl::ConsumePrefix(&endpoint, "unix:");
  if (where.unix) {
    where.path = std::string(endpoint);
    return where;
  }
  for (const char* scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"})
    absl::ConsumePrefix(&endpoint, scheme);
  const std::size_t colon = endpoint.rfind(':');
  where.host = std::string(endpoint.substr(0, colon));
  where.port = std::string(endpoint.substr(colon + 1));
  if (absl::StartsWith(where.host, "[")) where.host = where.host.substr(1, where.host.size() - 2);
  return where;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

bool IsLoopback(const Where& where) {
  return where.unix || where.host == "localhost" || where.host == "::1" ||
         (absl::StartsWith(where.host, "127.") && IsAddress(where.host));
}

// ---- The connection ----

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

// A resolver may take half a minute. It then goes on by itself, and what it finds is dropped.
std::shared_ptr<Addresses> Resolve(const Where& where, milliseconds time, std::string* why) {
  auto done = std::make_shared<std::promise<std::pair<int, std::shared_ptr<Addresses>>>>();
  auto found = done->get_future();
  std::thread([done, where] {
    addrinfo wanted = {};
    wanted.ai_socktype = SOCK_STREAM;
    auto addresses = std::make_shared<Addresses>();
    const int code =
        getaddrinfo(where.host.c_str(), where.port.c_str(), &wanted, &addresses->first);
    done->set_value({code, addresses});
  }).detach();
  if (found.wait_for(time) != std::future_status::ready) {
    *why = "its name was not found in time";
    return nullptr;
  }
  const auto [code, addresses] = found.get();
  if (code == 0) return addresses;
  *why = gai_strerror(code);
  return nullptr;
}

// -1: `why` says why.
Descriptor Connect(int family, const sockaddr* address, socklen_t size, milliseconds time,
                   std::string* why) {
  Descriptor connection(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = connection.open() && connect(connection.get(), address, size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{connection.get(), POLLOUT, 0};
    error = ETIMEDOUT;
    socklen_t length = sizeof(error);
    if (poll(&ready, 1, static_cast<int>(time.count())) > 0)
      getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0) return connection;
  *why = std::generic_category().message(error);
  return Descriptor();
}

Descriptor Reach(const Where& where, milliseconds time, std::string* why) {
  if (where.unix) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::size_t from = where.abstract ? 1 : 0;
    if (where.path.size() + from >= sizeof(address.sun_path)) {
      *why = "its path is too long";
      return Descriptor();
    }
    std::memcpy(address.sun_path + from, where.path.data(), where.path.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + from +
                                             where.path.size() + (where.abstract ? 0 : 1));
    return Connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), size, time, why);
  }
  const steady_clock::time_point until = steady_clock::now() + time;
  const std::shared_ptr<Addresses> addresses = Resolve(where, time, why);
  if (addresses == nullptr) return Descriptor();
  for (const addrinfo* each = addresses->first; each != nullptr; each = each->ai_next) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    Descriptor connection = Connect(each->ai_family, each->ai_addr, each->ai_addrlen,
                                    std::max(left, milliseconds(1)), why);
    if (connection.open()) return connection;
  }
  return Descriptor();
}

// ---- TLS ----

// OpenSSL writes without MSG_NOSIGNAL: a peer that has gone would end the process.
void BlockSigpipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeTls {
  void operator()(SSL* tls) const { SSL_free(tls); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};

// From now to the end of its validity; negative: it is over.
int DaysLeft(const X509* certificate) {
  int days = 0;
  int seconds = 0;
  ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate));
  return days < 0 || seconds < 0 ? std::min(days, -1) : days;
}

class TlsProbe {
 public:
  TlsProbe(const ProbeOptions& options, const Where& where) : options_(options), where_(where) {}

  Finding Run(int connection) {
    if (!Prepare(connection))
      return Fail("cannot be tried: " + LastError(),
                  "look at the files of --ca-file, --cert-file and --key-file");
    if (std::string why = Shake(connection); !why.empty())
      return Fail("no handshake: " + why,
                  "does this port speak TLS? without --tls it is not expected to");
    const std::unique_ptr<X509, FreeCertificate> shown(SSL_get1_peer_certificate(tls_.get()));
    if (shown == nullptr) return Fail("no certificate is shown", "set tls_cert_file at the daemon");
    const int days = DaysLeft(shown.get());
    if (days < 0)
      return Fail("the daemon's certificate has expired",
                  "give the daemon a new certificate; it reads it by itself");
    const long verdict = SSL_get_verify_result(tls_.get());
    if (verdict != X509_V_OK) {
      return Fail(absl::StrCat("the daemon's certificate is not accepted: ",
                               X509_verify_cert_error_string(verdict)),
                  "check --ca-file and --server-name");
    }
    return Judge(days);
  }

 private:
  Finding Fail(std::string message, std::string advice) const {
    return {options_.endpoint, "tls", Grade::kFail, std::move(message), std::move(advice)};
  }

  Finding Judge(int days) const {
    Finding finding{options_.endpoint, "tls", Grade::kOk,
                    absl::StrCat(SSL_get_version(tls_.get()),
                                 ", the daemon's certificate is good for ", days, " days")};
    const X509* own = SSL_CTX_get0_certificate(context_.get());
    const int own_days = own == nullptr ? kDaysShort : DaysLeft(own);
    if (own_days < 0)
      return Fail("the client's own certificate has expired", "replace the file of --cert-file");
    if (own != nullptr) absl::StrAppend(&finding.message, ", the client's for ", own_days, " days");
    if (days >= kDaysShort && own_days >= kDaysShort) return finding;
    finding.grade = Grade::kWarn;
    finding.advice = "renew it in time";
    return finding;
  }

  bool Prepare(int connection) {
    const SecurityOptions& security = options_.security;
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX* context = context_.get();
    if (context == nullptr) return false;
    const bool trusted =
        security.ca_file.empty()
            ? SSL_CTX_set_default_verify_paths(context) == 1
            : SSL_CTX_load_verify_locations(context, security.ca_file.c_str(), nullptr) == 1;
    if (!trusted) return false;
    if (!security.cert_file.empty() &&
        (SSL_CTX_use_certificate_chain_file(context, security.cert_file.c_str()) != 1 ||
         SSL_CTX_use_PrivateKey_file(context, security.key_file.c_str(), SSL_FILETYPE_PEM) != 1)) {
      return false;
    }
    tls_.reset(SSL_new(context));
    const std::string name = security.server_name.empty() ? where_.host : security.server_name;
    X509_VERIFY_PARAM* verify = SSL_get0_param(tls_.get());
    if (IsAddress(name)) {
      X509_VERIFY_PARAM_set1_ip_asc(verify, name.c_str());
    } else if (!name.empty()) {
      X509_VERIFY_PARAM_set1_host(verify, name.c_str(), name.size());
      SSL_set_tlsext_host_name(tls_.get(), name.c_str());
    }
    SSL_set_alpn_protos(tls_.get(), reinterpret_cast<const unsigned char*>(kAlpn), 3);
    // The handshake goes on whatever is shown: the verdict is read afterwards.
    SSL_set_verify(tls_.get(), SSL_VERIFY_NONE, nullptr);
    return SSL_set_fd(tls_.get(), connection) == 1;
  }

  // Empty: it is done.
  std::string Shake(int connection) {
    const steady_clock::time_point until = steady_clock::now() + options_.timeout;
    while (true) {
      ERR_clear_error();
      const int result = SSL_connect(tls_.get());
      if (result == 1) return "";
      const int wanted = SSL_get_error(tls_.get(), result);
      if (wanted != SSL_ERROR_WANT_READ && wanted != SSL_ERROR_WANT_WRITE) return LastError();
      const auto left =
          std::chrono::duration_cast<milliseconds>(until - steady_clock::now()).count();
      pollfd ready{connection, static_cast<short>(wanted == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT),
                   0};
      if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return "no answer in time";
    }
  }

  static std::string LastError() {
    const unsigned long code = ERR_get_error();
    const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
    return reason == nullptr ? "the connection was closed" : reason;
  }

  const ProbeOptions& options_;
  const Where& where_;
  std::unique_ptr<SSL_CTX, FreeContext> context_;
  std::unique_ptr<SSL, FreeTls> tls_;
};

}  // namespace

Findings ProbeConnection(const ProbeOptions& options) {
  const Where where = Read(options.endpoint);
  const steady_clock::time_point began = steady_clock::now();
  std::string why;
  const Descriptor connection = Reach(where, options.timeout, &why);
  if (!connection.open()) {
    return {{options.endpoint, "reach", Grade::kFail, why,
             "check the address and the port, that the daemon runs there, and what is in between"}};
  }
  const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - began).count();
  Findings findings = {
      {options.endpoint, "reach", Grade::kOk, absl::StrCat("connected in ", took, " ms")}};
  if (options.security.wants_tls()) {
    BlockSigpipe();
    findings.push_back(TlsProbe(options, where).Run(connection.get()));
  } else if (IsLoopback(where)) {
    findings.push_back({options.endpoint, "tls", Grade::kOk, "none, on this machine"});
  } else {
    findings.push_back({options.endpoint, "tls", Grade::kWarn,
                        "none: what is sent can be read on the way",
                        "set tls_cert_file at the daemon, and --tls here"});
  }
  return findings;
}

}  // namespace semaphore::semctl
