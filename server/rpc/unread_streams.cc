#include "server/rpc/unread_streams.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace semaphored {
namespace {

// Of so many bytes one is made free, so that all streams are looked through once in a while only.
constexpr size_t kFreeShare = 8;

}  // namespace

void UnreadStreams::Set(UnreadStream* stream, size_t bytes, size_t bytes_max) {
  if (bytes == stream->bytes_) return;
  bytes_ -= std::exchange(stream->bytes_, bytes);
  bytes_ += bytes;
  if (bytes == 0) {
    streams_.erase(stream);
    return;
  }
  streams_.insert(stream);
  if (bytes_ > bytes_max && !cutting_) CutOffFullest(bytes_max);
}

void UnreadStreams::CutOffFullest(size_t bytes_max) {
  cutting_ = true;
  std::vector<UnreadStream*> fullest(streams_.begin(), streams_.end());
  std::sort(fullest.begin(), fullest.end(),
            [](const auto* one, const auto* other) { return one->bytes_ > other->bytes_; });
  for (UnreadStream* const stream : fullest) {
    if (bytes_ <= bytes_max - bytes_max / kFreeShare) break;
    Set(stream, 0, bytes_max);
    stream->OnFullest();
  }
  cutting_ = false;
}

}  // namespace semaphored
