// Enqueue, Work and what administers tickets.
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/service/service_world.h"

namespace semaphored::test {
namespace {

// One Work stream. NextAssignment() and NextResult() hand out what came, whatever messages it came
// in.
class Worker {
 public:
  explicit Worker(World* world) : stream_(world->stub().Work(&context_)) {}
  ~Worker() { context_.TryCancel(); }

  pb::OpenWork* open() { return request_.mutable_open(); }
  bool Open(const std::string& semaphore, uint32_t tickets_max = 1) {
    open()->set_client_id("worker");
    open()->set_tickets_max(tickets_max);
    open()->add_semaphores(semaphore);
    return Open();
  }
  bool Open() { return Send() && Read() && response_.has_opened(); }
  pb::WorkRequest* request() { return &request_; }
  bool Send() {
    const bool sent = stream_->Write(request_);
    request_.Clear();
    return sent;
  }
  pb::FinishTicket* Finish(uint64_t sequence, const pb::TicketAssignment& assignment) {
    pb::FinishTicket* finished = request_.add_finished();
    finished->set_sequence(sequence);
    finished->set_lease_id(assignment.lease().lease_id());
    return finished;
  }
  bool Done(uint64_t sequence, const pb::TicketAssignment& assignment) {
    Finish(sequence, assignment)->mutable_done();
    return Send();
  }
  // False: the stream has ended.
  bool NextAssignment(pb::TicketAssignment* assignment) {
    while (assignments_.empty()) {
      if (!Read()) return false;
    }
    *assignment = assignments_.front();
    assignments_.erase(assignments_.begin());
    return true;
  }
  bool NextResult(pb::FinishTicketResult* result) {
    while (results_.empty()) {
      if (!Read()) return false;
    }
    *result = results_.front();
    results_.erase(results_.begin());
    return true;
  }
  bool Read() {
    if (!stream_->Read(&response_)) return false;
    assignments_.insert(assignments_.end(), response_.assignments().begin(),
                        response_.assignments().end());
    results_.insert(results_.end(), response_.results().begin(), response_.results().end());
    return true;
  }
  const pb::WorkResponse& response() const { return response_; }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() {
    while (Read()) {
    }
    return stream_->Finish();
  }

