// The store's records: how the words of the project lie in the database's blobs. Pure functions: no
// I/O, no state. Every reader takes any bytes whatever and either gives back exactly what was
// written or says DATA_LOSS, with the key and never with a guess: a damaged record is not read as a
// smaller truth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/types.h"

namespace semaphored::sqlite {

// Bounds on what a record may say; generous beside the daemon's limits.
inline constexpr size_t kNameBytesMax = 4096;
inline constexpr size_t kHolderBytesMax = 65536;
inline constexpr size_t kOwnerBytesMax = 255;
inline constexpr size_t kIntentionsBytesMax = 1u << 24;
inline constexpr uint32_t kPermitsMax = 1'000'000;
inline constexpr uint64_t kTicketReasonsMax = 64;
inline constexpr size_t kTicketTextBytesMax = 4096;
inline constexpr uint32_t kPayloadBytesMax = 1u << 30;

// ---- One record, one row. Writers append to `out`. ----

// Without name, revision and next_order, which have columns of their own.
void WriteSemaphore(uint32_t number, const SemaphoreRow& row, std::string* out);
absl::StatusOr<SemaphoreRow> ReadSemaphore(uint32_t number, std::string_view record);

struct LeaseRecord {
  uint32_t semaphore = 0;  // Its number in the table of semaphores.
  LeasePtr lease;          // With its token, which is the key.
};
void WriteLease(uint32_t semaphore, uint64_t token, const Lease& lease, std::string* out);
absl::StatusOr<LeaseRecord> ReadLease(uint64_t token, std::string_view record);

struct WaiterRecord {
  uint32_t semaphore = 0;
  WaiterPtr waiter;
};
void WriteWaiter(uint64_t key, uint32_t semaphore, const Waiter& waiter, std::string* out);
absl::StatusOr<WaiterRecord> ReadWaiter(uint64_t key, std::string_view record);

struct TicketRecord {
  uint32_t semaphore = 0;
  TicketPtr ticket;
};
void WriteTicket(uint64_t key, uint32_t semaphore, const Ticket& ticket, std::string* out);
absl::StatusOr<TicketRecord> ReadTicket(uint64_t key, std::string_view record);

void WritePayload(uint64_t key, std::string_view payload, std::string* out);
// Points into the record.
absl::StatusOr<std::string_view> ReadPayload(uint64_t key, std::string_view record);

void WriteSession(uint64_t key, const Session& session, std::string* out);
absl::StatusOr<std::shared_ptr<Session>> ReadSession(uint64_t key, std::string_view record);

// ---- Many in one row: what one commit adds to a log. Written one by one, then sealed. ----

// A removal says only which request is gone.
void AppendRequest(const ledger::RequestChange& change, std::string* out);
// A request as it lies in the record; the texts point into it.
struct RequestView {
  RequestKey request;
  bool removed = false;  // Then nothing else is set.
  Id fingerprint;
  ledger::RequestRow::State state = ledger::RequestRow::State::kDone;
  std::string_view semaphore;
  Id claim;
  EndCause cause = EndCause::kNone;
  uint32_t number = 0;
  uint32_t remaining = 0;
  bool changed = false;
  std::string_view bytes;  // As AppendRequest wrote it.

  ledger::RequestRow Copy() const;
};
// `row.lease` with its token; row.number is not written: rows are numbered from the record's key
// on.
void AppendHistory(const HistoryRow& row, std::string* out);

void SealRequests(uint64_t key, std::string* out);
void SealHistory(uint64_t key, std::string* out);

// Calls `take` for each, in the order in which they were appended. After an error, what was taken
// is void.
absl::Status ReadRequests(uint64_t key, std::string_view record,
                          absl::FunctionRef<void(const RequestView&)> take);
// With number and lease filled in.
absl::Status ReadHistory(uint64_t key, std::string_view record,
                         absl::FunctionRef<void(HistoryRow)> take);

}  // namespace semaphored::sqlite
