// What a library logs by itself. A hostile client can bring such lines about at will, with text of its own in them: the
// log gets few of each kind, and short ones.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "adapters/common/rare_line.h"
#include "server/base/logging.h"

namespace semaphored {

class LibraryLines {
 public:
  static constexpr size_t kBytesMax = 512;

  // What the log gets of a line, without secrets: lines of one kind come from the same place of the library's code.
  // nullopt: nothing now. `file` must stay: it is a literal of the library's. Any thread.
  std::optional<std::string> Next(std::string_view file, int line, std::string_view message,
                                  SteadyTime now) {
    const std::optional<std::string> more = Again({file, line}, now);
    if (!more) return std::nullopt;
    // Cut off before, half a password would not be seen to be one.
    std::string text = MaskSecrets(message);
    if (text.size() > kBytesMax) text.replace(kBytesMax, std::string::npos, "…");
    return text + *more;
  }

 private:
  using Place = std::pair<std::string_view, int>;

  std::optional<std::string> Again(const Place& place, SteadyTime now) {
    const std::lock_guard lock(mutex_);
    return places_[place].Again(now);
  }

  std::mutex mutex_;
  std::map<Place, RareLine> places_;  // Guarded by mutex_.
};

}  // namespace semaphored
