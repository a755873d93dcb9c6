#include "adapters/consul/quiet_regions.h"

#include <algorithm>
#include <set>

namespace semaphored::consul {
namespace {

constexpr int kHttpFound = 200;

std::set<char> FirstLetters(absl::Span<const std::string> names) {
  std::set<char> letters;
  for (const std::string& name : names) {
    if (!name.empty()) letters.insert(name.front());
  }
  return letters;
}

}  // namespace

size_t QuietRegions::RequestsFor(absl::Span<const std::string> names) {
  return 1 + FirstLetters(names).size();
}

bool QuietRegions::IsQuiet(Client* client, const std::string& key, SteadyTime now,
                           uint64_t* readings) {
  // With the separator, all that is below one folder is one key in the answer.
  const Reply reply = client->Get(
      HttpTarget("/v1/kv/", key).Option("keys").Option("separator", "/").Option("consistent"));
  const bool found = reply.http_status == kHttpFound;
  if (!reply.answered() || (found && reply.index == 0)) {
    regions_.erase(key);
    return false;
  }
  // (Where there is nothing, the index is that of the whole of Consul.)
  const uint64_t index = found ? reply.index : 0;
  const auto [at, is_new] = regions_.try_emplace(key);
  Region& region = at->second;
  if (!is_new && region.index == index && now < region.found + kQuietMax) return true;
  region = {index, ++*readings, now};
  return false;
}

std::optional<uint64_t> QuietRegions::Since(Client* client, const Keys& keys,
                                            absl::Span<const std::string> names, SteadyTime now,
                                            uint64_t* readings) {
  std::string documents = keys.Documents();
  documents.pop_back();
  if (!IsQuiet(client, documents, now, readings)) return std::nullopt;
  uint64_t since = regions_[documents].since;
  bool quiet = true;
  // All that lies under the prefix is not a region: the daemons' heartbeats are there too.
  for (const char letter : FirstLetters(names)) {
    const std::string folders = keys.prefix() + letter;
    quiet = IsQuiet(client, folders, now, readings) && quiet;
    if (quiet) since = std::max(since, regions_[folders].since);
  }
  return quiet ? std::optional<uint64_t>(since) : std::nullopt;
}

}  // namespace semaphored::consul
