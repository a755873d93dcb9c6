// The store's record readers: any bytes are either DATA_LOSS or a record that, written and read
// again, is written the same. Input: the first byte chooses the record, the second whether the
// check bytes are put right first (else nearly all inputs would end there), the third is the key,
// the rest the bytes.
#include <string>
#include <string_view>

#include "adapters/sqlite/codec.h"
#include "adapters/sqlite/record.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace sqlite = semaphored::sqlite;

// `read` takes bytes and gives StatusOr<value>, `write` takes a value and appends its bytes.
template <typename Read, typename Write>
void RoundTrip(std::string_view record, Read read, Write write) {
  auto first = read(record);
  if (!first.ok()) {
    FUZZ_CHECK(first.status().code() == absl::StatusCode::kDataLoss);
    FUZZ_CHECK(!first.status().message().empty());
    return;
  }
  std::string written;
  write(*first, &written);
  auto second = read(written);
  FUZZ_CHECK(second.ok());
  std::string again;
  write(*second, &again);
  FUZZ_CHECK(again == written);
}

absl::StatusOr<std::string> CopyRequests(uint64_t key, std::string_view record) {
  std::string copy;
  const absl::Status status =
      sqlite::ReadRequests(key, record, [&copy](const sqlite::RequestView& view) {
        using Op = semaphored::ledger::RequestChange::Op;
        sqlite::AppendRequest({view.removed ? Op::kRemove : Op::kInsert, view.Copy()}, &copy);
      });
  if (!status.ok()) return status;
  sqlite::SealRequests(key, &copy);
  return copy;
}

absl::StatusOr<std::string> CopyHistory(uint64_t key, std::string_view record) {
  std::string copy;
  const absl::Status status = sqlite::ReadHistory(
      key, record,
      [&copy](const semaphored::HistoryRow& row) { sqlite::AppendHistory(row, &copy); });
  if (!status.ok()) return status;
  sqlite::SealHistory(key, &copy);
  return copy;
}

void Semaphore(uint32_t number, std::string_view record) {
  RoundTrip(
      record, [=](std::string_view bytes) { return sqlite::ReadSemaphore(number, bytes); },
      [=](const auto& row, std::string* out) { sqlite::WriteSemaphore(number, row, out); });
}

void Lease(uint64_t key, std::string_view record) {
  RoundTrip(
      record, [=](std::string_view bytes) { return sqlite::ReadLease(key, bytes); },
      [=](const auto& row, std::string* out) {
        sqlite::WriteLease(row.semaphore, key, *row.lease, out);
      });
}

void Waiter(uint64_t key, std::string_view record) {
  RoundTrip(
      record, [=](std::string_view bytes) { return sqlite::ReadWaiter(key, bytes); },
      [=](const auto& row, std::string* out) {
        sqlite::WriteWaiter(key, row.semaphore, *row.waiter, out);
      });
}

void Ticket(uint64_t key, std::string_view record) {
  RoundTrip(
      record, [=](std::string_view bytes) { return sqlite::ReadTicket(key, bytes); },
      [=](const auto& row, std::string* out) {
        sqlite::WriteTicket(key, row.semaphore, *row.ticket, out);
      });
}

void Payload(uint64_t key, std::string_view record) {
  RoundTrip(
      record, [=](std::string_view bytes) { return sqlite::ReadPayload(key, bytes); },
      [=](const auto& payload, std::string* out) { sqlite::WritePayload(key, payload, out); });
}

void Session(uint64_t key, std::string_view record) {
  RoundTrip(
      record, [=](std::string_view bytes) { return sqlite::ReadSession(key, bytes); },
      [=](const auto& session, std::string* out) { sqlite::WriteSession(key, *session, out); });
}

template <typename Copy>
void Log(std::string_view record, Copy copy) {
  RoundTrip(record, copy, [](const std::string& bytes, std::string* out) { *out = bytes; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto kind = static_cast<sqlite::RecordKind>(data[0] % 8 + 1);
  const uint64_t key = data[2];
  std::string record(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (data[1] % 4 != 0) sqlite::ByteWriter(&record).Seal(kind, key);
  switch (kind) {
    case sqlite::RecordKind::kSemaphore:
      Semaphore(static_cast<uint32_t>(key), record);
      break;
    case sqlite::RecordKind::kLease:
      Lease(key, record);
      break;
    case sqlite::RecordKind::kWaiter:
      Waiter(key, record);
      break;
    case sqlite::RecordKind::kSession:
      Session(key, record);
      break;
    case sqlite::RecordKind::kRequests:
      Log(record, [=](std::string_view bytes) { return CopyRequests(key, bytes); });
      break;
    case sqlite::RecordKind::kHistory:
      Log(record, [=](std::string_view bytes) { return CopyHistory(key, bytes); });
      break;
    case sqlite::RecordKind::kTicket:
      Ticket(key, record);
      break;
    case sqlite::RecordKind::kPayload:
      Payload(key, record);
      break;
  }
  return 0;
}
