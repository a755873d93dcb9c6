#include "server/rpc/validate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "adapters/names.h"
#include "server/rpc/convert.h"

namespace semaphored {
namespace {

constexpr size_t kClientIdBytesMax = 128;
constexpr int32_t kPriorityMax = 1'000;
constexpr int64_t kBeatLeastMs = 100;
constexpr int kSlotRangesMax = 1'000;

Problem CheckClientId(std::string_view field, std::string_view id) {
  const bool good =
      !id.empty() && id.size() <= kClientIdBytesMax &&
      std::all_of(id.begin(), id.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
  if (good) return std::nullopt;
  return InvalidField(field, "must be 1 to 128 bytes of printable ASCII");
}

// Eight digits, thrice four, and twelve, with dashes between. nullopt: it is none, or the nil UUID.
std::optional<Id> ReadUuid(std::string_view text) {
  constexpr std::string_view kForm = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
  if (text.size() != kForm.size()) return std::nullopt;
  std::string digits;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == '-' ? text[i] != '-'
                        : !absl::ascii_isxdigit(static_cast<unsigned char>(text[i])))
      return std::nullopt;
    if (kForm[i] != '-') digits += absl::ascii_tolower(static_cast<unsigned char>(text[i]));
  }
  const std::optional<Id> id = Id::FromHex(digits);
  return id && !id->empty() ? id : std::nullopt;
}

Problem CheckTtl(std::string_view field, int64_t asked, const RequestLimits& limits, int64_t* out) {
  *out = asked == 0 ? limits.ttl_default_ms : asked;
  return CheckRange(field, *out, limits.ttl_min_ms, limits.ttl_max_ms);
}

Problem CheckSlots(const google::protobuf::RepeatedPtrField<pb::SlotRange>& ranges,
                   const RequestLimits& limits, Slots* out) {
  if (ranges.size() > kSlotRangesMax)
    return InvalidField("slots", "must be at most " + std::to_string(kSlotRangesMax) +
                                     " ranges, not " + std::to_string(ranges.size()));
  std::vector<Slots::Run> runs;
  for (const pb::SlotRange& range : ranges) {
    if (range.first() == 0 || range.last() < range.first())
      return InvalidField("slots",
                          "must be ranges from `first`, 1 or more, to `last`, not below `first`");
    if (range.last() > limits.limit_max)
      return InvalidField("slots", "must be at most " + std::to_string(limits.limit_max));
    runs.push_back({range.first(), range.last()});
  }
  std::ranges::sort(runs, {}, &Slots::Run::first);
  Slots slots;
  for (const Slots::Run& run : runs) {
    if (!slots.empty() && slots.back() >= run.first)
      return InvalidField("slots", "must each be given once");
    slots.Append(run);
  }
  *out = std::move(slots);
  return std::nullopt;
}

// What Acquire and an acquire within a session have in common.
template <typename Request>
Problem CheckCommonAcquire(Request& request, const RequestLimits& limits, AcquireParams* out) {
  if (Problem problem = CheckName("semaphore", request.semaphore(), limits)) return problem;
  out->permits = request.permits() == 0 ? 1 : request.permits();
  if (Problem problem = CheckRange("permits", out->permits, 1, limits.permits_per_request_max))
    return problem;
  if (Problem problem = CheckRange("limit", request.limit(), 0, limits.limit_max)) return problem;
  out->limit = request.limit();
  if (!pb::LimitMismatch_IsValid(request.limit_mismatch())) {
    return InvalidField("limit_mismatch", "must be LIMIT_MISMATCH_FAIL or LIMIT_MISMATCH_ADOPT");
  }
  out->adopt_limit = request.limit_mismatch() == pb::LIMIT_MISMATCH_ADOPT;
  if (Problem problem = CheckRange("wait_ms", request.wait_ms(), 0, limits.wait_max_ms))
    return problem;
  if (request.wait_forever() && request.wait_ms() != 0)
    return InvalidField("wait_forever", "must be false where wait_ms is given");
  out->wait_ms = request.wait_forever() ? -1 : int64_t{request.wait_ms()};
  if (Problem problem = CheckPriority("priority", request.priority())) return problem;
  out->priority = request.priority();
  if (Problem problem = CheckHolder("holder", request.holder(), limits)) return problem;
  out->holder = std::move(*request.mutable_holder());
  out->holder_is_default = out->holder.empty();
  out->semaphore = std::move(*request.mutable_semaphore());
  return std::nullopt;
}

template <typename Command>
Problem CheckLeaseId(std::string_view lease_id, Command* out) {
  std::optional<LeaseName> lease = ParseLeaseId(lease_id);
  if (!lease.has_value())
    return InvalidField("lease_id", "must be the lease_id of a Lease as it was given");
  out->semaphore = std::move(lease->semaphore);
  out->claim = lease->claim;
  return std::nullopt;
}

template <typename Request>
Problem CheckCommonRelease(Request& request, const RequestLimits& limits, ReleaseCommand* out) {
  if (Problem problem = CheckLeaseId(request.lease_id(), out)) return problem;
  return CheckSlots(request.slots(), limits, &out->slots);
}

}  // namespace

