#include "adapters/rabbitmq/asked_recalls.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {
namespace {

using nlohmann::json;

// Free tokens are taken out, and their slots struck, within some milliseconds.
constexpr std::chrono::milliseconds kChooseAfter{300};
constexpr size_t kChoicesMax = 1000;

}  // namespace

json WriteAsked(const AskedOfAll& asked) {
  const ledger::AskedRecall& wanted = asked.wanted;
  return {{"take_back", wanted.semaphore},
          {"claim", wanted.claim.Hex()},
          {"holder", wanted.holder},
          {"reason", static_cast<int>(wanted.recall.reason)},
          {"grace_ms", wanted.recall.grace_ms},
          {"leases_max", wanted.leases_max},
          {"slots_of_sender", asked.slots_of_sender}};
}

std::optional<AskedOfAll> ReadAsked(const json& text) {
  AskedOfAll asked;
  ledger::AskedRecall& wanted = asked.wanted;
  try {
    text.at("take_back").get_to(wanted.semaphore);
    text.at("holder").get_to(wanted.holder);
    text.at("grace_ms").get_to(wanted.recall.grace_ms);
    text.at("leases_max").get_to(wanted.leases_max);
    text.at("slots_of_sender").get_to(asked.slots_of_sender);
    const std::optional<Id> claim = Id::FromHex(text.at("claim").get<std::string>());
    if (!claim) return std::nullopt;  // Not to be taken for all claims.
    wanted.claim = *claim;
    wanted.recall.reason = Recall::Reason::kAdministrator;
    for (const Recall::Reason reason : {Recall::Reason::kShrunk, Recall::Reason::kDestroyed}) {
      if (text.at("reason") == static_cast<int>(reason)) wanted.recall.reason = reason;
    }
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (wanted.recall.grace_ms < 0) return std::nullopt;
  return asked;
}

std::vector<Id> ChooseLeases(const AskedOfAll& asked, const StoredSemaphore& stored,
                             const absl::flat_hash_map<Id, UsedTokens::Held>& held) {
  std::vector<uint32_t> candidates;
  std::ranges::set_difference(stored.slots, asked.slots_of_sender, std::back_inserter(candidates));
  const size_t count =
      std::min({candidates.size(), stored.excess(), static_cast<size_t>(asked.wanted.leases_max)});
  const std::set<uint32_t> chosen(candidates.end() - static_cast<ptrdiff_t>(count),
                                  candidates.end());
  std::vector<Id> claims;
  for (const auto& [claim, token] : held) {
    if (chosen.contains(token.slot)) claims.push_back(claim);
  }
  return claims;
}

void AskedRecalls::Send(const ledger::AskedRecall& wanted) {
  AskedOfAll asked{wanted, {}};
  if (const UsedSemaphore* used = used_->Find(wanted.semaphore)) {
    for (const auto& [claim, held] : used->tokens().held()) asked.slots_of_sender.insert(held.slot);
  }
  const absl::StatusOr<std::string> sealed = sealing_->Seal(WriteAsked(asked));
  const absl::Status status = sealed.ok() ? broker_->Tell(*sealed) : sealed.status();
  if (status.ok()) return;
  upkeep_->Failed(UpkeepWork::kNotices,
                  absl::Status(status.code(),
                               absl::StrCat("the recall of leases of ", wanted.semaphore,
                                            " was not sent to other daemons: ", status.message())));
}

void AskedRecalls::Hear(const std::string& text) {
  const SteadyTime now = SteadyClock::now();
  const std::optional<json> sealed = sealing_->Open(text, now);
  std::optional<AskedOfAll> asked = sealed ? ReadAsked(*sealed) : std::nullopt;
  if (!asked || used_->Find(asked->wanted.semaphore) == nullptr) return;
  if (asked->wanted.recall.reason != Recall::Reason::kShrunk) {
    asked_.push_back(std::move(asked->wanted));
  } else if (to_choose_.size() < kChoicesMax) {
    to_choose_.push_back({*std::move(asked), now + kChooseAfter});
  }
}

SteadyTime AskedRecalls::Next() const {
  SteadyTime next = SteadyTime::max();
  for (const Shrinking& each : to_choose_) next = std::min(next, each.choose_at);
  return next;
}

void AskedRecalls::Choose() {
  const SteadyTime now = SteadyClock::now();
  for (Shrinking& each : to_choose_) {
    if (each.choose_at > now) continue;
    const std::string& name = each.asked.wanted.semaphore;
    UsedSemaphore* used = used_->Find(name);
    if (used != nullptr && used->is_stale()) {
      absl::StatusOr<UsedSemaphore*> read = used_->Read(name);
      if (!read.ok()) each.choose_at = now + kChooseAfter;  // It is tried again.
      used = read.ok() ? *read : nullptr;
    }
    if (used == nullptr) continue;
    for (const Id& claim : ChooseLeases(each.asked, used->stored(), used->tokens().held())) {
      asked_.push_back(each.asked.wanted);
      asked_.back().claim = claim;
    }
  }
  std::erase_if(to_choose_, [&](const Shrinking& each) { return each.choose_at <= now; });
}

}  // namespace semaphored::rabbitmq
