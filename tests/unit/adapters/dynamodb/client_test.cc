// What the client makes of answers, of their absence, and of refusals; and what it signs. Before a
// server that answers as the test says, where DynamoDB Local would not.
#include "adapters/dynamodb/client.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/generators/catch_generators.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::dynamodb {
namespace {

using Answer = LoopbackHttp::Answer;
using ReplyKind = Reply::Kind;
using std::chrono::milliseconds;

constexpr char kSecret[] = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

// Keys that a test may change.
class ChangingKeys : public CredentialSource {
 public:
  explicit ChangingKeys(Credentials first = {"AKIDEXAMPLE", kSecret, ""})
      : given_(std::move(first)) {}
  absl::StatusOr<Credentials> Get() override { return given_; }
  bool Refused(const Credentials& credentials) override {
    refused.push_back(credentials.access_key_id);
    if (next.access_key_id.empty()) return false;
    given_ = std::exchange(next, {});
    return true;
  }

  Credentials next;  // Given after a refusal.
  std::vector<std::string> refused;

 private:
  Credentials given_;
};

Url UrlTo(const LoopbackHttp& server, milliseconds timeout = milliseconds(5000)) {
  Url url;
  url.region = "eu-west-1";
  url.endpoint = server.address();
  url.timeout = timeout;
  return url;
}

std::string Sum(const std::string& body) {
  return absl::StrCat("x-amz-crc32: ", crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                                             static_cast<uInt>(body.size())));
}

Answer Fine(const std::string& body = "{}") { return {200, body, {Sum(body)}, false}; }

Answer RefusalWith(const std::string& name, const std::string& message = "no", int status = 400) {
  const std::string body =
      json::object({{"__type", "com.amazonaws.dynamodb.v20120810#" + name}, {"message", message}})
          .dump();
  return {status, body, {Sum(body)}, false};
}

Answer Lost() { return {0, "", {}, true}; }

Request Put() { return {"PutItem", json::object({{"TableName", "t"}})}; }

// The server answers one after the other, and the last from then on.
LoopbackHttp::Handler InTurn(std::vector<Answer> answers) {
  return [answers](const LoopbackHttp::Request&, int number) {
    return answers[std::min(static_cast<size_t>(number), answers.size()) - 1];
  };
}

// ---- What is sent ----

std::string Hmac(const std::string& key, const std::string& text) {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), sum, &length);
  return {reinterpret_cast<const char*>(sum), length};
}

std::string HexSha256(const std::string& text) {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_Digest(text.data(), text.size(), sum, &length, EVP_sha256(), nullptr);
  return absl::BytesToHexString({reinterpret_cast<const char*>(sum), length});
}

std::string Between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t begin = text.find(before);
  REQUIRE(begin != std::string::npos);
  const size_t start = begin + before.size();
  return text.substr(start, text.find(after, start) - start);
}

// Signature version 4, reckoned anew from what arrived: the order of its steps is AWS's.
std::string SignatureOf(const LoopbackHttp::Request& request, const std::string& secret) {
  const std::string authorization = request.header("authorization");
  const std::string names = Between(authorization, "SignedHeaders=", ",");
  std::string canonical = absl::StrCat(request.method, "\n", request.path, "\n\n");
  for (absl::string_view name : absl::StrSplit(names, ';'))
    absl::StrAppend(&canonical, name, ":", request.header(std::string(name)), "\n");
  absl::StrAppend(&canonical, "\n", names, "\n", HexSha256(request.body));
  const std::string date = request.header("x-amz-date");
  const std::string scope = absl::StrCat(date.substr(0, 8), "/eu-west-1/dynamodb/aws4_request");
  const std::string text =
      absl::StrCat("AWS4-HMAC-SHA256\n", date, "\n", scope, "\n", HexSha256(canonical));
  std::string key = Hmac("AWS4" + secret, date.substr(0, 8));
  for (const char* part : {"eu-west-1", "dynamodb", "aws4_request"}) key = Hmac(key, part);
  return absl::BytesToHexString(Hmac(key, text));
}

