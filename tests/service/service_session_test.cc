// Session: many leases over one stream.
#include <set>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "server/rpc/outbox.h"
#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

// One Session stream. Next() hands out results one by one, whatever messages they came in.
class Stream {
 public:
  explicit Stream(World* world) : stream_(world->stub().Session(&context_)) {}
  ~Stream() { context_.TryCancel(); }

  pb::SessionOpened Open(const std::string& client_id, const std::string& resume = "",
                         bool release_on_disconnect = false) {
    pb::SessionRequest request;
    request.mutable_open()->set_client_id(client_id);
    request.mutable_open()->set_resume_session_id(resume);
    request.mutable_open()->set_release_on_disconnect(release_on_disconnect);
    stream_->Write(request);
    if (!stream_->Read(&response_)) return {};
    next_ = 0;
    return response_.opened();
  }
  // The next page of what was opened.
  pb::SessionOpened NextOpened() { return Read() ? response_.opened() : pb::SessionOpened(); }
  bool Write(const pb::SessionRequest& request) { return stream_->Write(request); }
  // A command in a message of its own.
  pb::SessionCommand* Begin(uint64_t sequence) {
    request_.Clear();
    pb::SessionCommand* command = request_.add_commands();
    command->set_sequence(sequence);
    return command;
  }
  bool Send() { return stream_->Write(request_); }
  void Acquire(uint64_t sequence, const std::string& semaphore, uint32_t limit,
               int64_t wait_ms = 0) {
    pb::SessionAcquire* acquire = Begin(sequence)->mutable_acquire();
    acquire->set_semaphore(semaphore);
    acquire->set_limit(limit);
    acquire->set_wait_forever(wait_ms < 0);
    acquire->set_report_queued(true);
    Send();
  }
  void Release(uint64_t sequence, const std::string& lease_id) {
    Begin(sequence)->mutable_release()->set_lease_id(lease_id);
    Send();
  }
  // False: the stream has ended.
  bool Next(pb::SessionResult* result) {
    while (next_ >= response_.results_size()) {
      if (!Read()) return false;
    }
    *result = response_.results(next_++);
    return true;
  }
  bool Read() {
    next_ = 0;
    return stream_->Read(&response_);
  }
  const pb::SessionResponse& response() const { return response_; }
  bool CloseSide() { return stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() {
    while (Read()) {
    }
    return stream_->Finish();
  }

 private:
  Context context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::SessionRequest, pb::SessionResponse>> stream_;
  pb::SessionRequest request_;
  pb::SessionResponse response_;
  int next_ = 0;
};

TEST_CASE("session: acquire, verify, release in one message", "[service]") {
  World world;
  Stream stream(&world);
  const pb::SessionOpened opened = stream.Open("client");
  CHECK(opened.session_id().size() == 32);
  CHECK(opened.ttl_ms() == 30'000);
  CHECK(opened.validity().valid_for_ms() > 0);
  CHECK_FALSE(opened.resumed());

  pb::SessionResult result;
  stream.Acquire(1, "a", 1);
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 1);
  REQUIRE(result.has_granted());
  const pb::Lease lease = result.granted();
  CHECK(lease.session_id() == opened.session_id());
  CHECK(lease.holder() == "client");

  pb::SessionRequest both;
  both.add_commands()->set_sequence(2);
  both.mutable_commands(0)->mutable_verify()->set_lease_id(lease.lease_id());
  both.add_commands()->set_sequence(3);
  both.mutable_commands(1)->mutable_release()->set_lease_id(lease.lease_id());
  both.mutable_ping()->set_ping_id(77);
  REQUIRE(stream.Write(both));
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 2);
  REQUIRE(result.has_verified());
  CHECK(result.verified().held());
  CHECK(result.verified().validity().valid_for_ms() > 0);
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 3);
  REQUIRE(result.has_released());
  CHECK(result.released().released() == 1);
  // What the stream itself gave back is no loss.
  CHECK(stream.response().events_size() == 0);
}

