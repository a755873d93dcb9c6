#include "server/rpc/security.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace semaphored {
namespace {

constexpr size_t kAccessBytesMax = 8 << 20;
// A file that is written in place is read in pieces: so long it must stay the same.
constexpr Milliseconds kSettled{250};
constexpr int kReadsMax = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Security>> Security::Open(SecurityOptions options) {
  std::unique_ptr<Security> security(new Security(std::move(options)));
  absl::StatusOr<Read> read = security->ReadAll();
  if (!read.ok()) return read.status();
  security->SetInForce(*std::move(read));
  if (!security->options_.certificates.cert_file.empty()) {
    auto tls =
        guard::Tls::Make(security->in_force_.certificates, security->options_.client_certificates);
    if (!tls.ok()) return tls.status();
    security->tls_ = *std::move(tls);
  }
  absl::StatusOr<std::unique_ptr<AuditLog>> audit = AuditLog::Open(security->options_.audit_file);
  if (!audit.ok()) return audit.status();
  security->audit_ = *std::move(audit);
  return security;
}

Security::Security(SecurityOptions options)
    : options_(std::move(options)),
      files_({options_.certificates.cert_file, options_.certificates.key_file,
              options_.certificates.client_ca_file, options_.access_file}) {}

Security::~Security() {
  {
    const std::lock_guard lock(looking_mutex_);
    ending_ = true;
  }
  end_looking_.notify_all();
  if (looking_.joinable()) looking_.join();
}

absl::StatusOr<Security::Read> Security::ReadAll() const {
  Read read;
  if (!options_.certificates.cert_file.empty()) {
    absl::StatusOr<Certificates> certificates = ReadCertificates(options_.certificates);
    if (!certificates.ok()) return certificates.status();
    read.certificates = *std::move(certificates);
  }
  if (options_.access_file.empty()) return read;
  const auto wrong = [this](const absl::Status& status) {
    return absl::InvalidArgumentError(
        absl::StrCat("access_file: ", options_.access_file, ": ", status.message()));
  };
  absl::StatusOr<std::string> text = ReadSmallFile(options_.access_file, kAccessBytesMax);
  if (!text.ok()) return wrong(text.status());
  auto policy = AccessPolicy::Parse(*text);
  if (!policy.ok()) return wrong(policy.status());
  read.access_text = *std::move(text);
  read.policy = *std::move(policy);
  return read;
}

absl::StatusOr<Security::Read> Security::ReadSettled() const {
  absl::StatusOr<Read> read = ReadAll();
  for (int i = 0; i < kReadsMax; ++i) {
    if (read.ok() && read->SameFiles(in_force_)) return read;
    std::this_thread::sleep_for(kSettled);
    absl::StatusOr<Read> again = ReadAll();
    const bool same =
        read.ok() && again.ok() ? read->SameFiles(*again) : read.status() == again.status();
    if (same) return again;
    read = std::move(again);
  }
  return absl::UnavailableError("the files change all the time");
}

std::shared_ptr<const AccessPolicy> Security::policy() const {
  const std::lock_guard lock(policy_mutex_);
  return policy_;
}

int64_t Security::certificate_expires_unix_s() const {
  const std::lock_guard lock(reloading_);
  return in_force_.certificates.expires_unix_s;
}

void Security::SetOnPolicy(std::function<void(std::shared_ptr<const AccessPolicy>)> on_policy) {
  const std::lock_guard lock(reloading_);
  on_policy_ = std::move(on_policy);
}

absl::Status Security::Reload() {
  audit_->Reopen();
  return ReloadFiles(/*tell_again=*/true);
}

absl::Status Security::ReloadFiles(bool tell_again) {
  const std::lock_guard lock(reloading_);
  absl::StatusOr<Read> read = ReadSettled();
  const bool renewed = tls_ != nullptr && read.ok() && read->certificates != in_force_.certificates;
  absl::Status taken = renewed ? tls_->Set(read->certificates) : read.status();
  if (!taken.ok()) {
    std::string why(taken.message());
    if (tell_again || why != failure_)
      spdlog::error("what was read before stays in force: {}", why);
    failure_ = std::move(why);
    return taken;
  }
  failure_.clear();
  if (renewed) spdlog::info("new certificates are in force for new connections");
  // The same text is the same policy: no caller has to be checked again.
  if (read->access_text == in_force_.access_text) {
    read->policy = in_force_.policy;
  } else {
    if (on_policy_) on_policy_(read->policy);
    spdlog::info("a new access file is in force, with {} identities",
                 read->policy->identities().size());
  }
  SetInForce(*std::move(read));
  return absl::OkStatus();
}

void Security::SetInForce(Read read) {
  in_force_ = std::move(read);
  const std::lock_guard lock(policy_mutex_);
  policy_ = in_force_.policy;
}

void Security::StartLooking() {
  looking_ = std::thread([this] { Look(); });
}

void Security::Look() {
  std::unique_lock lock(looking_mutex_);
  while (!end_looking_.wait_for(lock, options_.look_interval, [this] { return ending_; })) {
    LookOnce();
  }
}

void Security::LookOnce() {
  const bool changed = files_.Changed();
  if (!changed && !failed()) return;
  // What is wrong has been logged.
  static_cast<void>(ReloadFiles(/*tell_again=*/changed));
}

bool Security::failed() const {
  const std::lock_guard lock(reloading_);
  return !failure_.empty();
}

}  // namespace semaphored
