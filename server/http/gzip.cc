#include "server/http/gzip.h"

#include <zlib.h>

namespace semaphored::http {
namespace {

// The largest window of zlib, and gzip's head around what it writes.
constexpr int kWindowBits = 15 + 16;
constexpr int kMemoryLevel = 8;  // zlib's default.
// Text that repeats itself shrinks to a twentieth all the same, at half of the default's time.
constexpr int kLevel = 3;

}  // namespace

std::string Gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    return {};
  std::string packed(deflateBound(&stream, text.size()), '\0');
  // zlib writes to neither what it reads nor its pointer's target.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  packed.resize(whole ? stream.total_out : 0);
  deflateEnd(&stream);
  return packed;
}

}  // namespace semaphored::http