Problem CheckRange(std::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return std::nullopt;
  return InvalidField(field, "must be " + std::to_string(least) + " to " + std::to_string(most) +
                                 ", not " + std::to_string(value));
}

Problem CheckPriority(std::string_view field, int32_t priority) {
  return CheckRange(field, priority, -kPriorityMax, kPriorityMax);
}

Problem CheckName(std::string_view field, std::string_view name, const RequestLimits& limits) {
  if (IsSemaphoreName(name) && name.size() <= limits.name_bytes_max) return std::nullopt;
  return InvalidField(field,
                      "must be 1 to " + std::to_string(limits.name_bytes_max) +
                          " bytes of letters, digits and . _ - / : @ +, not begin with '.', and "
                          "have no empty, '.' or '..' segment between its '/'");
}

Problem CheckPrefix(std::string_view field, std::string_view prefix) {
  if (IsSemaphorePrefix(prefix)) return std::nullopt;
  return InvalidField(field,
                      "must be empty or a semaphore's name, which one '/' may follow: at most 255 "
                      "bytes of letters, digits and . _ - / : @ +, no empty, '.' or '..' segment");
}

Problem CheckHolder(std::string_view field, std::string_view holder, const RequestLimits& limits) {
  // That it is UTF-8 has been checked by the parser.
  if (holder.size() <= limits.holder_bytes_max) return std::nullopt;
  return InvalidField(field, "must be at most " + std::to_string(limits.holder_bytes_max) +
                                 " bytes, not " + std::to_string(holder.size()));
}

Problem CheckRows(uint32_t asked, const RequestLimits& limits, uint32_t* out) {
  constexpr uint32_t kRowsDefault = 100;
  *out = asked == 0 ? std::min(kRowsDefault, limits.rows_max) : asked;
  return CheckRange("page_size", *out, 1, limits.rows_max);
}

Problem CheckRequestId(bool present, pb::RequestId& id, Requester* out) {
  if (!present) {
    *out = Requester{};
    return std::nullopt;
  }
  *out = Requester{};
  if (id.request_id_case() == pb::RequestId::REQUEST_ID_NOT_SET)
    return InvalidField("request_id", "must have one of numbered and one_shot");
  if (id.has_one_shot()) {
    const std::optional<Id> one_shot = ReadUuid(id.one_shot());
    if (!one_shot)
      return InvalidField(
          "request_id.one_shot",
          "must be a UUID such as 123e4567-e89b-42d3-a456-426614174000, and not nil");
    out->one_shot = *one_shot;
    return std::nullopt;
  }
  pb::NumberedRequestId& numbered = *id.mutable_numbered();
  if (Problem problem = CheckClientId("request_id.numbered.client_id", numbered.client_id()))
    return problem;
  // The store keeps it as a signed number.
  if (numbered.sequence() == 0 || numbered.sequence() > static_cast<uint64_t>(INT64_MAX)) {
    return InvalidField("request_id.numbered.sequence",
                        "must be 1 to 9223372036854775807, rising by one");
  }
  out->client_id = std::move(*numbered.mutable_client_id());
  out->sequence = numbered.sequence();
  return std::nullopt;
}

Problem Check(pb::AcquireRequest& request, const RequestLimits& limits, AcquireParams* out) {
  const bool has_id = request.has_request_id();
  if (has_id) {
    if (Problem problem = CheckRequestId(true, *request.mutable_request_id(), &out->requester))
      return problem;
  } else {
    out->requester = Requester{};
  }
  if (Problem problem = CheckTtl("ttl_ms", request.ttl_ms(), limits, &out->ttl_ms)) return problem;
  if (Problem problem = CheckCommonAcquire(request, limits, out)) return problem;
  if (out->holder.empty()) out->holder = out->requester.client_id;
  return std::nullopt;
}

