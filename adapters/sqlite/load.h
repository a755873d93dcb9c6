// Reads the whole file into an image of the state and the index that finds its rows again. Whatever
// cannot be read as it was written is DATA_LOSS with the file's name: never a state that is smaller
// than the truth.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "adapters/sqlite/store.h"

namespace semaphored::sqlite {

class SqliteStore::Loader {
 public:
  // `index`, `requests` and `history` are filled; they are void after an error.
  Loader(Database* database, Index* index, RequestLog* requests, HistoryLog* history)
      : database_(*database), index_(*index), requests_(*requests), history_(*history) {}

  absl::StatusOr<ledger::Image> Load();

 private:
  absl::Status LoadMeta();
  absl::Status LoadSemaphores();
  absl::Status LoadLeases();
  absl::Status LoadWaiters();
  absl::Status LoadTickets();
  absl::Status LoadSessions();
  absl::Status LoadClients();
  absl::Status LoadRequests();
  absl::Status LoadHistory();

  // Calls `take` for each row of the query, until one is not OK.
  absl::Status ForEach(absl::string_view query, absl::FunctionRef<absl::Status(Statement&)> take);
  absl::Status Damaged(absl::string_view what, int64_t key, absl::string_view why) const;
  // nullptr if there is no semaphore of this number.
  ledger::LoadedSemaphore* SemaphoreAt(uint32_t number);

  // The claim by which a request is pinned, if it is.
  void NoteClaim(const Claim& claim);
  absl::Status CheckClaims();
  // A row that the request may have in row `key` of the table is meant: the client is known since.
  bool IsOfClient(const RequestKey& request, uint64_t key) const;

  struct ClientAt {
    uint64_t since = 0;
    size_t place = 0;  // In the image.
  };

  Database& database_;
  Index& index_;
  RequestLog& requests_;
  HistoryLog& history_;
  ledger::Image image_;
  absl::flat_hash_map<uint32_t, size_t> semaphores_;  // Places in the image by number.
  absl::flat_hash_map<uint32_t, ClientAt> clients_;
  // Of the claims that wait or stand, by their requests: the claim.
  absl::flat_hash_map<RequestKey, Id> claims_;
};

}  // namespace semaphored::sqlite
