// The names of all semaphores, ours and foreign clients', page by page. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/common/name_pages.h"
#include "adapters/consul/client.h"
#include "adapters/consul/keys.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {

class NameLists {
 public:
  // Both pointers outlive this.
  NameLists(Client* client, const Keys* keys)
      : client_(client),
        keys_(keys),
        pages_([this](const std::string& prefix) { return ReadAll(prefix); }) {}
  NameLists(const NameLists&) = delete;
  NameLists& operator=(const NameLists&) = delete;

  // As SharedStore::Names, and NamePages::Page. Only keys are requested, and none of what lies beside the
  // semaphores: one request for the documents, and one, or one for each letter with which a name begins, for the
  // records.
  absl::StatusOr<std::vector<std::string>> Page(const std::string& prefix, const std::string& after,
                                                uint32_t rows_max, SteadyTime now) {
    return pages_.Page(prefix, after, rows_max, now);
  }

 private:
  absl::StatusOr<std::vector<std::string>> ReadAll(const std::string& prefix);

  Client* const client_;
  const Keys* const keys_;
  NamePages pages_;
};

}  // namespace semaphored::consul
