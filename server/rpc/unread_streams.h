// What all streams together have ready for readers that do not take it: bounded as the answers to unary calls are.
#pragma once

#include <cstddef>

#include "absl/container/flat_hash_set.h"

namespace semaphored {

// A stream that may leave something unread.
class UnreadStream {
 public:
  // All of them leave too much unread, and this one most: it drops what waits, at the end of the turn at the latest,
  // and ends. It is not counted any more; it may call Set meanwhile.
  virtual void OnFullest() = 0;

 protected:
  ~UnreadStream() = default;

 private:
  friend class UnreadStreams;
  size_t bytes_ = 0;
};

// On the reactor's thread.
class UnreadStreams {
 public:
  // The stream leaves so many bytes unread now; 0, before it goes. If all of them together are more than `bytes_max`,
  // the fullest are cut off, of which this may be one.
  void Set(UnreadStream* stream, size_t bytes, size_t bytes_max);
  size_t bytes() const { return bytes_; }

 private:
  void CutOffFullest(size_t bytes_max);

  bool cutting_ = false;
  absl::flat_hash_set<UnreadStream*> streams_;  // That leave anything.
  size_t bytes_ = 0;
};

}  // namespace semaphored
