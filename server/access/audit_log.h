// The audit log: one JSON object a line for each administrative act, appended to a file of its own
// or written to the daemon's log. A thread of its own writes it, so that no act waits for a disk.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace semaphored {

class AuditLog {
 public:
  // Lines that may wait to be written, and their bytes.
  static constexpr size_t kLinesMax = 10'000;
  static constexpr size_t kBytesMax = 16 << 20;
  // The daemon's log says at most so often that lines are lost.
  static constexpr std::chrono::milliseconds kBetweenWarnings{10'000};
  // How long the end waits for room in the daemon's log.
  static constexpr std::chrono::milliseconds kEndPatience{1000};

  // An empty path: lines go to the daemon's log, as "audit: {…}". The file is made with mode 0600,
  // and appended to. INVALID_ARGUMENT names audit_file, and why it cannot be opened.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(std::string path);
  // What waits is written first; blocks for that. In the daemon's log, for kEndPatience at most.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Any thread; does not block. When too many lines wait, the line is lost: the daemon's log says
  // so, and the audit log itself says how many, where they are missing.
  void Write(std::string line);

  // Opens the file again before the next line, so that one that was moved away is left alone.
  // Any thread. If that fails the old one is still written to, and the daemon's log says so.
  void Reopen();

  // Blocks until all that was handed in has been written.
  void Flush();

  // Lines that were lost since the start. Any thread.
  uint64_t lost() const;

 private:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}
  void Run();
  // True: it is written. A part of an earlier line that was written is ended first.
  bool Put(const std::string& line);
  bool PutAll(std::string_view text);
  // Waits for room there.
  bool PutInDaemonsLog(const std::string& line);
  absl::Status OpenFile();
  void Lose(uint64_t lines);

  const std::string path_;
  int file_ = -1;         // The writing thread's, once it runs.
  bool partial_ = false;  // The file ends within a line. The same thread's.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;  // Guarded by mutex_, as all below.
  size_t kept_lines_ = 0;            // Those that wait, and those that are being written.
  size_t kept_bytes_ = 0;
  bool reopen_ = false;
  bool writing_ = false;
  bool ending_ = false;
  std::chrono::steady_clock::time_point end_by_;  // Once it is ending.
  uint64_t lost_ = 0;
  uint64_t untold_ = 0;                              // Of lost_: not said in the audit log yet.
  std::chrono::steady_clock::time_point warned_at_;  // Not at all yet: the epoch.
  std::thread thread_;
};

}  // namespace semaphored
