#include "adapters/ledger/requests.h"

#include <endian.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/container/inlined_vector.h"

namespace semaphored::ledger {
namespace {

// The acts, as the encoding numbers them. A number is never used again.
enum class Act : uint8_t {
  kAcquire = 1,
  kRelease = 2,
  kEnqueue = 3,
  kFinish = 4,
  kCreate = 5,
  kResize = 6,
  kConfigure = 7,
  kDestroy = 8,
  kPause = 9,
  kRevoke = 10,
  kPrune = 11,
  kCancelTicket = 12,
  kPrioritizeTicket = 13,
  kRequeue = 14,
  kPurge = 15,
  kAdopt = 16,
};

// Fields one after the other, each of a length that the bytes before it determine: numbers as
// eight bytes, the lowest first; texts behind their length.
class Encoder {
 public:
  explicit Encoder(Act act)
      : bytes_({static_cast<char>(kFingerprintVersion), static_cast<char>(act)}) {}

  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T> Encoder& Number(T value) {
    const uint64_t lowest_first = htole64(static_cast<uint64_t>(value));
    return Append({reinterpret_cast<const char*>(&lowest_first), sizeof lowest_first});
  }
  Encoder& Text(std::string_view text) {
    Number(text.size());
    return Append(text);
  }
  Encoder& Name(const Id& id) { return Number(id.high).Number(id.low); }
  Encoder& Maybe(const std::optional<int64_t>& value) {
    return Number(value.has_value()).Number(value.value_or(0));
  }

  Id Fingerprint() const {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    // Empty means that there is none.
    return {hash.high64, hash.low64 == 0 && hash.high64 == 0 ? 1 : hash.low64};
  }

 private:
  Encoder& Append(std::string_view bytes) {
    const size_t before = bytes_.size();
    bytes_.resize(before + bytes.size());
    std::ranges::copy(bytes, bytes_.begin() + before);
    return *this;
  }

  static constexpr size_t kUsualBytes = 192;
  absl::InlinedVector<char, kUsualBytes> bytes_;
};

void Add(const Settings& settings, Encoder* out) {
  out->Number(settings.backfill)
      .Number(settings.longest_hold_ms)
      .Number(settings.recall_grace_ms)
      .Number(settings.permits_per_holder)
      .Number(settings.waiters_max);
}

struct OfAct {
  Encoder operator()(const AdminCreate& act) const {
    Encoder out(Act::kCreate);
    out.Number(act.limit);
    Add(act.settings, &out);
    return out;
  }
  Encoder operator()(const AdminResize& act) const {
    return Encoder(Act::kResize)
        .Number(act.change)
        .Number(act.amount)
        .Number(act.policy)
        .Number(act.grace_ms);
  }
  Encoder operator()(const AdminConfigure& act) const {
    Encoder out(Act::kConfigure);
    Add(act.settings, &out);
    return out;
  }
  Encoder operator()(const AdminDestroy& act) const {
    return Encoder(Act::kDestroy).Number(act.policy).Number(act.grace_ms);
  }
  Encoder operator()(const AdminPause& act) const {
    return Encoder(Act::kPause).Number(act.paused);
  }
  Encoder operator()(const AdminRevoke& act) const {
    return Encoder(Act::kRevoke).Name(act.claim).Text(act.holder).Number(act.grace_ms);
  }
  Encoder operator()(const AdminPrune&) const { return Encoder(Act::kPrune); }
  Encoder operator()(const AdminCancelTicket& act) const {
    return Encoder(Act::kCancelTicket).Name(act.ticket).Number(act.force);
  }
  Encoder operator()(const AdminPrioritizeTicket& act) const {
    return Encoder(Act::kPrioritizeTicket).Name(act.ticket).Number(act.priority);
  }
  Encoder operator()(const AdminRequeue& act) const {
    return Encoder(Act::kRequeue).Name(act.ticket);
  }
  Encoder operator()(const AdminPurge& act) const { return Encoder(Act::kPurge).Name(act.ticket); }
  Encoder operator()(const AdminAdopt& act) const { return Encoder(Act::kAdopt).Number(act.limit); }
  // These read only, and are never remembered.
  Encoder operator()(const AdminDescribe&) const { return Encoder(Act::kPrune); }
  Encoder operator()(const AdminListTickets&) const { return Encoder(Act::kPrune); }
  Encoder operator()(const AdminShowTicket&) const { return Encoder(Act::kPrune); }
};

// Of a release, by their number. More are encoded as their runs: a request of forty bytes may name a million.
constexpr size_t kSlotsOneByOne = 1024;

struct OfCommand {
  Encoder operator()(const AcquireCommand& command) const {
    return Encoder(Act::kAcquire)
        .Text(command.semaphore)
        .Number(command.permits)
        .Number(command.limit)
        .Number(command.adopt_limit)
        .Number(command.priority)
        .Text(command.holder_is_default ? std::string_view() : command.holder);
  }
  Encoder operator()(const ReleaseCommand& command) const {
    Encoder out(Act::kRelease);
    const size_t count = command.slots.size();
    out.Text(command.semaphore).Name(command.claim).Number(count);
    if (count <= kSlotsOneByOne) {
      for (const uint32_t slot : command.slots) out.Number(slot);
      return out;
    }
    out.Number(command.slots.runs().size());
    for (const Slots::Run& run : command.slots.runs()) out.Number(run.first).Number(run.last);
    return out;
  }
  Encoder operator()(const EnqueueCommand& command) const {
    return Encoder(Act::kEnqueue)
        .Text(command.semaphore)
        .Number(command.limit)
        .Number(command.adopt_limit)
        .Number(command.priority)
        .Number(command.delay_ms)
        .Number(command.max_attempts)
        .Number(command.back_off.initial_ms)
        .Number(command.back_off.multiplier_percent)
        .Number(command.back_off.max_ms)
        .Text(command.content_type)
        .Text(command.payload ? std::string_view(*command.payload) : std::string_view());
  }
  Encoder operator()(const FinishCommand& command) const {
    return Encoder(Act::kFinish)
        .Text(command.semaphore)
        .Name(command.claim)
        .Number(command.result)
        .Text(command.reason)
        .Maybe(command.retry_after_ms);
  }
  Encoder operator()(const AdminCommand& command) const {
    return std::visit(OfAct{}, command.act)
        .Text(command.semaphore)
        .Number(command.expected_revision);
  }
  template <typename Other>
  Encoder operator()(const Other&) const {
    return Encoder(Act::kPrune);
  }
};

}  // namespace

const Requester* RequesterOf(const Command& command) {
  if (const auto* acquire = std::get_if<AcquireCommand>(&command)) return &acquire->requester;
  if (const auto* release = std::get_if<ReleaseCommand>(&command)) return &release->requester;
  if (const auto* enqueue = std::get_if<EnqueueCommand>(&command)) return &enqueue->requester;
  if (const auto* finish = std::get_if<FinishCommand>(&command)) return &finish->requester;
  const auto* admin = std::get_if<AdminCommand>(&command);
  return admin != nullptr && !IsReadOnly(command) ? &admin->requester : nullptr;
}

bool IsOnlyIfRepeated(const Command& command) {
  const auto* acquire = std::get_if<AcquireCommand>(&command);
  return acquire != nullptr && acquire->only_if_repeated;
}

Id FingerprintOf(const Command& command) { return std::visit(OfCommand{}, command).Fingerprint(); }

}  // namespace semaphored::ledger
