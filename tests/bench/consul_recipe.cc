// What teams do on Consul without a daemon: the recipe's session, contender's entry, record with
// check-and-set and blocking query, a connection for each client. A cycle without anybody in the
// way is six requests: session, entry, reading, record, and on the way back entry and session.
#include <curl/curl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/meter.h"
#include "tests/bench/modes.h"
#include "tests/bench/options.h"

namespace semaphored::bench {
namespace {

using Json = nlohmann::json;

constexpr int kPollMs = 20;
constexpr char kWait[] = "&wait=30s";

size_t TakeBody(char* data, size_t size, size_t count, void* into) {
  static_cast<std::string*>(into)->append(data, size * count);
  return size * count;
}

size_t TakeHeader(char* data, size_t size, size_t count, void* into) {
  const absl::string_view line(data, size * count);
  constexpr absl::string_view kIndex = "x-consul-index:";
  if (absl::AsciiStrToLower(line.substr(0, kIndex.size())) == kIndex)
    (void)absl::SimpleAtoi(line.substr(kIndex.size()), static_cast<uint64_t*>(into));
  return size * count;
}

// Of all clients.
struct Shared {
  Meter meter;
  Report* report;
  CURLM* multi;
  uint32_t limit;
  uint64_t requests = 0;
};

class RecipeClient {
 public:
  // `server`: HOST:PORT. `folder` ends with '/'.
  RecipeClient(const std::string& server, std::string folder, Shared* shared)
      : base_(absl::StrCat("http://", server)), folder_(std::move(folder)), shared_(shared) {
    handle_ = curl_easy_init();
    headers_ = curl_slist_append(nullptr, "Expect:");
    curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle_, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, TakeBody);
    curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, TakeHeader);
    curl_easy_setopt(handle_, CURLOPT_WRITEDATA, &body_);
    curl_easy_setopt(handle_, CURLOPT_HEADERDATA, &index_);
    curl_easy_setopt(handle_, CURLOPT_PRIVATE, this);
  }
  ~RecipeClient() {
    if (asking_) curl_multi_remove_handle(shared_->multi, handle_);
    curl_easy_cleanup(handle_);
    curl_slist_free_all(headers_);
  }
  RecipeClient(const RecipeClient&) = delete;
  RecipeClient& operator=(const RecipeClient&) = delete;

  void Begin() {
    const TimePoint now = Clock::now();
    if (shared_->meter.Over(now)) return;
    begun_ = now;
    step_ = Step::kSession;
    Send("PUT", "/v1/session/create", R"({"Behavior":"delete","TTL":"3600s","LockDelay":"0s"})");
  }

  // Its request has been answered, or not.
  void OnAnswer(CURLcode code) {
    long status = 0;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(shared_->multi, handle_);
    asking_ = false;
    if (code != CURLE_OK || (status != 200 && status != 404)) {
      shared_->report->Error(absl::StrCat("consul: ", curl_easy_strerror(code), " ", status, " ",
                                          body_.substr(0, 200)));
      return;
    }
    switch (step_) {
      case Step::kSession:
        session_ = Json::parse(body_).at("ID").get<std::string>();
        step_ = Step::kEntry;
        Send("PUT", absl::StrCat("/v1/kv/", folder_, session_, "?acquire=", session_), "{}");
        break;
      case Step::kEntry:
        Read(0);
        break;
      case Step::kRead:
        Decide();
        break;
      case Step::kRecord:
        OnRecord();
        break;
      case Step::kLeave:
        step_ = Step::kEnd;
        Send("PUT", absl::StrCat("/v1/session/destroy/", session_), "");
        break;
      case Step::kEnd:
        shared_->meter.CycleDone(begun_, Clock::now());
        Begin();
        break;
    }
  }

 private:
  enum class Step { kSession, kEntry, kRead, kRecord, kLeave, kEnd };

