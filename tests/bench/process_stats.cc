#include "tests/bench/process_stats.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace semaphored::bench {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

double CpuSeconds(const std::string& stat) {
  // The name in parentheses may hold spaces; field 3 follows the last ')'.
  const size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  std::istringstream fields(stat.substr(end_of_name + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  uint64_t user = 0;
  uint64_t system = 0;
  fields >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t ValueOf(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size(), nullptr, 10);
}

}  // namespace

ProcessStats ReadProcessStats(int pid) {
  ProcessStats stats;
  if (pid == 0) return stats;
  const std::string folder = "/proc/" + std::to_string(pid) + "/";
  stats.cpu_s = CpuSeconds(ReadAll(folder + "stat"));
  stats.resident_bytes = ValueOf(ReadAll(folder + "status"), "VmRSS:") * 1024;
  const std::string io = ReadAll(folder + "io");
  stats.written_bytes = ValueOf(io, "wchar:");
  stats.disk_written_bytes = ValueOf(io, "\nwrite_bytes:");
  return stats;
}

}  // namespace semaphored::bench
