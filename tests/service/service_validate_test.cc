// Every field of every request: what is taken, and what is refused by its name. Pure functions.
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "server/rpc/convert.h"
#include "server/rpc/validate.h"

namespace semaphored {
namespace {

constexpr char kLeaseId[] = "team/db#0123456789abcdef0123456789abcdef";
constexpr char kUuid[] = "123e4567-e89b-42d3-a456-426614174000";
constexpr int64_t kDayMs = 24 * 3'600'000;

// A change of a good request, and the field that the refusal must name; nullptr: it is taken.
template <typename Request>
struct Row {
  const char* what;
  std::function<void(Request&)> change;
  const char* field;
};

template <typename Out, typename Request>
void CheckRows(const Request& good, const std::vector<Row<Request>>& rows) {
  const RequestLimits limits;
  {
    Request request = good;
    Out out;
    CHECK_FALSE(Check(request, limits, &out).has_value());
  }
  for (const Row<Request>& row : rows) {
    CAPTURE(row.what);
    Request request = good;
    row.change(request);
    Out out;
    const Problem problem = Check(request, limits, &out);
    if (row.field == nullptr) {
      CHECK_FALSE(problem.has_value());
    } else {
      REQUIRE(problem.has_value());
      CHECK(problem->code == absl::StatusCode::kInvalidArgument);
      CHECK(problem->reason == Reason::kInvalidField);
      CHECK(problem->message.starts_with(std::string(row.field) + ": "));
    }
  }
}

template <typename Request>
void Add(uint32_t first, uint32_t last, Request* request) {
  pb::SlotRange* range = request->add_slots();
  range->set_first(first);
  range->set_last(last);
}

TEST_CASE("validate: acquire", "[service]") {
  using R = pb::AcquireRequest;
  R good;
  good.set_semaphore("team/db");
  CheckRows<AcquireParams, R>(
      good, {
                {"no name", [](R& r) { r.clear_semaphore(); }, "semaphore"},
                {"name of 255", [](R& r) { r.set_semaphore(std::string(255, 'a')); }, nullptr},
                {"name of 256", [](R& r) { r.set_semaphore(std::string(256, 'a')); }, "semaphore"},
                {"all kinds of bytes", [](R& r) { r.set_semaphore("aZ9._-/:@+"); }, nullptr},
                {"space", [](R& r) { r.set_semaphore("a b"); }, "semaphore"},
                {"hash", [](R& r) { r.set_semaphore("a#b"); }, "semaphore"},
                {"a NUL", [](R& r) { r.set_semaphore(std::string("a\0b", 3)); }, "semaphore"},
                {"an umlaut", [](R& r) { r.set_semaphore("ä"); }, "semaphore"},
                {"begins with .", [](R& r) { r.set_semaphore(".a"); }, "semaphore"},
                {"begins with /", [](R& r) { r.set_semaphore("/a"); }, "semaphore"},
                {"ends with /", [](R& r) { r.set_semaphore("a/"); }, "semaphore"},
                {"an empty segment", [](R& r) { r.set_semaphore("a//b"); }, "semaphore"},
                {"a segment .", [](R& r) { r.set_semaphore("a/./b"); }, "semaphore"},
                {"climbs", [](R& r) { r.set_semaphore("a/../b"); }, "semaphore"},
                {"dots in a segment", [](R& r) { r.set_semaphore("a/..b/...c."); }, nullptr},
                {"most permits", [](R& r) { r.set_permits(1'000'000); }, nullptr},
                {"too many permits", [](R& r) { r.set_permits(1'000'001); }, "permits"},
                {"highest limit", [](R& r) { r.set_limit(1'000'000); }, nullptr},
                {"limit too high", [](R& r) { r.set_limit(1'000'001); }, "limit"},
                {"adopt", [](R& r) { r.set_limit_mismatch(pb::LIMIT_MISMATCH_ADOPT); }, nullptr},
                {"no such mismatch", [](R& r) { r.set_limit_mismatch(pb::LimitMismatch(7)); },
                 "limit_mismatch"},
                {"for ever", [](R& r) { r.set_wait_forever(true); }, nullptr},
                {"for ever, and for a while",
                 [](R& r) {
                   r.set_wait_forever(true);
                   r.set_wait_ms(1);
                 },
                 "wait_forever"},
                {"longest wait", [](R& r) { r.set_wait_ms(kDayMs); }, nullptr},
                {"too long a wait", [](R& r) { r.set_wait_ms(kDayMs + 1); }, "wait_ms"},
                {"lowest priority", [](R& r) { r.set_priority(-1000); }, nullptr},
                {"too low", [](R& r) { r.set_priority(-1001); }, "priority"},
                {"highest priority", [](R& r) { r.set_priority(1000); }, nullptr},
                {"too high", [](R& r) { r.set_priority(1001); }, "priority"},
                {"shortest ttl", [](R& r) { r.set_ttl_ms(1000); }, nullptr},
                {"too short a ttl", [](R& r) { r.set_ttl_ms(999); }, "ttl_ms"},
                {"negative ttl", [](R& r) { r.set_ttl_ms(-1); }, "ttl_ms"},
                {"longest ttl", [](R& r) { r.set_ttl_ms(kDayMs); }, nullptr},
                {"too long a ttl", [](R& r) { r.set_ttl_ms(kDayMs + 1); }, "ttl_ms"},
                {"holder of 256", [](R& r) { r.set_holder(std::string(256, 'h')); }, nullptr},
                {"holder of 257", [](R& r) { r.set_holder(std::string(257, 'h')); }, "holder"},
                {"an empty id", [](R& r) { r.mutable_request_id(); }, "request_id"},
                {"an id without a client",
                 [](R& r) { r.mutable_request_id()->mutable_numbered()->set_sequence(1); },
                 "request_id.numbered.client_id"},
                {"an id without a number",
                 [](R& r) { r.mutable_request_id()->mutable_numbered()->set_client_id("c"); },
                 "request_id.numbered.sequence"},
                {"a number too high",
                 [](R& r) {
                   r.mutable_request_id()->mutable_numbered()->set_client_id("c");
                   r.mutable_request_id()->mutable_numbered()->set_sequence(1ull << 63);
                 },
                 "request_id.numbered.sequence"},
                {"a client of 129",
                 [](R& r) {
                   r.mutable_request_id()->mutable_numbered()->set_client_id(std::string(129, 'c'));
                   r.mutable_request_id()->mutable_numbered()->set_sequence(1);
                 },
                 "request_id.numbered.client_id"},
                {"a client that is not ASCII",
                 [](R& r) {
                   r.mutable_request_id()->mutable_numbered()->set_client_id("ü");
                   r.mutable_request_id()->mutable_numbered()->set_sequence(1);
                 },
                 "request_id.numbered.client_id"},
            });
}

TEST_CASE("validate: what is a UUID", "[service]") {
  using R = pb::ReleaseRequest;
  R good;
  good.set_lease_id(kLeaseId);
  constexpr char kField[] = "request_id.one_shot";
  const auto is = [](const std::string& text) {
    return [text](R& r) { r.mutable_request_id()->set_one_shot(text); };
  };
  CheckRows<ReleaseCommand, R>(
      good, {{"a UUID", is(kUuid), nullptr},
             {"in capitals", is("123E4567-E89B-42D3-A456-42661417400F"), nullptr},
             {"a word", is("one"), kField},
             {"without dashes", is("123e4567e89b42d3a456426614174000"), kField},
             {"as long, without dashes", is(std::string(36, 'a')), kField},
             {"a letter too far", is("123e4567-e89b-42d3-a456-42661417400g"), kField},
             {"a dash elsewhere", is("123e456-7e89b-42d3-a456-426614174000"), kField},
             {"in braces", is("{123e4567-e89b-42d3-a456-426614174000}"), kField},
             {"nil", is("00000000-0000-0000-0000-000000000000"), kField},
             {"none", is(""), kField}});
}

TEST_CASE("validate: a UUID is the id of each request that may be repeated", "[service]") {
  const RequestLimits limits;
  const Id id{0x123e4567e89b42d3, 0xa456426614174000};
  pb::RequestId request_id;
  request_id.set_one_shot(kUuid);
  const auto check = [&](auto request, auto out, const Requester& requester) {
    *request.mutable_request_id() = request_id;
    CHECK_FALSE(Check(request, limits, out).has_value());
    CHECK(requester == Requester{"", 0, id});
  };
  pb::AcquireRequest acquire;
  acquire.set_semaphore("a");
  AcquireParams acquired;
  acquired.requester = {"before", 7};
  check(acquire, &acquired, acquired.requester);
  CHECK(acquired.holder.empty());
  pb::ReleaseRequest release;
  release.set_lease_id(kLeaseId);
  ReleaseCommand released;
  check(release, &released, released.requester);
  pb::EnqueueRequest enqueue;
  enqueue.set_semaphore("a");
  EnqueueCommand enqueued;
  check(enqueue, &enqueued, enqueued.requester);
  pb::AdministerRequest act;
  act.set_semaphore("a");
  act.mutable_pause();
  AdminParams done;
  check(act, &done, done.command.requester);
}

TEST_CASE("validate: what an acquire becomes", "[service]") {
  const RequestLimits limits;
  pb::AcquireRequest request;
  request.set_semaphore("a");
  request.set_wait_forever(true);
  request.mutable_request_id()->mutable_numbered()->set_client_id("c");
  request.mutable_request_id()->mutable_numbered()->set_sequence(9);
  AcquireParams out;
  REQUIRE_FALSE(Check(request, limits, &out).has_value());
  CHECK(out.semaphore == "a");
  CHECK(out.permits == 1);
  CHECK(out.ttl_ms == 30'000);
  CHECK(out.wait_ms == -1);
  CHECK(out.holder == "c");
  CHECK(out.requester.client_id == "c");
  CHECK(out.requester.sequence == 9);
  CHECK_FALSE(out.adopt_limit);

  // What is left of a request before must not stay.
  pb::AcquireRequest plain;
  plain.set_semaphore("b");
  REQUIRE_FALSE(Check(plain, limits, &out).has_value());
  CHECK(out.requester.sequence == 0);
  CHECK(out.requester.client_id.empty());
  CHECK(out.holder.empty());
}

TEST_CASE("validate: hold", "[service]") {
  using R = pb::HoldRequest;
  R good;
  good.mutable_acquire()->set_semaphore("a");
  CheckRows<HoldParams, R>(
      good, {
                {"no acquire", [](R& r) { r.clear_acquire(); }, "acquire"},
                {"a wrong acquire", [](R& r) { r.mutable_acquire()->set_semaphore("/"); },
                 "acquire.semaphore"},
                {"a third of the TTL", [](R& r) { r.set_beat_interval_ms(10'000); }, nullptr},
                {"longer", [](R& r) { r.set_beat_interval_ms(10'001); }, "beat_interval_ms"},
                {"the shortest", [](R& r) { r.set_beat_interval_ms(100); }, nullptr},
                {"shorter", [](R& r) { r.set_beat_interval_ms(99); }, "beat_interval_ms"},
                {"negative", [](R& r) { r.set_beat_interval_ms(-1); }, "beat_interval_ms"},
            });
}

TEST_CASE("validate: session", "[service]") {
  using R = pb::OpenSession;
  R good;
  good.set_client_id("c");
  CheckRows<OpenParams, R>(
      good,
      {
          {"no client", [](R& r) { r.clear_client_id(); }, "open.client_id"},
          {"too short a ttl", [](R& r) { r.set_ttl_ms(1); }, "open.ttl_ms"},
          {"a ttl is ignored on resume",
           [](R& r) {
             r.set_ttl_ms(1);
             r.set_resume_session_id("0123456789abcdef0123456789abcdef");
           },
           nullptr},
          {"no id", [](R& r) { r.set_resume_session_id("0123"); }, "open.resume_session_id"},
          {"upper case", [](R& r) { r.set_resume_session_id("0123456789ABCDEF0123456789abcdef"); },
           "open.resume_session_id"},
          {"the id of nobody", [](R& r) { r.set_resume_session_id(std::string(32, '0')); },
           "open.resume_session_id"},
          {"holder of 257", [](R& r) { r.set_holder(std::string(257, 'h')); }, "open.holder"},
      });
  using A = pb::SessionAcquire;
  A acquire;
  acquire.set_semaphore("a");
  CheckRows<AcquireParams, A>(
      acquire, {
                   {"no name", [](A& a) { a.clear_semaphore(); }, "semaphore"},
                   {"permits", [](A& a) { a.set_permits(1'000'001); }, "permits"},
                   {"limit", [](A& a) { a.set_limit(1'000'001); }, "limit"},
                   {"wait", [](A& a) { a.set_wait_ms(kDayMs + 1); }, "wait_ms"},
                   {"priority", [](A& a) { a.set_priority(1001); }, "priority"},
                   {"holder", [](A& a) { a.set_holder(std::string(257, 'h')); }, "holder"},
               });
}

TEST_CASE("validate: release, renew, verify", "[service]") {
  using R = pb::ReleaseRequest;
  R release;
  release.set_lease_id(kLeaseId);
  CheckRows<ReleaseCommand, R>(
      release,
      {
          {"no lease", [](R& r) { r.clear_lease_id(); }, "lease_id"},
          {"no hash", [](R& r) { r.set_lease_id(std::string(50, 'a')); }, "lease_id"},
          {"only the id", [](R& r) { r.set_lease_id(std::string(kLeaseId).substr(7)); },
           "lease_id"},
          {"a wrong digit", [](R& r) { r.mutable_lease_id()->back() = 'g'; }, "lease_id"},
          {"the claim of nobody", [](R& r) { r.set_lease_id("a#" + std::string(32, '0')); },
           "lease_id"},
          {"a wrong name", [](R& r) { r.set_lease_id("/" + std::string(kLeaseId)); }, "lease_id"},
          {"climbs", [](R& r) { r.set_lease_id("a/../" + std::string(kLeaseId)); }, "lease_id"},
          {"slots in any order",
           [](R& r) {
             Add(3, 4, &r);
             Add(1, 1, &r);
             Add(2, 2, &r);
           },
           nullptr},
          {"slot 0", [](R& r) { Add(0, 1, &r); }, "slots"},
          {"an empty range", [](R& r) { r.add_slots(); }, "slots"},
          {"a range that falls", [](R& r) { Add(3, 2, &r); }, "slots"},
          {"all that there can be", [](R& r) { Add(1, 1'000'000, &r); }, nullptr},
          {"more", [](R& r) { Add(1, 1'000'001, &r); }, "slots"},
          {"all numbers", [](R& r) { Add(1, UINT32_MAX, &r); }, "slots"},
          {"a slot twice",
           [](R& r) {
             Add(1, 3, &r);
             Add(3, 5, &r);
           },
           "slots"},
          {"a thousand ranges",
           [](R& r) {
             for (uint32_t slot = 1; slot < 2'000; slot += 2) Add(slot, slot, &r);
           },
           nullptr},
          {"one more",
           [](R& r) {
             for (uint32_t slot = 1; slot < 2'002; slot += 2) Add(slot, slot, &r);
           },
           "slots"},
          {"an id without a number",
           [](R& r) { r.mutable_request_id()->mutable_numbered()->set_client_id("c"); },
           "request_id.numbered.sequence"},
      });
  using N = pb::RenewRequest;
  N renew;
  renew.set_lease_id(kLeaseId);
  CheckRows<RenewParams, N>(renew, {{"no lease", [](N& r) { r.clear_lease_id(); }, "lease_id"}});
  using V = pb::VerifyRequest;
  V verify;
  verify.set_lease_id(kLeaseId);
  CheckRows<VerifyCommand, V>(verify, {
                                          {"neither", [](V& v) { v.clear_lease_id(); }, "lease_id"},
                                          {"both", [](V& v) { v.set_slot(1); }, "lease_id"},
                                      });
  V by_slot;
  by_slot.set_semaphore("a");
  by_slot.set_slot(1);
  by_slot.set_token(1);
  CheckRows<VerifyCommand, V>(by_slot,
                              {
                                  {"no slot", [](V& v) { v.clear_slot(); }, "slot"},
                                  {"no token", [](V& v) { v.clear_token(); }, "token"},
                                  {"no name", [](V& v) { v.clear_semaphore(); }, "semaphore"},
                              });
}

TEST_CASE("validate: administer", "[service]") {
  using R = pb::AdministerRequest;
  R good;
  good.set_semaphore("team/db");
  good.mutable_describe();
  CheckRows<AdminParams, R>(
      good,
      {
          {"nothing asked", [](R& r) { r.clear_act(); }, "act"},
          {"no name", [](R& r) { r.clear_semaphore(); }, "semaphore"},
          {"most rows", [](R& r) { r.mutable_describe()->set_page_size(10'000); }, nullptr},
          {"too many rows", [](R& r) { r.mutable_describe()->set_page_size(10'001); }, "page_size"},
          {"list with a name", [](R& r) { r.mutable_list(); }, "semaphore"},
          {"create without a limit", [](R& r) { r.mutable_create(); }, "create.limit"},
          {"create too high", [](R& r) { r.mutable_create()->set_limit(1'000'001); },
           "create.limit"},
          {"too short a hold",
           [](R& r) { r.mutable_configure()->mutable_settings()->set_longest_hold_ms(999); },
           "settings.longest_hold_ms"},
          {"no grace",
           [](R& r) { r.mutable_configure()->mutable_settings()->set_recall_grace_ms(0); },
           nullptr},
          {"too long a hold",
           [](R& r) { r.mutable_configure()->mutable_settings()->set_longest_hold_ms(UINT64_MAX); },
           "settings.longest_hold_ms"},
          {"too long a grace",
           [](R& r) { r.mutable_configure()->mutable_settings()->set_recall_grace_ms(kDayMs + 1); },
           "settings.recall_grace_ms"},
          {"resize without a change", [](R& r) { r.mutable_resize(); }, "resize"},
          {"resize to 0", [](R& r) { r.mutable_resize()->set_limit(0); }, nullptr},
          {"resize too high", [](R& r) { r.mutable_resize()->set_limit(1'000'001); },
           "resize.limit"},
          {"add too much", [](R& r) { r.mutable_resize()->set_add(1'000'001); }, "resize.add"},
          {"remove too much", [](R& r) { r.mutable_resize()->set_remove(1'000'001); },
           "resize.remove"},
          {"no such policy",
           [](R& r) {
             r.mutable_resize()->set_limit(1);
             r.mutable_resize()->set_policy(pb::ShrinkPolicy(9));
           },
           "resize.policy"},
          {"too long a grace",
           [](R& r) {
             r.mutable_resize()->set_limit(1);
             r.mutable_resize()->set_grace_ms(kDayMs + 1);
           },
           "resize.grace_ms"},
          {"destroy", [](R& r) { r.mutable_destroy(); }, nullptr},
          {"no such policy", [](R& r) { r.mutable_destroy()->set_policy(pb::DestroyPolicy(9)); },
           "destroy.policy"},
          {"too long a wait", [](R& r) { r.mutable_destroy()->set_wait_ms(kDayMs + 1); },
           "destroy.wait_ms"},
          {"too long a wait", [](R& r) { r.mutable_drain()->set_wait_ms(kDayMs + 1); },
           "drain.wait_ms"},
          {"revoke nobody", [](R& r) { r.mutable_revoke(); }, "revoke"},
          {"revoke twice",
           [](R& r) {
             r.mutable_revoke()->set_all(true);
             r.mutable_revoke()->set_holder("h");
           },
           "revoke"},
          {"revoke a lease", [](R& r) { r.mutable_revoke()->set_lease_id(kLeaseId); }, nullptr},
          {"of another semaphore",
           [](R& r) { r.mutable_revoke()->set_lease_id("x" + std::string(kLeaseId)); },
           "revoke.lease_id"},
          {"too long a grace",
           [](R& r) {
             r.mutable_revoke()->set_all(true);
             r.mutable_revoke()->set_grace_ms(kDayMs + 1);
           },
           "revoke.grace_ms"},
          {"a wrong row", [](R& r) { r.mutable_history()->set_page_token("0"); }, "page_token"},
          {"no row", [](R& r) { r.mutable_history()->set_page_token("7x"); }, "page_token"},
          {"the last row", [](R& r) { r.mutable_history()->set_page_token("9223372036854775807"); },
           nullptr},
          {"a row behind the last",
           [](R& r) { r.mutable_history()->set_page_token("9223372036854775808"); }, "page_token"},
          {"history", [](R& r) { r.mutable_history()->set_page_size(10'001); }, "page_size"},
          {"an id without a client",
           [](R& r) { r.mutable_request_id()->mutable_numbered()->set_sequence(1); },
           "request_id.numbered.client_id"},
      });
  R list;
  list.mutable_list();
  CheckRows<AdminParams, R>(
      list,
      {
          {"a prefix ends with /", [](R& r) { r.mutable_list()->set_prefix("a/"); }, nullptr},
          {"no name begins so", [](R& r) { r.mutable_list()->set_prefix("/a"); }, "list.prefix"},
          {"climbs", [](R& r) { r.mutable_list()->set_prefix("a/../"); }, "list.prefix"},
          {"a wrong place", [](R& r) { r.mutable_list()->set_page_token("a b"); }, "page_token"},
          {"too long", [](R& r) { r.mutable_list()->set_prefix(std::string(256, 'a')); },
           "list.prefix"},
      });
}

TEST_CASE("validate: watch", "[service]") {
  using R = pb::WatchRequest;
  CheckRows<WatchParams, R>(R(),
                            {
                                {"a prefix", [](R& r) { r.set_prefix("a/"); }, nullptr},
                                {"a name", [](R& r) { r.set_semaphore("a"); }, nullptr},
                                {"a wrong name", [](R& r) { r.set_semaphore("a/"); }, "semaphore"},
                                {"a wrong prefix", [](R& r) { r.set_prefix("#"); }, "prefix"},
                                {"climbs", [](R& r) { r.set_prefix("a/.."); }, "prefix"},
                                {"both",
                                 [](R& r) {
                                   r.set_semaphore("a");
                                   r.set_prefix("a");
                                 },
                                 "prefix"},
                            });
}

TEST_CASE("validate: enqueue", "[service]") {
  using R = pb::EnqueueRequest;
  constexpr char kTrace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  R good;
  good.set_semaphore("team/db");
  CheckRows<EnqueueCommand, R>(
      good,
      {
          {"no name", [](R& r) { r.clear_semaphore(); }, "semaphore"},
          {"a payload of 64 KiB", [](R& r) { r.set_payload(std::string(65'536, 'x')); }, nullptr},
          {"a larger one", [](R& r) { r.set_payload(std::string(65'537, 'x')); }, "payload"},
          {"a content type", [](R& r) { r.set_content_type("application/json"); }, nullptr},
          {"of 256 bytes", [](R& r) { r.set_content_type(std::string(256, 'a')); }, "content_type"},
          {"of another kind", [](R& r) { r.set_content_type("a\n"); }, "content_type"},
          {"limit too high", [](R& r) { r.set_limit(1'000'001); }, "limit"},
          {"no such mismatch", [](R& r) { r.set_limit_mismatch(pb::LimitMismatch(7)); },
           "limit_mismatch"},
          {"too high", [](R& r) { r.set_priority(1001); }, "priority"},
          {"a week", [](R& r) { r.set_delay_ms(7 * kDayMs); }, nullptr},
          {"longer", [](R& r) { r.set_delay_ms(7 * kDayMs + 1); }, "delay_ms"},
          {"no bound", [](R& r) { r.set_attempts_unbounded(true); }, nullptr},
          {"a bound and none",
           [](R& r) {
             r.set_attempts_unbounded(true);
             r.set_max_attempts(1);
           },
           "attempts_unbounded"},
          {"most attempts", [](R& r) { r.set_max_attempts(1000); }, nullptr},
          {"more", [](R& r) { r.set_max_attempts(1001); }, "max_attempts"},
          {"a long one", [](R& r) { r.mutable_back_off()->set_initial_ms(kDayMs); }, nullptr},
          {"a longer one", [](R& r) { r.mutable_back_off()->set_initial_ms(kDayMs + 1); },
           "back_off.initial_ms"},
          {"one that falls", [](R& r) { r.mutable_back_off()->set_multiplier_percent(99); },
           "back_off.multiplier_percent"},
          {"one that rises fast", [](R& r) { r.mutable_back_off()->set_multiplier_percent(1001); },
           "back_off.multiplier_percent"},
          {"the longest below the first", [](R& r) { r.mutable_back_off()->set_max_ms(999); },
           "back_off.max_ms"},
          {"a trace", [&](R& r) { r.set_traceparent(kTrace); }, nullptr},
          {"of a later version",
           [&](R& r) { r.set_traceparent("01" + std::string(kTrace + 2) + "-x"); }, nullptr},
          {"too long for its version", [&](R& r) { r.set_traceparent(std::string(kTrace) + "-x"); },
           "traceparent"},
          {"none", [](R& r) { r.set_traceparent("00-zz"); }, "traceparent"},
          {"an id without a number",
           [](R& r) { r.mutable_request_id()->mutable_numbered()->set_client_id("c"); },
           "request_id.numbered.sequence"},
      });
  EnqueueCommand out;
  R request = good;
  REQUIRE_FALSE(Check(request, RequestLimits{}, &out).has_value());
  CHECK(out.max_attempts == 5);
  CHECK(out.payload == nullptr);
  CHECK(out.back_off == BackOff{});
}

TEST_CASE("validate: work", "[service]") {
  using R = pb::OpenWork;
  R good;
  good.set_client_id("c");
  good.add_semaphores("a");
  CheckRows<OpenParams, R>(
      good, {
                {"no client", [](R& r) { r.clear_client_id(); }, "open.client_id"},
                {"nothing to do", [](R& r) { r.clear_semaphores(); }, "open.semaphores"},
                {"a prefix alone",
                 [](R& r) {
                   r.clear_semaphores();
                   r.add_prefixes("t/");
                 },
                 nullptr},
                {"all there are", [](R& r) { r.add_prefixes(""); }, nullptr},
                {"a wrong name", [](R& r) { r.add_semaphores("t/"); }, "open.semaphores[1]"},
                {"a wrong prefix", [](R& r) { r.add_prefixes("/"); }, "open.prefixes[0]"},
                {"climbs", [](R& r) { r.add_prefixes("a/../b"); }, "open.prefixes[0]"},
                {"too many",
                 [](R& r) {
                   for (int i = 0; i < 1000; ++i) r.add_semaphores("a");
                 },
                 "open.semaphores"},
                {"most hands", [](R& r) { r.set_tickets_max(1000); }, nullptr},
                {"more", [](R& r) { r.set_tickets_max(1001); }, "open.tickets_max"},
                {"too short a ttl", [](R& r) { r.set_ttl_ms(1); }, "open.ttl_ms"},
                {"no id", [](R& r) { r.set_resume_session_id("0123"); }, "open.resume_session_id"},
            });
}

TEST_CASE("validate: what has become of a ticket", "[service]") {
  using R = pb::FinishTicket;
  R good;
  good.set_lease_id(kLeaseId);
  good.mutable_done();
  CheckRows<FinishCommand, R>(
      good, {
                {"no lease", [](R& r) { r.clear_lease_id(); }, "lease_id"},
                {"no result", [](R& r) { r.clear_result(); }, "result"},
                {"failed", [](R& r) { r.mutable_failed()->set_reason("x"); }, nullptr},
                {"at once", [](R& r) { r.mutable_failed()->set_retry_after_ms(0); }, nullptr},
                {"before now", [](R& r) { r.mutable_failed()->set_retry_after_ms(-1); },
                 "failed.retry_after_ms"},
                {"in a day", [](R& r) { r.mutable_failed()->set_retry_after_ms(kDayMs); }, nullptr},
                {"later", [](R& r) { r.mutable_failed()->set_retry_after_ms(kDayMs + 1); },
                 "failed.retry_after_ms"},
                {"rejected", [](R& r) { r.mutable_rejected(); }, nullptr},
                {"put back", [](R& r) { r.mutable_put_back(); }, nullptr},
            });
}

TEST_CASE("validate: administration of tickets", "[service]") {
  using R = pb::AdministerRequest;
  constexpr char kTicket[] = "0123456789abcdef0123456789abcdef";
  R good;
  good.set_semaphore("a");
  good.mutable_list_tickets();
  CheckRows<AdminParams, R>(
      good,
      {
          {"a state", [](R& r) { r.mutable_list_tickets()->add_states(pb::TICKET_STATE_DEAD); },
           nullptr},
          {"no state",
           [](R& r) { r.mutable_list_tickets()->add_states(pb::TICKET_STATE_UNSPECIFIED); },
           "list_tickets.states"},
          {"too many rows", [](R& r) { r.mutable_list_tickets()->set_page_size(10'001); },
           "page_size"},
          {"show none", [](R& r) { r.mutable_show_ticket(); }, "show_ticket.ticket_id"},
          {"show", [&](R& r) { r.mutable_show_ticket()->set_ticket_id(kTicket); }, nullptr},
          {"cancel none", [](R& r) { r.mutable_cancel_ticket(); }, "cancel_ticket.ticket_id"},
          {"prioritise",
           [&](R& r) {
             r.mutable_prioritise_ticket()->set_ticket_id(kTicket);
             r.mutable_prioritise_ticket()->set_priority(1001);
           },
           "prioritise_ticket.priority"},
          {"requeue nothing", [](R& r) { r.mutable_requeue_tickets(); }, "requeue_tickets"},
          {"requeue all", [](R& r) { r.mutable_requeue_tickets()->set_all(true); }, nullptr},
          {"requeue one and all",
           [&](R& r) {
             r.mutable_requeue_tickets()->set_all(true);
             r.mutable_requeue_tickets()->set_ticket_id(kTicket);
           },
           "requeue_tickets"},
          {"purge what is none", [](R& r) { r.mutable_purge_tickets()->set_ticket_id("x"); },
           "purge_tickets.ticket_id"},
      });
}

TEST_CASE("lease ids are read as they are written", "[service]") {
  const Id id{0x0123456789abcdef, 0xfedcba9876543210};
  std::string text;
  AppendLeaseId("team/db", id, &text);
  CHECK(text == "team/db#0123456789abcdeffedcba9876543210");
  const auto name = ParseLeaseId(text);
  REQUIRE(name.has_value());
  CHECK(name->semaphore == "team/db");
  CHECK(name->claim == id);
}

TEST_CASE("times are rounded down", "[service]") {
  pb::LeaseValidity validity;
  ToProto(Vouch{5, 2}, std::chrono::microseconds(1999), &validity);
  CHECK(validity.elapsed_ms() == 1);
  CHECK(validity.valid_for_ms() == 5);
  CHECK(validity.epoch() == 2);
}

}  // namespace
}  // namespace semaphored
