// Of TokenBroker: the names of all semaphores, and the numbers from which tokens begin. Each part of the registry
// has a mutex of its own, so that making a semaphore waits for no more than one in thirty-two of the others.
#include <openssl/sha.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/token_broker.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

constexpr int kRegistryParts = 32;

struct RegistryContent {
  uint64_t generation = 0;
  std::set<std::string> names;
};

// DATA_LOSS: what is in the queue is not a part of the registry.
absl::StatusOr<RegistryContent> ReadRegistry(const std::string& queue, const Document& document) {
  RegistryContent registry;
  if (document.empty()) return registry;
  const json& content = document.content();
  const auto generation = content.find("generation");
  const auto names = content.find("names");
  if (generation == content.end() || !generation->is_number_unsigned() ||
      generation->get<uint64_t>() > kGenerationMax || names == content.end() ||
      !names->is_array() ||
      !std::ranges::all_of(*names, [](const json& name) { return name.is_string(); }))
    return absl::DataLossError(absl::StrCat(
        "rabbitmq: the queue ", queue,
        " has a part of the registry of semaphores, which another program has changed"));
  generation->get_to(registry.generation);
  names->get_to(registry.names);
  return registry;
}

json JsonOf(const RegistryContent& registry) {
  return json{{"generation", registry.generation}, {"names", registry.names}};
}

json MergeRegistries(const json& a, const json& b) {
  json merged = a;
  try {
    merged["generation"] =
        std::max(a.at("generation").get<uint64_t>(), b.at("generation").get<uint64_t>()) + 1;
    std::set<std::string> names = a.at("names");
    names.merge(b.at("names").get<std::set<std::string>>());
    merged["names"] = names;
  } catch (const json::exception&) {
    merged["names"] = nullptr;  // Its reader says that it is damaged.
  }
  return merged;
}

}  // namespace

std::string TokenBroker::RegistryPart(int part) const {
  return absl::StrCat(prefix_, "semaphored.registry.", part);
}

std::string TokenBroker::RegistryOf(const std::string& name) const {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), digest);
  return RegistryPart(digest[0] % kRegistryParts);
}

absl::StatusOr<std::vector<std::string>> TokenBroker::Names(const std::string& prefix,
                                                            const std::string& after,
                                                            uint32_t names_max) {
  if (absl::Status status = Ready(); !status.ok()) return status;
  std::set<std::string> all;
  for (int part = 0; part < kRegistryParts; ++part) {
    absl::StatusOr<std::unique_ptr<Document>> document =
        Document::Open(connection_, RegistryPart(part), /*make=*/false, MergeRegistries);
    if (absl::IsNotFound(document.status())) continue;
    if (!document.ok()) return document.status();
    absl::StatusOr<RegistryContent> registry = ReadRegistry(RegistryPart(part), **document);
    if (!registry.ok()) return registry.status();
    all.merge(registry->names);
  }
  std::vector<std::string> names;
  for (auto at = all.lower_bound(std::max(prefix, after)); at != all.end(); ++at) {
    if (!at->starts_with(prefix) || names.size() == names_max) break;
    if (*at != after) names.push_back(*at);
  }
  return names;
}

absl::StatusOr<uint64_t> TokenBroker::NextGeneration(const std::string& name, bool is_there,
                                                     uint64_t of) {
  absl::StatusOr<std::unique_ptr<Document>> document =
      Document::Open(connection_, RegistryOf(name), /*make=*/true, MergeRegistries);
  if (!document.ok()) return document.status();
  absl::StatusOr<RegistryContent> registry = ReadRegistry(RegistryOf(name), **document);
  if (!registry.ok()) return registry.status();
  registry->generation = std::max(registry->generation, of) + 1;
  if (registry->generation > kGenerationMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("rabbitmq: ", RegistryOf(name), " has given out all its numbers"));
  if (is_there) registry->names.insert(name);
  if (!is_there) registry->names.erase(name);
  if (absl::Status status = (*document)->Write(JsonOf(*registry)); !status.ok()) return status;
  return registry->generation;
}

absl::Status TokenBroker::JudgeRegistry(const std::string& name) {
  const absl::StatusOr<std::unique_ptr<Document>> document =
      Document::Open(connection_, RegistryOf(name), /*make=*/false, MergeRegistries);
  if (absl::IsNotFound(document.status())) return absl::OkStatus();
  return document.ok() ? ReadRegistry(RegistryOf(name), **document).status() : document.status();
}

absl::Status TokenBroker::RemoveRegistry() {
  if (absl::Status status = Ready(); !status.ok()) return status;
  absl::StatusOr<Channel> channel = connection_->OpenChannel();
  if (!channel.ok()) return channel.status();
  for (int part = 0; part < kRegistryParts; ++part) {
    if (auto gone = connection_->Delete(*channel, RegistryPart(part)); !gone.ok())
      return gone.status();
  }
  return absl::OkStatus();
}

}  // namespace semaphored::rabbitmq
