#include "server/service/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <string>
#include <utility>

namespace semaphored {
namespace {

// gRPC's C++ face can reload certificates only by reading files itself, where it shows a pair that
// is half replaced. Its C face asks us before each handshake, and what we give has been checked.
class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  ReloadingCredentials(CertificateSlot* slot, ClientCertificates clients) : slot_(slot) {
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(RequestType(clients), Fetch,
                                                                        this));
  }
  ~ReloadingCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  static grpc_ssl_client_certificate_request_type RequestType(ClientCertificates clients) {
    switch (clients) {
      case ClientCertificates::kNone:
        break;
      case ClientCertificates::kOptional:
        return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
      case ClientCertificates::kRequired:
        return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    }
    return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  }

  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Called by gRPC before each handshake, one at a time for each port.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* credentials = static_cast<ReloadingCredentials*>(self);
    uint64_t number = 0;
    const std::shared_ptr<const Certificates> certificates = credentials->slot_->Get(&number);
    if (number == credentials->given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    grpc_ssl_pem_key_cert_pair pair = {certificates->key.c_str(), certificates->chain.c_str()};
    // gRPC insists on some; where no client is asked for a certificate, nothing is verified by
    // them.
    const bool asks = !certificates->client_ca.empty();
    const std::string& roots = asks ? certificates->client_ca : certificates->chain;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair,
                                                        /*num_key_cert_pairs=*/1);
    credentials->given_ = number;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  CertificateSlot* slot_;
  uint64_t given_ = 0;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

CertificateSlot::CertificateSlot(Certificates certificates)
    : certificates_(std::make_shared<const Certificates>(std::move(certificates))) {}

void CertificateSlot::Set(Certificates certificates) {
  auto fresh = std::make_shared<const Certificates>(std::move(certificates));
  const std::lock_guard lock(mutex_);
  certificates_ = std::move(fresh);
  ++number_;
}

std::shared_ptr<const Certificates> CertificateSlot::Get(uint64_t* number) const {
  const std::lock_guard lock(mutex_);
  *number = number_;
  return certificates_;
}

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(CertificateSlot* slot,
                                                              ClientCertificates clients) {
  return std::make_shared<ReloadingCredentials>(slot, clients);
}

}  // namespace semaphored
