#include "server/lanes/daemon_card.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/base/clock.h"

namespace semaphored {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextMax = 200;
constexpr int64_t kUnixMsMax = 253'402'300'799'999;  // The year 9999.

std::string TextIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return "";
  std::string text = found->get<std::string>().substr(0, kTextMax);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

template <typename Number>
Number NumberIn(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer() ? found->get<Number>() : Number{};
}

}  // namespace

std::string WriteCard(const DaemonCard& card) {
  const Json json = {{"host", card.host},
                     {"address", card.address},
                     {"pid", card.pid},
                     {"since_unix_ms", card.since_unix_ms},
                     {"lock",
                      {{"boot", card.lock.boot},
                       {"device", card.lock.device},
                       {"inode", card.lock.inode},
                       {"nonce", card.lock.nonce}}}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

DaemonCard ReadCard(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  DaemonCard card;
  if (!json.is_object()) return card;
  card.host = TextIn(json, "host");
  card.address = TextIn(json, "address");
  card.pid = NumberIn<int64_t>(json, "pid");
  card.since_unix_ms = NumberIn<int64_t>(json, "since_unix_ms");
  const auto lock = json.find("lock");
  if (lock == json.end() || !lock->is_object()) return card;
  card.lock = {TextIn(*lock, "boot"), NumberIn<uint64_t>(*lock, "device"),
               NumberIn<uint64_t>(*lock, "inode"), TextIn(*lock, "nonce")};
  return card;
}

std::string Describe(const DaemonCard& card) {
  std::string text = card.address.empty() ? "a daemon" : "the daemon at " + card.address;
  if (!card.host.empty()) text += " on host " + card.host;
  if (card.pid > 0) text += fmt::format(", pid {}", card.pid);
  if (card.since_unix_ms > 0 && card.since_unix_ms <= kUnixMsMax)
    text += ", since " + UtcTimeText(card.since_unix_ms);
  return text;
}

}  // namespace semaphored