 private:
  Context context_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::WorkRequest, pb::WorkResponse>> stream_;
  pb::WorkRequest request_;
  pb::WorkResponse response_;
  std::vector<pb::TicketAssignment> assignments_;
  std::vector<pb::FinishTicketResult> results_;
};

pb::EnqueueRequest Ticket(const std::string& semaphore, const std::string& payload) {
  pb::EnqueueRequest request;
  request.set_semaphore(semaphore);
  request.set_limit(1);
  request.set_payload(payload);
  return request;
}

std::string MustEnqueue(World* world, const pb::EnqueueRequest& request) {
  Context context;
  pb::EnqueueResponse response;
  const grpc::Status status = world->stub().Enqueue(&context, request, &response);
  INFO(Say(status));
  REQUIRE(status.ok());
  return response.ticket_id();
}

pb::AdministerRequest About(const std::string& semaphore) {
  pb::AdministerRequest request;
  request.set_semaphore(semaphore);
  return request;
}

TEST_CASE("work: a ticket from Enqueue to done", "[service]") {
  World world;
  pb::EnqueueRequest request = Ticket("a", "payload");
  request.set_content_type("text/plain");
  request.set_max_attempts(3);
  const std::string id = MustEnqueue(&world, request);
  CHECK(id.size() == 32);
  Worker worker(&world);
  REQUIRE(worker.Open("a"));
  CHECK_FALSE(worker.response().opened().resumed());
  pb::TicketAssignment assignment;
  REQUIRE(worker.NextAssignment(&assignment));
  CHECK(assignment.ticket_id() == id);
  CHECK(assignment.payload() == "payload");
  CHECK(assignment.content_type() == "text/plain");
  CHECK(assignment.attempt() == 1);
  CHECK(assignment.max_attempts() == 3);
  CHECK_FALSE(assignment.attempts_unbounded());
  CHECK(assignment.enqueued_at().seconds() > 1'700'000'000);
  CHECK(assignment.lease().semaphore() == "a");
  CHECK(assignment.lease().slots_size() == 1);
  CHECK(assignment.lease().token() > 0);
  CHECK(world.Describe("a").tickets().assigned() == 1);
  REQUIRE(worker.Done(1, assignment));
  pb::FinishTicketResult result;
  REQUIRE(worker.NextResult(&result));
  CHECK(result.sequence() == 1);
  CHECK_FALSE(result.has_error());
  CHECK(result.state() == pb::TICKET_STATE_UNSPECIFIED);
  CHECK_FALSE(world.Describe("a").has_tickets());
  CHECK(world.Describe("a").held() == 0);
  worker.request()->set_close(true);
  worker.Send();
  CHECK(Say(worker.Finish()) == "OK");
}

TEST_CASE("work: the same request enqueues one ticket", "[service]") {
  World world;
  pb::EnqueueRequest request = Ticket("a", "x");
  request.mutable_request_id()->mutable_numbered()->set_client_id("c");
  request.mutable_request_id()->mutable_numbered()->set_sequence(1);
  CHECK(MustEnqueue(&world, request) == MustEnqueue(&world, request));
  CHECK(world.Describe("a").tickets().queued() == 1);
}

TEST_CASE("work: the trace of the call, unless the request has its own", "[service]") {
  World world;
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  Context context;
  context.AddMetadata("traceparent", trace);
  pb::EnqueueResponse response;
  REQUIRE(world.stub().Enqueue(&context, Ticket("a", "x"), &response).ok());
  Context strange;
  strange.AddMetadata("traceparent", "nonsense");
  REQUIRE(world.stub().Enqueue(&strange, Ticket("a", "y"), &response).ok());
  Worker worker(&world);
  REQUIRE(worker.Open("a"));
  pb::TicketAssignment assignment;
  REQUIRE(worker.NextAssignment(&assignment));
  CHECK(assignment.traceparent() == trace);
  REQUIRE(worker.Done(1, assignment));
  REQUIRE(worker.NextAssignment(&assignment));
  CHECK(assignment.traceparent().empty());
}

TEST_CASE("work: failed, rejected, and dead letters", "[service]") {
  World world;
  pb::EnqueueRequest request = Ticket("a", "x");
  request.set_max_attempts(2);
  const std::string id = MustEnqueue(&world, request);
  Worker worker(&world);
  REQUIRE(worker.Open("a"));
  pb::TicketAssignment assignment;
  pb::FinishTicketResult result;
  REQUIRE(worker.NextAssignment(&assignment));
  pb::TicketFailed* failed = worker.Finish(1, assignment)->mutable_failed();
  failed->set_reason("no luck");
  failed->set_retry_after_ms(0);
  worker.Send();
  REQUIRE(worker.NextResult(&result));
  CHECK(result.state() == pb::TICKET_STATE_QUEUED);
  REQUIRE(worker.NextAssignment(&assignment));
  CHECK(assignment.attempt() == 2);
  worker.Finish(2, assignment)->mutable_failed()->set_reason("again");
  worker.Send();
  REQUIRE(worker.NextResult(&result));
  CHECK(result.state() == pb::TICKET_STATE_DEAD);

  pb::AdministerRequest list = About("a");
  list.mutable_list_tickets()->add_states(pb::TICKET_STATE_DEAD);
  pb::AdministerResponse response;
  REQUIRE(world.Administer(list, &response).ok());
  REQUIRE(response.list_tickets().tickets_size() == 1);
  const pb::TicketInfo& dead = response.list_tickets().tickets(0);
  CHECK(dead.ticket_id() == id);
  CHECK(dead.state() == pb::TICKET_STATE_DEAD);
  REQUIRE(dead.reasons_size() == 2);
  CHECK(dead.reasons(0).text() == "no luck");
  CHECK(dead.reasons(1).attempt() == 2);

  pb::AdministerRequest requeue = About("a");
  requeue.mutable_requeue_tickets()->set_all(true);
  REQUIRE(world.Administer(requeue, &response).ok());
  CHECK(response.requeue_tickets().requeued() == 1);
  REQUIRE(worker.NextAssignment(&assignment));
  CHECK(assignment.attempt() == 1);
  worker.Finish(3, assignment)->mutable_rejected()->set_reason("never");
  worker.Send();
  REQUIRE(worker.NextResult(&result));
  CHECK(result.state() == pb::TICKET_STATE_DEAD);
  pb::AdministerRequest purge = About("a");
  purge.mutable_purge_tickets()->set_ticket_id(id);
  REQUIRE(world.Administer(purge, &response).ok());
  CHECK(response.purge_tickets().purged() == 1);
  CHECK(Say(world.Administer(purge, &response)) == "NOT_FOUND NO_SUCH_TICKET");
}

TEST_CASE("work: administration of one ticket", "[service]") {
  World world;
  const std::string low = MustEnqueue(&world, Ticket("a", "low"));
  const std::string other = MustEnqueue(&world, Ticket("a", "other"));
  pb::AdministerResponse response;
  pb::AdministerRequest act = About("a");
  act.mutable_prioritise_ticket()->set_ticket_id(other);
  act.mutable_prioritise_ticket()->set_priority(5);
  REQUIRE(world.Administer(act, &response).ok());
  act = About("a");
  act.mutable_show_ticket()->set_ticket_id(other);
  REQUIRE(world.Administer(act, &response).ok());
  CHECK(response.show_ticket().payload() == "other");
  CHECK(response.show_ticket().ticket().priority() == 5);
  CHECK(response.show_ticket().ticket().position() == 1);
  act = About("a");
  act.mutable_cancel_ticket()->set_ticket_id(low);
  REQUIRE(world.Administer(act, &response).ok());
  CHECK(Say(world.Administer(act, &response)) == "NOT_FOUND NO_SUCH_TICKET");
  Worker worker(&world);
  REQUIRE(worker.Open("a"));
  pb::TicketAssignment assignment;
  REQUIRE(worker.NextAssignment(&assignment));
  act = About("a");
  act.mutable_list_tickets();
  REQUIRE(world.Administer(act, &response).ok());
  REQUIRE(response.list_tickets().tickets_size() == 1);
  CHECK(response.list_tickets().tickets(0).holder() == "worker");
  act = About("a");
  act.mutable_cancel_ticket()->set_ticket_id(other);
  CHECK(Say(world.Administer(act, &response)) == "FAILED_PRECONDITION IN_USE");
  act.mutable_cancel_ticket()->set_force(true);
  CHECK(world.Administer(act, &response).ok());
  while (worker.response().events_size() == 0) REQUIRE(worker.Read());
  CHECK(worker.response().events(0).lost().lease_id() == assignment.lease().lease_id());
}

TEST_CASE("work: a stream that breaks is resumed with what it has", "[service]") {
  World world;
  MustEnqueue(&world, Ticket("a", "x"));
  std::string session;
  pb::TicketAssignment first;
  {
    Worker worker(&world);
    REQUIRE(worker.Open("a"));
    session = worker.response().opened().session_id();
    REQUIRE(worker.NextAssignment(&first));
  }
  Worker again(&world);
  again.open()->set_resume_session_id(session);
  REQUIRE(again.Open("a"));
  CHECK(again.response().opened().resumed());
  REQUIRE(again.response().opened().leases_size() == 1);
  CHECK(again.response().opened().leases(0).lease_id() == first.lease().lease_id());
  pb::TicketAssignment assignment;
  REQUIRE(again.NextAssignment(&assignment));
  CHECK(assignment.payload() == "x");
  CHECK(assignment.attempt() == 1);
  CHECK(assignment.lease().token() == first.lease().token());
}

// A worker with two tickets, whose daemon has an engine that can be held, and which then defers what the worker says.
struct HeldUpWork {
  Gate gate;
  World world;
  Worker worker{&world};
  pb::TicketAssignment assignments[2];

  explicit HeldUpWork(size_t deferred_bytes_max)
      : world(Options(deferred_bytes_max), [this](std::unique_ptr<Adapter> adapter) {
          return std::make_unique<GatedAdapter>(std::move(adapter), &gate);
        }) {
    for (const char* payload : {"one", "two"}) {
      pb::EnqueueRequest request = Ticket("a", payload);
      request.set_limit(2);
      MustEnqueue(&world, request);
    }
    REQUIRE(worker.Open("a", 2));
    for (pb::TicketAssignment& each : assignments) REQUIRE(worker.NextAssignment(&each));
    gate.Hold(true);
    REQUIRE(worker.Done(1, assignments[0]));
  }
  ~HeldUpWork() { gate.Hold(false); }
  static ServerOptions Options(size_t deferred_bytes_max) {
    ServerOptions options;
    options.limits.jobs_pause = 0;
    options.limits.deferred_stream_bytes_max = deferred_bytes_max;
    return options;
  }
  void Ping(uint64_t id) {
    worker.request()->mutable_ping()->set_ping_id(id);
    REQUIRE(worker.Send());
  }
  // What was asked before a leap of the clock may have been given up by then.
  void Answered(bool may_be_refused = false) {
    gate.Hold(false);
    pb::FinishTicketResult result;
    for (uint64_t sequence : {1, 2}) {
      REQUIRE(worker.NextResult(&result));
      CHECK(result.sequence() == sequence);
      CHECK((!result.has_error() || may_be_refused));
    }
  }
};

TEST_CASE("work: pings are answered while finished tickets wait for the engine", "[service]") {
  HeldUpWork held(1 << 20);
  REQUIRE(held.worker.Done(2, held.assignments[1]));
  for (uint64_t id : {7, 8}) {
    held.Ping(id);
    REQUIRE(held.worker.Read());
    const pb::WorkResponse& response = held.worker.response();
    CHECK(response.pong().ping_id() == id);
    CHECK(response.pong().validity().valid_for_ms() > 0);
    CHECK(response.results_size() == 0);
  }
  held.Answered();
}

TEST_CASE("work: its time does not run while the daemon does not read", "[service]") {
  HeldUpWork held(0);
  held.worker.Finish(2, held.assignments[1])->mutable_done();
  held.Ping(7);
  // The last message that is read.
  REQUIRE(held.worker.Read());
  REQUIRE(held.worker.response().has_pong());
  held.Ping(8);
  held.world.Leap(Milliseconds(100'000));
  held.world.Leap(Milliseconds(100'000));
  held.Answered(/*may_be_refused=*/true);
}

TEST_CASE("work: large payloads come in messages that a client takes", "[service]") {
  World world;
  constexpr int kTickets = 100;
  for (int i = 0; i < kTickets; ++i) {
    pb::EnqueueRequest request = Ticket("a", std::string(65'536, 'x'));
    request.set_limit(kTickets);
    MustEnqueue(&world, request);
  }
  Worker worker(&world);
  REQUIRE(worker.Open("a", kTickets));
  pb::TicketAssignment assignment;
  for (int i = 0; i < kTickets; ++i) {
    REQUIRE(worker.NextAssignment(&assignment));
    CHECK(assignment.payload().size() == 65'536);
  }
}

TEST_CASE("work: of all streams the one that leaves most unread ends", "[service]") {
  ServerOptions options;
  options.limits.streams_bytes_max = 50'000;
  World world(options);
  MustEnqueue(&world, Ticket("a", std::string(65'536, 'x')));
  Worker worker(&world);
  worker.Open("a");
  const grpc::Status status = worker.Finish();
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(status.error_message().find("streams_bytes_max (50000)") != std::string::npos);
}

TEST_CASE("work: no more tickets for who wants none", "[service]") {
  World world;
  Worker worker(&world);
  REQUIRE(worker.Open("a"));
  worker.request()->set_tickets_max(0);
  worker.request()->mutable_ping()->set_ping_id(1);
  worker.Send();
  while (!worker.response().has_pong()) REQUIRE(worker.Read());
  CHECK(worker.response().pong().validity().valid_for_ms() > 0);
  MustEnqueue(&world, Ticket("a", "x"));
  CHECK(world.Describe("a").tickets().queued() == 1);
  worker.request()->set_tickets_max(1);
  worker.Send();
  pb::TicketAssignment assignment;
  CHECK(worker.NextAssignment(&assignment));
}

TEST_CASE("work: what is wrong is named", "[service]") {
  World world;
  SECTION("no open") {
    Worker worker(&world);
    worker.request()->mutable_ping()->set_ping_id(1);
    worker.Send();
    CHECK(Say(worker.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  }
  SECTION("nothing to work for") {
    Worker worker(&world);
    worker.open()->set_client_id("c");
    worker.Send();
    CHECK(Say(worker.Finish()) == "INVALID_ARGUMENT INVALID_FIELD");
  }
  SECTION("a session that is not") {
    Worker worker(&world);
    worker.open()->set_resume_session_id(std::string(32, '1'));
    CHECK_FALSE(worker.Open("a"));
    CHECK(Say(worker.Finish()) == "NOT_FOUND SESSION_LOST");
  }
  SECTION("an answer without a result, and one for no ticket") {
    MustEnqueue(&world, Ticket("a", "x"));
    Worker worker(&world);
    REQUIRE(worker.Open("a"));
    pb::TicketAssignment assignment;
    REQUIRE(worker.NextAssignment(&assignment));
    worker.Finish(1, assignment);
    worker.Send();
    pb::FinishTicketResult result;
    REQUIRE(worker.NextResult(&result));
    CHECK(ErrorOf(result.error()).reason == "INVALID_FIELD");
    REQUIRE(worker.Done(2, assignment));
    REQUIRE(worker.NextResult(&result));
    CHECK_FALSE(result.has_error());
    REQUIRE(worker.Done(3, assignment));
    REQUIRE(worker.NextResult(&result));
    CHECK(ErrorOf(result.error()).reason == "NOT_HELD");
  }
  SECTION("a semaphore that is not, or has another limit") {
    pb::EnqueueRequest request = Ticket("a", "x");
    request.set_limit(0);
    Context context;
    pb::EnqueueResponse response;
    CHECK(Say(world.stub().Enqueue(&context, request, &response)) == "NOT_FOUND NO_SUCH_SEMAPHORE");
    MustEnqueue(&world, Ticket("a", "x"));
    request.set_limit(2);
    Context again;
    CHECK(Say(world.stub().Enqueue(&again, request, &response)) ==
          "FAILED_PRECONDITION LIMIT_MISMATCH");
  }
}

}  // namespace
}  // namespace semaphored::test
