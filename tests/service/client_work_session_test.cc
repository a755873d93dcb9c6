// semctl's side of Work: resuming, answers that are lost, deadlines. Time is a number here.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semaphore/errors.h"
#include "client/semctl/work_session.h"
#include "proto/google/rpc/error_details.pb.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

constexpr char kLease[] = "a#0123456789abcdef0123456789abcdef";

class Notes : public WorkListener {
 public:
  void OnAssigned(const v1::TicketAssignment& assignment,
                  const LeaseKeeper::LeasePtr& lease) override {
    assigned.push_back(assignment.lease().lease_id());
    leases.push_back(lease);
  }
  void OnLost(const std::string& lease_id, const std::string&) override {
    lost.push_back(lease_id);
  }
  void OnRecalled(const LeaseKeeper::LeasePtr& lease, const RecallNotice&) override {
    recalled.push_back(lease->lease_id);
  }
  void OnAnswered(const std::string& lease_id, const absl::Status& status,
                  v1::TicketState) override {
    answered.emplace_back(lease_id, status.code());
  }

  void OnRefusedAgain(const std::string& lease_id, const absl::Status& why) override {
    refused_again.emplace_back(lease_id, why.code());
  }

  std::vector<std::string> assigned;
  std::vector<std::pair<std::string, absl::StatusCode>> refused_again;
  std::vector<LeaseKeeper::LeasePtr> leases;
  std::vector<std::string> lost;
  std::vector<std::string> recalled;
  std::vector<std::pair<std::string, absl::StatusCode>> answered;
};

struct Bench {
  explicit Bench(std::size_t endpoints = 1, milliseconds ttl = milliseconds(0))
      : session(
            Options(endpoints, ttl), [this] { return "client-" + std::to_string(++clients); },
            &notes, now) {}

  static WorkOptions Options(std::size_t endpoints, milliseconds ttl = milliseconds(0)) {
    WorkOptions options;
    options.endpoints = endpoints;
    options.semaphores = {"a"};
    options.tickets_max = 2;
    options.ttl = ttl;
    return options;
  }

  void Pass(milliseconds time) {
    now += time;
    session.Tick(now);
  }
  v1::WorkRequest Next() {
    v1::WorkRequest request;
    session.NextMessage(&request, now);
    return request;
  }
  // Connects, and is told that it is open; what it has said in `open`.
  v1::OpenWork Open(bool resumed, const std::vector<std::string>& leases = {},
                    std::uint64_t epoch = 1) {
    std::size_t endpoint = 0;
    REQUIRE(session.StartConnecting(&endpoint, now));
    const v1::WorkRequest request = Next();
    v1::WorkResponse response;
    v1::SessionOpened* opened = response.mutable_opened();
    opened->set_session_id("session");
    opened->set_ttl_ms(ttl_ms);
    opened->set_resumed(resumed);
    opened->mutable_validity()->set_valid_for_ms(ttl_ms);
    opened->mutable_validity()->set_epoch(epoch);
    for (const std::string& lease : leases) opened->add_leases()->set_lease_id(lease);
    session.OnMessage(response, now);
    return request.open();
  }
  void Assign(const std::string& lease_id) {
    v1::WorkResponse response;
    response.add_assignments()->mutable_lease()->set_lease_id(lease_id);
    session.OnMessage(response, now);
  }
  void Done(const std::string& lease_id) {
    v1::FinishTicket finish;
    finish.set_lease_id(lease_id);
    finish.mutable_done();
    session.Finish(finish);
  }
  void Answer(std::uint64_t sequence, absl::StatusCode code = absl::StatusCode::kOk,
              const std::string& reason = "") {
    v1::WorkResponse response;
    v1::FinishTicketResult* result = response.add_results();
    result->set_sequence(sequence);
    if (code != absl::StatusCode::kOk) result->mutable_error()->set_code(static_cast<int>(code));
    if (!reason.empty()) {
      google::rpc::ErrorInfo info;
      info.set_reason(reason);
      result->mutable_error()->add_details()->PackFrom(info);
    }
    session.OnMessage(response, now);
  }
  // What is sent of answers after this time; 0: nothing.
  std::uint64_t SentAfter(milliseconds time) {
    Pass(time);
    const v1::WorkRequest request = Next();
    return request.finished_size() > 0 ? request.finished(0).sequence() : 0;
  }
  void Break() {
    session.OnStreamEnd(absl::UnavailableError("broken"), now);
    now += milliseconds(100);  // Longer than the first pause.
  }

