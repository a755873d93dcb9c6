#include "server/sessions/session_list.h"

#include "server/sessions/session_book.h"

namespace semaphored {

SessionList ListSessions(const Sessions& sessions, size_t lines_max) {
  const SessionBook& book = sessions.session_book();
  SessionList list;
  list.total = book.records().size();
  for (const auto& [id, record] : book.records()) {
    if (list.lines.size() == lines_max) break;
    SessionLine& line = list.lines.emplace_back();
    line.id = id;
    line.client_id = record->client_id;
    line.holder = record->holder;
    line.owner = record->owner;
    line.open = record->listener != nullptr;
    line.ttl_ms = record->life.ttl_ms;
    line.claims = record->claims.size();
    if (record->worker != nullptr) line.free_hands = record->worker->free_hands();
  }
  return list;
}

}  // namespace semaphored
