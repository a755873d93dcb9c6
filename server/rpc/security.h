// By what the daemon is known and knows its clients: certificates and the access file, read at the
// start, at each Reload and when they have changed; and the audit log.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/access/access.h"
#include "server/access/audit_log.h"
#include "server/access/certificates.h"
#include "server/base/clock.h"
#include "server/base/file_watch.h"
#include "server/guard/tls.h"

namespace semaphored {

struct SecurityOptions {
  CertificateFiles certificates;  // Without a cert_file: no TLS.
  guard::ClientCertificates client_certificates = guard::ClientCertificates::kNone;
  std::string access_file;           // Empty: all may do all.
  std::string audit_file;            // Empty: the audit log goes to the daemon's.
  Milliseconds look_interval{2000};  // How often it is looked whether a file has changed.
};

// It outlives the server.
class Security {
 public:
  // Blocks to read the files. INVALID_ARGUMENT: the message names the setting.
  static absl::StatusOr<std::unique_ptr<Security>> Open(SecurityOptions options);
  ~Security();
  Security(const Security&) = delete;
  Security& operator=(const Security&) = delete;

  // For the listening port. Null: without TLS.
  const guard::Tls* tls() const { return tls_.get(); }

  // When the certificate that new connections are shown expires. 0: without TLS. Any thread.
  int64_t certificate_expires_unix_s() const;

  // Null: there is no access file. Any thread; it does not wait for a reload that is under way.
  std::shared_ptr<const AccessPolicy> policy() const;
  AuditLog* audit() { return audit_.get(); }
  // Called with each policy that comes into force from now on, on the thread that reloads. Empty:
  // with none any more.
  void SetOnPolicy(std::function<void(std::shared_ptr<const AccessPolicy>)> on_policy);

  // Reads all files again, and puts them to use together: certificates for connections from now
  // on, the access file for all that is asked from now on. If any is bad, nothing changes, and the
  // log says why. The audit log's file is opened again. Any thread; blocks to read. The error is
  // that of Open.
  absl::Status Reload();

  // From now on a thread looks at the files at intervals. Once.
  void StartLooking();
  // One such look: reloads if a file has changed since the last one, or if the last reload has failed; the log says
  // once why. Blocks to read. One thread at a time.
  void LookOnce();

 private:
  explicit Security(SecurityOptions options);
  void Look();
  struct Read {
    Certificates certificates;
    std::string access_text;
    std::shared_ptr<const AccessPolicy> policy;
    bool SameFiles(const Read& other) const {
      return access_text == other.access_text && certificates == other.certificates;
    }
  };
  absl::StatusOr<Read> ReadAll() const;
  // What is read twice alike, once it differs from what is in force. UNAVAILABLE: it is still being written.
  absl::StatusOr<Read> ReadSettled() const;
  // False: the log has said why, if it fails as the last time.
  absl::Status ReloadFiles(bool tell_again);
  bool failed() const;
  // REQUIRES: reloading_ is held, or it is not yet another thread's.
  void SetInForce(Read read);

  const SecurityOptions options_;
  std::unique_ptr<guard::Tls> tls_;
  std::unique_ptr<AuditLog> audit_;
  mutable std::mutex reloading_;
  // Guarded by reloading_, as the next two.
  Read in_force_;
  std::string failure_;  // Of the last reload; empty: it has not failed.
  std::function<void(std::shared_ptr<const AccessPolicy>)> on_policy_;

  mutable std::mutex policy_mutex_;
  std::shared_ptr<const AccessPolicy> policy_;  // Guarded by policy_mutex_. That of in_force_.

  std::mutex looking_mutex_;
  std::condition_variable end_looking_;
  bool ending_ = false;  // Guarded by looking_mutex_.
  FileWatch files_;      // The looking thread's.
  std::thread looking_;
};

}  // namespace semaphored