  TimePoint now{std::chrono::hours(1)};
  int clients = 0;
  std::uint32_t ttl_ms = 9'000;
  Notes notes;
  WorkSession session;
};

TEST_CASE("work session: a ticket, its answer, and a clean end", "[client]") {
  Bench bench;
  const v1::OpenWork open = bench.Open(false);
  CHECK(open.client_id() == "client-1");
  CHECK(open.tickets_max() == 2);
  bench.Assign(kLease);
  CHECK(bench.notes.assigned == std::vector<std::string>{kLease});
  bench.Done(kLease);
  const v1::WorkRequest request = bench.Next();
  REQUIRE(request.finished_size() == 1);
  CHECK(request.finished(0).sequence() == 1);
  bench.session.Close();
  CHECK_FALSE(bench.Next().close());  // Not before the answer has been heard.
  bench.Answer(1);
  CHECK(bench.notes.answered.size() == 1);
  CHECK(bench.Next().close());
  bench.session.OnStreamEnd(absl::OkStatus(), bench.now);
  CHECK(bench.session.over());
  CHECK(bench.session.status().ok());
  CHECK(bench.notes.lost.empty());
}

TEST_CASE("work session: an answer that was not heard is sent again, with its number", "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Done(kLease);
  CHECK(bench.Next().finished_size() == 1);
  bench.Break();
  const v1::OpenWork open = bench.Open(true);
  CHECK(open.resume_session_id() == "session");
  CHECK(open.client_id() == "client-1");
  // It is not listed any more, as the answer had arrived: that is no loss.
  CHECK(bench.notes.lost.empty());
  const v1::WorkRequest again = bench.Next();
  REQUIRE(again.finished_size() == 1);
  CHECK(again.finished(0).sequence() == 1);
  bench.Answer(1, absl::StatusCode::kUnavailable);
  CHECK(bench.Next().finished_size() == 0);
  bench.Pass(milliseconds(500));
  CHECK(bench.Next().finished_size() == 1);
  bench.Answer(1);
  CHECK(bench.session.answered());
}

