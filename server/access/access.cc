#include "server/access/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_join.h"

namespace semaphored {
namespace {

uint64_t FirstBytes(const AccessPolicy::Digest& digest) {
  uint64_t first = 0;
  std::memcpy(&first, digest.data(), sizeof first);
  return first;
}

}  // namespace

AccessPolicy::Digest Sha256(std::string_view text) {
  AccessPolicy::Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

std::vector<std::string> Verbs::Words() const {
  static constexpr std::array<std::pair<Verb, const char*>, 4> kNames = {
      {{Verb::kAcquire, "acquire"},
       {Verb::kVerify, "verify"},
       {Verb::kWork, "work"},
       {Verb::kAdminister, "administer"}}};
  std::vector<std::string> words;
  for (const auto& [verb, name] : kNames) {
    if (Meets(verb)) words.emplace_back(name);
  }
  return words;
}

std::string Verbs::Text() const { return absl::StrJoin(Words(), " or "); }

bool Rule::Names(std::string_view semaphore) const {
  return std::ranges::any_of(
      prefixes, [&](const std::string& allowed) { return semaphore.starts_with(allowed); });
}

bool Identity::May(Verbs verbs, std::string_view semaphore) const {
  return MayUnder(verbs, semaphore);  // Whatever begins with a name's beginning begins so, too.
}

bool Identity::MayCreate(Verb verb, std::string_view semaphore) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) {
    return rule.create && rule.verbs.Meets(verb) && rule.Names(semaphore);
  });
}

bool Identity::MayUnder(Verbs verbs, std::string_view prefix) const {
  return std::ranges::any_of(
      rules_, [&](const Rule& rule) { return rule.verbs.Meets(verbs) && rule.Names(prefix); });
}

std::vector<std::string> Identity::Under(Verbs verbs, std::string_view prefix) const {
  if (MayUnder(verbs, prefix)) return {std::string(prefix)};
  std::vector<std::string> found;
  for (const Rule& rule : rules_) {
    if (!rule.verbs.Meets(verbs)) continue;
    for (const std::string& allowed : rule.prefixes) {
      if (allowed.starts_with(prefix)) found.push_back(allowed);
    }
  }
  std::ranges::sort(found);
  std::vector<std::string> apart;
  for (std::string& each : found) {
    if (apart.empty() || !each.starts_with(apart.back())) apart.push_back(std::move(each));
  }
  return apart;
}

const Identity* AccessPolicy::ByToken(std::string_view token) const {
  const Digest digest = Sha256(token);
  const auto found = tokens_.find(FirstBytes(digest));
  if (found == tokens_.end()) return nullptr;
  const Identity* identity = nullptr;
  for (const Token& each : found->second) {
    if (CRYPTO_memcmp(each.digest.data(), digest.data(), digest.size()) == 0)
      identity = each.identity;
  }
  return identity;
}

const Identity* AccessPolicy::ByCertificate(const CertificateNames& names) const {
  if (certificates_.empty()) return nullptr;
  size_t first = identities_.size();
  const auto look = [&](const char* kind, const std::string& name) {
    if (name.empty()) return;
    const auto found = certificates_.find(kind + name);
    if (found != certificates_.end()) first = std::min(first, found->second);
  };
  look("cn:", names.common_name);
  for (const std::string& name : names.dns) look("dns:", name);
  for (const std::string& name : names.uris) look("uri:", name);
  for (const std::string& name : names.emails) look("email:", name);
  return first < identities_.size() ? identities_[first].get() : nullptr;
}

}  // namespace semaphored
