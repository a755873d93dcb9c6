#include "adapters/consul/name_lists.h"

#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace semaphored::consul {
namespace {

absl::StatusOr<std::vector<std::string>> KeysUnder(Client* client, const std::string& key,
                                                   const std::string& separator = "") {
  HttpTarget target("/v1/kv/", key);
  target.Option("keys").Option("consistent");
  if (!separator.empty()) target.Option("separator", separator);
  const Reply reply = client->Get(target);
  if (!reply.answered()) return reply.status;
  std::vector<std::string> keys;
  const auto json = nlohmann::json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return keys;
  for (const auto& each : json) {
    if (each.is_string()) keys.push_back(each.get<std::string>());
  }
  return keys;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> NameLists::ReadAll(const std::string& prefix) {
  std::set<std::string> names;
  const std::string documents = keys_->Documents();
  absl::StatusOr<std::vector<std::string>> keys = KeysUnder(client_, documents + prefix);
  if (!keys.ok()) return keys.status();
  for (const std::string& key : *keys) {
    if (std::optional<std::string> name = Keys::NameIn(key, documents))
      names.insert(*std::move(name));
  }
  // Foreign clients' semaphores too. No name begins with '.', as what is ours does, which is passed over.
  std::set<std::string> folders;
  if (prefix.empty()) {
    const std::string& root = keys_->prefix();
    keys = KeysUnder(client_, root, "/");
    if (!keys.ok()) return keys.status();
    for (const std::string& key : *keys) {
      if (key.size() > root.size() && key[root.size()] != '.')
        folders.insert(key.substr(0, root.size() + 1));
    }
  } else {
    folders.insert(keys_->prefix() + prefix);
  }
  for (const std::string& folder : folders) {
    keys = KeysUnder(client_, folder);
    if (!keys.ok()) return keys.status();
    for (const std::string& key : *keys) {
      std::optional<std::string> name = keys_->NameOfLock(key);
      if (name && name->starts_with(prefix)) names.insert(*std::move(name));
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace semaphored::consul
