// What needs no Consul: the URL, what an answer means, the record of foreign clients to the byte,
// and our document.
#include "adapters/consul/format.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "adapters/consul/client.h"
#include "adapters/consul/folder.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/lock_record.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/consul/url.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

constexpr char kFirst[] = "11111111-2222-3333-4444-555555555555";
constexpr char kSecond[] = "99999999-2222-3333-4444-555555555555";

// A file that is there until the end of the test.
class TestFile {
 public:
  explicit TestFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("semaphored-unit-" + std::to_string(getpid()) + "-" + std::to_string(++count_))) {
    std::ofstream(path_) << text;
  }
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  std::string path() const { return path_.string(); }

 private:
  static inline int count_ = 0;
  const std::filesystem::path path_;
};

TEST_CASE("consul url: all that it may say") {
  const TestFile authority("ca"), certificate("certificate"), key("key"), token(" t-1 \r\nmore\n");
  const absl::StatusOr<Url> url = ReadUrl(
      "consul://consul.example:8501/team/locks/?dc=eu%2D1&tls=yes&ca_file=" + authority.path() +
      "&cert_file=" + certificate.path() + "&key_file=" + key.path() +
      "&timeout_ms=700&session_ttl_s=60&token_file=" + token.path());
  REQUIRE(url.ok());
  CHECK(url->token == "t-1");
  CHECK(url->host == "consul.example");
  CHECK(url->port == 8501);
  CHECK(url->prefix == "team/locks");
  CHECK(url->datacenter == "eu-1");
  CHECK(url->tls);
  CHECK(url->ca_file == authority.path());
  CHECK(url->cert_file == certificate.path());
  CHECK(url->key_file == key.path());
  CHECK(url->timeout == std::chrono::milliseconds(700));
  CHECK(url->session_ttl == std::chrono::seconds(60));
  const absl::StatusOr<Url> short_one = ReadUrl("consul://[::1]");
  REQUIRE(short_one.ok());
  CHECK(short_one->host == "[::1]");
  CHECK(short_one->port == 8500);
  CHECK(short_one->prefix == "semaphored");
}

