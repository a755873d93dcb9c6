#include "adapters/consul/name_lists.h"

#include <optional>
#include <set>
#include <utility>

namespace semaphored::consul {
absl::StatusOr<std::vector<std::string>> NameLists::ReadAll(const std::string& prefix) {
  std::set<std::string> names;
  const std::string documents = keys_->Documents();
  absl::StatusOr<std::vector<std::string>> keys = client_->ListKeys(documents + prefix);
  if (!keys.ok()) return keys.status();
  for (const std::string& key : *keys) {
    if (std::optional<std::string> name = Keys::NameIn(key, documents))
      names.insert(*std::move(name));
  }
  // Foreign clients' semaphores too. No name begins with '.', as what is ours does, which is passed over.
  std::set<std::string> folders;
  if (prefix.empty()) {
    const std::string& root = keys_->prefix();
    keys = client_->ListKeys(root, "/");
    if (!keys.ok()) return keys.status();
    for (const std::string& key : *keys) {
      if (key.size() > root.size() && key[root.size()] != '.')
        folders.insert(key.substr(0, root.size() + 1));
    }
  } else {
    folders.insert(keys_->prefix() + prefix);
  }
  for (const std::string& folder : folders) {
    keys = client_->ListKeys(folder);
    if (!keys.ok()) return keys.status();
    for (const std::string& key : *keys) {
      std::optional<std::string> name = keys_->NameOfLock(key);
      if (name && name->starts_with(prefix)) names.insert(*std::move(name));
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace semaphored::consul