  void Send(const char* method, const std::string& path, std::string body) {
    ++shared_->requests;
    sent_ = std::move(body);
    body_.clear();
    curl_easy_setopt(handle_, CURLOPT_URL, absl::StrCat(base_, path).c_str());
    const bool writes = std::string_view(method) == "PUT";
    if (writes) {
      curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE, static_cast<long>(sent_.size()));
      curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, sent_.data());
    } else {
      curl_easy_setopt(handle_, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, method);
    curl_multi_add_handle(shared_->multi, handle_);
    asking_ = true;
  }

  void Read(uint64_t index) {
    step_ = Step::kRead;
    Send("GET",
         absl::StrCat("/v1/kv/", folder_, "?recurse",
                      index == 0 ? "" : absl::StrCat("&index=", index, kWait)),
         "");
  }

  void Decide() {
    std::set<std::string> alive;
    Json record = Json::object();
    uint64_t record_index = 0;
    for (const Json& entry : Json::parse(body_)) {
      if (entry.at("Key").get<std::string>() == folder_ + ".lock") {
        std::string text;
        absl::Base64Unescape(entry.at("Value").get<std::string>(), &text);
        record = Json::parse(text);
        record_index = entry.at("ModifyIndex").get<uint64_t>();
      } else if (entry.contains("Session")) {
        alive.insert(entry.at("Session").get<std::string>());
      }
    }
    Json holders = Json::array();
    for (const Json& holder : record.value("holders", Json::array())) {
      if (alive.contains(holder.get<std::string>())) holders.push_back(holder);
    }
    if (holders.size() >= shared_->limit) return Read(index_);
    holders.push_back(session_);
    step_ = Step::kRecord;
    Send("PUT", absl::StrCat("/v1/kv/", folder_, ".lock?cas=", record_index),
         Json{{"limit", shared_->limit}, {"holders", holders}}.dump());
  }

  void OnRecord() {
    if (absl::StripAsciiWhitespace(body_) != "true") return Read(0);
    const TimePoint now = Clock::now();
    shared_->meter.Acquired(begun_, now);
    shared_->meter.ReleaseSent(now);
    step_ = Step::kLeave;
    Send("DELETE", absl::StrCat("/v1/kv/", folder_, session_), "");
  }

  const std::string base_;
  const std::string folder_;
  Shared* const shared_;
  CURL* handle_;
  curl_slist* headers_;
  Step step_ = Step::kSession;
  bool asking_ = false;
  TimePoint begun_;
  std::string session_;
  std::string sent_;
  std::string body_;
  uint64_t index_ = 0;
};

}  // namespace

Report RunConsulRecipe(const Options& options) {
  Report report;
  report.title = options.contended ? "consul recipe, one permit" : "consul recipe";
  Shared shared{.meter = Meter(options), .report = &report, .multi = curl_multi_init(), .limit = 1};
  curl_multi_setopt(shared.multi, CURLMOPT_MAXCONNECTS, static_cast<long>(options.clients));
  const std::string run =
      absl::StrCat("bench-recipe/", Clock::now().time_since_epoch().count(), "/");
  std::vector<std::unique_ptr<RecipeClient>> clients;
  for (uint32_t i = 0; i < options.clients; ++i) {
    std::string folder = options.contended ? run : absl::StrCat(run, i, "/");
    clients.push_back(std::make_unique<RecipeClient>(options.server, std::move(folder), &shared));
    clients.back()->Begin();
  }
  // Answered requests of the measured time, beside its cycles.
  uint64_t requests_before = 0;
  uint64_t requests = 0;
  for (TimePoint now = Clock::now(); report.errors == 0 && !shared.meter.Over(now);
       now = Clock::now()) {
    if (!shared.meter.Measures(now)) requests_before = shared.requests;
    int running = 0;
    curl_multi_perform(shared.multi, &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(shared.multi, &left)) {
      const CURLcode code = message->data.result;
      RecipeClient* client = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &client);
      client->OnAnswer(code);
    }
    requests = shared.requests - requests_before;
    curl_multi_poll(shared.multi, nullptr, 0, kPollMs, nullptr);
  }
  shared.meter.Fill(options.contended, &report);
  const double cycles = report.figures.back().second * options.duration_s;
  if (cycles > 0) report.Figure("requests_per_cycle", static_cast<double>(requests) / cycles);
  clients.clear();
  curl_multi_cleanup(shared.multi);
  return report;
}

}  // namespace semaphored::bench