TEST_CASE("consul url: what is wrong is said") {
  for (const char* text :
       {"consul://", "consul:///p", "consul://h:0/p", "consul://h:port/p", "consul://me@h/p",
        "consul://h/p?tls=maybe", "consul://h/p?session_ttl_s=5", "consul://h/p?token_file=/none",
        "consul://h/a b", "consul://h//a", "consul://h/p?dc=%zz", "consul://h/p?other=1",
        "consul://[::1/p", "consul://h/a/../b", "consul://h/..", "consul://h/a%2F%2Fb"}) {
    INFO(text);
    CHECK(ReadUrl(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("consul url: what is wrong is named, and no secret shown") {
  const TestFile file("x"), empty("");
  const auto why = [](const std::string& options) {
    return std::string(ReadUrl("consul://h/p?" + options).status().message());
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(says(why("token=s3cret"), "'token'"));
  CHECK_FALSE(says(why("token=s3cret"), "s3cret"));
  CHECK_FALSE(why("s3cret").empty());
  CHECK_FALSE(says(why("s3cret"), "s3cret"));
  CHECK(says(why("token_file=" + empty.path()), empty.path()));
  for (const std::string name : {"ca_file", "cert_file", "key_file"}) {
    CHECK(says(why("tls=yes&" + name + "=/none"), name + "=/none"));
    // It would not be used.
    CHECK(says(why(name + "=" + file.path()), "tls=yes"));
  }
  CHECK(says(why("tls=yes&key_file=" + file.path()), "cert_file"));
}

TEST_CASE("consul client: what is not known is not taken for refused") {
  using Kind = Reply::Kind;
  const Reply unreached = JudgeReply({.fault = HttpAnswer::Fault::kOther, .why = "no route to h"});
  CHECK(unreached.status.message() == "consul: no route to h");
  CHECK(unreached.kind == Kind::kRefused);
  CHECK(JudgeReply({.fault = HttpAnswer::Fault::kTimeOut}).kind == Kind::kRefused);
  for (const auto fault : {HttpAnswer::Fault::kTimeOut, HttpAnswer::Fault::kOther})
    CHECK(JudgeReply({.fault = fault, .times_sent = 1}).kind == Kind::kBroken);
  const auto answered = [](int status, const std::string& body = "") {
    return JudgeReply({.times_sent = 1, .http_status = status, .body = body});
  };
  for (const int status : {200, 404, 409}) CHECK(answered(status).answered());
  const Reply leaderless = answered(500, "No cluster leader");
  CHECK(leaderless.kind == Kind::kBroken);
  CHECK(leaderless.status.code() == absl::StatusCode::kUnavailable);
  const Reply busy = answered(429, "Too many requests");
  CHECK(busy.kind == Kind::kRefused);
  CHECK(busy.status.code() == absl::StatusCode::kUnavailable);
  CHECK(answered(403).status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(answered(413).status.code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("consul client: what the token forbids is no lost race") {
  const auto read = [](const std::string& why) {
    return ReadTransactionAnswer(R"({"Results":null,"Errors":[{"OpIndex":0,"What":")" + why +
                                 "\"}]}")
        .value();
  };
  const TransactionAnswer forbidden = read("Permission denied");
  CHECK_FALSE(forbidden.done);
  CHECK(forbidden.WhyForbidden().code() == absl::StatusCode::kPermissionDenied);
  CHECK(read("failed to set key, index is stale").WhyForbidden().ok());
}

TEST_CASE("consul client: where a transaction landed") {
  const std::string landed =
      R"({"Results":[{"KV":{"LockIndex":0,"Key":"ModifyIndex","Flags":7,"Value":null,)"
      R"("CreateIndex":3,"ModifyIndex":42}},{"KV":{"ModifyIndex":41}}],"Errors":null})";
  CHECK(ReadLandedIndex(landed) == 42u);
  CHECK(ReadLandedIndex(R"({"Results":null,"Errors":null})") == std::nullopt);
  CHECK(ReadLandedIndex(R"({"Results":[{"KV":{"ModifyIndex":"42"}}]})") == std::nullopt);
  for (const std::string text : {"", "{", "[]", "null", R"({"ModifyIndex":-1})"})
    CHECK(ReadLandedIndex(text) == std::nullopt);
}

TEST_CASE("consul record: to the byte what foreign clients write") {
  LockRecord record;
  record.limit = 3;
  CHECK(WriteLockRecord(record) == R"({"Limit":3,"Holders":{}})");
  record.holders = {kSecond, kFirst};
  const std::string text =
      std::string(R"({"Limit":3,"Holders":{")") + kFirst + R"(":true,")" + kSecond + R"(":true}})";
  CHECK(WriteLockRecord(record) == text);
  const absl::StatusOr<LockRecord> read = ReadLockRecord(text, kSemaphoreFlags);
  REQUIRE(read.ok());
  CHECK(*read == record);
  CHECK(ReadLockRecord(R"({"Limit":2,"Holders":null})", kSemaphoreFlags)->holders.empty());
  CHECK(kSemaphoreFlags == 16210313421097356768u);
  CHECK(kLockFlags == 3304740253564472344u);
}

TEST_CASE("consul record: what cannot be shared is refused, and says why") {
  const auto why = [](const std::string& value, uint64_t flags) {
    return ReadLockRecord(value, flags).status();
  };
  const absl::Status lower = why(R"({"limit":3,"holders":["a"]})", 0);
  CHECK(lower.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(lower.message()).find("holders as a list") != std::string::npos);
  const absl::Status lock = why("", kLockFlags);
  CHECK(lock.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(lock.message()).find("-n 1") != std::string::npos);
  for (const char* garbled :
       {"", "x", "[]", "{}", R"({"Limit":"3","Holders":{}})", R"({"Limit":-1,"Holders":{}})",
        R"({"Limit":3,"Holders":[]})", R"({"Limit":99999999999,"Holders":{}})"}) {
    INFO(garbled);
    CHECK(why(garbled, kSemaphoreFlags).code() == absl::StatusCode::kDataLoss);
  }
  CHECK_FALSE(why(R"({"Limit":3,"Holders":{}})", 7).ok());
}

TEST_CASE("consul record: the limit of the recipe in Python") {
  CHECK(ReadRecipeLimit(R"({"limit": 3, "holders": ["a"]})") == 3);
  CHECK(ReadRecipeLimit(R"({"limit":1})") == 1);
  for (const char* none :
       {"", "x", "[]", "{}", R"({"holders":[]})", R"({"limit":0,"holders":[]})", R"({"limit":"3"})",
        R"({"limit":99999999999})", R"({"Limit":3,"Holders":{},"limit":3})"}) {
    INFO(none);
    CHECK_FALSE(ReadRecipeLimit(none));
  }
}

TEST_CASE("consul document: is read as it was written") {
  Document document;
  document.row.name = "s";
  document.row.limit = 7;
  document.row.settings = {true, 5, 6, 2, 9};
  document.row.paused = true;
  document.row.next_order = 12;
  document.row.created_at_unix_ms = 77;
  document.changes = 4;
  document.places = {kFirst, kSecond};
  auto lease = std::make_shared<Lease>();
  lease->id = {1, 2};
  lease->session = {3, 4};
  lease->request = {8, 99};
  lease->fingerprint = {~uint64_t{0}, 5};
  lease->moved_from = 7;
  lease->host = {5, 6};
  lease->epoch = 3;
  lease->permits = 2;
  lease->slots = {1, 4};
  lease->priority = -2;
  lease->ttl_ms = 1000;
  lease->order = 11;
  lease->holder = "\"quoted\" \n ü";
  lease->token = 123;
  lease->granted_at_unix_ms = 55;
  lease->recall = {Recall::Reason::kAdministrator, 44};
  document.leases.emplace(lease->id, lease);
  auto fresh = std::make_shared<Lease>(*lease);
  fresh->id = fresh->session = {1, 3};
  fresh->slots = {2, 3};
  fresh->token = 0;
  fresh->fingerprint = {};
  fresh->moved_from = 0;
  fresh->recall = {};
  document.leases.emplace(fresh->id, fresh);
  auto waiter = std::make_shared<Waiter>();
  waiter->id = waiter->session = {9, 9};
  waiter->queued_at_unix_ms = 66;
  waiter->fingerprint = {1, 1};
  document.waiters.emplace(waiter->id, waiter);
  const std::string client = "client";
  const std::string text = WriteDocument(
      document, [&](uint32_t) -> const std::string& { return client; }, {{fresh->id, 2}});

  const absl::StatusOr<Document> read =
      ReadDocument("s", text, 100, 500, [](const std::string&) { return 8; });
  REQUIRE(read.ok());
  SemaphoreRow row = document.row;
  row.revision = 104;
  CHECK(read->row == row);
  CHECK(read->changes == 4);
  CHECK(read->places == document.places);
  CHECK(read->Held() == 4);
  const Lease& back = *read->leases.at(lease->id);
  CHECK(back.session == lease->session);
  CHECK(back.request == lease->request);
  CHECK(back.host == lease->host);
  CHECK(back.epoch == 3);
  CHECK(back.slots == lease->slots);
  CHECK(back.priority == -2);
  CHECK(back.holder == lease->holder);
  CHECK(back.token == 123);
  CHECK(back.recall == lease->recall);
  CHECK(back.longest_hold_ms == 5);
  CHECK(back.fingerprint == lease->fingerprint);
  CHECK(back.moved_from == 7);
  // Its token follows from the index at which it was written.
  CHECK(read->leases.at(fresh->id)->token == TokenOf(500, 2));
  CHECK(read->leases.at(fresh->id)->fingerprint.empty());
  CHECK(read->leases.at(fresh->id)->moved_from == 0);
  CHECK_FALSE(read->leases.at(fresh->id)->recall.pending());
  CHECK(read->waiters.at(waiter->id)->fingerprint == waiter->fingerprint);
  CHECK(read->waiters.at(waiter->id)->detached());
  CHECK(read->waiters.at(waiter->id)->queued_at_unix_ms == 66);
  CHECK(read->waiters.at(waiter->id)->order == waiter->order);
  CHECK(back.order == lease->order);
}

TEST_CASE("consul document: waiters on pages are read as they were written") {
  const std::string client = "client";
  const std::string none;
  const auto name_of = [&](uint32_t number) -> const std::string& {
    return number == 0 ? none : client;
  };
  const auto number_of = [](const std::string& name) { return name.empty() ? 0u : 8u; };
  std::vector<WaiterPtr> waiters;
  for (uint64_t i = 0; i < 3; ++i) {
    auto waiter = std::make_shared<Waiter>();
    waiter->id = waiter->session = {7, i};
    waiter->request = i == 1 ? RequestKey{0, 0, {8, i}} : RequestKey{8, 40 + i};
    waiter->fingerprint = {i, ~i};
    waiter->order = 900 + i;
    waiter->queued_at_unix_ms = 1000 + static_cast<int64_t>(i);
    waiter->holder = "holder";
    waiters.push_back(waiter);
  }
  const std::string page = WritePage(waiters, name_of);
  const absl::StatusOr<std::vector<WaiterPtr>> read = ReadPage("s", page, number_of);
  REQUIRE(read.ok());
  REQUIRE(read->size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const Waiter& back = *(*read)[i];
    CHECK(back.id == waiters[i]->id);
    CHECK(back.request == waiters[i]->request);
    CHECK(back.fingerprint == waiters[i]->fingerprint);
    CHECK(back.order == waiters[i]->order);
    CHECK(back.queued_at_unix_ms == waiters[i]->queued_at_unix_ms);
    CHECK(back.holder == "holder");
  }
  for (const char* damaged : {"", "[]", "{}", R"({"version":1,"waiters":[]})",
                              R"({"version":1,"waiters":{"columns":[],"rows":null}})"})
    CHECK(ReadPage("s", damaged, number_of).status().code() == absl::StatusCode::kDataLoss);

  Document document;
  document.pages[77] = {/*index=*/0, waiters, {1}};
  const auto count = [](const Document& counted) {
    size_t all = 0;
    counted.AnyWaiter([&](const WaiterPtr&) { return ++all == 0; });
    return all;
  };
  CHECK(count(document) == 2);
  const std::string text = WriteDocument(document, name_of, {});
  absl::StatusOr<Document> back = ReadDocument("s", text, 1, 1, number_of);
  REQUIRE(back.ok());
  REQUIRE(back->pages.contains(77));
  CHECK(back->pages[77].gone == std::vector<uint32_t>{1});
  back->pages[77].waiters = *read;
  back->RemoveWaiter(waiters[0]->id);
  CHECK(count(*back) == 1);
  back->RemoveWaiter(waiters[0]->id);
  back->RemoveWaiter(waiters[2]->id);
  CHECK(back->pages[77].empty());
}

TEST_CASE("consul document: what is damaged is said") {
  for (const char* text : {"", "{}", "[]", R"({"version":9})", R"({"version":1,"limit":"x"})"}) {
    CHECK(ReadDocument("s", text, 1, 1, [](const std::string&) { return 1; }).status().code() ==
          absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("consul document: a thousand leases fit a transaction, each of another session") {
  constexpr uint32_t kLeases = 1000;
  const std::string client(36, 'c');
  Document document;
  LockRecord record;
  record.limit = document.row.limit = kLeases;
  for (uint32_t i = 1; i <= kLeases; ++i) {
    auto lease = std::make_shared<Lease>();
    lease->id = {~uint64_t{0}, i};
    lease->session = {i, i};
    lease->request = {1, i};
    lease->fingerprint = {i, ~uint64_t{0}};
    lease->host = {1, 1};
    lease->ttl_ms = 30'000;
    lease->order = i;
    lease->holder = std::string(30, 'h');
    lease->slots = {i};
    lease->token = TokenOf(1'000'000, i);
    lease->granted_at_unix_ms = 1'700'000'000'000;
    document.leases.emplace(lease->id, lease);
    document.places.push_back(std::to_string(1000 + i) + (kFirst + 4));
  }
  record.holders.insert(document.places.begin(), document.places.end());
  TransactionRequest request;
  request.Cas("document",
              WriteDocument(document, [&](uint32_t) -> const std::string& { return client; }, {}),
              1);
  request.Cas("record", WriteLockRecord(record), 1);
  CHECK(record.holders.size() == kLeases);
  CHECK(request.FitsConsul());
}

using State = ledger::RequestRow::State;

TEST_CASE("consul requests: are read as they were written") {
  RequestBlock block;
  for (const auto& [sequence, state] : {std::pair(7u, State::kWaiting), {8u, State::kGranted}})
    block.rows[sequence] = MakeRow(sequence, state, "a \"b\"");
  block.rows[11] = MakeRow(11, State::kEnded, "c");
  block.rows[11].cause = EndCause::kEngineLost;
  block.rows[12] = MakeRow(12, State::kWaitEnded, "c");
  block.rows[12].cause = EndCause::kDestroyed;
  block.rows[13] = MakeRow(13, State::kDone);
  block.rows[13].number = 3;
  block.rows[13].remaining = 4;
  block.rows[64] = MakeRow(64, State::kDone);
  block.rows[64].claim = block.rows[64].fingerprint = {};
  block.rows[64].changed = true;
  CHECK(block.pinned());
  CHECK(ReadRequestBlock(WriteRequestBlock(block)) == block);
  block.closed = true;
  CHECK(ReadRequestBlock(WriteRequestBlock(block)) == block);
  block.rows.erase(7);
  block.rows.erase(8);
  CHECK_FALSE(block.pinned());
  CHECK(ReadRequestBlock(WriteRequestBlock({})) == RequestBlock());
}

TEST_CASE("consul requests: of a block that is not understood nothing is taken for absent") {
  RequestBlock block;
  block.rows[4] = MakeRow(4, State::kGranted);
  const std::string text = WriteRequestBlock(block);
  const auto with = [&](const std::string& part, const std::string& other) {
    std::string changed = text;
    REQUIRE(changed.find(part) != std::string::npos);
    return changed.replace(changed.find(part), part.size(), other);
  };
  for (const std::string& garbled :
       {std::string(), std::string("[]"), std::string("{}"), text.substr(0, text.size() - 1),
        with("\"version\":1", "\"version\":2"), with("\"version\":1", "\"version\":1.5"),
        with("\"version\":1", "\"version\":true"), with("\"granted\"", "\"moved\""),
        with("\"granted\"", "2"), with("[4,", "[-4,"), with("[4,", "["), with("[4,", "[4,4,"),
        with("\"claim\",", ""), with("\"claim\",", "\"claim\",\"claim\","),
        with("\"state\"", "\"other\""), with("\"rows\"", "\"other\""), with("fff", "ffg"),
        with("false]", "0]")}) {
    INFO(garbled);
    const RequestBlock read = ReadRequestBlock(garbled);
    CHECK(read.garbled);
    CHECK(read.closed);
    CHECK(read.rows.empty());
  }
}

TEST_CASE("consul requests: an acquire and its release cost little") {
  RequestBlock block;
  const auto length_after = [&](uint64_t sequence) {
    block.rows[sequence] = MakeRow(sequence, State::kEnded);
    block.rows[sequence].cause = EndCause::kReleased;
    block.rows[sequence + 1] = MakeRow(sequence + 1, State::kDone);
    block.rows[sequence + 1].claim = {};
    block.rows[sequence + 1].number = 1;
    return WriteRequestBlock(block).size();
  };
  const size_t two = length_after(1);
  CHECK(length_after(3) - two < 250);
}

TEST_CASE("consul keys: nothing is taken for another") {
  const Keys keys("p");
  CHECK(keys.Lock("team/db") == "p/team/db/.lock");
  CHECK(keys.NameOfLock("p/team/db/.lock") == "team/db");
  CHECK_FALSE(keys.NameOfLock("p/.semaphored/d/x!/.lock"));
  CHECK_FALSE(keys.NameOfLock("p/.lock"));
  CHECK(Keys::NameIn(keys.Document("a/b"), keys.Documents()) == "a/b");
  CHECK(keys.Client("a/b") != keys.Client("a%2fb"));
  CHECK(Keys::BlockIn(keys.RequestBlock("c", 300), keys.Client("c")) == 300u);
  CHECK_FALSE(Keys::BlockIn(keys.RequestFloor("c"), keys.Client("c")));
}

TEST_CASE("consul folder: of a page only those can have gone that it has, each once") {
  const Keys keys("p");
  const auto waiter = std::make_shared<Waiter>();
  waiter->id = waiter->session = {1, 1};
  const std::string none;
  const auto name_of = [&](uint32_t) -> const std::string& { return none; };
  const std::string page = WritePage({WaiterPtr(waiter), WaiterPtr(waiter)}, name_of);
  const auto read = [&](const std::vector<uint32_t>& gone, uint64_t index, const Folder* known) {
    Document document;
    document.row.limit = 1;
    document.pages[5].gone = gone;
    const std::vector<Entry> entries = {
        {keys.Document("s"), WriteDocument(document, name_of, {}), "", 0, 5, index},
        {keys.Page("s", 5), page, "", 0, 5, 9}};
    return ReadFolder(keys, "s", entries, known, NoNumber);
  };
  const Folder known = read({}, 9, nullptr);
  CHECK(known.damage.ok());
  // A page that is known is not read again, and the document may be another all the same.
  for (const Folder* before : {static_cast<const Folder*>(nullptr), &known}) {
    CHECK(read({1}, 10, before).damage.ok());
    CHECK(absl::IsDataLoss(read({2}, 10, before).damage));
    CHECK(absl::IsDataLoss(read({0, 0}, 10, before).damage));
  }
}

TEST_CASE("consul folder: foreign holders count while their sessions live") {
  const Keys keys("p");
  const std::string value = WriteLockRecord({3, {kFirst, kSecond}});
  std::vector<Entry> entries = {{"p/s/.lock", value, "", kSemaphoreFlags, 5, 9},
                                {std::string("p/s/") + kFirst, "", kFirst, kSemaphoreFlags, 6, 6}};
  const absl::StatusOr<Folder> folder = ReadFolder(keys, "s", entries, nullptr, nullptr);
  REQUIRE(folder.ok());
  CHECK(folder->revision() == 5);
  CHECK(folder->ForeignHolders() == std::set<std::string>{kFirst});
  const ledger::LoadedSemaphore loaded = ToLoaded(*folder);
  CHECK(loaded.row.limit == 3);
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->foreign);
  CHECK(loaded.leases[0]->slots == Slots{3});
}

}  // namespace
}  // namespace semaphored::consul
