#include "server/sessions/claim_book.h"

#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace semaphored {
namespace {

TEST_CASE("claim book: a claim of a session is in both, until it is removed", "[unit]") {
  ClaimBook book;
  SessionRecord session;
  session.id = Id{1, 1};
  ClaimRecord* claim = book.Add(Id{2, 1}, "a", &session);
  claim->tag = 7;
  session.by_tag[7] = claim->id;
  CHECK(book.Find(Id{2, 1}) == claim);
  CHECK(claim->owner() == session.id);
  CHECK(claim->owner_life() == &session.life);
  CHECK(session.claims.contains(Id{2, 1}));
  book.Remove(claim);
  CHECK(book.Find(Id{2, 1}) == nullptr);
  CHECK(session.claims.empty());
  CHECK(session.by_tag.empty());
}

TEST_CASE("claim book: a tag that leads to another claim stays", "[unit]") {
  ClaimBook book;
  SessionRecord session;
  ClaimRecord* claim = book.Add(Id{2, 1}, "a", &session);
  claim->tag = 7;
  session.by_tag[7] = Id{2, 2};
  book.Remove(claim);
  CHECK(session.by_tag.contains(7));
}

TEST_CASE("claim book: the id of a repeated request leads to the earlier claim", "[unit]") {
  ClaimBook book;
  ClaimRecord* asked = book.Add(Id{2, 1}, "a", nullptr);
  ClaimRecord* earlier = book.Add(Id{2, 2}, "a", nullptr);
  asked->leads_to = earlier->id;
  earlier->led_from = asked->id;
  CHECK(book.Find(Id{2, 1}) == earlier);
  CHECK(earlier->owner() == earlier->id);
  SECTION("it goes with it") { book.Remove(earlier); }
  SECTION("it goes alone") {
    book.RemoveLeadTo(earlier);
    CHECK(book.Find(Id{2, 2}) == earlier);
  }
  CHECK(book.Find(Id{2, 1}) == nullptr);
}

TEST_CASE("claim book: those of a semaphore come sorted, without those that lead elsewhere",
          "[unit]") {
  ClaimBook book;
  for (uint64_t i = 9; i > 0; --i) book.Add(Id{2, i}, i % 2 == 0 ? "even" : "odd", nullptr);
  book.Find(Id{2, 4})->leads_to = Id{2, 2};
  CHECK(book.At("even") == std::vector<Id>{{2, 2}, {2, 6}, {2, 8}});
  CHECK(book.At("none").empty());
}

}  // namespace
}  // namespace semaphored