TEST_CASE("work session: after an error the answer is sent again, since pings keep its ticket",
          "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Done(kLease);
  CHECK(bench.SentAfter(milliseconds(0)) == 1);
  bench.Answer(1, absl::StatusCode::kDataLoss);
  CHECK(bench.SentAfter(milliseconds(499)) == 0);
  CHECK(bench.SentAfter(milliseconds(1)) == 1);
  CHECK(bench.notes.refused_again.empty());
  bench.Answer(1, absl::StatusCode::kUnavailable);
  CHECK(bench.SentAfter(milliseconds(999)) == 0);
  CHECK(bench.SentAfter(milliseconds(1)) == 1);
  CHECK(bench.session.Holds(kLease));
  CHECK(bench.notes.answered.empty());
  SECTION("until it is heard") { bench.Answer(1); }
  SECTION("until the ticket is not held any more") {
    bench.Answer(1, absl::StatusCode::kNotFound, "NOT_HELD");
  }
  SECTION("unless it never can be") { bench.Answer(1, absl::StatusCode::kPermissionDenied); }
  SECTION("under another number, if its own is forgotten") {
    bench.Answer(1, absl::StatusCode::kAborted, "REQUEST_TOO_OLD");
    CHECK(bench.SentAfter(milliseconds(2'000)) == 2);
    bench.Answer(2);
  }
  CHECK(bench.notes.answered.size() == 1);
  CHECK(bench.notes.refused_again == std::vector<std::pair<std::string, absl::StatusCode>>{
                                         {kLease, absl::StatusCode::kUnavailable}});
  CHECK_FALSE(bench.session.Holds(kLease));
  CHECK(bench.SentAfter(milliseconds(10'000)) == 0);
}

TEST_CASE("work session: a ticket that is assigned beside recalled ones is pinged for at once",
          "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Pass(milliseconds(1'200));
  REQUIRE(bench.Next().has_ping());
  v1::WorkResponse response;
  v1::LeaseRecalled* recalled = response.add_events()->mutable_recalled();
  recalled->set_lease_id(kLease);
  recalled->mutable_recall()->set_grace_ms(2'000);
  recalled->mutable_recall()->set_after_ping_id(1);
  bench.session.OnMessage(response, bench.now);
  response.Clear();
  response.mutable_pong()->set_ping_id(1);
  response.mutable_pong()->mutable_validity()->set_valid_for_ms(2'000);
  response.mutable_pong()->mutable_validity()->set_epoch(1);
  bench.session.OnMessage(response, bench.now);
  CHECK_FALSE(bench.Next().has_ping());
  bench.Assign("a#11111111111111111111111111111111");
  CHECK(bench.Next().has_ping());
  CHECK_FALSE(bench.Next().has_ping());
}

TEST_CASE("work session: a TTL that its field cannot say is the longest that it can", "[client]") {
  Bench bench(1, std::chrono::hours(24 * 50));
  CHECK(bench.Open(false).ttl_ms() == UINT32_MAX);
}

TEST_CASE("work session: resumed, it goes on with what it has, and hears what it has not",
          "[client]") {
  const std::string lost = "a#11111111111111111111111111111111";
  const std::string unheard = "a#22222222222222222222222222222222";
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Assign(lost);
  bench.Break();
  bench.Open(true, {kLease, unheard});
  CHECK(bench.notes.lost == std::vector<std::string>{lost});
  bench.Assign(kLease);  // Told again: it is at work already.
  bench.Assign(unheard);
  CHECK(bench.notes.assigned == std::vector<std::string>{kLease, lost, unheard});
}

TEST_CASE("work session: silence past the deadline loses what it has, once", "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  const TimePoint good_until = bench.notes.leases[0]->GoodUntil();
  CHECK(good_until < bench.now + milliseconds(9'000));
  bench.Break();
  bench.Pass(good_until - bench.now - milliseconds(1) > milliseconds(0)
                 ? std::chrono::duration_cast<milliseconds>(good_until - bench.now) -
                       milliseconds(1)
                 : milliseconds(0));
  CHECK(bench.notes.lost.empty());
  bench.Pass(milliseconds(2));
  CHECK(bench.notes.lost.size() == 1);
  bench.Pass(milliseconds(100));
  CHECK(bench.notes.lost.size() == 1);
  // It may still be ours: then its failure is told, as soon as there is contact again.
  CHECK(bench.session.Holds(kLease));
  bench.Open(true, {kLease});
  CHECK(bench.notes.assigned.size() == 1);
}

TEST_CASE("work session: it gives up only when no ticket's lease is good any more", "[client]") {
  Bench bench;
  bench.ttl_ms = 600'000;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Break();
  bench.Pass(milliseconds(61'000));
  CHECK_FALSE(bench.session.over());
  CHECK(bench.notes.lost.empty());
  bench.Pass(milliseconds(600'000));
  CHECK(bench.notes.lost == std::vector<std::string>{kLease});
  CHECK(bench.session.over());
  CHECK(ErrorReason(bench.session.status()) == "UNREACHABLE");
}

TEST_CASE("work session: after its session has expired a new one begins", "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Done(kLease);
  bench.Break();
  std::size_t endpoint = 0;
  REQUIRE(bench.session.StartConnecting(&endpoint, bench.now));
  bench.Next();
  bench.session.OnStreamEnd(absl::NotFoundError("no such session"), bench.now);
  CHECK(bench.notes.lost.size() == 1);
  CHECK(bench.session.answered());
  bench.now += milliseconds(200);
  const v1::OpenWork open = bench.Open(false);
  CHECK(open.resume_session_id().empty());
  CHECK(open.client_id() == "client-2");
}

TEST_CASE("work session: pings, and a connection that has gone silent", "[client]") {
  Bench bench;
  bench.Open(false);
  CHECK_FALSE(bench.Next().has_ping());
  bench.Pass(milliseconds(1'200));  // An eighth of 9 s.
  const v1::WorkRequest ping = bench.Next();
  REQUIRE(ping.has_ping());
  bench.Pass(milliseconds(2'300));
  CHECK(bench.session.TakeDrop());
  CHECK_FALSE(bench.session.TakeDrop());
  std::size_t endpoint = 0;
  bench.now += milliseconds(100);
  CHECK(bench.session.StartConnecting(&endpoint, bench.now));
}

TEST_CASE(
    "work session: what a later session is vouched for does not extend a job of an earlier one",
    "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  const TimePoint good_until = bench.notes.leases[0]->GoodUntil();
  bench.Break();
  std::size_t endpoint = 0;
  REQUIRE(bench.session.StartConnecting(&endpoint, bench.now));
  bench.Next();
  bench.session.OnStreamEnd(absl::NotFoundError("no such session"), bench.now);
  bench.now += milliseconds(4'000);
  bench.Open(false);
  bench.Pass(milliseconds(1'200));
  CHECK(bench.notes.leases[0]->GoodUntil() == good_until);
}

TEST_CASE("work session: a recall bounds the job, whatever pongs say, and is acknowledged",
          "[client]") {
  Bench bench;
  bench.Open(false);
  bench.Assign(kLease);
  bench.Assign("a#11111111111111111111111111111111");
  bench.Pass(milliseconds(1'200));
  const TimePoint sent = bench.now;
  REQUIRE(bench.Next().has_ping());
  bench.now += milliseconds(700);
  v1::WorkResponse response;
  v1::LeaseRecalled* recalled = response.add_events()->mutable_recalled();
  recalled->set_lease_id(kLease);
  recalled->mutable_recall()->set_grace_ms(2'000);
  recalled->mutable_recall()->set_elapsed_ms(500);
  recalled->mutable_recall()->set_after_ping_id(1);
  recalled->mutable_recall()->set_recall_id(7);
  response.mutable_pong()->set_ping_id(1);
  response.mutable_pong()->mutable_validity()->set_valid_for_ms(9'000);
  response.mutable_pong()->mutable_validity()->set_epoch(1);
  bench.session.OnMessage(response, bench.now);
  CHECK(bench.notes.leases[0]->GoodUntil() == sent + milliseconds(2'500 - 20));
  CHECK(bench.notes.leases[1]->GoodUntil() > sent + milliseconds(8'000));
  const v1::WorkRequest request = bench.Next();
  REQUIRE(request.acknowledged_recalls_size() == 1);
  CHECK(request.acknowledged_recalls(0).recall_id() == 7);
  bench.now = sent + milliseconds(2'479);
  bench.Pass(milliseconds(0));
  CHECK(bench.notes.lost.empty());
  bench.Pass(milliseconds(2));
  CHECK(bench.notes.lost == std::vector<std::string>{kLease});
}

TEST_CASE("work session: a daemon that was overtaken is not listened to", "[client]") {
  Bench bench;
  bench.Open(false, {}, 5);
  bench.Break();
  bench.Open(true, {}, 4);
  CHECK_FALSE(bench.session.open());
  CHECK(bench.session.TakeDrop());
}

TEST_CASE("work session: no daemon at all, and one that refuses", "[client]") {
  SECTION("none") {
    Bench bench(2);
    std::size_t endpoint = 0;
    REQUIRE(bench.session.StartConnecting(&endpoint, bench.now));
    CHECK(endpoint == 0);
    bench.session.OnStreamEnd(absl::UnavailableError("refused"), bench.now);
    REQUIRE(bench.session.StartConnecting(&endpoint, bench.now));
    CHECK(endpoint == 1);
    bench.session.OnStreamEnd(absl::UnavailableError("refused"), bench.now);
    CHECK_FALSE(bench.session.StartConnecting(&endpoint, bench.now));  // A pause after a round.
    bench.Pass(milliseconds(5'000));
    CHECK(bench.session.over());
    CHECK(ErrorReason(bench.session.status()) == "UNREACHABLE");
  }
  SECTION("refused") {
    Bench bench;
    std::size_t endpoint = 0;
    REQUIRE(bench.session.StartConnecting(&endpoint, bench.now));
    bench.Next();
    bench.session.OnStreamEnd(absl::UnimplementedError("keeps no tickets"), bench.now);
    CHECK(bench.session.over());
    CHECK(absl::IsUnimplemented(bench.session.status()));
  }
}

TEST_CASE("work session: no more tickets is said, also by who resumes", "[client]") {
  Bench bench;
  bench.Open(false);
  bench.session.SetTicketsMax(0);
  v1::WorkRequest request = bench.Next();
  REQUIRE(request.has_tickets_max());
  CHECK(request.tickets_max() == 0);
  CHECK_FALSE(bench.Next().has_tickets_max());
  bench.Break();
  bench.Open(true);
  request = bench.Next();
  REQUIRE(request.has_tickets_max());
  CHECK(request.tickets_max() == 0);
}

}  // namespace
}  // namespace semaphore::semctl