TEST_CASE("dynamodb client: a request and its signature") {
  const std::string token = GENERATE("", "FwoGZXIvYXdzEXAMPLE//token+with/signs==");
  LoopbackHttp server(InTurn({Fine()}));
  Client client(UrlTo(server),
                std::make_shared<ChangingKeys>(Credentials{"AKIDEXAMPLE", kSecret, token}));
  Request request = Put();
  request.body["Item"]["name"]["S"] = "Grüße, \"Welt\"\n";
  REQUIRE(client.Repeat(request, kNever).answered());
  const LoopbackHttp::Request seen = server.requests().front();
  CHECK(seen.method == "POST");
  CHECK(seen.path == "/");
  CHECK(json::parse(seen.body) == request.body);
  CHECK(seen.header("x-amz-target") == "DynamoDB_20120810.PutItem");
  CHECK(seen.header("content-type") == "application/x-amz-json-1.0");
  CHECK(seen.header("x-amz-security-token") == token);
  CHECK(seen.header("expect").empty());
  const std::string authorization = seen.header("authorization");
  CHECK(absl::StrContains(authorization, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"));
  CHECK(absl::StrContains(authorization, "/eu-west-1/dynamodb/aws4_request"));
  const std::string listed = Between(authorization, "SignedHeaders=", ",");
  const std::set<std::string> names = absl::StrSplit(listed, ';');
  for (const char* name : {"host", "x-amz-date", "x-amz-target"}) CHECK(names.count(name) == 1);
  CHECK(names.count("x-amz-security-token") == (token.empty() ? 0 : 1));
  CHECK(authorization.substr(authorization.find("Signature=") + 10) == SignatureOf(seen, kSecret));
  for (const auto& [name, value] : seen.headers) {
    CHECK_FALSE(absl::StrContains(value, kSecret));
    CHECK((name == "x-amz-security-token" || token.empty() || !absl::StrContains(value, token)));
  }
}

TEST_CASE("dynamodb client: one connection for requests one after the other") {
  LoopbackHttp server(InTurn({Fine()}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  for (int i = 0; i < 5; ++i) CHECK(client.Repeat(Put(), kNever).answered());
  CHECK(client.Once(Put(), kNever).answered());
  for (const LoopbackHttp::Request& request : server.requests()) CHECK(request.connection == 1);
}

TEST_CASE("dynamodb client: text that is not UTF-8 is not sent") {
  LoopbackHttp server(InTurn({Fine()}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  const Reply reply = client.Repeat({"PutItem", json::object({{"name", "\xff"}})}, kNever);
  CHECK(reply.kind == ReplyKind::kRefused);
  CHECK(absl::IsInvalidArgument(reply.status));
  CHECK(server.requests().empty());
}

TEST_CASE("dynamodb client: many requests side by side, replies in their order") {
  std::atomic<int> under_way{0}, most{0};
  LoopbackHttp server([&](const LoopbackHttp::Request& request, int number) {
    most = std::max(most.load(), ++under_way);
    const json body = json::parse(request.body);
    std::this_thread::sleep_for(milliseconds(2));
    --under_way;
    return number % 7 == 0 ? RefusalWith("ThrottlingException") : Fine(body.dump());
  });
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  std::vector<Request> requests;
  for (int i = 0; i < 60; ++i) requests.push_back({"GetItem", json::object({{"i", i}})});
  const std::vector<Reply> replies = client.RepeatAll(requests, kNever);
  REQUIRE(replies.size() == 60);
  for (int i = 0; i < 60; ++i) {
    REQUIRE(replies[static_cast<size_t>(i)].answered());
    CHECK(replies[static_cast<size_t>(i)].body["i"] == i);
  }
  int connections = 0;
  for (const LoopbackHttp::Request& request : server.requests())
    connections = std::max(connections, request.connection);
  CHECK(connections <= 8);
  CHECK(most > 1);
}

// ---- What comes back ----

TEST_CASE("dynamodb client: what is refused for now is asked again") {
  const char* name = GENERATE("ProvisionedThroughputExceededException", "ThrottlingException",
                              "RequestLimitExceeded", "TransactionConflictException");
  LoopbackHttp server(InTurn({RefusalWith(name), RefusalWith(name), Fine(R"({"a":1})")}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  const bool once = GENERATE(false, true);
  const Reply reply = once ? client.Once(Put(), kNever) : client.Repeat(Put(), kNever);
  REQUIRE(reply.answered());
  CHECK(reply.body["a"] == 1);
  CHECK(reply.status.ok());
  CHECK(server.requests().size() == 3);
}

TEST_CASE("dynamodb client: throttling without end is refused in time") {
  LoopbackHttp server(InTurn({RefusalWith("ThrottlingException", "Rate exceeded")}));
  Client client(UrlTo(server, milliseconds(200)), std::make_shared<ChangingKeys>());
  const SteadyTime begin = SteadyClock::now();
  const Reply reply = client.Repeat(Put(), kNever);
  CHECK(SteadyClock::now() - begin < milliseconds(5000));
  CHECK(reply.kind == ReplyKind::kRefused);
  CHECK(reply.error == "ThrottlingException");
  CHECK(absl::IsUnavailable(reply.status));
  CHECK(server.requests().size() >= 2);
  // The caller's deadline too.
  CHECK(absl::IsUnavailable(client.Repeat(Put(), SteadyClock::now()).status));
}

TEST_CASE("dynamodb client: an engine at fault is asked again, but not about a write of one time") {
  LoopbackHttp server(
      InTurn({RefusalWith("InternalServerError", "x", 500), {503, "<html>", {}, false}, Fine()}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  SECTION("may be repeated") {
    CHECK(client.Repeat(Put(), kNever).answered());
    CHECK(server.requests().size() == 3);
  }
  SECTION("once") {
    const Reply reply = client.Once(Put(), kNever);
    CHECK(reply.kind == ReplyKind::kBroken);
    CHECK(reply.error == "InternalServerError");
    CHECK(absl::IsUnavailable(reply.status));
    CHECK(server.requests().size() == 1);
  }
}

TEST_CASE("dynamodb client: a lost answer") {
  LoopbackHttp server(InTurn({Lost(), Fine()}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  SECTION("may be repeated") { CHECK(client.Repeat(Put(), kNever).answered()); }
  SECTION("once") {
    const Reply reply = client.Once(Put(), kNever);
    CHECK(reply.kind == ReplyKind::kBroken);
    CHECK(absl::IsUnavailable(reply.status));
    CHECK(server.requests().size() == 1);
  }
}

TEST_CASE("dynamodb client: a kept connection that ends is no reason to write twice") {
  LoopbackHttp server(InTurn({Fine(), Lost(), Fine()}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  REQUIRE(client.Once(Put(), kNever).answered());
  const Reply reply = client.Once(Put(), kNever);
  CHECK(reply.kind == ReplyKind::kBroken);
  CHECK(absl::IsUnavailable(reply.status));
  CHECK(server.requests().size() == 2);
  CHECK(client.Once(Put(), kNever).answered());
}

TEST_CASE("dynamodb client: a refusal after a lost answer may be due to the lost one") {
  const Answer refusal =
      RefusalWith("ConditionalCheckFailedException", "The conditional request failed");
  SECTION("a new connection") {
    LoopbackHttp server(InTurn({Lost(), refusal}));
    Client client(UrlTo(server), std::make_shared<ChangingKeys>());
    const Reply reply = client.Repeat(Put(), kNever);
    CHECK(reply.kind == ReplyKind::kBroken);
    CHECK(reply.error == "ConditionalCheckFailedException");
    CHECK(server.requests().size() == 2);
  }
  SECTION("the HTTP library's own repetition") {
    LoopbackHttp server(InTurn({Fine(), Lost(), refusal}));
    Client client(UrlTo(server), std::make_shared<ChangingKeys>());
    REQUIRE(client.Repeat(Put(), kNever).answered());
    CHECK(client.Repeat(Put(), kNever).kind == ReplyKind::kBroken);
    CHECK(server.requests().size() == 3);
  }
  SECTION("nothing was lost") {
    LoopbackHttp server(InTurn({refusal}));
    Client client(UrlTo(server), std::make_shared<ChangingKeys>());
    const Reply reply = client.Repeat(Put(), kNever);
    CHECK(reply.kind == ReplyKind::kRefused);
    CHECK(absl::IsFailedPrecondition(reply.status));
  }
}

TEST_CASE("dynamodb client: a transaction in progress is not known") {
  const Answer in_progress = RefusalWith("TransactionInProgressException");
  LoopbackHttp server(InTurn({in_progress, Fine()}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  SECTION("may be repeated") { CHECK(client.Repeat(Put(), kNever).answered()); }
  SECTION("once") { CHECK(client.Once(Put(), kNever).kind == ReplyKind::kBroken); }
}

TEST_CASE("dynamodb client: nobody listens") {
  Url url;
  {
    LoopbackHttp server(InTurn({Fine()}));
    url = UrlTo(server, milliseconds(300));
  }
  Client client(url, std::make_shared<ChangingKeys>());
  const Reply reply =
      GENERATE(true, false) ? client.Once(Put(), kNever) : client.Repeat(Put(), kNever);
  CHECK(reply.kind == ReplyKind::kRefused);
  CHECK(absl::IsUnavailable(reply.status));
}

TEST_CASE("dynamodb client: an answer that was damaged is not believed") {
  Answer damaged = Fine(R"({"a":1})");
  damaged.body = R"({"a":2})";
  LoopbackHttp server(InTurn({damaged, Fine(R"({"a":1})")}));
  Client client(UrlTo(server), std::make_shared<ChangingKeys>());
  SECTION("may be repeated") { CHECK(client.Repeat(Put(), kNever).body["a"] == 1); }
  SECTION("once") {
    const Reply reply = client.Once(Put(), kNever);
    CHECK(reply.kind == ReplyKind::kBroken);
    CHECK(reply.body.is_null());
  }
}

TEST_CASE("dynamodb client: credentials that are refused are looked for anew, once") {
  const char* name = GENERATE("ExpiredTokenException", "UnrecognizedClientException");
  const auto keys = std::make_shared<ChangingKeys>();
  SECTION("there are others") {
    keys->next = {"AKIDOTHER", kSecret, "token"};
    LoopbackHttp server(InTurn({RefusalWith(name), Fine()}));
    Client client(UrlTo(server), keys);
    CHECK(client.Once(Put(), kNever).answered());
    CHECK(absl::StrContains(server.requests().back().header("authorization"), "AKIDOTHER"));
  }
  SECTION("the others are refused too") {
    keys->next = {"AKIDOTHER", kSecret, "token"};
    LoopbackHttp server(InTurn({RefusalWith(name)}));
    Client client(UrlTo(server), keys);
    const Reply reply = client.Repeat(Put(), kNever);
    CHECK(reply.kind == ReplyKind::kRefused);
    CHECK(absl::IsUnauthenticated(reply.status));
    CHECK(server.requests().size() == 2);
  }
  SECTION("there are no others") {
    LoopbackHttp server(InTurn({RefusalWith(name)}));
    Client client(UrlTo(server), keys);
    CHECK(absl::IsUnauthenticated(client.Repeat(Put(), kNever).status));
    CHECK(server.requests().size() == 1);
    CHECK(keys->refused == std::vector<std::string>{"AKIDEXAMPLE"});
  }
}

// ---- What it means ----

HttpAnswer Said(int http_status, const std::string& body) {
  HttpAnswer received;
  received.http_status = http_status;
  received.body = body;
  return received;
}

Reply JudgeRefusal(const std::string& name, const std::string& message) {
  const Answer answer = RefusalWith(name, message);
  return JudgeReply("PutItem", Said(400, answer.body));
}

TEST_CASE("dynamodb reply: refusals and their codes") {
  const auto code = [](const char* name, const char* message = "no") {
    const Reply reply = JudgeRefusal(name, message);
    CHECK(reply.kind == ReplyKind::kRefused);
    CHECK(reply.error == name);
    CHECK(absl::StrContains(reply.status.message(), name));
    return reply.status.code();
  };
  CHECK(code("TransactionCanceledException") == absl::StatusCode::kAborted);
  CHECK(code("ConditionalCheckFailedException") == absl::StatusCode::kFailedPrecondition);
  CHECK(code("ResourceNotFoundException") == absl::StatusCode::kNotFound);
  CHECK(code("ResourceInUseException") == absl::StatusCode::kAlreadyExists);
  CHECK(code("AccessDeniedException") == absl::StatusCode::kPermissionDenied);
  CHECK(code("IdempotentParameterMismatchException") == absl::StatusCode::kInvalidArgument);
  CHECK(code("ValidationException") == absl::StatusCode::kInvalidArgument);
  CHECK(code("ValidationException", "Item size has exceeded the maximum allowed size") ==
        absl::StatusCode::kOutOfRange);
  CHECK(code("ValidationException", "Member must have length less than or equal to 100") ==
        absl::StatusCode::kOutOfRange);
  CHECK(code("MissingAuthenticationTokenException") == absl::StatusCode::kUnauthenticated);
  CHECK(code("SomethingNewException") == absl::StatusCode::kInternal);
}

TEST_CASE("dynamodb reply: the reasons of a transaction come along") {
  const Reply reply = JudgeReply(
      "TransactWriteItems",
      Said(400, R"({"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",)"
                R"("CancellationReasons":[{"Code":"None"},{"Code":"ThrottlingError"}],)"
                R"("Message":"Transaction cancelled"})"));
  CHECK(reply.kind == ReplyKind::kRefused);
  CHECK(reply.body["CancellationReasons"][1]["Code"] == "ThrottlingError");
  CHECK(absl::StrContains(reply.status.message(), "Transaction cancelled"));
}

TEST_CASE("dynamodb reply: a clock that is wrong is named") {
  const Reply reply = JudgeRefusal("InvalidSignatureException",
                                   "Signature expired: 20200101T000000Z is now earlier than "
                                   "20260101T000000Z (20260101T001500Z - 15 min.)");
  CHECK(absl::IsUnauthenticated(reply.status));
  CHECK(absl::StrContains(reply.status.message(), "set the clock"));
  CHECK(absl::StrContains(JudgeRefusal("RequestTimeTooSkewed", "").status.message(), "clock"));
}

TEST_CASE("dynamodb reply: what was signed is not shown") {
  const Reply reply = JudgeRefusal(
      "InvalidSignatureException",
      "The request signature we calculated does not match the signature you provided. The "
      "Canonical "
      "String for this request should have been 'POST\n/\n\nx-amz-security-token:hunter2'");
  CHECK(absl::IsUnauthenticated(reply.status));
  CHECK_FALSE(absl::StrContains(reply.status.message(), "POST"));
  CHECK_FALSE(absl::StrContains(reply.status.message(), "hunter2"));
}

TEST_CASE("dynamodb reply: answers that are not DynamoDB's") {
  Reply reply = JudgeReply("PutItem", Said(200, "<html>welcome</html>"));
  CHECK(reply.kind == ReplyKind::kBroken);
  CHECK(absl::IsUnavailable(reply.status));
  reply = JudgeReply("PutItem", Said(404, "<html>nothing here</html>"));
  CHECK(reply.kind == ReplyKind::kRefused);
  CHECK(absl::IsInternal(reply.status));
  CHECK(absl::StrContains(reply.status.message(), "is it one?"));
  CHECK(absl::IsOutOfRange(JudgeReply("PutItem", Said(413, "")).status));
  CHECK(absl::IsUnavailable(JudgeReply("PutItem", Said(429, "")).status));
  // Values of other kinds than expected.
  CHECK(JudgeReply("PutItem", Said(400, R"({"__type":7,"message":[]})")).kind ==
        ReplyKind::kRefused);
  CHECK(JudgeReply("PutItem", Said(400, "[]")).kind == ReplyKind::kRefused);
  CHECK(JudgeReply("PutItem", Said(200, "[]")).kind == ReplyKind::kBroken);
}

TEST_CASE("dynamodb reply: what was not sent is refused") {
  HttpAnswer answer;
  answer.fault = HttpAnswer::Fault::kTimeOut;
  answer.times_sent = 1;
  CHECK(JudgeReply("PutItem", answer).kind == ReplyKind::kBroken);
  answer.times_sent = 0;
  CHECK(JudgeReply("PutItem", answer).kind == ReplyKind::kRefused);
  answer.fault = HttpAnswer::Fault::kTrust;
  // A lane that hears FAILED_PRECONDITION ends the daemon.
  CHECK(absl::IsUnauthenticated(JudgeReply("PutItem", answer).status));
}

// ---- DynamoDB Local ----

TEST_CASE("dynamodb client: DynamoDB Local understands it", "[dynamodb]") {
  const char* const file = std::getenv("SEMAPHORED_TEST_DYNAMODB_URL_FILE");
  INFO(
      "SEMAPHORED_TEST_DYNAMODB_URL_FILE names the file with the URL of a DynamoDB; ctest sets it");
  REQUIRE(file != nullptr);
  std::ifstream stream(file);
  std::string text;
  REQUIRE(std::getline(stream, text));
  Client client(ReadUrl(text).value(), FindCredentials("", "us-east-1"));
  const Reply listed = client.Repeat({"ListTables", json::object()}, kNever);
  REQUIRE(listed.answered());
  CHECK(listed.body["TableNames"].is_array());
  const Reply absent =
      client.Repeat({"DescribeTable", json::object({{"TableName", "not-there"}})}, kNever);
  CHECK(absent.kind == ReplyKind::kRefused);
  CHECK(absl::IsNotFound(absent.status));
  const Reply nonsense = client.Once({"PutItem", json::object({{"TableName", 7}})}, kNever);
  CHECK(nonsense.kind == ReplyKind::kRefused);
  CHECK(absl::IsInvalidArgument(nonsense.status));
}

}  // namespace
}  // namespace semaphored::dynamodb
