#include "server/sessions/farewells.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/sessions/refusals.h"
#include "server/sessions/session_streams.h"

namespace semaphored {

void Farewells::EndVouching() {
  std::vector<Id> sessions;
  std::vector<Id> claims;
  for (const auto& [id, record] : parts_.sessions->records()) {
    if (record->listener != nullptr) sessions.push_back(id);
  }
  for (const auto& [id, record] : parts_.claims->records()) {
    if (record->session == nullptr && record->state == ClaimRecord::State::kHeld &&
        record->listener != nullptr) {
      claims.push_back(id);
    }
  }
  // In an order that does not hang on addresses, so that a simulation replays.
  std::ranges::sort(sessions);
  std::ranges::sort(claims);
  for (const Id& id : sessions) {
    SessionRecord* record = parts_.sessions->Find(id);
    if (record == nullptr || record->listener == nullptr) continue;
    SessionListener* listener = record->listener;
    Unlisten(record, parts_.claims, parts_.sessions, parts_.work);
    listener->OnSessionEnded(NotVouchedRefusal(""));
  }
  for (const Id& id : claims) {
    ClaimRecord* record = parts_.claims->Find(id);
    if (record == nullptr || record->listener == nullptr) continue;
    ClaimListener* listener = std::exchange(record->listener, nullptr);
    listener->OnRefused(record->tag, NotVouchedRefusal(record->semaphore));
  }
}

void Farewells::EndLeases() {
  struct Held {
    ClaimListener* listener;
    uint64_t tag;
    Id id;
    std::string semaphore;
  };
  std::vector<Held> held;
  for (const auto& [id, record] : parts_.claims->records()) {
    ClaimListener* const listener =
        record->session != nullptr ? record->session->listener : record->listener;
    if (record->state != ClaimRecord::State::kHeld || listener == nullptr) continue;
    record->listener = nullptr;
    held.push_back({listener, record->tag, record->id, record->semaphore});
  }
  for (const Held& each : held)
    each.listener->OnEnded(each.tag, each.id, each.semaphore, EndCause::kEngineLost);
}

void Farewells::ShutDown() {
  std::vector<std::pair<ClaimListener*, uint64_t>> claims;
  std::vector<SessionListener*> sessions;
  for (const auto& [id, record] : parts_.claims->records()) {
    if (record->session == nullptr && record->listener != nullptr) {
      claims.emplace_back(std::exchange(record->listener, nullptr), record->tag);
    }
  }
  for (const auto& [id, record] : parts_.sessions->records()) {
    if (record->listener == nullptr) continue;
    sessions.push_back(record->listener);
    Unlisten(record.get(), parts_.claims, parts_.sessions, parts_.work);
  }
  for (SessionListener* listener : parts_.sessions->TakeOpening()) {
    if (std::ranges::count(sessions, listener) == 0) sessions.push_back(listener);
  }
  for (const auto& [listener, tag] : claims) listener->OnRefused(tag, ShuttingDownRefusal());
  for (SessionListener* listener : sessions) listener->OnSessionEnded(ShuttingDownRefusal());
}

}  // namespace semaphored