Problem Check(pb::HoldRequest& request, const RequestLimits& limits, HoldParams* out) {
  if (!request.has_acquire()) return InvalidField("acquire", "must be given");
  if (Problem problem = Check(*request.mutable_acquire(), limits, &out->acquire)) {
    return Within("acquire", *std::move(problem));
  }
  out->release_on_disconnect = request.release_on_disconnect();
  const int64_t most = out->acquire.ttl_ms / 3;
  out->beat_interval_ms = request.beat_interval_ms() == 0 ? most : request.beat_interval_ms();
  return CheckRange("beat_interval_ms", out->beat_interval_ms, std::min(kBeatLeastMs, most), most);
}

Problem Check(pb::SessionAcquire& request, const RequestLimits& limits, AcquireParams* out) {
  return CheckCommonAcquire(request, limits, out);
}

Problem Check(pb::OpenSession& request, const RequestLimits& limits, OpenParams* out) {
  if (Problem problem = CheckClientId("open.client_id", request.client_id())) return problem;
  if (Problem problem = CheckHolder("open.holder", request.holder(), limits)) return problem;
  out->resume = Id{};
  if (!request.resume_session_id().empty()) {
    const std::optional<Id> id = Id::FromHex(request.resume_session_id());
    if (!id.has_value() || id->empty()) {
      return InvalidField("open.resume_session_id",
                          "must be the session_id of an earlier SessionOpened");
    }
    out->resume = *id;
    out->ttl_ms = limits.ttl_default_ms;  // Not used: the session keeps its own.
  } else if (Problem problem = CheckTtl("open.ttl_ms", request.ttl_ms(), limits, &out->ttl_ms)) {
    return problem;
  }
  out->client_id = std::move(*request.mutable_client_id());
  out->holder = request.holder().empty() ? out->client_id : std::move(*request.mutable_holder());
  out->release_on_disconnect = request.release_on_disconnect();
  return std::nullopt;
}

Problem Check(pb::ReleaseRequest& request, const RequestLimits& limits, ReleaseCommand* out) {
  if (request.has_request_id()) {
    if (Problem problem = CheckRequestId(true, *request.mutable_request_id(), &out->requester))
      return problem;
  } else {
    out->requester = Requester{};
  }
  return CheckCommonRelease(request, limits, out);
}

Problem Check(pb::SessionRelease& request, const RequestLimits& limits, ReleaseCommand* out) {
  return CheckCommonRelease(request, limits, out);
}

Problem Check(pb::VerifyRequest& request, const RequestLimits& limits, VerifyCommand* out) {
  const bool by_slot = !request.semaphore().empty() || request.slot() != 0 || request.token() != 0;
  if (by_slot == !request.lease_id().empty()) {
    return InvalidField("lease_id", "must be given, or else semaphore, slot and token; not both");
  }
  if (!by_slot) return CheckLeaseId(request.lease_id(), out);
  if (Problem problem = CheckName("semaphore", request.semaphore(), limits)) return problem;
  if (request.slot() == 0) return InvalidField("slot", "must be 1 or more");
  if (request.token() == 0) return InvalidField("token", "must be the token of a Lease");
  out->semaphore = std::move(*request.mutable_semaphore());
  out->claim = Id{};
  out->slot = request.slot();
  out->token = request.token();
  return std::nullopt;
}

Problem Check(pb::RenewRequest& request, const RequestLimits& /*limits*/, RenewParams* out) {
  out->acknowledged_recall = request.acknowledged_recall_id();
  return CheckLeaseId(request.lease_id(), out);
}

Problem Check(pb::WatchRequest& request, const RequestLimits& limits, WatchParams* out) {
  if (!request.semaphore().empty()) {
    if (!request.prefix().empty())
      return InvalidField("prefix", "must be empty when semaphore is given");
    if (Problem problem = CheckName("semaphore", request.semaphore(), limits)) return problem;
  }
  if (request.semaphore().empty() && request.start_revision() != 0)
    return InvalidField("start_revision", "must be 0 unless semaphore is given");
  if (Problem problem = CheckPrefix("prefix", request.prefix())) return problem;
  out->start_revision = request.start_revision();
  out->prefix = std::move(*request.mutable_prefix());
  out->semaphore = std::move(*request.mutable_semaphore());
  return std::nullopt;
}

}  // namespace semaphored
