// The records of sessions, by id, and the streams that have them or wait for them. Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/sessions/records.h"

namespace semaphored {

class SessionBook {
 public:
  using Records = absl::flat_hash_map<Id, std::unique_ptr<SessionRecord>>;

  // Null: there is none, or no longer.
  SessionRecord* Find(const Id& id) {
    const auto found = records_.find(id);
    return found == records_.end() ? nullptr : found->second.get();
  }
  const SessionRecord* Find(const Id& id) const { return const_cast<SessionBook*>(this)->Find(id); }
  // The record with this id; a new one if there is none. It stays until Erase.
  SessionRecord* FindOrAdd(const Id& id);
  // Without effect if there is none. The id must not lie in the record. REQUIRES: no stream has it.
  void Erase(const Id& id) { records_.erase(id); }
  // All, in no order.
  const Records& records() const { return records_; }

  // ---- the streams that have sessions ----
  // The stream has this session, from now until StopListening.
  void Listen(SessionRecord* record, SessionListener* listener);
  // The session's stream has it no more. Without effect if no stream has it.
  void StopListening(SessionRecord* record);
  // The stream has its session no more, whose record is erased next.
  void ForgetListener(SessionListener* listener) { by_listener_.erase(listener); }
  // Null: it has none.
  SessionRecord* FindOf(SessionListener* listener);
  std::vector<SessionListener*> listeners() const;  // In no order.
  bool Listens(SessionListener* listener) const { return by_listener_.contains(listener); }
  size_t open() const { return by_listener_.size(); }

  // ---- the streams whose sessions are being opened or adopted ----
  // One that waited for another session waits for this one instead.
  void BeginOpening(SessionListener* listener, const Id& session) { opening_[listener] = session; }
  // The answer has come. False: the stream does not wait for this session, or no longer.
  bool EndOpening(SessionListener* listener, const Id& session);
  // The stream is gone.
  void ForgetOpening(SessionListener* listener) { opening_.erase(listener); }
  // None waits any more. Those that did, in no order.
  std::vector<SessionListener*> TakeOpening();

 private:
  Records records_;
  absl::flat_hash_map<SessionListener*, Id> by_listener_;
  absl::flat_hash_map<SessionListener*, Id> opening_;
};

}  // namespace semaphored
