// By what the daemon is known and knows its clients: certificates and the access file, read at the
// start, at each Reload and when they have changed; and the audit log.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/core/access.h"
#include "server/core/audit_log.h"
#include "server/core/certificates.h"
#include "server/core/clock.h"
#include "server/core/file_watch.h"
#include "server/service/tls_credentials.h"

namespace semaphored {

struct SecurityOptions {
  CertificateFiles certificates;  // Without a cert_file: no TLS.
  ClientCertificates client_certificates = ClientCertificates::kNone;
  std::string access_file;           // Empty: all may do all.
  std::string audit_file;            // Empty: the audit log goes to the daemon's.
  Milliseconds look_interval{2000};  // How often it is looked whether a file has changed.
};

// It outlives the server that was given its credentials.
class Security {
 public:
  // Blocks to read the files. INVALID_ARGUMENT: the message names the setting.
  static absl::StatusOr<std::unique_ptr<Security>> Open(SecurityOptions options);
  ~Security();
  Security(const Security&) = delete;
  Security& operator=(const Security&) = delete;

  bool tls() const { return slot_ != nullptr; }
  // For the listening port: TLS, or none.
  std::shared_ptr<grpc::ServerCredentials> credentials() const;

  // Null: there is no access file. Any thread.
  std::shared_ptr<const AccessPolicy> policy() const;
  AuditLog* audit() { return audit_.get(); }
  // Called with each policy that comes into force from now on, on the thread that reloads. Empty:
  // with none any more.
  void SetOnPolicy(std::function<void(std::shared_ptr<const AccessPolicy>)> on_policy);

  // Reads all files again, and puts them to use together: certificates for connections from now
  // on, the access file for all that is asked from now on. If any is bad, nothing changes, and the
  // log says why. The audit log's file is opened anew. Any thread; blocks to read. The error is
  // that of Open.
  absl::Status Reload();

  // From now on a thread looks at the files, and reloads when one has changed. Once.
  void StartLooking();

 private:
  explicit Security(SecurityOptions options);
  void Look();
  struct Read {
    Certificates certificates;
    std::string access_text;
    std::shared_ptr<const AccessPolicy> policy;
  };
  absl::StatusOr<Read> ReadAll() const;
  absl::Status ReloadFiles();

  const SecurityOptions options_;
  std::unique_ptr<CertificateSlot> slot_;
  std::unique_ptr<AuditLog> audit_;
  mutable std::mutex reloading_;
  // Guarded by reloading_, as the next.
  Read in_force_;
  std::function<void(std::shared_ptr<const AccessPolicy>)> on_policy_;

  std::mutex looking_mutex_;
  std::condition_variable end_looking_;
  bool ending_ = false;  // Guarded by looking_mutex_.
  FileWatch files_;      // The looking thread's.
  std::thread looking_;
};

}  // namespace semaphored
