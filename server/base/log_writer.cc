#include "server/base/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>

namespace semaphored {
namespace {

// What one write takes: a blocked reader that reads on makes room in steps of this size.
constexpr size_t kWriteBytesMax = size_t{64} << 10;
// Kept free for lines that say how many were lost: one at the end of what waits, one within it.
constexpr size_t kLostLinesBytes = 512;

// The bytes that were written, or -1. Blocks for as long as the file does.
ssize_t WriteSome(int file, std::string_view text) {
  while (true) {
    const ssize_t wrote = write(file, text.data(), std::min(text.size(), kWriteBytesMax));
    if (wrote >= 0) return wrote;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      // Another program that has this file has set it so.
      pollfd ready{file, POLLOUT, 0};
      (void)poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return -1;
    }
  }
}

}  // namespace

struct LogWriter::State {
  State(int log_file, LostLine line_of_lost, LogWriterOptions with)
      : file(log_file), lost_line(std::move(line_of_lost)), options(with) {}

  void Run();
  // Writes all of `text`, or ends early because it should end. `lock` is held at entry and exit.
  void WriteAll(std::string_view text, std::unique_lock<std::mutex>* lock);
  bool HasRoom(size_t bytes) const {
    return pending + bytes + kLostLinesBytes <= options.bytes_max;
  }
  void Take(std::string_view line);
  void Append(std::string_view line) {
    waiting += line;
    pending += line.size();
  }

  const int file;
  const LostLine lost_line;
  const LogWriterOptions options;

  std::mutex mutex;
  std::condition_variable work;      // For the thread.
  std::condition_variable progress;  // For Flush.
  std::string waiting;               // Guarded by mutex, as all below.
  uint64_t lost = 0;
  uint64_t untold = 0;    // Of lost: no line says so yet.
  uint64_t failures = 0;  // Of writes.
  uint64_t flushes = 0;   // Each ends the wait for the next attempt.
  bool writing = false;   // The thread is in a write.
  bool ending = false;
  std::atomic<size_t> pending = 0;  // Written under mutex.
};

void LogWriter::State::Take(std::string_view line) {
  const bool idle = waiting.empty();
  if (untold > 0) Append(lost_line(std::exchange(untold, 0)));
  Append(line);
  if (idle) work.notify_one();
}

void LogWriter::State::WriteAll(std::string_view text, std::unique_lock<std::mutex>* lock) {
  while (!text.empty() && !ending) {
    const uint64_t seen = flushes;
    writing = true;
    lock->unlock();
    const ssize_t wrote = WriteSome(file, text);
    lock->lock();
    writing = false;
    if (wrote > 0) {
      text.remove_prefix(static_cast<size_t>(wrote));
      pending -= static_cast<size_t>(wrote);
      continue;
    }
    ++failures;
    progress.notify_all();
    work.wait_for(*lock, options.retry_interval,
                  [this, seen] { return ending || flushes != seen; });
  }
}

void LogWriter::State::Run() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [this] { return ending || !waiting.empty() || untold > 0; });
    if (ending) return;
    // What was lost was lost behind all that waits.
    if (untold > 0) Append(lost_line(std::exchange(untold, 0)));
    const std::string batch = std::exchange(waiting, {});
    WriteAll(batch, &lock);
    progress.notify_all();
  }
}

LogWriter::LogWriter(int file, LostLine lost_line, LogWriterOptions options)
    : state_(std::make_shared<State>(file, std::move(lost_line), options)) {
  // The thread inherits the mask: a signal that the daemon waits for must not find this thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread([state = state_] { state->Run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->work.notify_one();
}

void LogWriter::Write(std::string_view line) {
  const std::lock_guard lock(state_->mutex);
  if (state_->HasRoom(line.size())) return state_->Take(line);
  ++state_->lost;
  ++state_->untold;
}

bool LogWriter::TryWrite(std::string_view line) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->HasRoom(line.size())) return false;
  state_->Take(line);
  return true;
}

bool LogWriter::Flush(Milliseconds patience) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  ++state.flushes;
  state.work.notify_one();
  const auto written = [&state] { return state.pending == 0 && state.untold == 0; };
  // The failure of a write that had begun before says nothing: another one follows at once.
  const uint64_t failures_max = state.failures + (state.writing ? 1 : 0);
  state.progress.wait_for(lock, patience,
                          [&] { return written() || state.failures > failures_max; });
  return written();
}

uint64_t LogWriter::lost() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

size_t LogWriter::waiting_bytes() const { return state_->pending; }

}  // namespace semaphored