TEST_CASE("session: a ping is answered", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  pb::SessionRequest request;
  request.mutable_ping()->set_ping_id(77);
  REQUIRE(stream.Write(request));
  REQUIRE(stream.Read());
  CHECK(stream.response().pong().ping_id() == 77);
  CHECK(stream.response().pong().validity().valid_for_ms() > 0);
  CHECK(stream.response().pong().validity().epoch() == 1);
}

TEST_CASE("session: queued, then granted; cancelled", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  const pb::Lease lease = world.MustAcquire("a", 1);
  pb::SessionResult result;
  stream.Acquire(1, "a", 1, -1);
  REQUIRE(stream.Next(&result));
  REQUIRE(result.has_queued());
  CHECK(result.queued().position() == 1);
  stream.Acquire(2, "a", 1, -1);
  REQUIRE(stream.Next(&result));
  CHECK(result.queued().position() == 2);

  stream.Begin(3)->set_cancel(2);
  stream.Send();
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 3);
  CHECK(result.cancelled());
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 2);
  CHECK(result.error().code() == grpc::StatusCode::CANCELLED);
  CHECK(ErrorOf(result.error()).reason == "WAIT_CANCELLED");

  stream.Begin(4)->set_cancel(99);
  stream.Send();
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 4);
  CHECK_FALSE(result.cancelled());

  CHECK(world.Release(lease) == 1);
  REQUIRE(stream.Next(&result));
  CHECK(result.sequence() == 1);
  CHECK(result.has_granted());
}

TEST_CASE("session: a command that is wrong is answered, and the stream goes on", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  pb::SessionResult result;
  const auto refused = [&](uint64_t sequence) {
    REQUIRE(stream.Next(&result));
    CHECK(result.sequence() == sequence);
    CHECK(result.error().code() == grpc::StatusCode::INVALID_ARGUMENT);
    const Error error = ErrorOf(result.error());
    CHECK(error.reason == "INVALID_FIELD");
    CHECK(error.domain == "semaphored");
    CHECK_FALSE(error.adapter.empty());
    CHECK(result.error().message().starts_with(error.field + ": "));
    return result.error().message();
  };
  stream.Acquire(0, "a", 1);
  CHECK(refused(0).starts_with("sequence: "));
  stream.Acquire(1, "a/", 1);
  CHECK(refused(1).starts_with("semaphore: "));
  stream.Release(2, "nonsense");
  CHECK(refused(2).starts_with("lease_id: "));
  stream.Begin(3);
  stream.Send();
  CHECK(refused(3).starts_with("command: "));
  stream.Begin(4)->mutable_verify();
  stream.Send();
  CHECK(refused(4).starts_with("lease_id: "));
  stream.Acquire(5, "a", 1);
  REQUIRE(stream.Next(&result));
  CHECK(result.has_granted());
}

