// Reads the access file. Every key has to be one that is known: a rule that is misspelt must not be
// a rule that is missing.
#include <absl/strings/escaping.h>
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/common/hex.h"
#include "adapters/names.h"
#include "server/access/access.h"

namespace semaphored {
namespace {

constexpr size_t kIdentitiesMax = 10'000;
constexpr size_t kEntriesMax = 1'000;  // Of each list.
constexpr size_t kNameBytesMax = 64;
constexpr size_t kEntryBytesMax = 512;
constexpr char kAnonymous[] = "anonymous";
constexpr std::string_view kHash = "sha256:";

// INVALID_ARGUMENT. `what` ends in what would be right.
absl::Status Wrong(const toml::node& node, const std::string& what) {
  return absl::InvalidArgumentError(fmt::format("line {}: {}", node.source().begin.line, what));
}

bool IsIdentityName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::optional<Verbs> VerbOf(std::string_view name) {
  if (name == "acquire") return Verb::kAcquire;
  if (name == "verify") return Verb::kVerify;
  if (name == "work") return Verb::kWork;
  if (name == "administer") return Verb::kAdminister;
  return std::nullopt;
}

absl::StatusOr<std::vector<std::string>> TextsOf(const toml::node& node, const std::string& key) {
  const toml::array* array = node.as_array();
  if (array == nullptr || array->size() > kEntriesMax)
    return Wrong(node, fmt::format("{} must be a list of at most {} texts", key, kEntriesMax));
  std::vector<std::string> texts;
  for (const toml::node& each : *array) {
    const auto* text = each.as_string();
    if (text == nullptr || text->get().size() > kEntryBytesMax) {
      return Wrong(each, fmt::format("{} must be texts of at most {} bytes", key, kEntryBytesMax));
    }
    texts.push_back(text->get());
  }
  return texts;
}

absl::StatusOr<Rule> RuleOf(const toml::node& node, const std::string& where) {
  const toml::table* table = node.as_table();
  if (table == nullptr)
    return Wrong(node,
                 where + " must be tables such as { prefixes = [\"a/\"], verbs = [\"verify\"] }");
  Rule rule;
  for (const auto& [name, value] : *table) {
    const std::string key = fmt::format("{}.{}", where, name.str());
    if (name.str() == "prefixes") {
      absl::StatusOr<std::vector<std::string>> prefixes = TextsOf(value, key);
      if (!prefixes.ok()) return prefixes.status();
      for (const std::string& prefix : *prefixes) {
        if (IsSemaphorePrefix(prefix)) continue;
        return Wrong(
            value,
            fmt::format("{} must be empty or what a semaphore's name can begin with, such as a/, "
                        "without an empty, '.' or '..' segment; not '{}'",
                        key, absl::CEscape(prefix)));
      }
      rule.prefixes = *std::move(prefixes);
    } else if (name.str() == "verbs") {
      const absl::StatusOr<std::vector<std::string>> verbs = TextsOf(value, key);
      if (!verbs.ok()) return verbs.status();
      for (const std::string& verb : *verbs) {
        const std::optional<Verbs> known = VerbOf(verb);
        if (!known) {
          return Wrong(value, fmt::format("{} must be of acquire, verify, work and administer, not "
                                          "'{}'",
                                          key, absl::CEscape(verb)));
        }
        rule.verbs = rule.verbs | *known;
      }
    } else if (name.str() == "create") {
      const auto* create = value.as_boolean();
      if (create == nullptr) return Wrong(value, key + " must be true or false");
      rule.create = create->get();
    } else {
      return Wrong(value, key + " is not known; prefixes, verbs and create are");
    }
  }
  if (rule.prefixes.empty() || rule.verbs == Verbs())
    return Wrong(node, where + " must have prefixes (\"\" for all names) and verbs");
  return rule;
}

// Null: there is none of this name.
uint64_t* QuotaNamed(std::string_view name, Quotas* quotas) {
  if (name == "permits") return &quotas->permits;
  if (name == "waiters") return &quotas->waiters;
  if (name == "sessions") return &quotas->sessions;
  if (name == "clients") return &quotas->clients;
  if (name == "semaphores") return &quotas->made.semaphores;
  if (name == "tickets") return &quotas->made.tickets;
  if (name == "ticket_bytes") return &quotas->made.ticket_bytes;
  return nullptr;
}

absl::StatusOr<Quotas> QuotasOf(const toml::node& node, const std::string& where) {
  const toml::table* table = node.as_table();
  if (table == nullptr)
    return Wrong(node, where + " must be a table such as { permits = 100, waiters = 1000 }");
  Quotas quotas;
  for (const auto& [name, value] : *table) {
    uint64_t* quota = QuotaNamed(name.str(), &quotas);
    const std::string key = fmt::format("{}.{}", where, name.str());
    if (quota == nullptr)
      return Wrong(value, key +
                              " is not known; permits, waiters, sessions, clients, semaphores, "
                              "tickets and ticket_bytes are");
    const auto* number = value.as_integer();
    if (number == nullptr || number->get() < 0)
      return Wrong(value, key + " must be a number, 0 or more");
    *quota = static_cast<uint64_t>(number->get());
  }
  return quotas;
}

std::optional<AccessPolicy::Digest> DigestOf(std::string_view text) {
  if (!text.starts_with(kHash)) return std::nullopt;
  text.remove_prefix(kHash.size());
  AccessPolicy::Digest digest;
  const std::optional<std::string> bytes = BytesOfHex(text);
  if (!bytes || bytes->size() != digest.size()) return std::nullopt;
  std::memcpy(digest.data(), bytes->data(), digest.size());
  return digest;
}

bool IsCertificateName(std::string_view text) {
  for (std::string_view kind : {"cn:", "dns:", "uri:", "email:"}) {
    if (text.starts_with(kind) && text.size() > kind.size()) return true;
  }
  return false;
}

}  // namespace

// Makes the policy; may enter what it keeps to itself.
class AccessFile {
 public:
  absl::StatusOr<std::shared_ptr<const AccessPolicy>> Read(std::string_view text) {
    toml::table file;
    try {
      file = toml::parse(text);
    } catch (const toml::parse_error& error) {
      // Its description may quote the file: a token that was written where its hash belongs.
      return absl::InvalidArgumentError(
          fmt::format("line {}: is not TOML", error.source().begin.line));
    }
    for (const auto& [name, node] : file) {
      if (name.str() != "identities")
        return Wrong(node, fmt::format("{} is not known; identities is", name.str()));
      const toml::table* identities = node.as_table();
      if (identities == nullptr || identities->size() > kIdentitiesMax) {
        return Wrong(node, fmt::format("identities must be at most {} tables such as "
                                       "[identities.NAME]",
                                       kIdentitiesMax));
      }
      for (const auto& [key, table] : *identities) {
        if (absl::Status status = Add(std::string(key.str()), table); !status.ok()) return status;
      }
    }
    return std::shared_ptr<const AccessPolicy>(std::move(policy_));
  }

