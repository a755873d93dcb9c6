#include "server/access/audit_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "server/base/logging.h"

namespace semaphored {

namespace {

// A daemon that was killed, or a full disk, may have left a part of a line.
bool EndsWithinLine(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(std::string path) {
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(path)));
  if (absl::Status status = log->OpenFile(); !status.ok()) return status;
  log->thread_ = std::thread([raw = log.get()] { raw->Run(); });
  return log;
}

AuditLog::~AuditLog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    end_by_ = std::chrono::steady_clock::now() + kEndPatience;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (file_ >= 0) close(file_);
}

absl::Status AuditLog::OpenFile() {
  if (path_.empty()) return absl::OkStatus();
  const int file = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  if (file < 0) {
    return absl::InvalidArgumentError(fmt::format("audit_file: {}: cannot be opened: {}", path_,
                                                  std::generic_category().message(errno)));
  }
  if (file_ >= 0) close(file_);
  file_ = file;
  partial_ = EndsWithinLine(path_);
  return absl::OkStatus();
}

void AuditLog::Lose(uint64_t lines) {
  lost_ += lines;
  untold_ += lines;
  const auto now = std::chrono::steady_clock::now();
  if (warned_at_ != std::chrono::steady_clock::time_point() && now - warned_at_ < kBetweenWarnings)
    return;
  warned_at_ = now;
  spdlog::error(
      "the audit log cannot be written as fast as it is filled, or at all: {} line(s) are lost so "
      "far",
      lost_);
}

void AuditLog::Write(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    if (kept_lines_ >= kLinesMax || kept_bytes_ + line.size() > kBytesMax) return Lose(1);
    ++kept_lines_;
    kept_bytes_ += line.size();
    waiting_.push_back(std::move(line));
  }
  changed_.notify_all();
}

void AuditLog::Reopen() {
  {
    const std::lock_guard lock(mutex_);
    reopen_ = true;
  }
  changed_.notify_all();
}

void AuditLog::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !writing_ && !reopen_; });
}

uint64_t AuditLog::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// The daemon's log drops what it has no room for; these lines wait here instead.
bool AuditLog::PutInDaemonsLog(const std::string& line) {
  constexpr std::chrono::milliseconds kRetryInterval{20};
  while (!TryLog("audit: " + line)) {
    std::unique_lock lock(mutex_);
    if (ending_ && std::chrono::steady_clock::now() >= end_by_) return false;
    changed_.wait_for(lock, kRetryInterval);
  }
  return true;
}

bool AuditLog::Put(const std::string& line) {
  if (path_.empty()) return PutInDaemonsLog(line);
  if (partial_ && !PutAll("\n")) return false;
  return PutAll(line);
}

bool AuditLog::PutAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(file_, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<size_t>(wrote));
    partial_ = !text.empty();
  }
  return true;
}

void AuditLog::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || reopen_ || !waiting_.empty(); });
    if (waiting_.empty() && !reopen_) return;
    const bool reopen = std::exchange(reopen_, false);
    std::deque<std::string> lines = std::exchange(waiting_, {});
    const size_t bytes = kept_bytes_;
    const uint64_t untold = std::exchange(untold_, 0);
    writing_ = true;
    lock.unlock();
    if (reopen) {
      if (absl::Status status = OpenFile(); !status.ok())
        spdlog::error("{}", std::string(status.message()));
    }
    const char* end = path_.empty() ? "" : "\n";
    uint64_t lost = 0;
    if (untold > 0 && !Put(fmt::format("{{\"lost_lines\":{}}}{}", untold, end))) lost += untold;
    const uint64_t again = lost;
    for (const std::string& line : lines) lost += Put(line + end) ? 0 : 1;
    lock.lock();
    kept_lines_ -= lines.size();
    kept_bytes_ -= bytes;
    if (lost > 0) {
      lost_ -= again;  // They were counted when they were lost.
      Lose(lost);
    }
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace semaphored
