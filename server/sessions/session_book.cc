#include "server/sessions/session_book.h"

#include <utility>

namespace semaphored {

SessionRecord* SessionBook::FindOrAdd(const Id& id) {
  auto& record = records_[id];
  if (record == nullptr) {
    record = std::make_unique<SessionRecord>();
    record->id = id;
  }
  return record.get();
}

void SessionBook::Listen(SessionRecord* record, SessionListener* listener) {
  record->listener = listener;
  by_listener_[listener] = record->id;
}

void SessionBook::StopListening(SessionRecord* record) {
  by_listener_.erase(record->listener);
  record->listener = nullptr;
}

SessionRecord* SessionBook::FindOf(SessionListener* listener) {
  const auto found = by_listener_.find(listener);
  return found == by_listener_.end() ? nullptr : Find(found->second);
}

std::vector<SessionListener*> SessionBook::listeners() const {
  std::vector<SessionListener*> listeners;
  listeners.reserve(by_listener_.size());
  for (const auto& [listener, session] : by_listener_) listeners.push_back(listener);
  return listeners;
}

bool SessionBook::EndOpening(SessionListener* listener, const Id& session) {
  const auto waiting = opening_.find(listener);
  if (waiting == opening_.end() || waiting->second != session) return false;
  opening_.erase(waiting);
  return true;
}

std::vector<SessionListener*> SessionBook::TakeOpening() {
  std::vector<SessionListener*> listeners;
  for (const auto& [listener, id] : std::exchange(opening_, {})) listeners.push_back(listener);
  return listeners;
}

}  // namespace semaphored
