// Who may do what: identities, how they are recognised, and their rules and quotas, as the access
// file says (docs/security.md). The values are immutable: a policy is replaced as a whole.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "adapters/commands.h"

namespace semaphored {

// What a rule allows. Bits, for sets of them.
enum class Verb : uint8_t { kAcquire = 1, kVerify = 2, kWork = 4, kAdminister = 8 };

class Verbs {
 public:
  constexpr Verbs() = default;
  constexpr Verbs(Verb verb) : bits_(static_cast<uint8_t>(verb)) {}  // NOLINT: a verb is a set.
  constexpr bool Meets(Verbs other) const { return (bits_ & other.bits_) != 0; }
  constexpr Verbs operator|(Verbs other) const {
    Verbs both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  friend constexpr bool operator==(Verbs, Verbs) = default;
  // "acquire", "verify", "work", "administer": those that are in it.
  std::vector<std::string> Words() const;
  // "acquire or verify".
  std::string Text() const;

 private:
  uint8_t bits_ = 0;
};
constexpr Verbs operator|(Verb left, Verb right) { return Verbs(left) | Verbs(right); }

// The most that an identity may have at once of this daemon, over all semaphores and connections.
struct Quotas {
  static constexpr uint64_t kNone = UINT64_MAX;  // No bound of its own.
  uint64_t permits = kNone;                      // Held, waited for, and hands of workers.
  uint64_t waiters = kNone;
  uint64_t sessions = kNone;
  uint64_t clients = kNone;  // Different client ids within client_retention.
  OwnerQuotas made;          // Semaphores and tickets, which the adapter counts.
  friend bool operator==(const Quotas&, const Quotas&) = default;
};

// At all semaphores whose names begin with one of `prefixes`.
struct Rule {
  std::vector<std::string> prefixes;
  Verbs verbs;
  bool create = true;  // Its verbs may make a semaphore by its first use.

  // One of its prefixes is how this begins: a name, or a prefix of names.
  bool Names(std::string_view semaphore) const;
};

class Identity {
 public:
  Identity(std::string name, std::vector<Rule> rules, Quotas quotas)
      : name_(std::move(name)), rules_(std::move(rules)), quotas_(quotas) {}

  const std::string& name() const { return name_; }
  const Quotas& quotas() const { return quotas_; }
  const std::vector<Rule>& rules() const { return rules_; }

  // A rule allows one of the verbs at this semaphore, which need not exist.
  bool May(Verbs verbs, std::string_view semaphore) const;
  // … at every semaphore whose name begins with `prefix`.
  bool MayUnder(Verbs verbs, std::string_view prefix) const;
  // A rule that allows the verb at this semaphore lets it be made by its first use, too.
  bool MayCreate(Verb verb, std::string_view semaphore) const;
  // The beginnings of those names under `prefix` at which it may do one of the verbs: in
  // alphabetical order, none the beginning of another. Empty: nowhere.
  std::vector<std::string> Under(Verbs verbs, std::string_view prefix) const;

 private:
  std::string name_;
  std::vector<Rule> rules_;
  Quotas quotas_;
};

// What a client's verified certificate says; each as it stands there.
struct CertificateNames {
  std::string common_name;
  std::vector<std::string> dns;
  std::vector<std::string> uris;
  std::vector<std::string> emails;
  friend bool operator==(const CertificateNames&, const CertificateNames&) = default;
};

class AccessPolicy {
 public:
  using Digest = std::array<unsigned char, 32>;

  // `text` is the access file's. INVALID_ARGUMENT: the message has the line, the key and what would
  // be right, and nothing of a token's hash.
  static absl::StatusOr<std::shared_ptr<const AccessPolicy>> Parse(std::string_view text);

  // nullptr: no identity has this token. The time taken does not depend on how nearly it is right.
  const Identity* ByToken(std::string_view token) const;
  // The identity with one of these names, the first in the order of identities' names; or nullptr.
  const Identity* ByCertificate(const CertificateNames& names) const;
  bool has_certificates() const { return !certificates_.empty(); }
  // Of a caller that shows neither. nullptr: such a caller is refused.
  const Identity* anonymous() const { return anonymous_; }

  const std::vector<std::unique_ptr<const Identity>>& identities() const { return identities_; }

 private:
  friend class AccessFile;  // access_file.cc

  struct Token {
    Digest digest;
    const Identity* identity;
  };

  std::vector<std::unique_ptr<const Identity>> identities_;
  absl::flat_hash_map<uint64_t, std::vector<Token>> tokens_;  // By the digest's first bytes.
  // "cn:NAME", "dns:NAME", "uri:URI" or "email:ADDRESS"; number in identities_.
  absl::flat_hash_map<std::string, size_t> certificates_;
  const Identity* anonymous_ = nullptr;
};

// SHA-256 of `text`.
AccessPolicy::Digest Sha256(std::string_view text);

}  // namespace semaphored