 private:
  absl::Status Add(const std::string& name, const toml::node& node) {
    const std::string where = "identities." + name;
    if (!IsIdentityName(name)) {
      return Wrong(node, fmt::format("an identity's name must be 1 to {} letters, digits and . _ -",
                                     kNameBytesMax));
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) return Wrong(node, where + " must be a table");
    std::vector<Rule> rules;
    Quotas quotas;
    std::vector<AccessPolicy::Digest> digests;
    for (const auto& [key, value] : *table) {
      const std::string path = fmt::format("{}.{}", where, key.str());
      absl::Status status;
      if (key.str() == "rules") {
        status = ReadRules(value, path, &rules);
      } else if (key.str() == "quotas") {
        absl::StatusOr<Quotas> read = QuotasOf(value, path);
        if (!read.ok()) return read.status();
        quotas = *read;
      } else if (name != kAnonymous && key.str() == "tokens") {
        status = ReadTokens(value, path, &digests);
      } else if (name != kAnonymous && key.str() == "certificates") {
        status = ReadCertificates(value, path);
      } else {
        return Wrong(value, path + (name == kAnonymous
                                        ? " is not known; rules and quotas are"
                                        : " is not known; tokens, certificates, rules and quotas "
                                          "are"));
      }
      if (!status.ok()) return status;
    }
    policy_->identities_.push_back(
        std::make_unique<const Identity>(name, std::move(rules), quotas));
    const Identity* identity = policy_->identities_.back().get();
    if (name == kAnonymous) policy_->anonymous_ = identity;
    for (const AccessPolicy::Digest& digest : digests) {
      uint64_t first = 0;
      std::memcpy(&first, digest.data(), sizeof first);
      policy_->tokens_[first].push_back({digest, identity});
    }
    return absl::OkStatus();
  }

  static absl::Status ReadRules(const toml::node& node, const std::string& path,
                                std::vector<Rule>* rules) {
    const toml::array* array = node.as_array();
    if (array == nullptr || array->size() > kEntriesMax)
      return Wrong(node, fmt::format("{} must be a list of at most {} rules", path, kEntriesMax));
    for (const toml::node& each : *array) {
      absl::StatusOr<Rule> rule = RuleOf(each, path);
      if (!rule.ok()) return rule.status();
      rules->push_back(*std::move(rule));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTokens(const toml::node& node, const std::string& path,
                          std::vector<AccessPolicy::Digest>* digests) {
    const absl::StatusOr<std::vector<std::string>> texts = TextsOf(node, path);
    if (!texts.ok()) return texts.status();
    for (const std::string& text : *texts) {
      const std::optional<AccessPolicy::Digest> digest = DigestOf(text);
      if (!digest) {
        return Wrong(node, path +
                               " must be hashes, sha256: and 64 hexadecimal digits, not the "
                               "tokens themselves (semaphored token makes both)");
      }
      if (!digests_.insert(*digest).second)
        return Wrong(node, path + " must have no hash that stands elsewhere in the file, too");
      digests->push_back(*digest);
    }
    return absl::OkStatus();
  }

  absl::Status ReadCertificates(const toml::node& node, const std::string& path) {
    const absl::StatusOr<std::vector<std::string>> texts = TextsOf(node, path);
    if (!texts.ok()) return texts.status();
    for (const std::string& text : *texts) {
      if (!IsCertificateName(text))
        return Wrong(node,
                     path + " must be names such as cn:NAME, dns:NAME, uri:URI or email:ADDRESS");
      if (!policy_->certificates_.emplace(text, policy_->identities_.size()).second)
        return Wrong(node, path + " must have no name that stands elsewhere in the file, too");
    }
    return absl::OkStatus();
  }

  std::unique_ptr<AccessPolicy> policy_ = std::make_unique<AccessPolicy>();
  std::set<AccessPolicy::Digest> digests_;
};

absl::StatusOr<std::shared_ptr<const AccessPolicy>> AccessPolicy::Parse(std::string_view text) {
  auto policy = AccessFile().Read(text);
  // Often an empty or truncated file. It would shut out all clients.
  if (policy.ok() && (*policy)->identities().empty())
    return absl::InvalidArgumentError("it names no identity; one is such as [identities.NAME]");
  return policy;
}

}  // namespace semaphored
