#include "server/guard/breach.h"

#include <array>

namespace semaphored::guard {
namespace {

struct Words {
  const char* name;
  const char* text;
};

constexpr std::array<Words, kBreaches> kWords = {{
    {"none", "nothing is wrong"},
    {"not_http2", "it does not speak HTTP/2"},
    {"tls", "its TLS handshake failed"},
    {"frame_size", "a control frame is too long"},
    {"frame_order", "its frames are out of order"},
    {"header_block", "a header block is too long"},
    {"streams", "it opens streams too fast"},
    {"resets", "streams are reset too fast"},
    {"connections", "its address connects too often"},
    {"connections_share", "its address has too many of all connections"},
    {"unread", "it does not take what is sent to it"},
    {"empty_data", "it sends too many empty DATA frames"},
    {"settings", "it sends too many SETTINGS"},
    {"pings", "it sends too many PINGs"},
    {"window_updates", "it sends too many WINDOW_UPDATEs"},
    {"other_frames", "it sends too many frames of no use"},
}};

}  // namespace

const char* BreachName(Breach breach) { return kWords[static_cast<size_t>(breach)].name; }
const char* BreachText(Breach breach) { return kWords[static_cast<size_t>(breach)].text; }

}  // namespace semaphored::guard
