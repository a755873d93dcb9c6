// The numbers that a node's heartbeats write into its row.
//
// Each writes a higher number than any before it, under the condition that the row has none that
// this process did not write. So a heartbeat whose answer was lost is known as this node's own
// afterwards; and if it is late, it no longer lands once a later one has. A lower number is no
// reason to end: an engine that fails over may lose the last heartbeats.
#pragma once

#include <cstdint>

namespace semaphored {

class BeatCounter {
 public:
  // The row had this number when the node joined.
  void Joined(uint64_t counter) { last_ = counter; }

  // The condition of the next heartbeat: the row's number is at most this.
  uint64_t last() const { return last_; }
  bool MayBe(uint64_t counter) const { return counter <= last_; }
  // What the next heartbeat writes.
  uint64_t next() const { return last_ + 1; }

  // The heartbeat was carried out, or may have been, or may yet be.
  void Sent() { ++last_; }

 private:
  uint64_t last_ = 0;
};

}  // namespace semaphored
