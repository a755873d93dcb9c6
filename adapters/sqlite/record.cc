#include "adapters/sqlite/record.h"

#include <utility>

#include "adapters/sqlite/codec.h"

namespace semaphored::sqlite {
namespace {

// Bits of a claim's first byte.
constexpr uint8_t kDetached = 1;
constexpr uint8_t kRecalled = 2;
constexpr uint8_t kForeign = 4;
constexpr uint8_t kOfTicket = 8;
constexpr uint8_t kWorks = 16;
constexpr uint8_t kMoved = 32;

// Bits of a session's first byte.
constexpr uint8_t kReleases = 1;
constexpr uint8_t kClosing = 2;

// Bits of a request's first byte, above its state.
constexpr uint8_t kStateMask = 0x0f;
constexpr uint8_t kRemoved = 0;  // In place of a state.
constexpr uint8_t kHasClaim = 0x40;
constexpr uint8_t kChanged = 0x80;

// In place of a client's number: a one-shot request.
constexpr uint32_t kOneShot = UINT32_MAX;

// Bits of a semaphore's first byte.
constexpr uint8_t kPaused = 1;
constexpr uint8_t kDestroying = 2;
constexpr uint8_t kBackfill = 4;
constexpr uint8_t kMadeOnUse = 8;
constexpr uint8_t kHasIntentions = 16;

constexpr auto kLastCause = static_cast<uint8_t>(EndCause::kEngineLost);
constexpr auto kLastReason = static_cast<uint8_t>(Recall::Reason::kDestroyed);

// Slots as their runs: the gap before, and the length.
void WriteSlots(const Slots& slots, ByteWriter* out) {
  out->Number(slots.runs().size());
  uint32_t last = 0;
  for (const Slots::Run& run : slots.runs()) {
    out->Number(run.first - last);
    out->Number(run.size());
    last = run.last;
  }
}

// Rising, none of them 0, and no more than `count_max`: a few damaged bytes must not ask for all
// memory.
Slots ReadSlots(uint64_t count_max, ByteReader* in) {
  Slots slots;
  uint64_t runs = in->Number(0, count_max);
  uint64_t last = 0;
  uint64_t count = 0;
  for (uint64_t run = 0; run < runs && in->ok(); ++run) {
    const uint64_t first = last + in->Number(1, UINT32_MAX);
    const uint64_t length = in->Number(1, count_max - count);
    last = first + length - 1;
    if (!in->ok() || last > UINT32_MAX) {
      in->Fail();
      break;
    }
    slots.Append({static_cast<uint32_t>(first), static_cast<uint32_t>(last)});
    count += length;
  }
  return slots;
}

// Client and sequence number; of a one-shot request, a number that no client has, and the UUID.
void WriteKey(const RequestKey& request, ByteWriter* out) {
  if (!request.one_shot.empty()) {
    out->Number(kOneShot);
    out->Name(request.one_shot);
    return;
  }
  out->Number(request.client);
  out->Number(request.sequence);
}

RequestKey ReadKey(ByteReader* in) {
  RequestKey request;
  request.client = in->Number32();
  if (request.client != kOneShot) {
    request.sequence = in->Number();
    return request;
  }
  request.client = 0;
  request.one_shot = in->Name();
  if (request.one_shot.empty()) in->Fail();
  return request;
}

void WriteClaim(const Claim& claim, uint8_t flags, ByteWriter* out) {
  out->Byte(static_cast<uint8_t>(flags | (claim.detached() ? kDetached : 0)));
  out->Name(claim.id);
  if (!claim.detached()) out->Name(claim.session);
  WriteKey(claim.request, out);
  if (claim.request.remembered()) out->Name(claim.fingerprint);
  out->Number(claim.host.number);
  out->Number(claim.host.incarnation);
  out->Number(claim.epoch);
  out->Number(claim.permits);
  out->Signed(claim.priority);
  out->Number(static_cast<uint64_t>(claim.ttl_ms));
  out->Number(claim.order);
  out->Text(claim.holder);
  out->Text(claim.owner);
}

// The flags that it was written with.
uint8_t ReadClaim(ByteReader* in, Claim* claim) {
  uint8_t flags = in->Byte();
  claim->id = in->Name();
  claim->session = (flags & kDetached) != 0 ? claim->id : in->Name();
  claim->request = ReadKey(in);
  if (claim->request.remembered()) claim->fingerprint = in->Name();
  claim->host.number = in->Number32();
  claim->host.incarnation = in->Number32();
  claim->epoch = in->Number32();
  claim->permits = static_cast<uint32_t>(in->Number(1, kPermitsMax));
  int64_t priority = in->Signed();
  if (priority < INT32_MIN || priority > INT32_MAX) in->Fail();
  claim->priority = static_cast<int32_t>(priority);
  claim->ttl_ms = static_cast<int64_t>(in->Number(0, INT64_MAX));
  claim->order = in->Number();
  claim->holder = in->Text(kHolderBytesMax);
  claim->owner = in->Text(kOwnerBytesMax);
  if (claim->id.empty() || claim->session.empty()) in->Fail();
  return flags;
}

// What follows the client and the sequence number; `first` is the first byte.
void ReadRequest(uint8_t first, ByteReader* in, RequestView* view) {
  const uint8_t state = first & kStateMask;
  const bool known = state >= 1 && state <= static_cast<uint8_t>(ledger::RequestRow::State::kDone);
  if (!known || (first & ~(kStateMask | kHasClaim | kChanged)) != 0) in->Fail();
  view->state = static_cast<ledger::RequestRow::State>(state);
  view->changed = (first & kChanged) != 0;
  view->fingerprint = in->Name();
  if ((first & kHasClaim) != 0) view->claim = in->Name();
  view->cause = static_cast<EndCause>(in->Number(0, kLastCause));
  view->number = in->Number32();
  view->remaining = in->Number32();
  view->semaphore = in->Text(kNameBytesMax);
}

}  // namespace

void WriteSemaphore(uint32_t number, const SemaphoreRow& row, std::string* out) {
  size_t start = out->size();
  ByteWriter writer(out);
  writer.Byte(static_cast<uint8_t>((row.paused ? kPaused : 0) | (row.destroying ? kDestroying : 0) |
                                   (row.settings.backfill ? kBackfill : 0) |
                                   (row.made_on_use ? kMadeOnUse : 0) |
                                   (row.intentions.empty() ? 0 : kHasIntentions)));
  writer.Number(row.limit);
  writer.Signed(row.settings.longest_hold_ms);
  writer.Signed(row.settings.recall_grace_ms);
  writer.Number(row.settings.permits_per_holder);
  writer.Number(row.settings.waiters_max);
  writer.Signed(row.created_at_unix_ms);
  if (!row.intentions.empty()) writer.Text(row.intentions);
  writer.Text(row.owner);
  writer.Seal(RecordKind::kSemaphore, number, start);
}

absl::StatusOr<SemaphoreRow> ReadSemaphore(uint32_t number, std::string_view record) {
  ByteReader in(record);
  in.Unseal(RecordKind::kSemaphore, number);
  SemaphoreRow row;
  uint8_t flags = in.Byte();
  if (flags > (kPaused | kDestroying | kBackfill | kMadeOnUse | kHasIntentions)) in.Fail();
  row.paused = (flags & kPaused) != 0;
  row.destroying = (flags & kDestroying) != 0;
  row.settings.backfill = (flags & kBackfill) != 0;
  row.made_on_use = (flags & kMadeOnUse) != 0;
  row.limit = in.Number32();
  row.settings.longest_hold_ms = in.Signed();
  row.settings.recall_grace_ms = in.Signed();
  row.settings.permits_per_holder = in.Number32();
  row.settings.waiters_max = in.Number32();
  row.created_at_unix_ms = in.Signed();
  if ((flags & kHasIntentions) != 0) row.intentions = in.Text(kIntentionsBytesMax);
  row.owner = in.Text(kOwnerBytesMax);
  if (!Whole(in)) return Damaged("semaphore", number);
  return row;
}

void WriteLease(uint32_t semaphore, uint64_t token, const Lease& lease, std::string* out) {
  size_t start = out->size();
  ByteWriter writer(out);
  writer.Number(semaphore);
  WriteClaim(lease,
             static_cast<uint8_t>(
                 (lease.recall.pending() ? kRecalled : 0) | (lease.foreign ? kForeign : 0) |
                 (lease.ticket.empty() ? 0 : kOfTicket) | (lease.moved_from != 0 ? kMoved : 0)),
             &writer);
  WriteSlots(lease.slots, &writer);
  writer.Signed(lease.granted_at_unix_ms);
  if (lease.recall.pending()) {
    writer.Byte(static_cast<uint8_t>(lease.recall.reason));
    writer.Signed(lease.recall.grace_ms);
  }
  if (!lease.ticket.empty()) {
    writer.Name(lease.ticket);
    writer.Number(lease.attempt);
  }
  if (lease.moved_from != 0) writer.Number(lease.moved_from);
  writer.Seal(RecordKind::kLease, token, start);
}

absl::StatusOr<LeaseRecord> ReadLease(uint64_t token, std::string_view record) {
  ByteReader in(record);
  in.Unseal(RecordKind::kLease, token);
  LeaseRecord result{.semaphore = in.Number32(), .lease = std::make_shared<Lease>()};
  Lease& lease = *result.lease;
  uint8_t flags = ReadClaim(&in, &lease);
  if ((flags & ~(kDetached | kRecalled | kForeign | kOfTicket | kMoved)) != 0) in.Fail();
  lease.foreign = (flags & kForeign) != 0;
  lease.slots = ReadSlots(lease.permits, &in);
  lease.granted_at_unix_ms = in.Signed();
  if ((flags & kRecalled) != 0) {
    lease.recall.reason = static_cast<Recall::Reason>(in.Number(1, kLastReason));
    lease.recall.grace_ms = in.Signed();
  }
  if ((flags & kOfTicket) != 0) {
    lease.ticket = in.Name();
    lease.attempt = in.Number32();
    if (lease.ticket.empty()) in.Fail();
  }
  if ((flags & kMoved) != 0) lease.moved_from = static_cast<uint32_t>(in.Number(1, UINT32_MAX));
  lease.token = token;
  if (!Whole(in) || lease.slots.size() != lease.permits || token == 0)
    return Damaged("lease", token);
  return result;
}

void WriteWaiter(uint64_t key, uint32_t semaphore, const Waiter& waiter, std::string* out) {
  size_t start = out->size();
  ByteWriter writer(out);
  writer.Number(semaphore);
  WriteClaim(waiter, waiter.works ? kWorks : 0, &writer);
  writer.Signed(waiter.queued_at_unix_ms);
  writer.Seal(RecordKind::kWaiter, key, start);
}

absl::StatusOr<WaiterRecord> ReadWaiter(uint64_t key, std::string_view record) {
  ByteReader in(record);
  in.Unseal(RecordKind::kWaiter, key);
  WaiterRecord result{.semaphore = in.Number32(), .waiter = std::make_shared<Waiter>()};
  const uint8_t flags = ReadClaim(&in, result.waiter.get());
  if ((flags & ~(kDetached | kWorks)) != 0) in.Fail();
  result.waiter->works = (flags & kWorks) != 0;
  result.waiter->queued_at_unix_ms = in.Signed();
  if (!Whole(in)) return Damaged("waiter", key);
  return result;
}

void WriteSession(uint64_t key, const Session& session, std::string* out) {
  size_t start = out->size();
  ByteWriter writer(out);
  writer.Byte(static_cast<uint8_t>((session.release_on_disconnect ? kReleases : 0) |
                                   (session.closing ? kClosing : 0)));
  writer.Name(session.id);
  writer.Number(session.host.number);
  writer.Number(session.host.incarnation);
  writer.Number(session.epoch);
  writer.Number(static_cast<uint64_t>(session.ttl_ms));
  writer.Number(session.client);
  writer.Text(session.holder);
  writer.Text(session.owner);
  writer.Seal(RecordKind::kSession, key, start);
}

absl::StatusOr<std::shared_ptr<Session>> ReadSession(uint64_t key, std::string_view record) {
  ByteReader in(record);
  in.Unseal(RecordKind::kSession, key);
  auto session = std::make_shared<Session>();
  const uint8_t flags = in.Byte();
  if (flags > (kReleases | kClosing)) in.Fail();
  session->release_on_disconnect = (flags & kReleases) != 0;
  session->closing = (flags & kClosing) != 0;
  session->id = in.Name();
  session->host.number = in.Number32();
  session->host.incarnation = in.Number32();
  session->epoch = in.Number32();
  session->ttl_ms = static_cast<int64_t>(in.Number(0, INT64_MAX));
  session->client = in.Number32();
  session->holder = in.Text(kHolderBytesMax);
  session->owner = in.Text(kOwnerBytesMax);
  if (!Whole(in) || session->id.empty()) return Damaged("session", key);
  return session;
}

ledger::RequestRow RequestView::Copy() const {
  ledger::RequestRow row;
  row.request = request;
  row.fingerprint = fingerprint;
  row.state = state;
  row.semaphore = std::string(semaphore);
  row.claim = claim;
  row.cause = cause;
  row.number = number;
  row.remaining = remaining;
  row.changed = changed;
  return row;
}

void AppendRequest(const ledger::RequestChange& change, std::string* out) {
  const ledger::RequestRow& row = change.row;
  ByteWriter writer(out);
  const bool removed = change.op == ledger::RequestChange::Op::kRemove;
  const auto flags =
      static_cast<uint8_t>((row.claim.empty() ? 0 : kHasClaim) | (row.changed ? kChanged : 0));
  writer.Byte(removed ? kRemoved : static_cast<uint8_t>(static_cast<uint8_t>(row.state) | flags));
  WriteKey(row.request, &writer);
  if (removed) return;
  writer.Name(row.fingerprint);
  if (!row.claim.empty()) writer.Name(row.claim);
  writer.Byte(static_cast<uint8_t>(row.cause));
  writer.Number(row.number);
  writer.Number(row.remaining);
  writer.Text(row.semaphore);
}

void SealRequests(uint64_t key, std::string* out) {
  ByteWriter(out).Seal(RecordKind::kRequests, key);
}

absl::Status ReadRequests(uint64_t key, std::string_view record,
                          absl::FunctionRef<void(const RequestView&)> take) {
  ByteReader in(record);
  in.Unseal(RecordKind::kRequests, key);
  while (in.ok() && !in.at_end()) {
    const char* start = in.position();
    RequestView view;
    const uint8_t first = in.Byte();
    view.removed = first == kRemoved;
    view.request = ReadKey(&in);
    if (!view.request.remembered()) in.Fail();
    if (!view.removed) ReadRequest(first, &in, &view);
    if (!in.ok()) break;
    view.bytes = in.Since(start);
    take(view);
  }
  return in.ok() ? absl::OkStatus() : Damaged("requests", key);
}

void AppendHistory(const HistoryRow& row, std::string* out) {
  const Lease& lease = *row.lease;
  ByteWriter writer(out);
  writer.Byte(static_cast<uint8_t>(row.cause));
  writer.Name(lease.id);
  writer.Number(lease.token);
  writer.Number(lease.slots.size());
  WriteSlots(lease.slots, &writer);
  writer.Signed(lease.granted_at_unix_ms);
  // Unsigned, as it is read: a clock that was set far back must not overflow.
  writer.Signed(static_cast<int64_t>(static_cast<uint64_t>(row.ended_at_unix_ms) -
                                     static_cast<uint64_t>(lease.granted_at_unix_ms)));
  writer.Text(lease.holder);
  writer.Text(row.semaphore);
}

void SealHistory(uint64_t key, std::string* out) {
  ByteWriter(out).Seal(RecordKind::kHistory, key);
}

absl::Status ReadHistory(uint64_t key, std::string_view record,
                         absl::FunctionRef<void(HistoryRow)> take) {
  ByteReader in(record);
  in.Unseal(RecordKind::kHistory, key);
  uint64_t number = key;
  while (in.ok() && !in.at_end()) {
    auto lease = std::make_shared<Lease>();
    HistoryRow row;
    row.cause = static_cast<EndCause>(in.Number(0, kLastCause));
    lease->id = lease->session = in.Name();
    lease->token = in.Number();
    lease->permits = static_cast<uint32_t>(in.Number(1, kPermitsMax));
    lease->slots = ReadSlots(lease->permits, &in);
    if (lease->slots.size() != lease->permits) in.Fail();
    lease->granted_at_unix_ms = in.Signed();
    // Unsigned, since damaged bytes may say what would overflow.
    row.ended_at_unix_ms = static_cast<int64_t>(static_cast<uint64_t>(lease->granted_at_unix_ms) +
                                                static_cast<uint64_t>(in.Signed()));
    lease->holder = in.Text(kHolderBytesMax);
    row.semaphore = in.Text(kNameBytesMax);
    row.number = number++;
    row.lease = std::move(lease);
    if (in.ok()) take(std::move(row));
  }
  return in.ok() ? absl::OkStatus() : Damaged("history", key);
}

}  // namespace semaphored::sqlite