TEST_CASE("session: a message stays below what clients take, however long its errors are",
          "[service]") {
  google::rpc::Status error;
  error.set_message(std::string(5'000, 'x'));
  MessagePool<pb::SessionResponse> pool;
  Outbox<pb::SessionResponse> outbox(&pool);
  for (int i = 0; i < 2'000; ++i)
    *outbox.Next(error.ByteSizeLong())->add_results()->mutable_error() = error;
  CHECK(outbox.bytes() >= 10'000'000);  // As many as stream_bytes_max bounds.
  int results = 0;
  for (; !outbox.empty(); outbox.PopFront()) {
    CHECK(outbox.front().ByteSizeLong() < 4'000'000);
    results += outbox.front().results_size();
  }
  CHECK(results == 2'000);
  CHECK(outbox.bytes() == 0);
}

TEST_CASE("session: what ends the stream", "[service]") {
  World world;
  pb::SessionRequest ping;
  ping.mutable_ping()->set_ping_id(1);
  {
    INFO("a first message without open");
    Stream stream(&world);
    stream.Write(ping);
    CHECK(Say(stream.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  }
  {
    INFO("no first message at all");
    Stream stream(&world);
    stream.CloseSide();
    CHECK(Say(stream.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  }
  {
    INFO("a second open");
    Stream stream(&world);
    stream.Open("client");
    pb::SessionRequest open;
    open.mutable_open()->set_client_id("client");
    stream.Write(open);
    CHECK(Say(stream.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  }
  {
    INFO("too many commands");
    Stream stream(&world);
    stream.Open("client");
    pb::SessionRequest many;
    for (int i = 0; i < 1001; ++i) many.add_commands()->set_sequence(i + 1);
    stream.Write(many);
    const grpc::Status status = stream.Finish();
    CHECK(Say(status) == "INVALID_ARGUMENT INVALID_FIELD");
    CHECK(status.error_message().starts_with("commands: "));
  }
  {
    INFO("a session that is not there");
    Stream stream(&world);
    stream.Open("client", "00000000000000000000000000000001");
    CHECK(Say(stream.Finish()) == "NOT_FOUND SESSION_LOST");
  }
  {
    INFO("a client id that is none");
    Stream stream(&world);
    stream.Open("");
    CHECK(Say(stream.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  }
}

TEST_CASE("session: a clean end gives everything back", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  pb::SessionResult result;
  stream.Acquire(1, "a", 1);
  REQUIRE(stream.Next(&result));
  REQUIRE(result.has_granted());
  pb::SessionRequest close;
  close.set_close(true);
  stream.Write(close);
  CHECK(Say(stream.Finish()) == "OK");
  CHECK(world.Describe("a").held() == 0);
}

TEST_CASE("session: resumed after a lost stream, it has its leases", "[service]") {
  World world;
  std::string session;
  std::string lease;
  {
    Stream stream(&world);
    session = stream.Open("client").session_id();
    pb::SessionResult result;
    stream.Acquire(1, "a", 1);
    REQUIRE(stream.Next(&result));
    lease = result.granted().lease_id();
    stream.CloseSide();
    CHECK(stream.Finish().error_code() == grpc::StatusCode::CANCELLED);
  }
  Stream stream(&world);
  const pb::SessionOpened opened = stream.Open("client", session);
  CHECK(opened.resumed());
  CHECK(opened.session_id() == session);
  REQUIRE(opened.leases_size() == 1);
  CHECK(opened.leases(0).lease_id() == lease);
  // The same sequence number is the same request.
  stream.Acquire(1, "a", 1);
  pb::SessionResult result;
  REQUIRE(stream.Next(&result));
  CHECK(result.granted().lease_id() == lease);
}

TEST_CASE("session: another stream takes it over", "[service]") {
  World world;
  Stream older(&world);
  const std::string session = older.Open("client").session_id();
  Stream newer(&world);
  CHECK(newer.Open("client", session).resumed());
  CHECK_FALSE(older.Finish().ok());
  pb::SessionResult result;
  newer.Acquire(1, "a", 1);
  REQUIRE(newer.Next(&result));
  CHECK(result.has_granted());
}

TEST_CASE("session: a lost stream gives back at once, if so asked", "[service]") {
  World world;
  {
    Stream stream(&world);
    stream.Open("client", "", /*release_on_disconnect=*/true);
    pb::SessionResult result;
    stream.Acquire(1, "a", 1);
    REQUIRE(stream.Next(&result));
    REQUIRE(result.has_granted());
  }
  CHECK(world.Becomes("a", [](const auto& info) { return info.held() == 0; }));
}

TEST_CASE("session: what others do to its leases is told", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  pb::SessionResult result;
  stream.Acquire(1, "a", 2);
  REQUIRE(stream.Next(&result));
  const pb::Lease one = result.granted();
  stream.Acquire(2, "a", 2);
  REQUIRE(stream.Next(&result));
  CHECK(world.Release(one) == 1);
  REQUIRE(stream.Read());
  REQUIRE(stream.response().events_size() == 1);
  CHECK(stream.response().events(0).lost().lease_id() == one.lease_id());
  CHECK(stream.response().events(0).lost().cause() == pb::END_CAUSE_RELEASED);

  pb::AdministerRequest resize;
  resize.set_semaphore("a");
  resize.mutable_resize()->set_limit(0);
  resize.mutable_resize()->set_policy(pb::SHRINK_POLICY_RECALL);
  resize.mutable_resize()->set_grace_ms(30'000);
  pb::AdministerResponse response;
  REQUIRE(Say(world.Administer(resize, &response)) == "OK");
  CHECK(response.resize().recalled() == 1);
  REQUIRE(stream.Read());
  REQUIRE(stream.response().events_size() == 1);
  CHECK(stream.response().events(0).has_recalled());
}

TEST_CASE("session: ends when nothing can be vouched for", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  world.Vouch(false);
  CHECK(Say(stream.Finish()) == "UNAVAILABLE NOT_VOUCHED");
}

TEST_CASE("session: many commands, each answered once and in order", "[service]") {
  World world;
  Stream stream(&world);
  stream.Open("client");
  constexpr int kMessages = 20;
  constexpr int kCommands = 1000;
  uint64_t sequence = 0;
  for (int i = 0; i < kMessages; ++i) {
    pb::SessionRequest request;
    for (int j = 0; j < kCommands; ++j) {
      pb::SessionCommand* command = request.add_commands();
      command->set_sequence(++sequence);
      command->mutable_acquire()->set_semaphore("a");
      command->mutable_acquire()->set_limit(1'000'000);
    }
    REQUIRE(stream.Write(request));
  }
  pb::SessionResult result;
  uint64_t wrong = 0;
  for (uint64_t expected = 1; expected <= kMessages * kCommands; ++expected) {
    REQUIRE(stream.Next(&result));
    if (result.sequence() != expected || !result.has_granted()) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("session: a client that does not read is not read", "[service]") {
  ServerOptions options;
  options.limits.stream_entries_pause = 16;
  options.limits.stream_entries_max = 2000;
  World world(options);
  Stream stream(&world);
  stream.Open("client");
  // Answers pile up while nothing is read; the daemon stops reading commands rather than cutting
  // the stream off.
  pb::SessionRequest request;
  constexpr int kCommands = 500;
  for (int i = 1; i <= kCommands; ++i) {
    request.add_commands()->set_sequence(i);
    request.mutable_commands(i - 1)->mutable_verify()->set_lease_id(
        std::string(200, 'a') + "#00000000000000000000000000000001");
  }
  for (int i = 0; i < 4; ++i) REQUIRE(stream.Write(request));
  pb::SessionResult result;
  for (int i = 0; i < 4 * kCommands; ++i) REQUIRE(stream.Next(&result));
  stream.Acquire(kCommands + 1, "a", 1);
  REQUIRE(stream.Next(&result));
  CHECK(result.has_granted());
}

// A daemon whose engine can be held, and which then defers commands.
struct HeldUp {
  Gate gate;
  World world;
  Stream stream{&world};
  explicit HeldUp(size_t deferred_bytes_max)
      : world(Options(deferred_bytes_max), [this](std::unique_ptr<Adapter> adapter) {
          return std::make_unique<GatedAdapter>(std::move(adapter), &gate);
        }) {
    stream.Open("client");
    gate.Hold(true);
    stream.Acquire(1, "a", 2);
  }
  ~HeldUp() { gate.Hold(false); }
  static ServerOptions Options(size_t deferred_bytes_max) {
    ServerOptions options;
    options.limits.jobs_pause = 0;
    options.limits.deferred_stream_bytes_max = deferred_bytes_max;
    return options;
  }
  void Ping(uint64_t id) {
    pb::SessionRequest request;
    request.mutable_ping()->set_ping_id(id);
    REQUIRE(stream.Write(request));
  }
  // What was asked before a leap of the clock may have been given up by then.
  void Answered(bool may_be_refused = false) {
    gate.Hold(false);
    pb::SessionResult result;
    for (uint64_t sequence : {1, 2}) {
      REQUIRE(stream.Next(&result));
      CHECK(result.sequence() == sequence);
      CHECK((result.has_granted() || may_be_refused));
    }
  }
};

TEST_CASE("session: pings are answered while commands wait for the engine", "[service]") {
  HeldUp held(1 << 20);
  held.stream.Acquire(2, "a", 2);
  for (uint64_t id : {7, 8}) {
    held.Ping(id);
    REQUIRE(held.stream.Read());
    const pb::SessionResponse& response = held.stream.response();
    CHECK(response.pong().ping_id() == id);
    CHECK(response.pong().validity().valid_for_ms() > 0);
    CHECK(response.results_size() == 0);
  }
  held.Answered();
}

TEST_CASE("session: its time does not run while the daemon does not read", "[service]") {
  HeldUp held(0);
  pb::SessionRequest request;
  request.mutable_ping()->set_ping_id(7);
  pb::SessionCommand* command = request.add_commands();
  command->set_sequence(2);
  command->mutable_acquire()->set_semaphore("a");
  command->mutable_acquire()->set_limit(2);
  REQUIRE(held.stream.Write(request));
  // The last message that is read.
  REQUIRE(held.stream.Read());
  REQUIRE(held.stream.response().has_pong());
  held.Ping(8);
  held.world.Leap(Milliseconds(100'000));
  held.world.Leap(Milliseconds(100'000));
  held.Answered(/*may_be_refused=*/true);
}

TEST_CASE("session: more answers than may wait cut the stream off", "[service]") {
  ServerOptions options;
  options.limits.stream_entries_max = 50;
  World world(options);
  Stream stream(&world);
  stream.Open("client");
  pb::SessionRequest request;
  for (int i = 1; i <= 100; ++i) request.add_commands()->set_sequence(i);
  REQUIRE(stream.Write(request));
  CHECK(Say(stream.Finish()) == "RESOURCE_EXHAUSTED SLOW_READER");
}

TEST_CASE("session: of all streams the one that leaves most unread ends", "[service]") {
  ServerOptions options;
  options.limits.streams_bytes_max = 10'000;
  World world(options);
  Stream other(&world);
  other.Open("other");
  Stream stream(&world);
  stream.Open("client");
  pb::SessionRequest request;
  for (int i = 1; i <= 100; ++i) request.add_commands()->set_sequence(i);
  REQUIRE(stream.Write(request));
  const grpc::Status status = stream.Finish();
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(status.error_message().find("streams_bytes_max (10000)") != std::string::npos);
  other.Acquire(1, "a", 1);
  pb::SessionResult result;
  CHECK(other.Next(&result));
}

TEST_CASE("session: more streams than the daemon takes", "[service]") {
  ServerOptions options;
  options.limits.streams_max = 1;
  World world(options);
  Stream one(&world);
  CHECK_FALSE(one.Open("client").session_id().empty());
  Stream two(&world);
  two.Open("client");
  CHECK(Say(two.Finish()) == "RESOURCE_EXHAUSTED LIMIT_REACHED");
}

TEST_CASE("session: many leases are listed in pages after a resume", "[service]") {
  constexpr uint32_t kLeases = 2'500;
  World world;
  std::string session;
  {
    Stream stream(&world);
    session = stream.Open("client").session_id();
    for (uint32_t i = 1; i <= kLeases; ++i) stream.Acquire(i, "a", kLeases);
    pb::SessionResult result;
    for (uint32_t i = 0; i < kLeases; ++i) REQUIRE(stream.Next(&result));
    stream.CloseSide();
    stream.Finish();
  }
  Stream stream(&world);
  pb::SessionOpened opened = stream.Open("client", session);
  std::set<std::string> listed;
  while (true) {
    CHECK(opened.resumed());
    CHECK(opened.session_id() == session);
    CHECK(opened.validity().valid_for_ms() > 0);
    CHECK(opened.leases_size() <= 1'000);
    for (const pb::Lease& lease : opened.leases()) listed.insert(lease.lease_id());
    if (!opened.more()) break;
    opened = stream.NextOpened();
  }
  CHECK(listed.size() == kLeases);
}

}  // namespace
}  // namespace semaphored::test
