#include "server/observe/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "server/base/logging.h"

namespace semaphored {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// The descriptor that reads the folder is not counted.
uint64_t CountOpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  uint64_t entries = 0;
  // No other thread reads this stream. NOLINTNEXTLINE(concurrency-mt-unsafe)
  while (const dirent* entry = readdir(folder)) entries += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return entries > 0 ? entries - 1 : 0;
}

}  // namespace

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    figures.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) figures.open_files_max = files.rlim_cur;
  figures.open_files = CountOpenFiles();
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; status.ignore(1024, '\n')) {
    uint64_t value = 0;
    if (key == "VmRSS:" && status >> value) figures.resident_bytes = value * 1024;
    if (key == "Threads:" && status >> value) figures.threads = value;
  }
  figures.log_lines_lost = LogLinesLost();
  return figures;
}

}  // namespace semaphored
