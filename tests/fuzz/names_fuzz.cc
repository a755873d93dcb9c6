// What becomes of names in each engine: keys, URLs, parameters and queues. Each can be read back exactly, two names
// never share one, and none leaves the store's prefix. Input: two texts with a line feed between.
#include <curl/curl.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include <pqxx/array>

#include "adapters/common/http_target.h"
#include "adapters/common/url_options.h"
#include "adapters/consul/keys.h"
#include "adapters/dynamodb/items.h"
#include "adapters/names.h"
#include "adapters/postgres/array.h"
#include "adapters/rabbitmq/slot_broker.h"
#include "adapters/rabbitmq/token_broker.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace consul = semaphored::consul;
namespace dynamodb = semaphored::dynamodb;
namespace rabbitmq = semaphored::rabbitmq;
using semaphored::HttpTarget;

constexpr char kPrefix[] = "team/locks";
constexpr size_t kQueueNameBytesMax = 255;

bool HasDotSegment(std::string_view path) {
  const std::string text = "/" + std::string(path) + "/";
  return text.find("//") != std::string::npos || text.find("/./") != std::string::npos ||
         text.find("/../") != std::string::npos;
}

std::string PartOf(const std::string& url, CURLUPart part, unsigned flags) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  FUZZ_CHECK(curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), flags) == CURLUE_OK);
  char* text = nullptr;
  FUZZ_CHECK(curl_url_get(parsed.get(), part, &text, 0) == CURLUE_OK);
  const std::string result = text;
  curl_free(text);
  return result;
}

// Any bytes: the URL means exactly them, or there is none.
void CheckUrl(const std::string& text) {
  const std::string url =
      HttpTarget("/v1/kv/", text).Option("dc", text).Option("keys").UrlAt("http://127.0.0.1:8500");
  const std::string_view segments(text.data(), text.size() - (text.ends_with('/') ? 1 : 0));
  FUZZ_CHECK(url.empty() == (!text.empty() && HasDotSegment(segments)));
  if (url.empty()) return;
  const std::string path = PartOf(url, CURLUPART_PATH, CURLU_PATH_AS_IS);
  FUZZ_CHECK(path == PartOf(url, CURLUPART_PATH, 0));  // No proxy finds anything to put right.
  if (text.find('\0') == std::string::npos)
    FUZZ_CHECK(semaphored::Unescape(path) == "/v1/kv/" + text);
  const std::string query = PartOf(url, CURLUPART_QUERY, CURLU_PATH_AS_IS);
  FUZZ_CHECK(query.starts_with(text.empty() ? "dc&keys" : "dc=") && query.ends_with("&keys"));
  if (!text.empty() && text.find('\0') == std::string::npos)
    FUZZ_CHECK(semaphored::Unescape(query.substr(3, query.size() - 8)) == text);
}

void CheckParameters(const std::string& a, const std::string& b) {
  if ((a + b).find('\0') != std::string::npos) return;
  semaphored::postgres::Array array;
  array.Add(std::string_view(a));
  array.Add(std::string_view(b));
  const std::string text = array.Take();
  pqxx::array_parser parser(text.c_str());
  using Juncture = pqxx::array_parser::juncture;
  FUZZ_CHECK(parser.get_next().first == Juncture::row_start);
  for (const std::string& each : {a, b}) {
    const auto [juncture, value] = parser.get_next();
    FUZZ_CHECK(juncture == Juncture::string_value && value == each);
  }
  FUZZ_CHECK(parser.get_next().first == Juncture::row_end);
  FUZZ_CHECK(parser.get_next().first == Juncture::done);
}

// Keys of a client id, which is any text that can be printed.
void CheckClient(const std::string& id) {
  const consul::Keys keys(kPrefix);
  const std::string key = keys.Client(id);
  FUZZ_CHECK(key.starts_with(keys.Requests()) && !HasDotSegment(key.substr(0, key.size() - 1)));
  FUZZ_CHECK(key.find('/', keys.Requests().size()) == key.size() - 1);
  std::string part = key.substr(keys.Requests().size());
  part.pop_back();
  FUZZ_CHECK(semaphored::Unescape(part) == id);
}

