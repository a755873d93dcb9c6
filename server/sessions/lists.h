// Lists of semaphores, slice by slice. The slices of all that list take turns, so that the lanes carry out other
// commands between them, however long the lists are. Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "server/sessions/sessions.h"

namespace semaphored {

// How many rows of anything are read in one command, so that those that wait behind it do not notice. More where
// each command is a request to an engine elsewhere.
inline uint32_t SliceRows(const Guarantees& guarantees) { return guarantees.exclusive ? 64 : 500; }

class Lists {
 public:
  // Reads one slice from the engine; never replies before it returns.
  using Read = std::function<void(ListCommand slice, Reply<AdminAnswer> reply)>;

  // `rows_max`: of the slices that are under way at once.
  Lists(uint32_t rows_max, Read read) : rows_max_(rows_max), read_(std::move(read)) {}

  // Replies with the first rows of the list: a slice of it, at the most. If report->more, further ones are asked
  // for again, after the last one; that is behind what waits already.
  void Add(ListCommand list, Reply<AdminAnswer> reply);
  // From now on Add refuses with SHUTTING_DOWN. The calls that wait for a slice: the caller refuses them.
  std::vector<Reply<AdminAnswer>> Stop();

 private:
  struct Waiting {
    ListCommand slice;
    Reply<AdminAnswer> reply;
  };

  void ReadNext();

  const uint32_t rows_max_;
  const Read read_;
  std::deque<Waiting> waiting_;
  uint32_t rows_under_way_ = 0;
  bool stopped_ = false;
};

// Reads a slice from the lanes of the host, which outlives it: from all lanes of an exclusive engine, since each lists its
// own semaphores; from one lane of a shared engine, since its store lists all of them.
Lists::Read ReadFromLanes(SessionsHost* host);

}  // namespace semaphored
