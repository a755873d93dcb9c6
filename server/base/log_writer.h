// Writes the lines of a log to a file descriptor on a thread of its own: no thread that logs waits for
// a pipe that is not read, a blocked journal or a full disk.
//
// A line is written whole and in its place, or it is lost and counted; where lines are missing, a line
// says how many. What cannot be written is kept and tried again; at the bound, new lines are lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/base/clock.h"

namespace semaphored {

struct LogWriterOptions {
  // Of lines that wait, the one that is being written included. 512 of them are for LostLine.
  size_t bytes_max = size_t{4} << 20;
  // After a write that failed (a full disk, a reader that is gone) until the next one.
  Milliseconds retry_interval{1000};
};

class LogWriter {
 public:
  // The line, with its end, that stands where `lost` lines are missing. Any thread; must not log.
  // At most 256 bytes.
  using LostLine = std::function<std::string(uint64_t lost)>;

  // `file` stays open for as long as the process lives: its last write may never return.
  LogWriter(int file, LostLine lost_line, LogWriterOptions options = {});
  // Does not wait: what Flush has not seen written may be lost.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // `line` has its end. Does not wait; without room the line is lost. Any thread.
  void Write(std::string_view line);

  // The same, but without room the line is neither taken nor counted as lost: false. Any thread.
  bool TryWrite(std::string_view line);

  // Waits until all is written: true; but for at most `patience`, or until a write that it begins
  // has failed. Any thread.
  bool Flush(Milliseconds patience);

  // Lines that were lost. Any thread.
  uint64_t lost() const;

  // Bytes that are not written yet. Any thread, also in a signal's handler.
  size_t waiting_bytes() const;

 private:
  // Shared with the thread, which may be in a write that does not return.
  struct State;

  std::shared_ptr<State> state_;
};

}  // namespace semaphored