struct Keys {
  std::string consul_lock, consul_document, consul_tickets, consul_pages;
  dynamodb::Key dynamodb_head, dynamodb_name;
  std::string dynamodb_history;
  std::string tokens, slot, holder;
};

Keys KeysOf(const std::string& name) {
  const consul::Keys keys(kPrefix);
  Keys of{keys.Lock(name),
          keys.Document(name),
          keys.Tickets(name),
          keys.Page(name, 7),
          dynamodb::HeadKey(name),
          dynamodb::NameKey(name),
          dynamodb::HistoryPartition(name),
          rabbitmq::TokenBroker(nullptr, kPrefix).TokenQueue(name),
          "",
          ""};
  FUZZ_CHECK(keys.NameOfLock(of.consul_lock) == name);
  FUZZ_CHECK(consul::Keys::NameIn(of.consul_document, keys.Documents()) == name);
  FUZZ_CHECK(keys.NameOfPage(of.consul_pages) == name);
  for (const std::string& key :
       {of.consul_lock, of.consul_document, of.consul_tickets, of.consul_pages}) {
    FUZZ_CHECK(key.starts_with(keys.prefix()) && !HasDotSegment(key));
    FUZZ_CHECK(!HttpTarget("/v1/kv/", key).UrlAt("http://a").empty());
  }
  FUZZ_CHECK(of.dynamodb_name.sort == name);
  FUZZ_CHECK(of.dynamodb_head.partition.ends_with("#" + name));
  FUZZ_CHECK(of.tokens.starts_with(kPrefix) &&
             of.tokens.size() + sizeof(".settings") <= kQueueNameBytesMax);
  if (rabbitmq::WhyNoSlots(name, 1).empty()) {
    of.slot = rabbitmq::SlotQueue(name, 1000);
    of.holder = rabbitmq::HolderQueue(name, 1000);
    FUZZ_CHECK(of.slot.size() <= kQueueNameBytesMax && of.holder.size() <= kQueueNameBytesMax);
    // No queue of a slot is the mutex of another semaphore.
    FUZZ_CHECK(!rabbitmq::WhyNoSlots(of.slot, 1).empty() &&
               !rabbitmq::WhyNoSlots(of.holder, 1).empty());
  }
  return of;
}

void CheckNames(const std::string& a, const std::string& b) {
  for (const std::string& name : {a, b}) {
    if (!semaphored::IsSemaphoreName(name)) return;
    FUZZ_CHECK(!HasDotSegment(name) && semaphored::IsSemaphorePrefix(name));
  }
  const Keys first = KeysOf(a);
  const Keys second = KeysOf(b);
  if (a == b) return;
  FUZZ_CHECK(first.consul_lock != second.consul_lock &&
             first.consul_document != second.consul_document);
  FUZZ_CHECK(!first.consul_tickets.starts_with(second.consul_tickets));
  FUZZ_CHECK(first.dynamodb_head != second.dynamodb_head &&
             first.dynamodb_name != second.dynamodb_name);
  FUZZ_CHECK(first.dynamodb_history != second.dynamodb_history);
  FUZZ_CHECK(first.dynamodb_history != second.dynamodb_head.partition);
  FUZZ_CHECK(first.tokens != second.tokens);
  if (!first.slot.empty() && !second.slot.empty()) {
    const std::set<std::string> queues = {
        a, b, first.slot, second.slot, first.holder, second.holder};
    FUZZ_CHECK(queues.size() == 6);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n');
  const std::string a(input.substr(0, end));
  const std::string b(end == std::string_view::npos ? "b" : input.substr(end + 1));
  CheckUrl(a);
  CheckParameters(a, b);
  if (!a.empty() && a.find('\0') == std::string::npos) CheckClient(a);
  CheckNames(a, b);
  return 0;
}
