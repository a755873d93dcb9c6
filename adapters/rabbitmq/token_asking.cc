// Of TokenStore: an administrator revokes leases that other daemons have. A lease is known to its
// own daemon alone, so a daemon sends what is wanted to all, sealed (sealing.h), over the exchange
// that has the change notices, and each daemon looks among its own leases.
//
// Where a limit was lowered and the leases of the sending daemon do not suffice, the others give
// back as many as are missing: those on the highest slots that are left. All see alike which these
// are, once the free tokens have been taken out; so they wait a moment before they choose.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "adapters/rabbitmq/token_store.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

using ledger::AskedRecall;
using nlohmann::json;

namespace {

// Free tokens are taken out, and their slots struck, within some milliseconds.
constexpr std::chrono::milliseconds kChooseAfter{300};
constexpr size_t kChoicesMax = 1000;

}  // namespace

void TokenStore::TellOthers(const AskedRecall& wanted) {
  json slots = json::array();
  if (const Used* used = Find(wanted.semaphore)) {
    for (const auto& [claim, held] : used->held) slots.push_back(held.slot);
  }
  const json text = {{"take_back", wanted.semaphore},
                     {"claim", wanted.claim.Hex()},
                     {"holder", wanted.holder},
                     {"reason", static_cast<int>(wanted.recall.reason)},
                     {"grace_ms", wanted.recall.grace_ms},
                     {"leases_max", wanted.leases_max},
                     {"slots_of_sender", slots}};
  const absl::StatusOr<std::string> sealed = sealing_.Seal(text);
  const absl::Status status = sealed.ok() ? broker_.Tell(*sealed) : sealed.status();
  if (!status.ok())
    upkeep_->Failed(
        UpkeepWork::kNotices,
        absl::Status(status.code(),
                     absl::StrCat("the recall of leases of ", wanted.semaphore,
                                  " was not sent to other daemons: ", status.message())));
}

void TokenStore::OnAsked(const std::string& text) {
  const std::optional<json> sealed = sealing_.Open(text, SteadyClock::now());
  if (!sealed) return;
  const json& read = *sealed;
  Shrinking asked;
  AskedRecall& wanted = asked.wanted;
  try {
    read.at("take_back").get_to(wanted.semaphore);
    read.at("holder").get_to(wanted.holder);
    read.at("grace_ms").get_to(wanted.recall.grace_ms);
    read.at("leases_max").get_to(wanted.leases_max);
    read.at("slots_of_sender").get_to(asked.not_meant);
    const std::optional<Id> claim = Id::FromHex(read.at("claim").get<std::string>());
    if (!claim) return;  // Not to be taken for all claims.
    wanted.claim = *claim;
    wanted.recall.reason = Recall::Reason::kAdministrator;
    for (const Recall::Reason reason : {Recall::Reason::kShrunk, Recall::Reason::kDestroyed}) {
      if (read.at("reason") == static_cast<int>(reason)) wanted.recall.reason = reason;
    }
  } catch (const json::exception&) {
    return;  // A later version's, or none of ours.
  }
  if (Find(wanted.semaphore) == nullptr || wanted.recall.grace_ms < 0) return;
  if (wanted.recall.reason != Recall::Reason::kShrunk) {
    asked_.push_back(std::move(wanted));
  } else if (to_choose_.size() < kChoicesMax) {
    asked.choose_at = SteadyClock::now() + kChooseAfter;
    to_choose_.push_back(std::move(asked));
  }
}

SteadyTime TokenStore::NextChoice() const {
  SteadyTime next = SteadyTime::max();
  for (const Shrinking& each : to_choose_) next = std::min(next, each.choose_at);
  return next;
}

void TokenStore::Choose() {
  const SteadyTime now = SteadyClock::now();
  for (Shrinking& each : to_choose_) {
    if (each.choose_at > now) continue;
    AskedRecall wanted = each.wanted;
    Used* used = Find(wanted.semaphore);
    if (used == nullptr) continue;
    if (used->stale) {
      absl::StatusOr<Used*> read = Read(wanted.semaphore);
      if (!read.ok()) each.choose_at = now + kChooseAfter;  // It is tried again.
      if (!read.ok() || *read == nullptr) continue;
      used = *read;
    }
    std::vector<uint32_t> candidates;
    std::ranges::set_difference(used->stored.slots, each.not_meant, std::back_inserter(candidates));
    const size_t count = std::min(
        {candidates.size(), used->stored.excess(), static_cast<size_t>(wanted.leases_max)});
    const std::set<uint32_t> chosen(candidates.end() - static_cast<ptrdiff_t>(count),
                                    candidates.end());
    for (const auto& [claim, held] : used->held) {
      if (!chosen.contains(held.slot)) continue;
      wanted.claim = claim;
      asked_.push_back(wanted);
    }
  }
  std::erase_if(to_choose_, [&](const Shrinking& each) { return each.choose_at <= now; });
}

}  // namespace semaphored::rabbitmq
